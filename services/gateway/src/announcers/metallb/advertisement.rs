//! One `BGPAdvertisement` (or `L2Advertisement`) of all our pools, which selects them by their label: pure.
//!
//! After a takeover there may be several: what a person had added to the older controller's own (communities, preferences, peers), or had
//! made for all that carries its label, goes on for what is new.

use std::collections::{BTreeMap, BTreeSet};

use groundplane_core::older;
use serde_json::{Value, json};

use super::coverage::selects;
use super::resources::{Change, Kind, Object, Owner, Present, free_name};
use super::world::{Settings, World};
use super::{LEGACY_LABEL, MANAGED_BY};
use crate::config::Advertisement;

/// The name of ours.
const NAME: &str = "groundplane";
/// The name of the one that the older controllers wrote by themselves. All others with their label are the user's.
const LEGACY_NAME: &str = older::METALLB_ADVERTISEMENT;
/// How an advertisement says which pools it is for.
const POOLS: &str = "ipAddressPools";
const SELECTORS: &str = "ipAddressPoolSelectors";

/// What has to be done to the advertisements.
#[derive(Debug, Default)]
pub(super) struct AdvertPlan {
    pub(super) changes: Vec<Change>,
    /// Why what is new is not announced, for people.
    pub(super) unannounced: Option<String>,
    /// What stays beside ours, for people.
    pub(super) note: Option<String>,
}

pub(super) fn plan(world: &World, present: &Present, settings: &Settings, active: bool) -> AdvertPlan {
    let one = |kind, wanted, objects: &[Object]| {
        if active && settings.advertisement == wanted {
            wanted_one(kind, objects, &present.pools)
        } else if world.complete {
            AdvertPlan {
                changes: unwanted_ones(kind, objects),
                ..AdvertPlan::default()
            }
        } else {
            AdvertPlan::default()
        }
    };
    let bgp = one(
        Kind::BgpAdvertisement,
        Advertisement::Bgp,
        &present.bgp_advertisements,
    );
    let l2 = one(
        Kind::L2Advertisement,
        Advertisement::L2,
        &present.l2_advertisements,
    );
    // What begins to announce comes before what ends.
    let changes = if settings.advertisement == Advertisement::L2 {
        [l2.changes, bgp.changes].concat()
    } else {
        [bgp.changes, l2.changes].concat()
    };
    AdvertPlan {
        changes,
        unannounced: bgp.unannounced.or(l2.unannounced),
        note: bgp.note.or(l2.note),
    }
}

fn unwanted_ones(kind: Kind, present: &[Object]) -> Vec<Change> {
    let gone = present
        .iter()
        .filter(|object| is_ours(object) || is_legacy(object));
    gone.map(|object| object.delete(kind)).collect()
}

fn wanted_one(kind: Kind, present: &[Object], pools: &[Object]) -> AdvertPlan {
    let ours: Vec<&Object> = present.iter().filter(|object| is_ours(object)).collect();
    let legacy = present.iter().find(|object| is_legacy(object));
    let users = || {
        present
            .iter()
            .filter(|object| !is_ours(object) && !is_legacy(object))
    };
    let mut plan = AdvertPlan::default();
    let strays = ours.iter().filter(|object| !selects_ours(&object.spec));
    plan.changes
        .extend(strays.map(|object| apply(kind, object.name.clone(), Some(object), plain())));

    let wishes = wishes(present, pools);
    let begun = ours
        .iter()
        .all(|object| wishes.iter().any(|wish| says(object, wish)));
    // The user's own stands in for ours, unless the older controller had written one beside it. Those that only have a label of the old
    // controllers restrict what is announced to the pools that they name.
    let stands_in = || users().any(|object| announces_ours(object, pools));
    let restricts = || users().find(|object| object.owner() == Owner::Legacy);
    let missing = if !wishes.is_empty() {
        // Several are made one after another: a leader that comes in between goes on.
        let missing = wishes
            .iter()
            .filter(|wish| !ours.iter().any(|object| says(object, wish)));
        missing.filter(|_| begun).cloned().collect()
    } else if !ours.is_empty() || stands_in() {
        Vec::new()
    } else if let Some(object) = restricts() {
        plan.unannounced = Some(restricted(kind, object));
        Vec::new()
    } else {
        vec![plain()]
    };
    // Ours announces then what that one did; where it does not, nobody would: it stays.
    let replaced = |legacy: &&Object| {
        let wish = replaced(legacy, pools);
        ours.iter().any(|object| says(object, &wish)) || missing.contains(&wish)
    };
    let gone = legacy.filter(replaced);
    if let Some(legacy) = legacy.filter(|_| gone.is_none()) {
        plan.note = Some(kept(kind, legacy));
    }
    let mut taken: BTreeSet<String> = present.iter().map(|object| object.name.clone()).collect();
    for spec in missing {
        let name = free_name(NAME, |name| taken.contains(name));
        taken.insert(name.clone());
        plan.changes.push(apply(kind, name, None, spec));
    }
    plan.changes.extend(gone.map(|legacy| legacy.delete(kind)));
    plan
}

