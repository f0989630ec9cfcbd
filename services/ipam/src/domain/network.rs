//! One address space: who holds what in it, what cools down, and its pools.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use groundplane_core::{AddressRange, Family, Owner, PoolId, Prefix};
use jiff::Timestamp;
use rangemap::RangeInclusiveSet;

use super::pool::PoolSpec;
use super::record::{Allocation, Change, Cooling, Record};
use super::space::Space;

/// A pool with what is free in it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pool {
    /// The id of the specification, shared by all allocations from here.
    pub(super) id: Arc<PoolId>,
    pub(super) spec: Arc<PoolSpec>,
    v4: Space,
    v6: Space,
}

impl Pool {
    fn new(spec: Arc<PoolSpec>) -> Self {
        let space = |family| {
            let ours = move |range: &AddressRange| range.family() == family;
            Space::new(
                spec.addresses.iter().map(|item| item.range).filter(ours),
                spec.excluded().into_iter().filter(ours),
                spec.reserved.iter().map(|item| item.range).filter(ours),
            )
        };
        let (v4, v6) = (space(Family::V4), space(Family::V6));
        let id = Arc::new(spec.id.clone());
        Self { id, spec, v4, v6 }
    }

    pub(super) fn space(&self, family: Family) -> &Space {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }

    fn space_mut(&mut self, family: Family) -> &mut Space {
        match family {
            Family::V4 => &mut self.v4,
            Family::V6 => &mut self.v6,
        }
    }
}

/// What one owner holds, in the order of prefixes: nearly always one address, for which no list is made.
#[derive(Clone, Debug, PartialEq)]
enum Held {
    One(Arc<Allocation>),
    More(Vec<Arc<Allocation>>),
}

impl Held {
    fn as_slice(&self) -> &[Arc<Allocation>] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::More(more) => more,
        }
    }

    fn insert(&mut self, allocation: &Arc<Allocation>) {
        if let Self::One(one) = self {
            *self = Self::More(vec![Arc::clone(one)]);
        }
        if let Self::More(more) = self {
            let place = more.partition_point(|held| held.key.prefix < allocation.key.prefix);
            more.insert(place, Arc::clone(allocation));
        }
    }

    /// Takes a prefix out, and says whether nothing is left.
    fn remove(&mut self, prefix: Prefix) -> bool {
        let mut left = self.as_slice().iter().filter(|held| held.key.prefix != prefix);
        match (left.next().cloned(), left.next()) {
            (None, _) => true,
            (Some(one), None) => {
                *self = Self::One(one);
                false
            }
            (Some(_), Some(_)) => {
                if let Self::More(more) = self {
                    more.retain(|held| held.key.prefix != prefix);
                }
                false
            }
        }
    }
}

/// One address space.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Network {
    /// No two of them overlap.
    pub(super) allocations: BTreeMap<Prefix, Arc<Allocation>>,
    /// Keys are long texts: a quick hash with a random seed.
    owners: HashMap<Arc<Owner>, Held, foldhash::fast::RandomState>,
    pub(super) cooling: BTreeMap<Prefix, Cooling>,
    /// In the order in which they are tried.
    pub(super) pools: Vec<Pool>,
    /// First address to last address and pool, for each range of each pool.
    cover: BTreeMap<(Family, u128), (u128, usize)>,
    /// Pools that are gone, and from which somebody still holds addresses.
    pub(super) draining: BTreeMap<PoolId, Arc<PoolSpec>>,
}

impl Network {
    /// What this owner holds, in the order of prefixes.
    pub(super) fn held_by(&self, owner: &Owner) -> impl Iterator<Item = &Arc<Allocation>> {
        self.owners
            .get(owner)
            .map(Held::as_slice)
            .unwrap_or_default()
            .iter()
    }

    /// The owner as its allocations share it.
    pub(super) fn owner(&self, owner: &Owner) -> Arc<Owner> {
        self.owners
            .get_key_value(owner)
            .map_or_else(|| Arc::new(owner.clone()), |(known, _)| Arc::clone(known))
    }

    /// Allocations that share an address with `range`.
    pub(super) fn overlapping(&self, range: AddressRange) -> impl Iterator<Item = &Arc<Allocation>> {
        overlapping(&self.allocations, range).map(|(_, allocation)| allocation)
    }

    /// Cooling prefixes that share an address with `range`.
    pub(super) fn cooling_in(&self, range: AddressRange) -> impl Iterator<Item = (Prefix, Cooling)> {
        overlapping(&self.cooling, range).map(|(prefix, cooling)| (*prefix, *cooling))
    }

