//! How a node is told its BGP peers: by annotations. Pure.
//!
//! Each configured format ([`Layout`]) is written from the same answer, all in one patch, so that nobody reads half of it. Which
//! annotations we wrote is written down beside them ([`NODE_ANNOTATED`]): names may be configured otherwise one day, or the feature
//! turned off, and then it must be known what is ours.
//!
//! A name without a number is written once, for all peers: addresses as a list, the rest as the one value that they share. Peers that
//! differ from the first in such a thing cannot be told by this format. They are left out of it, and named.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use groundplane_core::names::NODE_ANNOTATED;
use groundplane_proto::bgp::v1::{EnsureMachineResponse, Peer};
use serde_json::{Map, Value, json};

use crate::cluster::objects::{NodeObject, Pairs};
use crate::config::{Config, Field, Layout};

/// Annotations by their whole key.
pub(super) type Annotations = BTreeMap<String, String>;

/// The formats that are written.
#[derive(Clone, Debug)]
pub(super) struct Formats(Vec<Layout>);

/// What a node should say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) annotations: Annotations,
    /// Peers that some format cannot tell of.
    pub(super) untold: BTreeSet<String>,
}

impl Formats {
    /// As the configuration says.
    pub(super) fn of(config: &Config) -> Self {
        Self(config.layouts())
    }

    /// What the answer says, as annotations. No peers, no annotations: a reader may take what it finds for the whole.
    pub(super) fn wanted(&self, answer: &EnsureMachineResponse) -> Wanted {
        let mut peers: Vec<&Peer> = answer.peers.iter().collect();
        // As texts, as everybody else counts them; IPv4 first, since some readers take all but addresses from the first.
        peers.sort_by_key(|peer| (peer.peer_address.contains(':'), &peer.peer_address));
        let mut wanted = Wanted::default();
        if peers.is_empty() {
            return wanted;
        }
        for layout in &self.0 {
            tell(layout, &peers, &mut wanted);
            if let Some(name) = &layout.network
                && !answer.private_network.is_empty()
            {
                wanted
                    .annotations
                    .insert(name.of(0), answer.private_network.clone());
            }
        }
        wanted
    }

    /// The patch that makes the node say so; `None`: it does. An answer that is `complete` also takes away what it does not
    /// have; one that is not may lack what is yet to come.
    pub(super) fn patch(&self, node: &NodeObject, wanted: &Wanted, complete: bool) -> Option<Value> {
        let wanted = &wanted.annotations;
        let mut keys: BTreeSet<&str> = wanted.keys().map(String::as_str).collect();
        let recorded = recorded(&node.annotations);
        let mut changes: Map<String, Value> = wanted
            .iter()
            .filter(|(key, value)| node.annotations.get(key) != Some(value))
            .map(|(key, value)| (key.clone(), Value::String(value.clone())))
            .collect();
        if complete {
            let there = self.ours(&node.annotations).map(|(key, _)| key);
            let stale = there.filter(|key| *key != NODE_ANNOTATED && !wanted.contains_key(*key));
            changes.extend(stale.map(|key| (key.to_owned(), Value::Null)));
            // Of other formats. Whether they are there is not known: the cache keeps only what is read.
            let stale = recorded.iter().filter(|key| !wanted.contains_key(**key));
            changes.extend(stale.map(|key| ((*key).to_owned(), Value::Null)));
        } else {
            keys.extend(&recorded);
        }
        if keys != recorded {
            let keys: Vec<&str> = keys.into_iter().collect();
            let record = (!keys.is_empty()).then(|| keys.join(","));
            changes.insert(
                NODE_ANNOTATED.to_owned(),
                record.map_or(Value::Null, Value::String),
            );
        }
        patch_of(node, &changes)
    }

    /// The annotations of a node that are ours, by key.
    pub(super) fn ours<'a>(&'a self, annotations: &'a Pairs) -> impl Iterator<Item = (&'a str, &'a str)> {
        let names: Vec<_> = self.0.iter().flat_map(Layout::names).collect();
        let ours =
            move |key: &str| key == NODE_ANNOTATED || names.iter().any(|name| name.number_in(key).is_some());
        annotations.iter().filter(move |(key, _)| ours(key))
    }

    /// The peers that a node's annotations tell of, as we wrote them, by a format that tells all that there is to tell. None: they are
    /// asked for, then; what another controller wrote may be years old.
    pub(super) fn known_peers(&self, annotations: &Pairs) -> Vec<Peer> {
        let untouched = || {
            recorded(annotations)
                .into_iter()
                .all(|key| annotations.get(key).is_some())
        };
        let layout = self.0.iter().find(|layout| tells_all(layout));
        layout
            .filter(|_| annotations.get(NODE_ANNOTATED).is_some() && untouched())
            .and_then(|layout| peers(layout, annotations))
            .unwrap_or_default()
    }

    /// The private network that a node's annotations tell of; empty: none.
    pub(super) fn known_network(&self, annotations: &Pairs) -> String {
        let names = self.0.iter().filter_map(|layout| layout.network.as_ref());
        let mut told = names.filter_map(|name| annotations.get(&name.of(0)));
        told.next().unwrap_or_default().to_owned()
    }
}

/// The patch that takes back all that we wrote, and nothing else; `None`: we wrote nothing.
pub(super) fn taken_back(node: &NodeObject) -> Option<Value> {
    let recorded = recorded(&node.annotations);
    let keys = recorded.into_iter().chain([NODE_ANNOTATED]);
    let changes = keys.map(|key| (key.to_owned(), Value::Null)).collect();
    is_told(node).then(|| patch_of(node, &changes))?
}

