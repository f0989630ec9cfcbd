//! One `BGPAdvertisement` (or `L2Advertisement`) of all our pools, which selects them by their label: pure.

use serde_json::{Value, json};

use super::MANAGED_BY;
use super::coverage::selects;
use super::resources::{Change, Kind, Object, Owner, Present, free_name};
use super::world::{Settings, World};
use crate::config::Advertisement;

/// The name of ours.
const NAME: &str = "groundplane";
/// The name of the one that the old controllers wrote by themselves. All others with their label are the user's.
const LEGACY_NAME: &str = "equinix-metal-bgp-adv";

pub(super) fn plan(world: &World, present: &Present, settings: &Settings, active: bool) -> Vec<Change> {
    let wanted = |kind| active && settings.advertisement == kind;
    let bgp = one(
        Kind::BgpAdvertisement,
        &present.bgp_advertisements,
        &present.pools,
        wanted(Advertisement::Bgp),
        world.complete,
    );
    let l2 = one(
        Kind::L2Advertisement,
        &present.l2_advertisements,
        &present.pools,
        wanted(Advertisement::L2),
        world.complete,
    );
    // What begins to announce comes before what ends.
    if settings.advertisement == Advertisement::L2 {
        [l2, bgp].concat()
    } else {
        [bgp, l2].concat()
    }
}

fn one(kind: Kind, present: &[Object], pools: &[Object], wanted: bool, complete: bool) -> Vec<Change> {
    let ours = present
        .iter()
        .find(|object| object.owner() == Owner::Us && is_ours(object));
    let legacy = present
        .iter()
        .find(|object| object.name == LEGACY_NAME && object.owner() == Owner::Legacy);
    let mut changes = Vec::new();
    if wanted {
        let (key, value) = MANAGED_BY;
        let spec = json!({ "ipAddressPoolSelectors": [{ "matchLabels": { key: value } }] });
        match ours {
            Some(ours) if ours.spec["ipAddressPoolSelectors"] == spec["ipAddressPoolSelectors"] => {}
            Some(ours) => changes.push(apply(kind, ours.name.clone(), spec)),
            // The user's own stands in for it, unless the old controller had written one beside it.
            None if legacy.is_none() && present.iter().any(|object| announces_ours(object, pools)) => {}
            None => {
                let name = free_name(NAME, |name| present.iter().any(|object| object.name == name));
                changes.push(apply(kind, name, spec));
            }
        }
        // Ours announces by now what that one did.
        changes.extend(legacy.map(|legacy| legacy.delete(kind)));
    } else if complete {
        changes.extend(ours.map(|ours| ours.delete(kind)));
        changes.extend(legacy.map(|legacy| legacy.delete(kind)));
    }
    changes
}

fn apply(kind: Kind, name: String, spec: Value) -> Change {
    Change::Apply { kind, name, spec }
}

fn is_ours(object: &Object) -> bool {
    object.name == NAME || object.name.starts_with("groundplane-")
}

/// Does an advertisement of the user announce our pools? By a label of the controllers, by naming or selecting them, or because it
/// announces everything everywhere.
fn announces_ours(object: &Object, pools: &[Object]) -> bool {
    if object.owner() != Owner::User {
        return true;
    }
    let list = |field: &str| object.spec[field].as_array().map_or(&[][..], Vec::as_slice);
    let (names, selectors) = (list("ipAddressPools"), list("ipAddressPoolSelectors"));
    if names.is_empty() && selectors.is_empty() {
        return ["nodeSelectors", "serviceSelectors", "peers", "interfaces"]
            .into_iter()
            .all(|restriction| list(restriction).is_empty());
    }
    let ours = pools.iter().filter(|pool| pool.owner() != Owner::User);
    let by_name = |pool: &Object| names.iter().any(|name| name == &*pool.name);
    let label = [(MANAGED_BY.0.to_owned(), MANAGED_BY.1.to_owned())].into();
    (ours.clone().next().is_some() && ours.into_iter().all(by_name))
        || selectors.iter().any(|selector| selects(selector, &label))
}
