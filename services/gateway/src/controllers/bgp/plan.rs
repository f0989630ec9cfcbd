//! How a node is told its BGP peers: by annotations. Pure.
//!
//! `<prefix>/bgp-peers-<n>-{node-asn,peer-asn,peer-ip,src-ip,bgp-pass}`, where n counts the peers by address, and
//! `<prefix>/network-4-private`. kube-vip and others read them so.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use groundplane_core::names::{BGP_PEERS, PRIVATE_NETWORK};
use groundplane_proto::bgp::v1::{EnsureMachineResponse, Peer};
use serde_json::{Map, Value, json};

use crate::cluster::objects::{NodeObject, Pairs};

/// Behind `bgp-peers-<n>-`: what is written of each peer. Other keys there are not ours.
const FIELDS: [&str; 5] = ["node-asn", "peer-asn", "peer-ip", "src-ip", "bgp-pass"];

/// Annotations by their whole key.
pub(super) type Annotations = BTreeMap<String, String>;

/// What the answer says, as annotations.
pub(super) fn wanted(prefix: &str, answer: &EnsureMachineResponse) -> Annotations {
    let mut peers: Vec<&Peer> = answer.peers.iter().collect();
    // Lexically, as everybody else counts them. A node has its numbers forever.
    peers.sort_by(|a, b| a.peer_address.cmp(&b.peer_address));
    let mut wanted = Annotations::new();
    for (n, peer) in peers.into_iter().enumerate() {
        let password = if peer.password.is_empty() {
            String::new()
        } else {
            BASE64.encode(&peer.password)
        };
        let values = [
            peer.local_asn.to_string(),
            peer.peer_asn.to_string(),
            peer.peer_address.clone(),
            peer.source_address.clone(),
            password,
        ];
        for (field, value) in FIELDS.into_iter().zip(values) {
            wanted.insert(format!("{prefix}/{BGP_PEERS}{n}-{field}"), value);
        }
    }
    if !answer.private_network.is_empty() {
        wanted.insert(
            format!("{prefix}/{PRIVATE_NETWORK}"),
            answer.private_network.clone(),
        );
    }
    wanted
}

/// The patch that makes the node say so; `None`: it does. An answer that is `complete` also takes away what it does not
/// have; one that is not may lack what is yet to come.
pub(super) fn patch(node: &NodeObject, prefix: &str, wanted: &Annotations, complete: bool) -> Option<Value> {
    let mut changes: Map<String, Value> = wanted
        .iter()
        .filter(|(key, value)| node.annotations.get(key) != Some(value))
        .map(|(key, value)| (key.clone(), Value::String(value.clone())))
        .collect();
    if complete {
        let stale = ours(&node.annotations, prefix).filter(|(key, _)| !wanted.contains_key(*key));
        changes.extend(stale.map(|(key, _)| (key.to_owned(), Value::Null)));
    }
    (!changes.is_empty()).then(|| json!({ "metadata": { "uid": node.uid, "annotations": changes } }))
}

/// A short stand-in for the annotations that a node should have or has: equal if they are.
pub(super) fn fingerprint<'a>(annotations: impl Iterator<Item = (&'a str, &'a str)>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for pair in annotations {
        pair.hash(&mut hasher);
    }
    hasher.finish()
}

/// The annotations of a node that are ours, by key.
pub(super) fn ours<'a>(annotations: &'a Pairs, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    annotations.iter().filter(move |(key, _)| {
        local(key, prefix).is_some_and(|name| name == PRIVATE_NETWORK || numbered(name).is_some())
    })
}

/// The peers that a node's annotations tell of. One that is not whole is left out: it is asked for, then.
pub(super) fn known_peers(annotations: &Pairs, prefix: &str) -> Vec<Peer> {
    let mut peers: BTreeMap<u32, BTreeMap<&str, &str>> = BTreeMap::new();
    for (key, value) in annotations.iter() {
        if let Some((n, field)) = local(key, prefix).and_then(numbered) {
            peers.entry(n).or_default().insert(field, value);
        }
    }
    peers.values().filter_map(peer).collect()
}

/// The private network that a node's annotations tell of; empty: none.
pub(super) fn known_network(annotations: &Pairs, prefix: &str) -> String {
    annotations
        .get(&format!("{prefix}/{PRIVATE_NETWORK}"))
        .unwrap_or_default()
        .to_owned()
}

fn peer(fields: &BTreeMap<&str, &str>) -> Option<Peer> {
    let get = |field| fields.get(field).copied();
    let address: IpAddr = get("peer-ip")?.parse().ok()?;
    let password = BASE64.decode(get("bgp-pass").unwrap_or_default()).ok()?;
    Some(Peer {
        peer_address: address.to_string(),
        peer_asn: get("peer-asn")?.parse().ok()?,
        local_asn: get("node-asn")?.parse().ok()?,
        source_address: get("src-ip").unwrap_or_default().to_owned(),
        password: String::from_utf8(password).ok()?,
        ..Peer::default()
    })
}

fn local<'a>(key: &'a str, prefix: &str) -> Option<&'a str> {
    key.strip_prefix(prefix)?.strip_prefix('/')
}

/// Number and field of `bgp-peers-<n>-<field>`.
fn numbered(name: &str) -> Option<(u32, &str)> {
    let (n, field) = name.strip_prefix(BGP_PEERS)?.split_once('-')?;
    let n = n.parse().ok()?;
    FIELDS.contains(&field).then_some((n, field))
}

#[cfg(test)]
mod tests;
