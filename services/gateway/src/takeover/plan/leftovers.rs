//! What else an older controller leaves: on nodes, and in MetalLB.

use groundplane_core::names::NODE_ANNOTATED;
use groundplane_core::older;
use serde_json::Value;

use super::{Action, Facts, Item, all_settled};
use crate::announcers::metallb::config_map::is_managed;
use crate::announcers::metallb::document::Document;
use crate::cluster::objects::NodeObject;
use crate::config::{Announcer, Layout};
use crate::controllers::bgp;
use crate::selector::Selector;

pub(super) fn nodes(facts: &Facts) -> Vec<Item> {
    let selector = Selector::parse(&facts.bgp_selector).unwrap_or_default();
    let mut items: Vec<Item> = facts
        .nodes
        .iter()
        .map(|node| node_item(facts, node, facts.bgp && bgp::selects(&selector, node)))
        .collect();
    items.sort_by(|one, other| one.name.cmp(&other.name));
    items
}

/// The generations of annotations that the node carries.
fn generations(facts: &Facts, node: &NodeObject) -> Vec<&'static str> {
    let carried = facts.formats.iter().filter(|(_, layouts)| carries(node, layouts));
    carried.map(|(name, _)| *name).collect()
}

fn found(node: &NodeObject, generations: &[&str]) -> String {
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
    format!("{id}; {annotated}")
}

fn node_item(facts: &Facts, node: &NodeObject, speaks: bool) -> Item {
    let generations = generations(facts, node);
    let item = Item::new("nodes", "Node", node.name(), found(node, &generations));
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
    let peerless = facts.peerless.get(&node.key);
    match (speaks && !generations.is_empty(), recorded, peerless) {
        (true, false, Some(why)) => item.is(
            Action::Leave,
            format!("no BGP peers are known of its machine ({why}): its annotations stay as they are until there are{stay}"),
        ),
        (true, false, None) => item.is(
            Action::Change,
            format!(
                "provider id stays; {} are kept up to date from now on{stay}",
                facts.written.join(", ")
            ),
        ),
        (true, true, _) => item.is(
            Action::Leave,
            format!("groundplane keeps {}{stay}", facts.written.join(", ")),
        ),
        (false, ..) => item.is(Action::Leave, format!("provider id stays{stay}")),
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
            format!("label {}={}", older::METALLB_LABEL.0, older::METALLB_LABEL.1),
        );
        items.push(match (facts.announcer, settled) {
            _ if one.users => item.is(Action::Leave, "yours, though it has that label: not touched"),
            (Announcer::Metallb, true) => item.is(Action::Leave, "groundplane keeps it"),
            (Announcer::Metallb, false) => item.is(
                Action::Adopt,
                "becomes groundplane's, and goes when nothing needs it",
            ),
            _ => item.is(Action::Blocked, otherwise("`metallb`")),
        });
    }
    let needed = matches!(facts.announcer, Announcer::Metallb | Announcer::MetallbConfigmap);
    items.extend(facts.metallb.unread.iter().map(|one| one.item("metallb", needed)));
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
    let (marked, own): (Vec<&Value>, Vec<&Value>) = peers.iter().partition(|peer| is_managed(peer));
    if !marked.is_empty() {
        let found = format!("{} peers of an older controller", marked.len());
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
