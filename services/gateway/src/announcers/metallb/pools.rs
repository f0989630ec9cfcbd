//! `IPAddressPool` objects: pure.
//!
//! One object holds many addresses, since MetalLB reads its whole configuration anew with each of its objects: up to [`LIMIT`], far
//! below what the API server stores in one, and then there is a next one. An address stays in the object where it stands, for MetalLB
//! takes it from its Service when it leaves one.
//!
//! Addresses of the two families are apart, and those of Services that have both are in a third kind: MetalLB gives a Service both
//! of its addresses from one pool, and may give one that would like a second family any address of the other family in its pool.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use groundplane_core::Family;
use serde_json::{Map, Value, json};

use super::MANAGED_BY;
use super::coverage::{entry, entry_covers, single};
use super::resources::{Change, Kind, Object, Owner, free_name};
use super::world::World;

/// Addresses in one object: of IPv6, 5,000 are 250 KB.
pub(crate) const LIMIT: usize = 5_000;

/// What kind of Services a pool is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    V4,
    V6,
    Both,
}

impl Class {
    const ALL: [Self; 3] = [Self::V4, Self::V6, Self::Both];

    fn of(addresses: &BTreeSet<IpAddr>) -> Self {
        let has = |family| addresses.iter().any(|address| Family::of(*address) == family);
        match (has(Family::V4), has(Family::V6)) {
            (true, true) => Self::Both,
            (false, true) => Self::V6,
            _ => Self::V4,
        }
    }

    fn prefix(self) -> &'static str {
        match self {
            Self::V4 => "groundplane-ipv4-",
            Self::V6 => "groundplane-ipv6-",
            Self::Both => "groundplane-dual-",
        }
    }
}

/// What has to be done to the pools.
#[derive(Debug, Default)]
pub(super) struct PoolPlan {
    /// First of all: no address stands in two pools at a time.
    pub(super) shrink: Vec<Change>,
    pub(super) grow: Vec<Change>,
    pub(super) placed: BTreeSet<IpAddr>,
    pub(super) ours: BTreeSet<IpAddr>,
}

/// A pool of ours.
struct Shard<'a> {
    object: Option<&'a Object>,
    name: String,
    /// `None`: one that we took over.
    class: Option<Class>,
    before: Vec<String>,
    after: Vec<String>,
}

pub(super) fn plan(world: &World, pools: &[Object]) -> PoolPlan {
    let users: Vec<String> = pools
        .iter()
        .filter(|pool| pool.owner() == Owner::User)
        .flat_map(entries)
        .collect();
    let covered = |address: IpAddr| users.iter().any(|entry| entry_covers(entry, address));
    let mut classes: BTreeMap<IpAddr, Class> = BTreeMap::new();
    let mut plan = PoolPlan::default();
    for addresses in world.services.values() {
        let class = Class::of(addresses);
        for address in addresses {
            if covered(*address) {
                plan.placed.insert(*address);
            } else {
                let known = classes.entry(*address).or_insert(class);
                *known = class.max(*known);
            }
        }
    }
    let mut shards = shards(pools);
    let mut seen = BTreeSet::new();
    for shard in &mut shards {
        let class = shard.class;
        let stays = |entry: &String| {
            let Some(address) = single(entry) else {
                // A range is nobody's but the user's, who has it in an object of the older controller.
                return class.is_none();
            };
            let wanted = match (classes.get(&address), class) {
                (Some(wanted), Some(class)) => *wanted == class,
                (Some(wanted), None) => *wanted != Class::Both,
                (None, _) => world.mentioned.contains_key(&address) || !world.complete,
            };
            wanted && seen.insert(address)
        };
        shard.after = shard.before.clone();
        shard.after.retain(stays);
    }
    for (address, class) in classes {
        if seen.insert(address) {
            room(&mut shards, class, pools).after.push(entry(address));
        }
    }
    plan.placed.extend(&seen);
    plan.ours = seen;
    write(&mut plan, &shards);
    plan
}

