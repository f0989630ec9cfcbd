//! `BGPPeer` objects, and the Secrets with their passwords: pure.
//!
//! An object is known by what it says (which node, which neighbour) and not by its name, so that those of the older controller are
//! found. One that says the same already is left alone, to the letter: MetalLB ends the session of a peer that changes in any way.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::HOSTNAME;
use super::coverage::any_selects;
use super::resources::{Change, Kind, Object, Owner, PeerVersion, Present, free_name};
use super::world::{Node, Peer, Peers, Settings, World};
use crate::config::PeerMode;

/// MetalLB's default, and the port of an object that says 0.
const BGP_PORT: u16 = 179;

/// What has to be done to the peers.
#[derive(Debug, Default)]
pub(super) struct PeerPlan {
    pub(super) secrets: Vec<Change>,
    /// Gone before others come: two sessions to one neighbour would fight.
    pub(super) before: Vec<Change>,
    pub(super) written: Vec<Change>,
    /// Gone when nothing needs them any more.
    pub(super) after: Vec<Change>,
    pub(super) notes: Vec<String>,
}

/// A peer, and the nodes that have it.
#[derive(Clone, Debug)]
struct Wanted {
    peer: Peer,
    /// Host names.
    nodes: BTreeSet<String>,
    /// What it would like to be called.
    name: String,
    /// Is it one for many nodes?
    group: bool,
}

pub(super) fn plan(world: &World, present: &Present, settings: &Settings, active: bool) -> PeerPlan {
    let wanted = if active && settings.writes_peers() {
        match settings.peer_mode {
            PeerMode::Frr => grouped(world, present),
            PeerMode::Native | PeerMode::None => each(world, present),
        }
    } else {
        Vec::new()
    };
    let mut plan = PeerPlan::default();
    let mut used = BTreeSet::new();
    let mut names: BTreeSet<String> = present.peers.iter().map(|object| object.name.clone()).collect();
    let mut secrets = BTreeMap::new();
    for wanted in wanted {
        if !wanted.peer.password.is_empty() && present.peer_version == PeerVersion::V1Beta1 {
            plan.notes.push(format!(
                "the peer {} of {} has a password, which this MetalLB could only be told in clear: update it to one with BGPPeer v1beta2",
                wanted.peer.address,
                wanted.nodes.iter().next().map_or("no node", String::as_str),
            ));
            // What is there for it stays.
            used.extend(find(&wanted, present, &used).map(|object| object.name.clone()));
            continue;
        }
        let found = find(&wanted, present, &used);
        let name = if let Some(object) = found {
            used.insert(object.name.clone());
            object.name.clone()
        } else {
            let name = free_name(&wanted.name, |name| names.contains(name));
            names.insert(name.clone());
            name
        };
        let spec = spec(&wanted, &name, settings);
        let change = match found {
            Some(object) if object.owner() == Owner::Legacy => adopt(object, &wanted.peer, &spec),
            Some(object) if says(&object.spec, &spec) => None,
            _ => Some(Change::Apply {
                kind: Kind::Peer,
                name: name.clone(),
                read: found.map(Object::read),
                spec,
            }),
        };
        let by_secret = match (&change, found) {
            (None, Some(object)) => object.spec["passwordSecret"]["name"] == *name,
            _ => true,
        };
        if !wanted.peer.password.is_empty() && by_secret {
            secrets.insert(name, wanted.peer.password);
        }
        plan.written.extend(change);
    }
    let gone =
        |object: &&Object| !used.contains(&object.name) && is_over(object, world, present, settings, active);
    let gone: Vec<&Object> = present.peers.iter().filter(gone).collect();
    let deletes = gone.iter().map(|object| object.delete(Kind::Peer)).collect();
    if active {
        plan.before = deletes;
    } else {
        plan.after = deletes;
    }
    keep_secrets(&mut plan, present, &secrets, &gone);
    plan
}