    /// The pool that covers all of `range`.
    pub(super) fn covering(&self, range: AddressRange) -> Option<&Pool> {
        let index = self.touched(range).next()?;
        self.pools.get(index).filter(|pool| pool.spec.covers(range))
    }

    /// The pool which this prefix belongs to, be it one that drains.
    pub(super) fn pool_of(&self, prefix: Prefix) -> Option<&PoolId> {
        let range = prefix.range();
        self.covering(range)
            .map(|pool| &pool.spec.id)
            .or_else(|| self.draining_at(range).map(|spec| &spec.id))
    }

    /// The draining pool that covers all of `range`.
    pub(super) fn draining_at(&self, range: AddressRange) -> Option<&Arc<PoolSpec>> {
        self.draining.values().find(|spec| spec.covers(range))
    }

    /// Indices of the pools that have an address of `range`. One pool may come more than once.
    fn touched(&self, range: AddressRange) -> impl Iterator<Item = usize> {
        let (family, first, last) = (range.family(), range.first(), range.last());
        let before = self
            .cover
            .range(..=(family, first))
            .next_back()
            .filter(|((of, _), (end, _))| *of == family && *end >= first);
        let within = (first < last).then(|| self.cover.range((family, first + 1)..=(family, last)));
        let all = before.into_iter().chain(within.into_iter().flatten());
        all.map(|(_, (_, index))| *index)
    }

    /// Would this prefix cool down when it is released? Yes, where it may be given to who asks for any, and where nobody may have it
    /// now: the pool that went away, or excludes it, may be back before it has cooled.
    pub(super) fn cools(&self, prefix: Prefix) -> bool {
        let range = prefix.range();
        let pools = || self.touched(range).filter_map(|index| self.pools.get(index));
        let mut spaces = pools().map(|pool| pool.space(prefix.family()));
        spaces.any(|space| space.cools(prefix))
            || !pools().any(|pool| pool.space(prefix.family()).is_usable(range))
    }

    /// Makes the record that `change` is about what it becomes.
    pub(super) fn apply(&mut self, change: &Change) {
        let prefix = change.key.prefix;
        match &change.old {
            Some(Record::Held(allocation)) => self.forget(allocation),
            Some(Record::Cooling(cooling)) => {
                self.cooling.remove(&prefix);
                self.each_space(prefix, |space| space.thaw(prefix, cooling.released));
            }
            None => {}
        }
        match &change.new {
            Some(Record::Held(allocation)) => {
                self.remember(allocation);
                self.each_space(prefix, |space| space.take(prefix.range()));
            }
            Some(Record::Cooling(cooling)) => {
                self.cooling.insert(prefix, *cooling);
                self.each_space(prefix, |space| space.cool(prefix, cooling.released));
            }
            None => {}
        }
    }

    fn forget(&mut self, allocation: &Allocation) {
        let prefix = allocation.key.prefix;
        self.allocations.remove(&prefix);
        if let Some(held) = self.owners.get_mut(&*allocation.owner)
            && held.remove(prefix)
        {
            self.owners.remove(&*allocation.owner);
        }
        let range = prefix.range();
        self.each_space(prefix, |space| space.give(range.first(), range.last()));
    }

    fn remember(&mut self, allocation: &Arc<Allocation>) {
        let prefix = allocation.key.prefix;
        self.allocations.insert(prefix, Arc::clone(allocation));
        match self.owners.entry(Arc::clone(&allocation.owner)) {
            Entry::Vacant(vacant) => {
                vacant.insert(Held::One(Arc::clone(allocation)));
            }
            Entry::Occupied(mut occupied) => occupied.get_mut().insert(allocation),
        }
    }

    fn each_space(&mut self, prefix: Prefix, mut act: impl FnMut(&mut Space)) {
        let range = prefix.range();
        if range.first() == range.last() {
            // By far the most: one address is in at most one pool.
            let index = self.touched(range).next();
            if let Some(pool) = index.and_then(|index| self.pools.get_mut(index)) {
                act(pool.space_mut(prefix.family()));
            }
            return;
        }
        let mut indices: Vec<_> = self.touched(range).collect();
        indices.sort_unstable();
        indices.dedup();
        for index in indices {
            if let Some(pool) = self.pools.get_mut(index) {
                act(pool.space_mut(prefix.family()));
            }
        }
    }