/// Did we tell the node its peers?
pub(super) fn is_told(node: &NodeObject) -> bool {
    node.annotations.get(NODE_ANNOTATED).is_some()
}

/// A short stand-in for the annotations that a node should have or has: equal if they are.
pub(super) fn fingerprint<'a>(annotations: impl Iterator<Item = (&'a str, &'a str)>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for pair in annotations {
        pair.hash(&mut hasher);
    }
    hasher.finish()
}

/// Whoever writes other annotations meanwhile keeps them: only ours are named, and no version.
fn patch_of(node: &NodeObject, changes: &Map<String, Value>) -> Option<Value> {
    (!changes.is_empty()).then(|| json!({ "metadata": { "uid": node.uid, "annotations": changes } }))
}

/// The keys that we wrote. What somebody made of the record that is no key of an annotation is left out: the API server would
/// refuse the whole patch.
fn recorded(annotations: &Pairs) -> BTreeSet<&str> {
    let record = annotations.get(NODE_ANNOTATED).unwrap_or_default();
    let is_key = |key: &&str| {
        let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
        !key.is_empty() && *key != NODE_ANNOTATED && key.bytes().all(fine)
    };
    record.split(',').map(str::trim).filter(is_key).collect()
}

/// Writes the peers as this format has them.
fn tell(layout: &Layout, peers: &[&Peer], wanted: &mut Wanted) {
    let Some(first) = peers.first() else {
        return;
    };
    let shared: Vec<Field> = layout
        .fields
        .iter()
        .filter(|(field, name)| !name.is_numbered() && !is_list(layout, *field))
        .map(|(field, _)| *field)
        .collect();
    let (told, untold): (Vec<&Peer>, Vec<&Peer>) = peers.iter().partition(|peer| {
        let same = |field: &Field| value(peer, *field) == value(first, *field);
        shared.iter().all(same)
    });
    wanted
        .untold
        .extend(untold.into_iter().map(|peer| peer.peer_address.clone()));
    for (field, name) in &layout.fields {
        if name.is_numbered() {
            for (n, peer) in (0..).zip(&told) {
                wanted
                    .annotations
                    .extend(value(peer, *field).map(|value| (name.of(n), value)));
            }
        } else {
            let mut values: Vec<String> = told.iter().filter_map(|peer| value(peer, *field)).collect();
            if *field != Field::PeerIp && values.iter().all(|other| *other == values[0]) {
                values.truncate(1);
            }
            if !values.is_empty() {
                wanted.annotations.insert(name.of(0), values.join(","));
            }
        }
    }
}

/// Is it a list, where it has no number?
fn is_list(layout: &Layout, field: Field) -> bool {
    field == Field::PeerIp || (field == Field::PeerAsn && layout.lists_asns)
}

/// As it is written; `None`: it is not.
fn value(peer: &Peer, field: Field) -> Option<String> {
    Some(match field {
        Field::LocalAsn => peer.local_asn.to_string(),
        Field::PeerAsn => peer.peer_asn.to_string(),
        Field::PeerIp => peer.peer_address.clone(),
        Field::SourceIp => peer.source_address.clone(),
        Field::Password if peer.password.is_empty() => String::new(),
        Field::Password => BASE64.encode(&peer.password),
        Field::Multihop => return peer.multihop.then(|| "true".to_owned()),
    })
}

/// Can all that is known of peers be read back? Where passwords or distance are not told, all peers have the same.
fn tells_all(layout: &Layout) -> bool {
    let all = [Field::LocalAsn, Field::PeerAsn, Field::PeerIp, Field::SourceIp];
    all.into_iter().all(|field| layout.name(field).is_some())
        && (layout.name(Field::Password).is_some() || layout.no_passwords)
        && (layout.name(Field::Multihop).is_some() || layout.all_multihop)
        && layout.fields.iter().all(|(_, name)| name.is_numbered())
}

/// `None`: not all of them are whole.
fn peers(layout: &Layout, annotations: &Pairs) -> Option<Vec<Peer>> {
    let addresses = layout.name(Field::PeerIp)?;
    let keys = annotations.iter().map(|(key, _)| key);
    let numbers: BTreeSet<u32> = keys.filter_map(|key| addresses.number_in(key)).collect();
    numbers
        .into_iter()
        .map(|n| peer(layout, n, annotations))
        .collect()
}

/// The peer of this number; `None`: it is not whole.
fn peer(layout: &Layout, n: u32, annotations: &Pairs) -> Option<Peer> {
    let get = |field| annotations.get(&layout.name(field)?.of(n));
    let address: IpAddr = get(Field::PeerIp)?.parse().ok()?;
    let password = BASE64.decode(get(Field::Password).unwrap_or_default()).ok()?;
    Some(Peer {
        peer_address: address.to_string(),
        peer_asn: get(Field::PeerAsn)?.parse().ok()?,
        local_asn: get(Field::LocalAsn)?.parse().ok()?,
        source_address: get(Field::SourceIp).unwrap_or_default().to_owned(),
        password: String::from_utf8(password).ok()?,
        multihop: layout.all_multihop || get(Field::Multihop) == Some("true"),
        ..Peer::default()
    })
}

#[cfg(test)]
mod tests;