/// One for each peer of each node, where the user has none for it. Sessions between IPv6 addresses carry nothing in native mode, which
/// speaks IPv4 alone.
fn each(world: &World, present: &Present) -> Vec<Wanted> {
    let mut wanted = Vec::new();
    for (name, node) in &world.nodes {
        for (n, peer) in sorted(node.peers.known()).into_iter().enumerate() {
            if peer.address.is_ipv4() && !is_users(peer, node, present) {
                wanted.push(Wanted {
                    peer: peer.clone(),
                    nodes: [node.hostname.clone()].into(),
                    name: format!("{name}-{n}"),
                    group: false,
                });
            }
        }
    }
    wanted
}

/// One for each peer that nodes have in common. Which address a node speaks from is left to its routes where nodes differ: one
/// object can name only one.
fn grouped(world: &World, present: &Present) -> Vec<Wanted> {
    let mut groups: BTreeMap<Peer, (BTreeSet<String>, BTreeSet<Option<IpAddr>>)> = BTreeMap::new();
    for node in world.nodes.values() {
        for peer in node.peers.known() {
            if !is_users(peer, node, present) {
                let common = Peer {
                    source: None,
                    ..peer.clone()
                };
                let (nodes, sources) = groups.entry(common).or_default();
                nodes.insert(node.hostname.clone());
                sources.insert(peer.source);
            }
        }
    }
    let mut wanted: Vec<Wanted> = Vec::new();
    for (common, (nodes, sources)) in groups {
        let source = match sources.first() {
            Some(source) if sources.len() == 1 => *source,
            _ => None,
        };
        let address = common.address.to_string().replace([':', '.'], "-");
        wanted.push(Wanted {
            peer: Peer { source, ..common },
            nodes,
            name: format!("groundplane-{address}"),
            group: true,
        });
    }
    // Nodes of which nobody knows stay where they are.
    let unknown = |hostname: &str| {
        let node = world.nodes.values().find(|node| node.hostname == hostname);
        node.map_or(!world.complete, |node| !matches!(node.peers, Peers::Exactly(_)))
    };
    let mut used = BTreeSet::new();
    for index in 0..wanted.len() {
        let Some(object) = find(&wanted[index], present, &used) else {
            continue;
        };
        used.insert(object.name.clone());
        let elsewhere: BTreeSet<String> = wanted
            .iter()
            .filter(|other| other.peer.address == wanted[index].peer.address)
            .flat_map(|other| other.nodes.clone())
            .collect();
        let more = hosts(&object.spec)
            .into_iter()
            .filter(|host| unknown(host) && !elsewhere.contains(host));
        let more: Vec<String> = more.collect();
        wanted[index].nodes.extend(more);
    }
    wanted
}

fn sorted(peers: &[Peer]) -> Vec<&Peer> {
    let mut peers: Vec<&Peer> = peers.iter().collect();
    // Lexically, as in the annotations of nodes.
    peers.sort_by_key(|peer| peer.address.to_string());
    peers
}

/// Does the user have a peer for this one?
fn is_users(peer: &Peer, node: &Node, present: &Present) -> bool {
    present.peers.iter().any(|object| {
        is_theirs(object)
            && address(&object.spec) == Some(peer.address)
            && any_selects(&object.spec["nodeSelectors"], &node.labels)
    })
}

/// Is the object the user's, or a group of the older controller's, which is not ours to take apart?
fn is_theirs(object: &Object) -> bool {
    match object.owner() {
        Owner::User => true,
        Owner::Legacy => hosts(&object.spec).is_empty(),
        Owner::Us => false,
    }
}

/// The object that stands for a peer.
fn find<'a>(wanted: &Wanted, present: &'a Present, used: &BTreeSet<String>) -> Option<&'a Object> {
    let candidates = || {
        present.peers.iter().filter(|object| {
            !is_theirs(object)
                && !used.contains(&object.name)
                && address(&object.spec) == Some(wanted.peer.address)
        })
    };
    let same_session = |object: &&Object| {
        object.spec["myASN"] == wanted.peer.my_asn && object.spec["peerASN"] == wanted.peer.peer_asn
    };
    let fits = |object: &&Object| {
        if wanted.group {
            object.owner() == Owner::Us && is_group(object)
        } else {
            !is_group(object) && hosts(&object.spec) == wanted.nodes
        }
    };
    candidates()
        .find(|object| fits(object) && same_session(object))
        .or_else(|| candidates().find(fits))
}

