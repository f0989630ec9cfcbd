//! What else an older controller leaves: on nodes, in MetalLB, and at the API endpoint.

use std::collections::{BTreeMap, BTreeSet};

use groundplane_core::names::NODE_ANNOTATED;
use serde_json::Value;

use super::{Action, Facts, Item, all_settled};
use crate::announcers::metallb::document::Document;
use crate::cluster::objects::{Key, NodeObject};
use crate::config::{Announcer, Layout};
use crate::selector::Selector;

/// What the names of the older controllers' field managers begin with.
const MANAGERS: [&str; 3] = [
    "cloud-provider-equinix-metal",
    "packet-c",
    "cloud-provider-cherry",
];

/// What marks a peer of the `ConfigMap` as some Service's.
const MARK: &str = "nomatch.metal.equinix.com/";

pub(super) fn nodes(facts: &Facts) -> Vec<Item> {
    let selector = Selector::parse(&facts.bgp_selector).unwrap_or_default();
    let mut items: Vec<Item> = facts
        .nodes
        .iter()
        .map(|node| node_item(facts, node, facts.bgp && selector.matches(&node.labels)))
        .collect();
    items.sort_by(|one, other| one.name.cmp(&other.name));
    items
}

fn node_item(facts: &Facts, node: &NodeObject, speaks: bool) -> Item {
    let generations: Vec<&str> = facts
        .formats
        .iter()
        .filter(|(_, layouts)| carries(node, layouts))
        .map(|(name, _)| *name)
        .collect();
    let annotated = if generations.is_empty() {
        "no annotations of BGP".to_owned()
    } else {
        format!("annotations: {}", generations.join(", "))
    };
    let id = if node.provider_id.is_empty() {
        "no provider id"
    } else {
        &*node.provider_id
    };
    let item = Item::new("nodes", "Node", node.name(), format!("{id}; {annotated}"));
    if node.is_uninitialised() {
        return item.is(
            Action::Change,
            "is initialised as soon as its machine is found: provider id, labels, addresses",
        );
    }
    let recorded = node.annotations.get(NODE_ANNOTATED).is_some();
    let others: Vec<&str> = generations
        .iter()
        .copied()
        .filter(|name| !facts.written.contains(name))
        .collect();
    let stay = if others.is_empty() {
        String::new()
    } else {
        format!(
            "; {} stay as they are, unless gateway.annotationFormats names them",
            others.join(", ")
        )
    };
    match (speaks && !generations.is_empty(), recorded) {
        (true, false) => item.is(
            Action::Change,
            format!(
                "provider id stays; {} are kept up to date from now on{stay}",
                facts.written.join(", ")
            ),
        ),
        (true, true) => item.is(
            Action::Leave,
            format!("groundplane keeps {}{stay}", facts.written.join(", ")),
        ),
        (false, _) => item.is(Action::Leave, format!("provider id stays{stay}")),
    }
}

/// Does the node tell peers in this generation?
fn carries(node: &NodeObject, layouts: &[Layout]) -> bool {
    let mut names = layouts
        .iter()
        .flat_map(|layout| layout.fields.iter().map(|(_, name)| name));
    names.any(|name| {
        let mut keys = node.annotations.iter();
        keys.any(|(key, _)| name.number_in(key).is_some())
    })
}

pub(super) fn metallb(facts: &Facts) -> Vec<Item> {
    let settled = all_settled(facts);
    let mut items = Vec::new();
    let otherwise = |other: &str| {
        format!(
            "stays as it is, and nobody keeps it: groundplane tells MetalLB only with gateway.announcer {other}"
        )
    };
    for one in &facts.metallb.labelled {
        let item = Item::new(
            "metallb",
            one.kind,
            &one.name,
            "label cloud-provider=equinix-metal",
        );
        items.push(match (facts.announcer, settled) {
            (Announcer::Metallb, true) => item.is(Action::Leave, "groundplane keeps it"),
            (Announcer::Metallb, false) => item.is(
                Action::Adopt,
                "becomes groundplane's, and goes when nothing needs it",
            ),
            _ => item.is(Action::Blocked, otherwise("`metallb`")),
        });
    }
    if let Some(text) = &facts.metallb.text {
        items.extend(config_map(
            facts,
            text,
            settled,
            &otherwise("`metallb-configmap`"),
        ));
    }
    items
}

