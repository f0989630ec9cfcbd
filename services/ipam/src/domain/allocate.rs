//! Who gets what: the decision to allocate, without its effects.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use groundplane_core::{
    ClusterId, Family, Name, NetworkName, Owner, PoolId, PoolName, PoolSource, Prefix, Revision,
};
use jiff::Timestamp;

use super::draft::Draft;
use super::ledger::Ledger;
use super::network::{Network, Pool};
use super::pool::PoolSpec;
use super::record::{Allocation, Change, Key, Record};
use super::refusal::Refusal;

/// What is wanted in one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Any prefix of this family and length.
    Any {
        /// The family.
        family: Family,
        /// Leading bits; those of an address for a single one.
        length: u8,
    },
    /// This very prefix.
    Exact(Prefix),
}

impl Want {
    /// The family.
    pub fn family(self) -> Family {
        match self {
            Self::Any { family, .. } => family,
            Self::Exact(prefix) => prefix.family(),
        }
    }

    fn is(self, prefix: Prefix) -> bool {
        match self {
            Self::Any { family, length } => prefix.family() == family && prefix.length() == length,
            Self::Exact(wanted) => wanted == prefix,
        }
    }
}

impl fmt::Display for Want {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any { family, length } if *length == family.bits() => write!(f, "an {family} address"),
            Self::Any { family, length } => write!(f, "an {family} /{length}"),
            Self::Exact(prefix) => write!(f, "{prefix}"),
        }
    }
}

/// A want, and whether the owner can do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// What.
    pub want: Want,
    /// Where it cannot be had, the rest is given all the same.
    pub optional: bool,
}

/// A pool, named as people do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolChoice {
    /// Its source, unless the name says enough.
    pub source: Option<PoolSource>,
    /// Its namespace; without one, pools that have none come first.
    pub namespace: Option<Name>,
    /// Its name.
    pub name: PoolName,
}

/// Which pools may serve.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// Only this one.
    pub pool: Option<PoolChoice>,
    /// Labels of the object, by which pools select.
    pub labels: BTreeMap<String, String>,
}

/// A request for addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Who asks. What it is given shares this value.
    pub owner: Arc<Owner>,
    /// UID of the object; empty where it has none.
    pub uid: Arc<str>,
    /// The address space.
    pub network: NetworkName,
    /// What is wanted: at least one, at most one a family.
    pub wanted: Vec<Wanted>,
    /// Which pools may serve it.
    pub selector: Selector,
}

/// How many addresses the objects of a namespace may hold.
pub trait Quota: fmt::Debug + Send {
    /// The most that objects of this namespace may hold in all networks together; `None`: as many as there are.
    fn limit(&self, cluster: &ClusterId, namespace: Option<&Name>) -> Option<u64>;
}

/// An optional want that could not be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// In which family.
    pub family: Family,
    /// Why.
    pub refusal: Refusal,
}

/// What would be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// What the owner holds then, in the order of the request.
    pub allocations: Vec<Arc<Allocation>>,
    /// What it goes without.
    pub missing: Vec<Missing>,
    /// What changes.
    pub changes: Vec<Change>,
}

impl Ledger {
    /// Decides on a request. Changes nothing: the plan's changes are for [`Ledger::apply`], before any other decision.
    pub fn plan_allocate(&self, ask: &Ask, now: Timestamp) -> Result<Plan, Refusal> {
        let empty;
        let network = if let Some(network) = self.networks.get(&ask.network) {
            network
        } else {
            empty = Network::default();
            &empty
        };
        let mut draft = Draft::with_capacity(self, ask.wanted.len());
        let mut plan = Plan {
            allocations: Vec::with_capacity(ask.wanted.len()),
            ..Plan::default()
        };
        let mine: Vec<_> = network.held_by(&ask.owner).collect();
        let mut owner = mine.first().map(|held| Arc::clone(&held.owner));
        let mut new = 0;
        for wanted in &ask.wanted {
            if let Some(held) = held(&mine, ask, wanted.want)? {
                plan.allocations.push(claimed(&mut draft, held, &ask.uid));
                continue;
            }
            let (prefix, pool) = match self.pick(network, ask, wanted.want, now) {
                Ok(picked) => picked,
                Err(refusal) if wanted.optional => {
                    let family = wanted.want.family();
                    plan.missing.push(Missing { family, refusal });
                    continue;
                }
                Err(refusal) => return Err(refusal),
            };
            let owner = owner.get_or_insert_with(|| Arc::clone(&ask.owner));
            let key = Key {
                network: ask.network.clone(),
                prefix,
            };
            let allocation = Allocation {
                key,
                owner: Arc::clone(owner),
                uid: Arc::clone(&ask.uid),
                pool: Some(Arc::clone(pool)),
                since: now,
                revision: Revision(0),
            };
            plan.allocations
                .push(draft.hold(network, allocation, self.ripe(now)));
            new += 1;
        }
        self.check_quota(&ask.owner, new)?;
        plan.changes = draft.changes;
        Ok(plan)
    }