/// Does the object stand for many nodes?
fn is_group(object: &Object) -> bool {
    let selectors = object.spec["nodeSelectors"].as_array();
    selectors
        .into_iter()
        .flatten()
        .any(|selector| selector["matchExpressions"].is_array())
}

/// Is an object that nothing wants over?
fn is_over(object: &Object, world: &World, present: &Present, settings: &Settings, active: bool) -> bool {
    if is_theirs(object) {
        return false;
    }
    let hosts = hosts(&object.spec);
    let known = |host: &String| world.nodes.values().find(|node| node.hostname == *host);
    if !active || !settings.writes_peers() {
        // Without peers of our own, what the older controller wrote is the user's now.
        return world.complete && (!active || object.owner() == Owner::Us);
    }
    let users = |node: &Node| {
        let address = address(&object.spec);
        let theirs = present.peers.iter().filter(|other| is_theirs(other));
        theirs
            .filter(|other| super::peers::address(&other.spec) == address)
            .any(|other| any_selects(&other.spec["nodeSelectors"], &node.labels))
    };
    // A group, or what is left of another mode: its peers stand in other objects now.
    let misplaced = is_group(object) != (settings.peer_mode == PeerMode::Frr);
    hosts.iter().all(|host| match known(host) {
        None => world.complete,
        Some(node) if users(node) => true,
        Some(node) => match &node.peers {
            Peers::Exactly(_) => true,
            Peers::AtLeast(peers) => misplaced && has(peers, object),
            Peers::Unknown => false,
        },
    })
}

fn has(peers: &[Peer], object: &Object) -> bool {
    peers
        .iter()
        .any(|peer| Some(peer.address) == address(&object.spec))
}

fn address(spec: &Value) -> Option<IpAddr> {
    spec["peerAddress"].as_str()?.parse().ok()
}

/// Do two peers name one neighbour of one node?
pub(crate) fn speak_of_one(one: &Value, other: &Value) -> bool {
    address(one).is_some() && address(one) == address(other) && !hosts(one).is_disjoint(&hosts(other))
}

/// The host names that a peer selects.
/// Is the peer for certain nodes by their host names, as the older controllers wrote theirs? All others are a person's, whatever label
/// they have.
pub(crate) fn selects_hosts(spec: &Value) -> bool {
    !hosts(spec).is_empty()
}

fn hosts(spec: &Value) -> BTreeSet<String> {
    let mut hosts = BTreeSet::new();
    for selector in spec["nodeSelectors"].as_array().into_iter().flatten() {
        hosts.extend(selector["matchLabels"][HOSTNAME].as_str().map(str::to_owned));
        for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
            if expression["key"] == HOSTNAME && expression["operator"] == "In" {
                let values = expression["values"].as_array().into_iter().flatten();
                hosts.extend(values.filter_map(Value::as_str).map(str::to_owned));
            }
        }
    }
    hosts
}

fn spec(wanted: &Wanted, name: &str, settings: &Settings) -> Value {
    let Wanted { peer, nodes, .. } = wanted;
    let selector = if wanted.group {
        json!({ "matchExpressions": [{ "key": HOSTNAME, "operator": "In", "values": nodes }] })
    } else {
        json!({ "matchLabels": { HOSTNAME: nodes.first() } })
    };
    let mut spec = json!({
        "myASN": peer.my_asn,
        "peerASN": peer.peer_asn,
        "peerAddress": peer.address,
        "peerPort": peer.port,
        "holdTime": format!("{}s", settings.hold_time.as_secs()),
        "nodeSelectors": [selector],
    });
    if let Some(source) = peer.source {
        spec["sourceAddress"] = json!(source);
    }
    if peer.ebgp_multihop() {
        spec["ebgpMultiHop"] = json!(true);
    }
    if !peer.password.is_empty() {
        spec["passwordSecret"] = json!({ "name": name });
    }
    spec
}