fn config_map(facts: &Facts, text: &str, settled: bool, otherwise: &str) -> Vec<Item> {
    let name = &facts.metallb.name;
    let lists = Document::parse(text).and_then(|document| {
        let pools = document.list("address-pools")?.to_vec();
        Ok((pools, document.list("peers")?.to_vec()))
    });
    let (pools, peers) = match lists {
        Ok(lists) => lists,
        Err(error) => {
            let item = Item::new("metallb", "ConfigMap", name, "cannot be read");
            return vec![item.is(Action::Blocked, error.to_string())];
        }
    };
    let verdict = |item: Item, what: &str| match (facts.announcer, settled) {
        (Announcer::MetallbConfigmap, true) => item.is(Action::Leave, "groundplane keeps it"),
        (Announcer::MetallbConfigmap, false) => item.is(Action::Adopt, what),
        _ => item.is(Action::Blocked, otherwise),
    };
    let mut items = Vec::new();
    let mut users = 0;
    for pool in &pools {
        let called = pool["name"].as_str().unwrap_or_default();
        if pool["auto-assign"] == false && is_services(facts, called) {
            let item = Item::new(
                "metallb",
                "pool",
                format!("{name}: {called}"),
                "a pool of Services",
            );
            items.push(verdict(item, "becomes groundplane's"));
        } else {
            users += 1;
        }
    }
    let (marked, own): (Vec<&Value>, Vec<&Value>) = peers.iter().partition(|peer| is_marked(peer));
    if !marked.is_empty() {
        let found = format!("{} peers with marks of Services", marked.len());
        let item = Item::new("metallb", "peers", name, found);
        items.push(verdict(
            item,
            "become groundplane's; nodes that are gone lose theirs",
        ));
    }
    if users + own.len() > 0 {
        let found = format!("{users} pools and {} peers of yours", own.len());
        let item = Item::new("metallb", "ConfigMap", name, found);
        items.push(item.is(Action::Leave, "yours: not touched"));
    }
    items
}

/// Is the pool called by Services: `ns/a`, `ns/a,ns/b`, or just `a`?
fn is_services(facts: &Facts, called: &str) -> bool {
    let full = |part: &str| part.split('/').filter(|word| !word.is_empty()).count() == 2;
    let bare = facts
        .services
        .iter()
        .any(|service| &*service.key.name == called && !super::reservations::on(service).is_empty());
    called.split(',').all(full) || bare
}

fn is_marked(peer: &Value) -> bool {
    let selectors = peer["node-selectors"].as_array().into_iter().flatten();
    selectors
        .filter_map(|selector| selector["match-labels"].as_object())
        .any(|labels| labels.keys().any(|key| key.starts_with(MARK)))
}

pub(super) fn endpoint(facts: &Facts) -> Vec<Item> {
    let mut items = Vec::new();
    match &facts.endpoint {
        None => {}
        Some(Ok((address, holder))) => {
            let held = if holder.is_empty() {
                "nobody".to_owned()
            } else {
                holder.clone()
            };
            let item = Item::new("endpoint", "reservation", address, format!("held by {held}"));
            items.push(item.is(
                Action::Leave,
                "agents move it when its holder dies, and not before",
            ));
        }
        Some(Err(error)) => {
            let item = Item::new("endpoint", "reservation", "of the API endpoint", "cannot be told");
            items.push(item.is(Action::Blocked, error.clone()));
        }
    }
    let kept: BTreeMap<&Key, bool> = facts
        .externals
        .iter()
        .map(|one| (&one.key, one.is_ours))
        .collect();
    let others = kept.values().any(|is_ours| *is_ours);
    for one in &facts.externals {
        let old: BTreeSet<&str> = one
            .managers
            .iter()
            .map(String::as_str)
            .filter(|manager| MANAGERS.iter().any(|head| manager.starts_with(head)))
            .collect();
        let by = if old.is_empty() {
            "no older controller".to_owned()
        } else {
            old.iter().copied().collect::<Vec<_>>().join(", ")
        };
        let address = one.address.as_deref().unwrap_or("no address");
        let item = Item::new(
            "endpoint",
            "Service",
            one.key.to_string(),
            format!("{address}, written by {by}"),
        );
        items.push(match (one.is_ours, old.is_empty()) {
            (true, false) => item.is(Action::Adopt, "its fields become groundplane's, its addresses stay"),
            (true, true) => item.is(Action::Leave, "groundplane keeps it"),
            (false, _) if others => item.is(
                Action::Leave,
                format!("groundplane keeps another one; delete this when nothing uses it: kubectl -n {} delete service {}", one.key.namespace, one.key.name),
            ),
            (false, _) => item.is(
                Action::Blocked,
                format!("nobody keeps it: set endpoint.tag (or endpoint.address) and endpoint.service to {}", one.key),
            ),
        });
    }
    items
}