    fn pick<'a>(
        &self,
        network: &'a Network,
        ask: &Ask,
        want: Want,
        now: Timestamp,
    ) -> Result<(Prefix, &'a Arc<PoolId>), Refusal> {
        let chosen = choose(network, &ask.selector)?;
        match want {
            Want::Exact(prefix) => exact(network, ask, prefix, chosen.as_ref()),
            Want::Any { family, length } => {
                let ripe = self.ripe(now);
                let admits =
                    |pool: &&Pool| admits(&pool.spec, &ask.owner, &ask.selector, chosen.as_ref()).is_ok();
                let serves = |pool: &&Pool| !pool.space(family).is_empty();
                let mut pools = network.pools.iter().filter(serves).filter(admits);
                let picked =
                    pools.find_map(|pool| Some((pool.space(family).pick(family, length, ripe)?, pool)));
                match picked {
                    Some((prefix, pool)) => Ok((prefix, &pool.id)),
                    None => Err(none_left(network, ask, want, chosen.as_ref())),
                }
            }
        }
    }

    /// Counts only where there is a limit; nothing has one by default.
    fn check_quota(&self, owner: &Owner, more: usize) -> Result<(), Refusal> {
        let limit = self
            .quota
            .as_ref()
            .and_then(|quota| quota.limit(&owner.cluster, owner.namespace.as_ref()));
        let Some(limit) = limit.filter(|_| more > 0) else {
            return Ok(());
        };
        let same = |held: &&Arc<Allocation>| {
            held.owner.cluster == owner.cluster && held.owner.namespace == owner.namespace
        };
        let held = self.allocations(None).filter(same).count() as u64;
        if held.saturating_add(more as u64) > limit {
            Err(Refusal::Quota { limit, held })
        } else {
            Ok(())
        }
    }
}

/// What the owner holds of what it wants.
fn held<'a>(
    mine: &[&'a Arc<Allocation>],
    ask: &Ask,
    want: Want,
) -> Result<Option<&'a Arc<Allocation>>, Refusal> {
    let mut other = None;
    for held in mine
        .iter()
        .filter(|held| held.key.prefix.family() == want.family())
    {
        if !ask.uid.is_empty() && !held.uid.is_empty() && ask.uid != held.uid {
            let (owner, uid) = (Box::new((*ask.owner).clone()), Arc::clone(&held.uid));
            return Err(Refusal::UidMismatch {
                owner,
                held: held.key.prefix,
                uid,
            });
        }
        if want.is(held.key.prefix) {
            return Ok(Some(held));
        }
        other = Some(held.key.prefix);
    }
    match other {
        Some(held) => Err(Refusal::AlreadyHolds {
            owner: Box::new((*ask.owner).clone()),
            held,
            wanted: want,
        }),
        None => Ok(None),
    }
}

/// The allocation with the UID of the object that holds it, where that was not known.
pub(super) fn claimed(draft: &mut Draft, held: &Arc<Allocation>, uid: &str) -> Arc<Allocation> {
    if uid.is_empty() || *held.uid == *uid {
        return Arc::clone(held);
    }
    let new = Allocation {
        uid: uid.into(),
        ..(**held).clone()
    };
    draft.replace(Some(Record::Held(Arc::clone(held))), new)
}

/// The pool that the selector names, be it one that drains.
pub(super) fn choose(network: &Network, selector: &Selector) -> Result<Option<PoolId>, Refusal> {
    let Some(choice) = &selector.pool else {
        return Ok(None);
    };
    let all = network
        .pools
        .iter()
        .map(|pool| &pool.spec.id)
        .chain(network.draining.keys());
    let mut named: Vec<PoolId> = all
        .filter(|id| id.name == choice.name)
        .filter(|id| choice.source.as_ref().is_none_or(|source| id.source == *source))
        .filter(|id| choice.namespace.is_none() || id.namespace == choice.namespace)
        .cloned()
        .collect();
    if choice.namespace.is_none() && named.iter().any(|id| id.namespace.is_none()) {
        named.retain(|id| id.namespace.is_none());
    }
    match named.len() {
        0 => Err(Refusal::PoolNotFound(format!(
            "there is no pool `{}` in this network",
            choice.name
        ))),
        1 => Ok(named.pop()),
        _ => Err(Refusal::PoolAmbiguous {
            name: choice.name.clone(),
            candidates: named,
        }),
    }
}

