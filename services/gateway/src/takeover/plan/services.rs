//! Services of type `LoadBalancer`: whose they are, where their address comes from, and what they will be told.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::reservations::on;
use super::{Action, Facts, Item, is_settled};
use crate::cluster::objects::{ServiceObject, ServiceType};
use crate::domain::service::{Plan, has_finalizer, plan};

pub(super) fn items(facts: &Facts) -> Vec<Item> {
    let external = |service: &ServiceObject| {
        let mut externals = facts.externals.iter();
        externals.any(|external| external.key == service.key)
    };
    let balanced = facts
        .services
        .iter()
        .filter(|service| service.kind == ServiceType::LoadBalancer && !external(service));
    let mut items: Vec<Item> = balanced.map(|service| item(facts, service)).collect();
    items.sort_by(|one, other| one.name.cmp(&other.name));
    items
}

fn item(facts: &Facts, service: &ServiceObject) -> Item {
    let there = on(service);
    let item = Item::new(
        "services",
        "Service",
        service.key.to_string(),
        found(facts, service, &there),
    );
    match plan(service, &facts.scope) {
        Plan::Ignore | Plan::Release { .. } => {
            let why = facts.scope.why_not(service);
            item.is(
                Action::Leave,
                why.unwrap_or_else(|| "it is being deleted".to_owned()),
            )
        }
        Plan::Refuse(refusal) => item.is(Action::Blocked, refusal.message),
        Plan::Hold(_) if is_settled(service) => item.is(Action::Leave, "groundplane serves it"),
        Plan::Hold(_) if there.is_empty() => item.is(Action::Change, "gets an address"),
        Plan::Hold(_) => {
            let finalizer = if has_finalizer(service) {
                "the finalizer stays"
            } else {
                "gets the finalizer"
            };
            item.is(
                Action::Adopt,
                format!("keeps its address; {finalizer}; gets a condition"),
            )
        }
    }
}

fn found(facts: &Facts, service: &ServiceObject, there: &BTreeSet<IpAddr>) -> String {
    let mut parts: Vec<String> = there
        .iter()
        .map(|address| origin(facts, service, *address))
        .collect();
    if parts.is_empty() {
        parts.push("no address".to_owned());
    }
    if has_finalizer(service) {
        parts.push("finalizer".to_owned());
    }
    if !service.class.is_empty() {
        parts.push(format!("class {}", service.class));
    }
    parts.join(", ")
}

/// Where its address comes from: a reservation that was made for it, or its user.
fn origin(facts: &Facts, service: &ServiceObject, address: IpAddr) -> String {
    let managed = facts.reservations.iter().find(|one| {
        one.owner.as_ref() == Some(&service.key)
            && one.prefix.is_some_and(|prefix| prefix.address() == address)
    });
    match managed {
        Some(one) => format!("{address} of reservation {}", one.id),
        None => format!("{address} that was brought"),
    }
}