    /// Replaces the pools. What is free is computed anew for those that changed.
    pub(super) fn set_pools(&mut self, specs: Vec<Arc<PoolSpec>>) {
        let mut before: BTreeMap<PoolId, Pool> = std::mem::take(&mut self.pools)
            .into_iter()
            .map(|pool| (pool.spec.id.clone(), pool))
            .collect();
        for spec in specs {
            let pool = match before.remove(&spec.id) {
                Some(pool) if pool.spec == spec => pool,
                _ => self.filled(spec),
            };
            self.draining.remove(&pool.spec.id);
            self.pools.push(pool);
        }
        self.pools.sort_by(|a, b| order(&a.spec).cmp(&order(&b.spec)));
        self.cover = BTreeMap::new();
        for (index, pool) in self.pools.iter().enumerate() {
            for family in [Family::V4, Family::V6] {
                for range in merged(&pool.spec, family).iter() {
                    self.cover.insert((family, *range.start()), (*range.end(), index));
                }
            }
        }
        for (id, pool) in before {
            self.draining.insert(id, pool.spec);
        }
        self.end_drained();
    }

    /// A pool in which everything is free that no record says otherwise of.
    fn filled(&self, spec: Arc<PoolSpec>) -> Pool {
        let mut pool = Pool::new(spec);
        let spec = Arc::clone(&pool.spec);
        for item in &spec.addresses {
            let space = pool.space_mut(item.range.family());
            for allocation in self.overlapping(item.range) {
                space.take(allocation.key.prefix.range());
            }
            for (prefix, cooling) in self.cooling_in(item.range) {
                space.cool(prefix, cooling.released);
            }
        }
        pool
    }

    /// Forgets draining pools from which nobody holds anything, and names them.
    pub(super) fn end_drained(&mut self) -> Vec<PoolId> {
        let drained = |(_, spec): &(&PoolId, &Arc<PoolSpec>)| self.draining_used(spec) == 0;
        let ended: Vec<_> = self
            .draining
            .iter()
            .filter(drained)
            .map(|(id, _)| id.clone())
            .collect();
        for id in &ended {
            self.draining.remove(id);
        }
        ended
    }

    /// How many addresses of a draining pool are held and belong to no other pool.
    pub(super) fn draining_used(&self, spec: &PoolSpec) -> u128 {
        spec.addresses
            .iter()
            .flat_map(|item| self.overlapping(item.range))
            .filter(|allocation| self.covering(allocation.key.prefix.range()).is_none())
            .fold(0, |sum, allocation| {
                sum.saturating_add(allocation.key.prefix.range().size())
            })
    }

    /// When the next prefix ripens that is not ripe at `ripe`: its release.
    pub(super) fn next_unripe(&self, ripe: Timestamp) -> Option<Timestamp> {
        self.pools
            .iter()
            .flat_map(|pool| [&pool.v4, &pool.v6])
            .filter_map(|space| space.next_unripe(ripe))
            .min()
    }

    /// The same network, with all that is derived made anew.
    pub(super) fn rebuilt(&self) -> Self {
        let mut rebuilt = Self::default();
        for allocation in self.allocations.values() {
            rebuilt.remember(allocation);
        }
        rebuilt.cooling.clone_from(&self.cooling);
        rebuilt.set_pools(self.pools.iter().map(|pool| Arc::clone(&pool.spec)).collect());
        // Not derived from records: what the sources had before.
        rebuilt.draining.clone_from(&self.draining);
        rebuilt
    }
}

/// The addresses of a pool in one family, without regard to how they were written.
fn merged(spec: &PoolSpec, family: Family) -> RangeInclusiveSet<u128> {
    let ranges = spec
        .addresses
        .iter()
        .map(|item| item.range)
        .filter(|range| range.family() == family);
    ranges.map(|range| range.first()..=range.last()).collect()
}

/// The order in which pools are tried: high priority first, then by name.
fn order(spec: &PoolSpec) -> impl Ord {
    (
        std::cmp::Reverse(spec.priority),
        spec.id.name.clone(),
        spec.id.clone(),
    )
}

/// The prefixes of `map` that share an address with `range`. Sound because no two keys overlap.
fn overlapping<T>(map: &BTreeMap<Prefix, T>, range: AddressRange) -> impl Iterator<Item = (&Prefix, &T)> {
    let family = range.family();
    let bounds = family
        .address(range.first())
        .map(Prefix::host)
        .zip(family.address(range.last()).map(Prefix::host));
    bounds.into_iter().flat_map(move |(first, last)| {
        // Blocks that start at `first` sort before the host prefix there, so one step back finds them, too.
        let before = map
            .range(..first)
            .next_back()
            .filter(|(prefix, _)| prefix.range().overlaps(range));
        before.into_iter().chain(map.range(first..=last))
    })
}
