//! From what there should be and what there is to a minimal list of writes to MetalLB's custom resources: pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::Value;

use super::world::{Settings, World};
use super::{LEGACY_LABEL, MANAGED_BY, advertisement, peers, pools};

/// The kinds that we write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Pool,
    Peer,
    BgpAdvertisement,
    L2Advertisement,
    Secret,
}

/// Which version of `BGPPeer` the API server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerVersion {
    /// Knows passwords only in clear.
    V1Beta1,
    V1Beta2,
}

/// An object as it was read.
#[derive(Clone, PartialEq)]
pub(crate) struct Object {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) version: String,
    pub(crate) labels: BTreeMap<String, String>,
    /// Its `spec`; of a Secret, its `data`.
    pub(crate) spec: Value,
}

impl std::fmt::Debug for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // What it says may be a password.
        f.debug_struct("Object")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Which object was read, and which version of it: a write of it happens only if it is still that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) uid: String,
    pub(crate) version: String,
}

/// Whose an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Us,
    /// The older controller's, and so ours now.
    Legacy,
    User,
}

impl Object {
    /// Whose it is, by its labels.
    pub(crate) fn owner(&self) -> Owner {
        if self.has(MANAGED_BY) {
            // An object that was taken over carries both.
            if self.has(LEGACY_LABEL) {
                Owner::Legacy
            } else {
                Owner::Us
            }
        } else if self.has(LEGACY_LABEL) {
            Owner::Legacy
        } else {
            Owner::User
        }
    }

    /// Does it carry this label?
    pub(crate) fn has(&self, (key, value): (&str, &str)) -> bool {
        self.labels.get(key).is_some_and(|found| found == value)
    }

    /// What a write of it insists on.
    pub(crate) fn read(&self) -> Read {
        Read {
            uid: self.uid.clone(),
            version: self.version.clone(),
        }
    }

    /// Its deletion, as it was read.
    pub(crate) fn delete(&self, kind: Kind) -> Change {
        Change::Delete {
            kind,
            name: self.name.clone(),
            read: self.read(),
        }
    }

    /// A change of parts of it, as it was read.
    pub(crate) fn patch(&self, kind: Kind, patch: Value) -> Change {
        Change::Patch {
            kind,
            name: self.name.clone(),
            read: self.read(),
            patch,
        }
    }
}

/// What there is.
#[derive(Clone, Debug)]
pub(crate) struct Present {
    pub(crate) pools: Vec<Object>,
    pub(crate) peers: Vec<Object>,
    pub(crate) bgp_advertisements: Vec<Object>,
    pub(crate) l2_advertisements: Vec<Object>,
    /// Only ours.
    pub(crate) secrets: Vec<Object>,
    pub(crate) peer_version: PeerVersion,
}

/// A write.
#[derive(Clone, PartialEq)]
pub(crate) enum Change {
    /// The object shall be this, and ours. One that was not there is created, and refused if somebody else was faster: what they have
    /// made is theirs. One of ours is changed, if it is still as it was read: a write that comes through late undoes nothing.
    Apply {
        kind: Kind,
        name: String,
        /// `None`: there was none.
        read: Option<Read>,
        /// Its `spec`; of a Secret, its `data`.
        spec: Value,
    },
    /// Parts of an object that we took over shall be this: a merge patch, if it is still as it was read.
    Patch {
        kind: Kind,
        name: String,
        read: Read,
        patch: Value,
    },
    /// The object shall not be, if it is still as it was read.
    Delete { kind: Kind, name: String, read: Read },
}

impl Change {
    /// Is it of an object that was there when it was read?
    pub(crate) fn is_of_read(&self) -> bool {
        !matches!(self, Self::Apply { read: None, .. })
    }

    /// What it is about, for logs.
    pub(crate) fn object(&self) -> (Kind, &str) {
        match self {
            Self::Apply { kind, name, .. }
            | Self::Patch { kind, name, .. }
            | Self::Delete { kind, name, .. } => (*kind, name),
        }
    }
}

impl std::fmt::Debug for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let verb = match self {
            Self::Apply { .. } => "apply",
            Self::Patch { .. } => "patch",
            Self::Delete { .. } => "delete",
        };
        let (kind, name) = self.object();
        write!(f, "{verb} {kind:?} {name}")
    }
}

/// What has to be done, and what is true once it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// In their order: each can be done once those before it are.
    pub(crate) changes: Vec<Change>,
    /// Addresses that some pool covers then.
    pub(crate) placed: BTreeSet<IpAddr>,
    /// Why nobody announces what is new, for people.
    pub(crate) unannounced: Option<String>,
    /// What cannot be said, or is left beside ours, for people.
    pub(crate) notes: Vec<String>,
}

/// Plans.
pub(crate) fn plan(world: &World, present: &Present, settings: &Settings) -> Plan {
    let pools = pools::plan(world, &present.pools);
    // While a pool of ours is left, somebody may still be announced by it.
    let active = world.awaited || !world.services.is_empty() || !pools.ours.is_empty();
    let peers = peers::plan(world, present, settings, active);
    let adverts = advertisement::plan(world, present, settings, active);
    let changes = [
        peers.secrets,
        peers.before,
        peers.written,
        pools.shrink,
        pools.grow,
        adverts.changes,
        peers.after,
    ]
    .concat();
    Plan {
        changes,
        placed: pools.placed,
        unannounced: adverts.unannounced,
        notes: peers.notes.into_iter().chain(adverts.note).collect(),
    }
}

/// A name that no object has: `wanted`, or one made of it.
pub(crate) fn free_name(wanted: &str, taken: impl Fn(&str) -> bool) -> String {
    let valid = is_object_name(wanted);
    if valid && !taken(wanted) {
        return wanted.to_owned();
    }
    let stem: String = wanted
        .chars()
        .map(|c| c.to_ascii_lowercase())
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .take(LONGEST_NAME - 20)
        .collect();
    let stem = stem.trim_matches('-');
    // One more than could be taken by chance.
    (0..=u64::from(u32::MAX))
        .map(|salt| format!("{stem}-{:08x}", hash(wanted, salt)))
        .map(|name| name.trim_start_matches('-').to_owned())
        .find(|name| !taken(name))
        .unwrap_or_default()
}

/// Names of objects are DNS subdomains, no longer than this.
const LONGEST_NAME: usize = 253;

fn is_object_name(name: &str) -> bool {
    let word = |word: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !word.is_empty() && word.chars().all(inner) && !word.starts_with('-') && !word.ends_with('-')
    };
    name.len() <= LONGEST_NAME && name.split('.').all(word)
}

fn hash(text: &str, salt: u64) -> u32 {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    (text, salt).hash(&mut hasher);
    u32::try_from(hasher.finish() & u64::from(u32::MAX)).unwrap_or_default()
}

#[cfg(test)]
pub(in crate::announcers::metallb) mod tests;
