//! The configuration of MetalLB up to 0.12, one YAML text in a `ConfigMap`: pure.
//!
//! What is ours there: pools of single addresses that are called by their Services, and peers that carry the marks of a Service among
//! their node selectors. The older controllers wrote them so, which is how their entries are known; a mark must not match any node. We
//! mark a peer with one Service, for they marked it with all of them, and outgrew what an object can hold.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use groundplane_core::older::{self, Marks};
use serde_json::{Map, Value, json};

use super::HOSTNAME;
use super::coverage::{any_selects, entry, entry_covers, single};
use super::document::{Document, DocumentError, Edit};
use super::world::{Node, Peer, Peers, Settings, World};
use crate::announcers::Trouble;
use crate::cluster::objects::Key;

/// The API server stores objects of up to 1 MiB with all that belongs to them.
pub(crate) const LIMIT: usize = 1_000_000;

const POOLS: &str = "address-pools";
const PEERS: &str = "peers";
const COMMUNITIES: &str = "bgp-communities";
const MARK: Marks = older::METAL_MARKS;

/// MetalLB's default, and the port of a peer that says 0.
const BGP_PORT: u64 = 179;

/// What has to be written, and what is true then.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConfigPlan {
    /// The whole text; `None`: as it is.
    pub(crate) text: Option<String>,
    /// Addresses that some pool covers.
    pub(crate) placed: BTreeSet<IpAddr>,
    /// Services that do not fit in.
    pub(crate) refused: BTreeMap<Key, Trouble>,
}

/// Plans.
pub(crate) fn plan(text: &str, world: &World, settings: &Settings) -> Result<ConfigPlan, DocumentError> {
    plan_within(text, world, settings, LIMIT)
}

fn plan_within(
    text: &str,
    world: &World,
    settings: &Settings,
    limit: usize,
) -> Result<ConfigPlan, DocumentError> {
    let document = Document::parse(text)?;
    let whole = write(&document, world, settings)?;
    if whole.fits(text, limit) {
        return Ok(whole);
    }
    // Those that have their place keep it; nobody else is let in, and nothing is written by halves.
    let pools = document.list(POOLS)?;
    let has_place = |addresses: &BTreeSet<IpAddr>| {
        let covered = |address: &IpAddr| pools.iter().any(|pool| covers(pool, *address));
        addresses.iter().all(covered)
    };
    let (kept, refused): (BTreeMap<_, _>, BTreeMap<_, _>) = world
        .services
        .clone()
        .into_iter()
        .partition(|(_, addresses)| has_place(addresses));
    let smaller = World {
        services: kept,
        ..world.clone()
    };
    let mut plan = write(&document, &smaller, settings)?;
    if !plan.fits(text, limit) {
        // The peers alone are too many.
        plan.text = None;
    }
    let full = Trouble {
        reason: "AnnouncerFull",
        message: format!(
            "MetalLB's ConfigMap would be larger than {limit} bytes, which is near what the API server can store. Update MetalLB and set \
             gateway.announcer to `metallb`, which has no such limit."
        ),
    };
    plan.refused = refused.into_keys().map(|key| (key, full.clone())).collect();
    Ok(plan)
}

impl ConfigPlan {
    /// One that is too large already may become smaller.
    fn fits(&self, before: &str, limit: usize) -> bool {
        let fits = |text: &String| text.len() <= limit || text.len() <= before.len();
        self.text.as_ref().is_none_or(fits)
    }
}

