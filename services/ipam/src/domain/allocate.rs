//! Who gets what: the decision to allocate, without its effects.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use groundplane_core::{
    ClusterId, ErrorKind, Family, Kinded, Name, NetworkName, Owner, PoolId, PoolName, PoolSource, Prefix,
    Revision,
};
use jiff::Timestamp;

use super::ledger::Ledger;
use super::network::{Network, Pool};
use super::pool::PoolSpec;
use super::record::{Allocation, Change, Cooling, Key, Record};

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
    /// Who asks.
    pub owner: Owner,
    /// UID of the object; empty where it has none.
    pub uid: Box<str>,
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

/// Why there is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No pool covers it, or none that this owner may use.
    #[error("{0}")]
    OutsidePools(String),
    /// A pool covers it and excludes it.
    #[error("{prefix} is excluded from pool `{pool}`, or is the edge of a network")]
    Reserved {
        /// What was asked for.
        prefix: Prefix,
        /// The pool.
        pool: PoolId,
    },
    /// Only pools that their sources no longer have.
    #[error("pool `{0}` is being removed and gives no new addresses")]
    Draining(PoolId),
    /// Another object of that name.
    #[error("{owner} holds {held} with UID `{uid}`, which is another object; it has to be released first")]
    UidMismatch {
        /// Who asks.
        owner: Box<Owner>,
        /// What is held.
        held: Prefix,
        /// By which object.
        uid: Box<str>,
    },
    /// The owner holds something else of that family.
    #[error("{owner} holds {held}; release or move it before asking for {wanted}")]
    AlreadyHolds {
        /// Who asks.
        owner: Box<Owner>,
        /// What it holds.
        held: Prefix,
        /// What it asks for.
        wanted: Want,
    },
    /// Somebody else holds it, or a part of it.
    #[error("{prefix} is taken by {holder}")]
    Taken {
        /// What was asked for.
        prefix: Prefix,
        /// Who holds it.
        holder: Arc<Owner>,
    },
    /// No such pool, or none that serves this owner.
    #[error("{0}")]
    PoolNotFound(String),
    /// The pool's name says too little.
    #[error("pool name `{name}` is ambiguous: {}", join(.candidates))]
    PoolAmbiguous {
        /// The name.
        name: PoolName,
        /// The pools of that name.
        candidates: Vec<PoolId>,
    },
    /// All that could serve are full.
    #[error("no room for {want} in {}{}", pools_text(.pools), held_back_text(*.held_back))]
    Exhausted {
        /// What was asked for.
        want: Want,
        /// The pools that were tried.
        pools: Vec<PoolId>,
        /// Addresses that are free there, but reserved.
        held_back: u128,
    },
    /// The namespace holds as many as it may.
    #[error("objects of this namespace may hold {limit} addresses, and hold {held}")]
    Quota {
        /// The most.
        limit: u64,
        /// How many they hold.
        held: u64,
    },
}