/// May this pool serve the owner? Says why not.
pub(super) fn admits(
    pool: &PoolSpec,
    owner: &Owner,
    selector: &Selector,
    chosen: Option<&PoolId>,
) -> Result<(), String> {
    match chosen {
        Some(chosen) if *chosen != pool.id => return Err(format!("pool `{chosen}` was asked for")),
        None if pool.explicit_only => {
            return Err("it serves only who names it, or an address in it".to_owned());
        }
        _ => {}
    }
    entitled(pool, owner, selector)
}

/// May this pool serve the owner at all, where the pool or the address was named?
fn entitled(pool: &PoolSpec, owner: &Owner, selector: &Selector) -> Result<(), String> {
    let namespace = owner.namespace.as_ref().map_or("", Name::as_str);
    if !pool.namespaces.is_empty() && !pool.namespaces.contains(namespace) {
        return Err(format!("it does not serve namespace `{namespace}`"));
    }
    let lacks = |(label, value): &(&String, &String)| selector.labels.get(*label) != Some(*value);
    match pool.match_labels.iter().find(lacks) {
        Some((label, value)) => Err(format!("it serves only objects with label `{label}={value}`")),
        None => Ok(()),
    }
}

fn exact<'a>(
    network: &'a Network,
    ask: &Ask,
    prefix: Prefix,
    chosen: Option<&PoolId>,
) -> Result<(Prefix, &'a Arc<PoolId>), Refusal> {
    let range = prefix.range();
    let Some(pool) = network.covering(range) else {
        return Err(match network.draining_at(range) {
            Some(spec) => Refusal::Draining(spec.id.clone()),
            None => Refusal::OutsidePools(format!(
                "no pool of network `{}` covers {prefix}; ask for an address within a pool, or add one",
                ask.network
            )),
        });
    };
    let id = &pool.spec.id;
    if let Some(chosen) = chosen.filter(|chosen| *chosen != id) {
        return Err(Refusal::OutsidePools(format!(
            "{prefix} is in pool `{id}`, not in pool `{chosen}`"
        )));
    }
    entitled(&pool.spec, &ask.owner, &ask.selector)
        .map_err(|why| Refusal::OutsidePools(format!("{prefix} is in pool `{id}`, but {why}")))?;
    if !pool.space(prefix.family()).is_usable(range) {
        return Err(Refusal::Reserved {
            prefix,
            pool: id.clone(),
        });
    }
    match network.overlapping(range).next() {
        Some(taken) => Err(Refusal::Taken {
            prefix,
            holder: Arc::clone(&taken.owner),
        }),
        None => Ok((prefix, &pool.id)),
    }
}

/// Why none of the pools had anything.
fn none_left(network: &Network, ask: &Ask, want: Want, chosen: Option<&PoolId>) -> Refusal {
    let family = want.family();
    let pools = network.pools.iter().filter(|pool| !pool.space(family).is_empty());
    let tried: Vec<&Pool> = pools
        .filter(|pool| admits(&pool.spec, &ask.owner, &ask.selector, chosen).is_ok())
        .collect();
    if tried.is_empty() {
        let mut draining = network.draining.values().filter(|spec| spec.has(family));
        if let Some(spec) = draining.find(|spec| admits(spec, &ask.owner, &ask.selector, chosen).is_ok()) {
            return Refusal::Draining(spec.id.clone());
        }
        return Refusal::PoolNotFound(match chosen {
            Some(pool) => format!("pool `{pool}` does not serve {} with {want}", ask.owner),
            None => format!(
                "no pool of network `{}` serves {} with {want}",
                ask.network, ask.owner
            ),
        });
    }
    Refusal::Exhausted {
        want,
        pools: tried.iter().map(|pool| pool.spec.id.clone()).collect(),
        held_back: tried.iter().fold(0_u128, |sum, pool| {
            sum.saturating_add(pool.space(family).held_back())
        }),
    }
}