fn write(document: &Document, world: &World, settings: &Settings) -> Result<ConfigPlan, DocumentError> {
    let pools = pools(document.list(POOLS)?, world);
    let active = world.awaited || !world.services.is_empty() || pools.left > 0;
    let peers = peers(document.list(PEERS)?, world, settings, active);
    let changes = !(pools.edit.append.is_empty() && peers.append.is_empty());
    // In the form of the older controller's first write.
    let base = if document.is_blank() && changes {
        Document::parse(&format!(
            "{}{POOLS}: null\n{COMMUNITIES}: null\n{PEERS}: null\n",
            comments(document.text())
        ))?
    } else {
        document.clone()
    };
    let after = base.edit(POOLS, &pools.edit)?.edit(PEERS, &peers)?;
    Ok(ConfigPlan {
        text: (after.text() != document.text()).then(|| after.text().to_owned()),
        placed: pools.placed,
        refused: BTreeMap::new(),
    })
}

/// What a document without content has beside it.
fn comments(text: &str) -> String {
    let comments = text
        .split_inclusive('\n')
        .filter(|line| line.trim_start().starts_with('#'));
    let mut comments: String = comments.collect();
    if !comments.is_empty() && !comments.ends_with('\n') {
        comments.push('\n');
    }
    comments
}

struct PoolEdit {
    edit: Edit,
    placed: BTreeSet<IpAddr>,
    /// Pools of ours that stay.
    left: usize,
}

fn pools(present: &[Value], world: &World) -> PoolEdit {
    let mut wanted: BTreeMap<IpAddr, BTreeSet<&Key>> = BTreeMap::new();
    for (key, addresses) in &world.services {
        for address in addresses {
            wanted.entry(*address).or_default().insert(key);
        }
    }
    let mut edit = Edit::default();
    let mut placed = BTreeSet::new();
    let mut left = 0;
    for (at, pool) in present.iter().enumerate() {
        let covered = wanted.keys().filter(|address| covers(pool, **address));
        placed.extend(covered.copied());
        let Some(address) = ours(pool, world) else {
            continue;
        };
        match wanted.get(&address) {
            None if world.complete && !world.mentioned.contains_key(&address) => {
                edit.remove.insert(at);
            }
            None => left += 1,
            Some(keys) => {
                left += 1;
                if let Some(renamed) = renamed(pool, address, keys, world) {
                    edit.replace.insert(at, renamed);
                }
            }
        }
    }
    let taken = |name: &str| present.iter().any(|pool| pool["name"] == name);
    for (address, keys) in &wanted {
        if placed.insert(*address) {
            let mut name = join(keys.iter().copied());
            while taken(&name) {
                name.push_str("-groundplane");
            }
            edit.append.push(json!({
                "name": name,
                "protocol": "bgp",
                "addresses": [entry(*address)],
                "auto-assign": false,
                "avoid-buggy-ips": false,
                "bgp-advertisements": null,
            }));
        }
    }
    PoolEdit { edit, placed, left }
}

fn entries(pool: &Value) -> impl Iterator<Item = &str> {
    let list = pool["addresses"].as_array().into_iter().flatten();
    list.filter_map(Value::as_str)
}

fn covers(pool: &Value, address: IpAddr) -> bool {
    entries(pool).any(|entry| entry_covers(entry, address))
}

/// The address of a pool that is ours: `namespace/service`, several of them with commas, or just `service` if one of that name has
/// the address.
fn ours(pool: &Value, world: &World) -> Option<IpAddr> {
    let address = single(entries(pool).next()?).filter(|_| entries(pool).count() == 1)?;
    if pool["protocol"] != "bgp" || pool["auto-assign"] != false {
        return None;
    }
    let name = pool["name"].as_str()?;
    let full = |part: &str| part.split('/').filter(|word| !word.is_empty()).count() == 2;
    if name.split(',').all(full) {
        return Some(address);
    }
    let has = |key: &Key| &*key.name == name;
    let named = [&world.mentioned, &world.leaving];
    let named = named
        .into_iter()
        .any(|all| all.get(&address).is_some_and(|keys| keys.iter().any(has)));
    let wanted = world
        .services
        .iter()
        .any(|(key, addresses)| has(key) && addresses.contains(&address));
    (named || wanted).then_some(address)
}

