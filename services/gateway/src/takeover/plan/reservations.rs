//! Reservations: by today's tags, by an older controller's, and whose they are.

use std::collections::BTreeSet;
use std::net::IpAddr;

use groundplane_core::Prefix;
use groundplane_proto::eip::v1::Standing;

use super::{Action, Facts, Item, Reserved, is_settled};
use crate::cluster::objects::{Key, ServiceObject};
use crate::domain::service::{addresses, mentioned};

pub(super) fn items(facts: &Facts) -> Vec<Item> {
    let ours = facts
        .reservations
        .iter()
        .filter(|one| one.standing != Standing::Foreign);
    ours.map(|one| item(facts, one)).collect()
}

/// Those of other clusters: never touched.
pub(super) fn others(facts: &Facts) -> Vec<Item> {
    let others = facts
        .reservations
        .iter()
        .filter(|one| one.standing == Standing::Foreign);
    let item = |one: &Reserved| {
        let whose = one.tags.iter().find_map(|tag| tag.strip_prefix("cluster="));
        let whose = whose.unwrap_or("unknown");
        let found = format!("{}, tags of cluster {whose}", address(one));
        Item::new("reservations", "reservation", &one.id, found)
            .is(Action::Leave, "another cluster's: not touched")
    };
    others.map(item).collect()
}

fn address(one: &Reserved) -> String {
    one.prefix
        .map_or_else(|| "no address yet".to_owned(), |prefix| prefix.to_string())
}

/// Every address that stands on the Service.
pub(super) fn on(service: &ServiceObject) -> BTreeSet<IpAddr> {
    addresses(service).chain(mentioned(service)).collect()
}

fn item(facts: &Facts, one: &Reserved) -> Item {
    let address = address(one);
    let found = |tags: &str| format!("{address}, {tags}");
    let item = |tags: &str| Item::new("reservations", "reservation", &one.id, found(tags));
    let owner = one.owner.as_ref().and_then(|key| service(facts, key));
    match one.standing {
        Standing::Held => {
            let item = item("today's tags");
            match owner {
                Some(service) if is_settled(service) => {
                    item.is(Action::Leave, format!("Service {} has it", service.key))
                }
                Some(service) if facts.scope.has(service) => item.is(
                    Action::Adopt,
                    format!("stays Service {}'s, tags and all", service.key),
                ),
                Some(service) => item.is(
                    Action::Leave,
                    format!("Service {} is not served: {}", service.key, why(facts, service)),
                ),
                None => item.is(Action::Leave, "an object of this cluster has it"),
            }
        }
        Standing::Former => former(facts, one, owner, item(&former_tags(one))),
        Standing::Orphan => item("today's tags").is(
            Action::Leave,
            "no Service of this cluster has it; gateway.reclaim says what becomes of it",
        ),
        _ => item("today's tags").is(
            Action::Leave,
            "no Service of this cluster has it, and yet it is in use",
        ),
    }
}

fn former_tags(one: &Reserved) -> String {
    let usage = one.tags.iter().find(|tag| tag.starts_with("usage="));
    let cluster = if one.names_cluster {
        "this cluster's"
    } else {
        "naming no cluster"
    };
    format!(
        "an older controller's tags ({}), {cluster}",
        usage.map_or("unknown", |usage| usage)
    )
}

fn former(facts: &Facts, one: &Reserved, owner: Option<&ServiceObject>, mut item: Item) -> Item {
    let Some(service) = owner else {
        return item.is(
            Action::Leave,
            "no Service of this cluster has the name that its tags stand for: it may be another cluster's",
        );
    };
    let key = &service.key;
    if !facts.scope.has(service) {
        let why = why(facts, service);
        return item.is(Action::Leave, format!("Service {key} is not served: {why}"));
    }
    let there = on(service);
    let is_there = |prefix: Prefix| there.contains(&prefix.address());
    if one.prefix.is_some_and(is_there) {
        return item.is(
            Action::Change,
            format!("Service {key} has this address: its tags become today's, the address stays"),
        );
    }
    if !there.is_empty() {
        return item.is(Action::Leave, format!("Service {key} has another address"));
    }
    if one.names_cluster {
        return item.is(
            Action::Change,
            format!("Service {key} has no address: it gets this one, with today's tags"),
        );
    }
    item.gives = Some(key.clone());
    item.is(
        Action::Adopt,
        format!(
            "Service {key} has no address, and another cluster may have a Service of that name: only `takeover apply` gives it this one"
        ),
    )
}

pub(super) fn service<'a>(facts: &'a Facts, key: &Key) -> Option<&'a ServiceObject> {
    let found = facts.services.iter().find(|service| service.key == *key);
    found.map(AsRef::as_ref)
}

fn why(facts: &Facts, service: &ServiceObject) -> String {
    facts.scope.why_not(service).unwrap_or_default()
}
