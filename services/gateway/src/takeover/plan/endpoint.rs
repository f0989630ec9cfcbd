//! What an older controller leaves of the API endpoint: its reservation, and the external Service.

use std::collections::BTreeSet;

use groundplane_core::older;

use super::{Action, External, Facts, Item};

pub(super) fn items(facts: &Facts) -> Vec<Item> {
    let keeps_one = facts.externals.iter().any(|one| one.is_ours);
    let reservation = facts.endpoint.as_ref().map(reservation);
    let services = facts.externals.iter().map(|one| service(one, keeps_one));
    let unread = facts.unread.iter().map(|one| one.item("endpoint", true));
    reservation.into_iter().chain(services).chain(unread).collect()
}

/// Address and holder, or why they are not known.
fn reservation(told: &Result<(String, String), String>) -> Item {
    match told {
        Ok((address, holder)) => {
            let held = if holder.is_empty() { "nobody" } else { holder };
            let item = Item::new("endpoint", "reservation", address, format!("held by {held}"));
            item.is(
                Action::Leave,
                "moves when its holder dies, by agents: have them run (agent.enabled=true) as soon as no older controller does",
            )
        }
        Err(error) => {
            let item = Item::new("endpoint", "reservation", "of the API endpoint", "cannot be told");
            item.is(Action::Blocked, error.clone())
        }
    }
}

/// `keeps_one`: groundplane is told to keep this one, or another.
fn service(one: &External, keeps_one: bool) -> Item {
    let managers = one.managers.iter().map(String::as_str);
    let old: BTreeSet<&str> = managers
        .filter(|manager| older::by_field_manager(manager).is_some())
        .collect();
    let by = if old.is_empty() {
        "no older controller".to_owned()
    } else {
        old.iter().copied().collect::<Vec<_>>().join(", ")
    };
    let address = one.address.as_deref().unwrap_or("no address");
    let found = format!("{address}, written by {by}");
    let item = Item::new("endpoint", "Service", one.key.to_string(), found);
    match (one.is_ours, old.is_empty()) {
        (true, false) => item.is(
            Action::Adopt,
            "its fields become groundplane's, its addresses stay",
        ),
        (true, true) => item.is(Action::Leave, "groundplane keeps it"),
        (false, _) if keeps_one => {
            let (namespace, name) = (&one.key.namespace, &one.key.name);
            item.is(
                Action::Leave,
                format!(
                    "groundplane keeps another one; delete this when nothing uses it: kubectl -n {namespace} delete service {name}"
                ),
            )
        }
        (false, _) => item.is(
            Action::Blocked,
            format!(
                "nobody keeps it: set endpoint.tag (or endpoint.address) and endpoint.service to {}",
                one.key
            ),
        ),
    }
}