/// The pool, called by all the Services that share its address, if it is not yet.
fn renamed(pool: &Value, address: IpAddr, keys: &BTreeSet<&Key>, world: &World) -> Option<Value> {
    let name = pool["name"].as_str()?;
    if !name.contains('/') {
        return None;
    }
    // Those that we have not looked at yet keep their part of it.
    let known = world.mentioned.get(&address).into_iter().flatten();
    let known = known.filter(|key| name.split(',').any(|part| part == key.to_string()));
    let wanted = join(keys.iter().copied().chain(known));
    (wanted != name && !name.ends_with("-groundplane")).then(|| {
        let mut pool = pool.clone();
        pool["name"] = json!(wanted);
        pool
    })
}

fn join<'a>(keys: impl Iterator<Item = &'a Key>) -> String {
    let names: BTreeSet<String> = keys.map(Key::to_string).collect();
    names.into_iter().collect::<Vec<_>>().join(",")
}

fn peers(present: &[Value], world: &World, settings: &Settings, active: bool) -> Edit {
    let mut edit = Edit::default();
    let mut used = BTreeSet::new();
    // The first Service stands for all.
    let mark = world.services.keys().next();
    if active && settings.writes_peers() {
        for node in world.nodes.values() {
            // Sessions between IPv6 addresses carry nothing in native mode, which speaks IPv4 alone.
            let known = node.peers.known().iter();
            let mut peers: Vec<&Peer> = known.filter(|peer| peer.address.is_ipv4()).collect();
            peers.sort_by_key(|peer| peer.address.to_string());
            for peer in peers {
                if present
                    .iter()
                    .any(|other| !is_managed(other) && is_of(other, peer, node))
                {
                    continue;
                }
                let found = present
                    .iter()
                    .enumerate()
                    .find(|(at, other)| !used.contains(at) && is_managed(other) && is_of(other, peer, node));
                if let Some((at, other)) = found {
                    used.insert(at);
                    if !says(other, peer) {
                        edit.replace.insert(at, changed(other, peer));
                    }
                } else if let Some(mark) = mark {
                    edit.append.push(written(peer, node, mark));
                }
            }
        }
    }
    let over = |peer: &Value| {
        if !active || !settings.writes_peers() {
            return world.complete && !active;
        }
        let hosts = hosts(peer);
        // One that selects nodes otherwise was changed by hand.
        !hosts.is_empty()
            && hosts.iter().all(|host| {
                let node = world.nodes.values().find(|node| node.hostname == *host);
                node.map_or(world.complete, |node| matches!(node.peers, Peers::Exactly(_)))
            })
    };
    // That their node is gone is all that ends those which nobody marked: each says what a person could have said.
    let orphaned = |peer: &Value| {
        let known = |host: &&str| world.nodes.values().any(|node| node.hostname == **host);
        active && settings.writes_peers() && world.complete && !hosts(peer).iter().any(known)
    };
    for (at, peer) in present.iter().enumerate() {
        let goes = is_marked(peer) && over(peer) || is_plain(peer) && orphaned(peer);
        if goes && !used.contains(&at) {
            edit.remove.insert(at);
        }
    }
    edit
}

fn selectors(peer: &Value) -> impl Iterator<Item = &Value> {
    peer["node-selectors"].as_array().into_iter().flatten()
}

fn is_mark(selector: &Value) -> bool {
    let labels = &selector["match-labels"];
    older::marks().any(|mark| !labels[mark.name].is_null())
}

/// Did we, or the older controller, write this peer?
fn is_marked(peer: &Value) -> bool {
    selectors(peer).any(is_mark)
}