fn shards(pools: &[Object]) -> Vec<Shard<'_>> {
    let managed = pools.iter().filter(|pool| pool.owner() != Owner::User);
    let mut shards: Vec<Shard<'_>> = managed.map(shard).collect();
    shards.sort_by(|a, b| a.name.cmp(&b.name));
    shards
}

fn shard(object: &Object) -> Shard<'_> {
    let Object { name, .. } = object;
    let class = Class::ALL
        .into_iter()
        .find(|class| name.starts_with(class.prefix()));
    Shard {
        object: Some(object),
        name: name.clone(),
        class: class.filter(|_| object.owner() == Owner::Us),
        before: entries(object).collect(),
        after: Vec::new(),
    }
}

fn entries(pool: &Object) -> impl Iterator<Item = String> + '_ {
    let list = pool.spec["addresses"].as_array();
    list.into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
}

/// A pool with room for one more.
fn room<'a, 'b>(shards: &'b mut Vec<Shard<'a>>, class: Class, pools: &[Object]) -> &'b mut Shard<'a> {
    let at = shards
        .iter()
        .position(|shard| shard.class == Some(class) && shard.after.len() < LIMIT);
    let at = at.unwrap_or_else(|| {
        let taken = |name: &str| {
            pools.iter().any(|pool| pool.name == name) || shards.iter().any(|shard| shard.name == name)
        };
        // One more number than there are pools: one of them is free.
        let free = (0..=shards.len())
            .map(|n| format!("{}{n}", class.prefix()))
            .find(|name| !taken(name));
        let name = free.unwrap_or_else(|| free_name(class.prefix(), taken));
        shards.push(Shard {
            object: None,
            name,
            class: Some(class),
            before: Vec::new(),
            after: Vec::new(),
        });
        shards.len() - 1
    });
    &mut shards[at]
}

fn write(plan: &mut PoolPlan, shards: &[Shard<'_>]) {
    for shard in shards {
        let Some(object) = shard.object else {
            plan.grow.push(apply(&shard.name, None, &shard.after));
            continue;
        };
        if shard.after.is_empty() {
            plan.shrink.push(object.delete(Kind::Pool));
            continue;
        }
        let after: BTreeSet<&String> = shard.after.iter().collect();
        let kept: Vec<String> = shard
            .before
            .iter()
            .filter(|entry| after.contains(entry))
            .cloned()
            .collect();
        let (loses, gains) = (kept.len() < shard.before.len(), kept.len() < shard.after.len());
        if object.owner() == Owner::Legacy {
            plan.shrink.extend(adopt(object, &shard.after, loses));
            continue;
        }
        if loses {
            // MetalLB takes no pool without addresses, even if others come next.
            plan.shrink.push(if kept.is_empty() {
                object.delete(Kind::Pool)
            } else {
                apply(&shard.name, Some(object), &kept)
            });
        }
        let left = Some(object).filter(|_| !kept.is_empty());
        let stands = object.spec["autoAssign"] == json!(false) && object.spec["avoidBuggyIPs"] != json!(true);
        if gains || (!stands && !loses) {
            plan.grow.push(apply(&shard.name, left, &shard.after));
        }
    }
}

fn apply(name: &str, object: Option<&Object>, addresses: &[String]) -> Change {
    Change::Apply {
        kind: Kind::Pool,
        name: name.to_owned(),
        read: object.map(Object::read),
        spec: json!({ "addresses": addresses, "autoAssign": false, "avoidBuggyIPs": false }),
    }
}

/// A pool of the older controller gets our label, by which our advertisement finds it, and loses what nobody has any more.
fn adopt(object: &Object, addresses: &[String], loses: bool) -> Option<Change> {
    let mut patch = Map::new();
    if !object.has(MANAGED_BY) {
        let (key, value) = MANAGED_BY;
        patch.insert("metadata".to_owned(), json!({ "labels": { key: value } }));
    }
    if loses {
        patch.insert("spec".to_owned(), json!({ "addresses": addresses }));
    }
    (!patch.is_empty()).then(|| object.patch(Kind::Pool, Value::Object(patch)))
}