/// What ours have to say so that what is new is announced as the older controller's was: with the communities, preferences, peers and nodes
/// that a person gave its advertisement, and those of a person that select whatever has the older controller's label.
fn wishes(present: &[Object], pools: &[Object]) -> Vec<Value> {
    let old: BTreeMap<String, String> = [(LEGACY_LABEL.0.to_owned(), LEGACY_LABEL.1.to_owned())].into();
    let mut wishes = Vec::new();
    for object in present.iter().filter(|object| object.owner() == Owner::Legacy) {
        let selects_old = list(&object.spec, SELECTORS).iter().any(|one| selects(one, &old));
        let wish = if is_legacy(object) {
            replaced(object, pools)
        } else if selects_old && !announces_ours(object, pools) {
            with(&object.spec, &[], &[])
        } else {
            continue;
        };
        if !wishes.contains(&wish) {
            wishes.push(wish);
        }
    }
    wishes
}

/// What stands for the older controller's, which goes: it names our pools by their label instead of one by one, and pools of the user that
/// a person put into it as they are.
fn replaced(legacy: &Object, pools: &[Object]) -> Value {
    let users: Vec<&Value> = list(&legacy.spec, POOLS)
        .iter()
        .filter(|name| {
            let mut users = pools.iter().filter(|pool| pool.owner() == Owner::User);
            users.any(|pool| **name == *pool.name)
        })
        .collect();
    let others: Vec<&Value> = list(&legacy.spec, SELECTORS)
        .iter()
        .filter(|selector| **selector != our_selector())
        .collect();
    with(&legacy.spec, &users, &others)
}

/// The same attributes, for our pools and these.
fn with(spec: &Value, names: &[&Value], selectors: &[&Value]) -> Value {
    let mut wish = spec.as_object().cloned().unwrap_or_default();
    wish.remove(POOLS);
    if !names.is_empty() {
        wish.insert(POOLS.to_owned(), json!(names));
    }
    let selectors: Vec<Value> = selectors
        .iter()
        .map(|selector| (*selector).clone())
        .chain([our_selector()])
        .collect();
    wish.insert(SELECTORS.to_owned(), json!(selectors));
    Value::Object(wish)
}

/// Does it say all of this?
fn says(object: &Object, wish: &Value) -> bool {
    let fields = wish.as_object();
    fields.is_some_and(|fields| fields.iter().all(|(key, value)| object.spec[key] == *value))
}

fn kept(kind: Kind, legacy: &Object) -> String {
    format!(
        "{kind} {} of the older controller says what groundplane's own advertisements do not: it stays, and what it says beside them is yours \
         to decide. Delete it, or delete those called {NAME}, and groundplane makes them anew after it.",
        legacy.name,
        kind = named(kind),
    )
}

fn named(kind: Kind) -> &'static str {
    if kind == Kind::L2Advertisement {
        "L2Advertisement"
    } else {
        "BGPAdvertisement"
    }
}

fn restricted(kind: Kind, object: &Object) -> String {
    let kind = named(kind);
    let (key, value) = MANAGED_BY;
    format!(
        "No advertisement of MetalLB announces groundplane's pools: {kind} {} names the pools that it is for. Add \
         `ipAddressPoolSelectors: [{{matchLabels: {{{key}: {value}}}}}]` to its spec, or take the label {}={} off it and groundplane makes \
         one of its own.",
        object.name, LEGACY_LABEL.0, LEGACY_LABEL.1
    )
}

fn plain() -> Value {
    json!({ SELECTORS: [our_selector()] })
}

fn our_selector() -> Value {
    let (key, value) = MANAGED_BY;
    json!({ "matchLabels": { key: value } })
}

fn selects_ours(spec: &Value) -> bool {
    list(spec, SELECTORS).contains(&our_selector())
}

fn list<'a>(spec: &'a Value, field: &str) -> &'a [Value] {
    spec[field].as_array().map_or(&[][..], Vec::as_slice)
}

fn apply(kind: Kind, name: String, object: Option<&Object>, spec: Value) -> Change {
    Change::Apply {
        kind,
        name,
        read: object.map(Object::read),
        spec,
    }
}

fn is_ours(object: &Object) -> bool {
    object.owner() == Owner::Us && (object.name == NAME || object.name.starts_with("groundplane-"))
}

fn is_legacy(object: &Object) -> bool {
    object.name == LEGACY_NAME && object.owner() == Owner::Legacy
}

/// Does an advertisement of the user announce our pools? By naming or selecting them, or because it announces everything everywhere;
/// with a label of the older controllers, also everything somewhere.
fn announces_ours(object: &Object, pools: &[Object]) -> bool {
    let (names, selectors) = (list(&object.spec, POOLS), list(&object.spec, SELECTORS));
    if names.is_empty() && selectors.is_empty() {
        return object.owner() == Owner::Legacy
            || ["nodeSelectors", "serviceSelectors", "peers", "interfaces"]
                .into_iter()
                .all(|restriction| list(&object.spec, restriction).is_empty());
    }
    let ours = pools.iter().filter(|pool| pool.owner() != Owner::User);
    let by_name = |pool: &Object| names.iter().any(|name| name == &*pool.name);
    let label = [(MANAGED_BY.0.to_owned(), MANAGED_BY.1.to_owned())].into();
    (ours.clone().next().is_some() && ours.into_iter().all(by_name))
        || selectors.iter().any(|selector| selects(selector, &label))
}