/// Did a controller write this peer that kept no books yet (packet-ccm, and that of Equinix Metal before 3.4)? It is for one node by its
/// host name, and says even what nobody would write by hand: an empty hold time and an empty router id.
fn is_plain(peer: &Value) -> bool {
    let one_host = match peer["node-selectors"].as_array().map(Vec::as_slice) {
        Some([selector]) => {
            let labels = selector["match-labels"].as_object();
            let expressions = selector["match-expressions"].as_array();
            labels.is_some_and(|labels| labels.len() == 1 && labels.contains_key(HOSTNAME))
                && expressions.is_none_or(Vec::is_empty)
        }
        _ => false,
    };
    one_host && peer["hold-time"] == "" && peer["router-id"] == ""
}

/// Is it one that follows its node?
pub(crate) fn is_managed(peer: &Value) -> bool {
    is_marked(peer) || is_plain(peer)
}

fn hosts(peer: &Value) -> BTreeSet<&str> {
    selectors(peer)
        .filter_map(|selector| selector["match-labels"][HOSTNAME].as_str())
        .collect()
}

/// Is it this neighbour, on this node?
fn is_of(present: &Value, peer: &Peer, node: &Node) -> bool {
    let address = present["peer-address"]
        .as_str()
        .and_then(|text| text.parse::<IpAddr>().ok());
    let kubernetes = |selector: &Value| {
        json!({
            "matchLabels": selector["match-labels"],
            "matchExpressions": selector["match-expressions"],
        })
    };
    let plain: Vec<Value> = selectors(present)
        .filter(|selector| !is_mark(selector))
        .map(kubernetes)
        .collect();
    let selects = if is_marked(present) {
        hosts(present).contains(&*node.hostname)
    } else {
        any_selects(&Value::Array(plain), &node.labels)
    };
    address == Some(peer.address) && selects
}

/// Would it be the same session?
fn says(present: &Value, peer: &Peer) -> bool {
    let text = |key: &str| present[key].as_str().unwrap_or_default();
    let port = match present["peer-port"].as_u64() {
        None | Some(0) => BGP_PORT,
        Some(port) => port,
    };
    // One that is silent here is left so, for a change ends the session: its writer knew no passwords yet, or no source addresses.
    let silent = |key: &str| is_plain(present) && text(key).is_empty();
    present["my-asn"] == peer.my_asn
        && present["peer-asn"] == peer.peer_asn
        && port == u64::from(peer.port)
        && (silent("password") || text("password") == peer.password)
        && (silent("source-address") || text("source-address").parse().ok() == peer.source)
}

/// What the session is made of. Native mode, the only one of its time that can have one peer a node, needs no mark for a neighbour that is
/// more than one hop away.
fn session(peer: &Peer) -> Map<String, Value> {
    let source = peer.source.map(|source| source.to_string());
    let port = if u64::from(peer.port) == BGP_PORT {
        0
    } else {
        peer.port
    };
    let mut session = Map::new();
    for (key, value) in [
        ("my-asn", json!(peer.my_asn)),
        ("peer-asn", json!(peer.peer_asn)),
        ("peer-address", json!(peer.address)),
        ("peer-port", json!(port)),
        ("password", json!(peer.password)),
        ("source-address", json!(source.unwrap_or_default())),
    ] {
        session.insert(key.to_owned(), value);
    }
    session
}

/// The peer that is there, with another session.
fn changed(present: &Value, peer: &Peer) -> Value {
    let mut present = present.clone();
    if let Some(fields) = present.as_object_mut() {
        fields.extend(session(peer));
    }
    present
}

/// A new peer, in the form of the older controller.
fn written(peer: &Peer, node: &Node, mark: &Key) -> Value {
    let selector = |labels: Value| json!({ "match-expressions": null, "match-labels": labels });
    let mut written = session(peer);
    written.insert("hold-time".to_owned(), json!(""));
    written.insert("router-id".to_owned(), json!(""));
    let selectors = [
        selector(json!({ HOSTNAME: node.hostname })),
        selector(json!({ MARK.name: &*mark.name, MARK.namespace: &*mark.namespace })),
    ];
    written.insert("node-selectors".to_owned(), json!(selectors));
    Value::Object(written)
}

#[cfg(test)]
mod tests;