fn join(pools: &[PoolId]) -> String {
    pools
        .iter()
        .map(|pool| format!("`{pool}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

fn pools_text(pools: &[PoolId]) -> String {
    format!(
        "{} {}",
        if pools.len() == 1 { "pool" } else { "pools" },
        join(pools)
    )
}

fn held_back_text(count: u128) -> String {
    match count {
        0 => String::new(),
        count => format!("; {count} more are reserved for who asks for them by address"),
    }
}

impl Kinded for Refusal {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::OutsidePools(_)
            | Self::Reserved { .. }
            | Self::Draining(_)
            | Self::UidMismatch { .. }
            | Self::AlreadyHolds { .. } => ErrorKind::Precondition,
            Self::Taken { .. } => ErrorKind::AlreadyExists,
            Self::PoolNotFound(_) => ErrorKind::NotFound,
            Self::PoolAmbiguous { .. } => ErrorKind::Invalid,
            Self::Exhausted { .. } | Self::Quota { .. } => ErrorKind::Exhausted,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::OutsidePools(_) => "OUTSIDE_POOLS",
            Self::Reserved { .. } => "ADDRESS_RESERVED",
            Self::Draining(_) => "POOL_DRAINING",
            Self::UidMismatch { .. } => "UID_MISMATCH",
            Self::AlreadyHolds { .. } => "ALREADY_HOLDS",
            Self::Taken { .. } => "ADDRESS_TAKEN",
            Self::PoolNotFound(_) => "POOL_NOT_FOUND",
            Self::PoolAmbiguous { .. } => "POOL_AMBIGUOUS",
            Self::Exhausted { .. } => "POOL_EXHAUSTED",
            Self::Quota { .. } => "QUOTA_EXCEEDED",
        }
    }
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

/// Collects the changes of one decision, each with a revision of its own.
pub(super) struct Draft {
    revision: Revision,
    pub(super) changes: Vec<Change>,
}

impl Draft {
    pub(super) fn new(ledger: &Ledger) -> Self {
        Self {
            revision: ledger.revision(),
            changes: Vec::new(),
        }
    }

    pub(super) fn change(
        &mut self,
        key: Key,
        old: Option<Record>,
        new: impl FnOnce(Revision) -> Option<Record>,
    ) {
        self.revision = self.revision.next();
        self.changes.push(Change {
            key,
            old,
            new: new(self.revision),
            revision: self.revision,
        });
    }

    /// Gives a prefix that nobody holds to `owner`. What cools down there is forgotten; of a block, the rest goes on
    /// cooling, unless it was released no later than `ripe`.
    pub(super) fn hold(&mut self, network: &Network, new: Allocation, ripe: Timestamp) -> Arc<Allocation> {
        let prefix = new.key.prefix;
        let mut old = None;
        for (cooled, cooling) in network.cooling_in(prefix.range()) {
            if cooled == prefix {
                old = Some(Record::Cooling(cooling));
                continue;
            }
            let at = |prefix| Key {
                network: new.key.network.clone(),
                prefix,
            };
            self.change(at(cooled), Some(Record::Cooling(cooling)), |_| None);
            if cooling.released > ripe {
                for rest in around(prefix, cooled) {
                    self.change(at(rest), None, |revision| {
                        Some(Record::Cooling(Cooling { revision, ..cooling }))
                    });
                }
            }
        }
        self.replace(old, new)
    }

    /// Puts an allocation in the place of `old`.
    pub(super) fn replace(&mut self, old: Option<Record>, mut new: Allocation) -> Arc<Allocation> {
        self.revision = self.revision.next();
        if matches!(&old, Some(Record::Held(held)) if held.owner != new.owner) {
            // A release and an allocation at once: watches tell each with a revision of its own.
            self.revision = self.revision.next();
        }
        new.revision = self.revision;
        let (key, allocation) = (new.key.clone(), Arc::new(new));
        let record = Some(Record::Held(Arc::clone(&allocation)));
        self.changes.push(Change {
            key,
            old,
            new: record,
            revision: self.revision,
        });
        allocation
    }
}

/// The prefixes that make up `whole` together with `part`; none, where `part` is not within `whole`.
fn around(part: Prefix, whole: Prefix) -> Vec<Prefix> {
    if !whole.range().contains(part.range()) {
        return Vec::new();
    }
    let (family, first) = (part.family(), part.range().first());
    let sibling = |length: u8| {
        let bit = 1_u128 << (family.bits() - length);
        let number = (first ^ bit) & !(bit - 1);
        Prefix::new(family.address(number)?, length).ok()
    };
    (whole.length() + 1..=part.length()).filter_map(sibling).collect()
}

impl Ledger {
    /// Decides on a request. Changes nothing: the plan's changes are for [`Ledger::apply`], before any other decision.
    pub fn plan_allocate(&self, ask: &Ask, now: Timestamp) -> Result<Plan, Refusal> {
        let empty = Network::default();
        let network = self.networks.get(&ask.network).unwrap_or(&empty);
        let mut draft = Draft::new(self);
        let mut plan = Plan::default();
        let mut picked = Vec::new();
        for wanted in &ask.wanted {
            if let Some(held) = held(network, ask, wanted.want)? {
                plan.allocations.push(claimed(&mut draft, held, &ask.uid));
                continue;
            }
            match self.pick(network, ask, wanted.want, now) {
                Ok(prefix) => picked.push((plan.allocations.len() + picked.len(), prefix)),
                Err(refusal) if wanted.optional => {
                    plan.missing.push(Missing {
                        family: wanted.want.family(),
                        refusal,
                    });
                }
                Err(refusal) => return Err(refusal),
            }
        }
        self.check_quota(&ask.owner, picked.len())?;
        if !picked.is_empty() {
            let owner = plan
                .allocations
                .first()
                .map_or_else(|| Arc::new(ask.owner.clone()), |held| Arc::clone(&held.owner));
            for (place, (prefix, pool)) in picked {
                let key = Key {
                    network: ask.network.clone(),
                    prefix,
                };
                let (owner, uid) = (Arc::clone(&owner), ask.uid.clone());
                let new = Allocation {
                    key,
                    owner,
                    uid,
                    pool: Some(pool),
                    since: now,
                    revision: Revision(0),
                };
                plan.allocations
                    .insert(place, draft.hold(network, new, self.ripe(now)));
            }
        }
        plan.changes = draft.changes;
        Ok(plan)
    }

    fn pick(
        &self,
        network: &Network,
        ask: &Ask,
        want: Want,
        now: Timestamp,
    ) -> Result<(Prefix, PoolId), Refusal> {
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
                    Some((prefix, pool)) => Ok((prefix, pool.spec.id.clone())),
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
fn held<'a>(network: &'a Network, ask: &Ask, want: Want) -> Result<Option<&'a Arc<Allocation>>, Refusal> {
    let mut other = None;
    for held in network
        .held_by(&ask.owner)
        .filter(|held| held.key.prefix.family() == want.family())
    {
        if !ask.uid.is_empty() && !held.uid.is_empty() && ask.uid != held.uid {
            let (owner, uid) = (Box::new(ask.owner.clone()), held.uid.clone());
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
            owner: Box::new(ask.owner.clone()),
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

fn exact(
    network: &Network,
    ask: &Ask,
    prefix: Prefix,
    chosen: Option<&PoolId>,
) -> Result<(Prefix, PoolId), Refusal> {
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
        None => Ok((prefix, id.clone())),
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