/// The fields that we write, or wrote. Those that the user added to an object of ours are theirs.
const FIELDS: [&str; 10] = [
    "myASN",
    "peerASN",
    "peerAddress",
    "peerPort",
    "holdTime",
    "sourceAddress",
    "nodeSelectors",
    "ebgpMultiHop",
    "passwordSecret",
    "password",
];

/// What a peer of ours shall say, as a merge patch of what it says now: what we wrote, and do not say any more, goes.
pub(crate) fn patch_of(spec: &Value) -> Value {
    let mut patch = spec.clone();
    for field in FIELDS {
        if patch[field].is_null() {
            patch[field] = Value::Null;
        }
    }
    patch
}

/// Does an object of ours say what it should?
fn says(present: &Value, wanted: &Value) -> bool {
    FIELDS
        .into_iter()
        .all(|field| said(present, field) == said(wanted, field))
}

/// What an object says by a field. What the API server fills in is the same as nothing.
fn said(spec: &Value, field: &str) -> Value {
    match (field, &spec[field]) {
        ("ebgpMultiHop", Value::Null) => json!(false),
        ("peerPort", Value::Null) => json!(BGP_PORT),
        ("peerPort", port) if *port == 0 => json!(BGP_PORT),
        ("passwordSecret", secret) => secret["name"].clone(),
        ("password" | "sourceAddress", Value::String(text)) if text.is_empty() => Value::Null,
        (_, value) => value.clone(),
    }
}

/// Changes a peer of the older controller, if its session would be another one: its hold time and its marks of Services stay as long as
/// nothing else changes.
fn adopt(object: &Object, peer: &Peer, spec: &Value) -> Option<Change> {
    let fields = [
        "myASN",
        "peerASN",
        "peerAddress",
        "peerPort",
        "sourceAddress",
        "ebgpMultiHop",
    ];
    // Where the session comes up without the mark, as the older controller for Equinix Metal had it, none is needed.
    let same = fields.into_iter().all(|field| {
        said(&object.spec, field) == said(spec, field)
            || (field == "ebgpMultiHop" && said(&object.spec, field) == json!(false))
    });
    let knows_password = if peer.password.is_empty() {
        said(&object.spec, "password").is_null() && said(&object.spec, "passwordSecret").is_null()
    } else {
        object.spec["password"] == *peer.password
            || said(&object.spec, "passwordSecret") == said(spec, "passwordSecret")
    };
    if same && knows_password {
        return None;
    }
    let mut patch = json!({ "password": null });
    for field in fields.into_iter().chain(["holdTime", "passwordSecret"]) {
        patch[field] = spec[field].clone();
    }
    Some(object.patch(Kind::Peer, json!({ "spec": patch })))
}

/// Secrets have the names of their peers. Only ours are looked at: one of the user's that stands where ours should is found out by whoever
/// would create ours.
fn keep_secrets(plan: &mut PeerPlan, present: &Present, wanted: &BTreeMap<String, String>, gone: &[&Object]) {
    for (name, password) in wanted {
        let data = json!({ "password": BASE64.encode(password) });
        let found = present.secrets.iter().find(|secret| secret.name == *name);
        if found.is_none_or(|secret| secret.spec != data) {
            plan.secrets.push(Change::Apply {
                kind: Kind::Secret,
                name: name.clone(),
                read: found.map(Object::read),
                spec: data,
            });
        }
    }
    for secret in &present.secrets {
        // One that is still named stays: by a peer that stays for want of knowledge, or by one of the user's.
        let named = present
            .peers
            .iter()
            .filter(|object| !gone.iter().any(|gone| gone.name == object.name))
            .any(|object| object.spec["passwordSecret"]["name"] == *secret.name);
        if !wanted.contains_key(&secret.name) && !named {
            plan.after.push(secret.delete(Kind::Secret));
        }
    }
}
