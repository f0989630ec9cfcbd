//! What is refused in a round of writes, and what the rest of it has to leave alone for that: pure.
//!
//! Peers and Secrets are refused one by one (a webhook, or a role, objects to one of them), and stop nobody else. What builds upon a
//! refused one is left as it stands: a peer whose Secret is not there, the old peer of a neighbour whose new one does not come.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::announcers::Trouble;
use crate::announcers::metallb::coverage::any_selects;
use crate::announcers::metallb::peers::speak_of_one;
use crate::announcers::metallb::resources::{Change, Kind, Present};
use crate::announcers::metallb::world::World;
use crate::cluster::WriteError;

/// What was refused so far, and what is left of the peers.
#[derive(Debug)]
pub(super) struct Refusals<'a> {
    changes: &'a [Change],
    present: &'a Present,
    /// What peers say that are as they should be, by name.
    standing: BTreeMap<&'a str, &'a Value>,
    /// Names of peers that are not as they should be.
    lost: BTreeSet<&'a str>,
    /// What peers say that should be gone: two sessions to one neighbour would fight.
    left: Vec<&'a Value>,
    /// The first of them: the others may follow from it.
    first: Option<Trouble>,
}

/// Does it concern this object alone, so that others can be written?
pub(super) fn is_of_one(change: &Change, error: &WriteError) -> bool {
    matches!(change.object().0, Kind::Peer | Kind::Secret)
        && (is_taken(change, error) || matches!(error, WriteError::Refused(_) | WriteError::Denied(_)))
}

/// Is there a Secret already where ours should be? Of Secrets only ours are listed, so that it is the user's, or, until the next list, of
/// whoever led before.
pub(super) fn is_taken(change: &Change, error: &WriteError) -> bool {
    let creates = matches!(
        change,
        Change::Apply {
            kind: Kind::Secret,
            read: None,
            ..
        }
    );
    creates && matches!(error, WriteError::Conflict(_))
}

impl<'a> Refusals<'a> {
    pub(super) fn new(changes: &'a [Change], present: &'a Present) -> Self {
        let peers = present.peers.iter();
        Self {
            changes,
            present,
            standing: peers.map(|peer| (&*peer.name, &peer.spec)).collect(),
            lost: BTreeSet::new(),
            left: Vec::new(),
            first: None,
        }
    }

    /// Is it to be left alone, for what was refused before it?
    pub(super) fn bars(&self, change: &'a Change) -> bool {
        let (kind, name) = change.object();
        let says = self.says(change);
        match (kind, change) {
            (Kind::Peer, Change::Delete { .. }) => {
                let mut heirs = self
                    .changes
                    .iter()
                    .filter(|heir| is_peer_write(heir) && self.lost.contains(heir.object().1));
                heirs.any(|heir| speak_of_one(self.says(heir), says))
            }
            (Kind::Peer, _) => {
                self.lost.contains(name) || self.left.iter().any(|left| speak_of_one(left, says))
            }
            // The Secret of a peer that stays as it is.
            (Kind::Secret, Change::Delete { .. }) => {
                let named = |left: &&Value| left["passwordSecret"]["name"] == *name;
                self.lost.contains(name) || self.left.iter().any(named)
            }
            _ => false,
        }
    }

    /// It was written.
    pub(super) fn written(&mut self, change: &'a Change) {
        let (kind, name) = change.object();
        match (kind, change) {
            (Kind::Peer, Change::Delete { .. }) => {
                self.standing.remove(name);
            }
            (Kind::Peer, _) => {
                self.standing.insert(name, self.says(change));
            }
            _ => {}
        }
    }

    /// It was refused.
    pub(super) fn refused(&mut self, change: &'a Change, trouble: Trouble) {
        self.first.get_or_insert(trouble);
        self.unwritten(change);
    }

    /// It was not written.
    pub(super) fn unwritten(&mut self, change: &'a Change) {
        let (kind, name) = change.object();
        match (kind, change) {
            (Kind::Peer, Change::Delete { .. }) => self.left.push(self.says(change)),
            (Kind::Peer, _) | (Kind::Secret, Change::Apply { .. }) => {
                self.standing.remove(name);
                self.lost.insert(name);
            }
            _ => {}
        }
    }

    /// The first refusal, and whether nobody is left to announce what is new: not one peer of any node.
    pub(super) fn end(self, world: &World) -> Option<(Trouble, bool)> {
        let speaks = |spec: &&Value| {
            let mut nodes = world.nodes.values();
            nodes.any(|node| any_selects(&spec["nodeSelectors"], &node.labels))
        };
        let stranded = !self.lost.is_empty() && !self.standing.values().any(speaks);
        self.first.map(|first| (first, stranded))
    }

    /// What a peer says, or will. One that is patched keeps its node and its neighbour.
    fn says(&self, change: &'a Change) -> &'a Value {
        if let Change::Apply { spec, .. } = change {
            return spec;
        }
        let name = change.object().1;
        let peer = self.present.peers.iter().find(|peer| peer.name == name);
        peer.map_or(&Value::Null, |peer| &peer.spec)
    }
}

fn is_peer_write(change: &Change) -> bool {
    change.object().0 == Kind::Peer && !matches!(change, Change::Delete { .. })
}
