//! The state machine: every network, every source of pools, and the one way to change them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;

use groundplane_core::{Family, NetworkName, Owner, PoolId, PoolSource, Prefix, Revision};
use jiff::{SignedDuration, Timestamp};

use super::allocate::Quota;
use super::network::Network;
use super::pool::{PoolConfig, PoolProblem, PoolSpec, read_pools};
use super::record::{Allocation, Change, Key, Record};

/// The pools of one source, as last told.
#[derive(Clone, Debug, Default, PartialEq)]
struct Snapshot {
    /// 0 where the source does not count.
    revision: u64,
    pools: BTreeMap<PoolId, Arc<PoolSpec>>,
}

/// Why pools were not replaced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PutPoolsError {
    /// The source told something newer before.
    #[error("the snapshot has source revision {told}, and the last one had {last}; send the newest")]
    Stale {
        /// The revision of this snapshot.
        told: u64,
        /// The revision that is known.
        last: u64,
    },
    /// Something is wrong with the pools.
    #[error("{}", first_problem(.0))]
    Problems(Vec<PoolProblem>),
}

fn first_problem(problems: &[PoolProblem]) -> String {
    let more = match problems.len() {
        0 | 1 => String::new(),
        many => format!(" (and {} more)", many - 1),
    };
    problems.first().map_or_else(String::new, |first| {
        format!("{}: {}{more}", first.path, first.message)
    })
}

/// What a snapshot of a source changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutPoolsOutcome {
    /// Pools that are new or different, or drain from now on.
    pub changed: Vec<PoolId>,
    /// Pools that are gone.
    pub gone: Vec<PoolId>,
}

/// A pool and how it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolStatus {
    /// The pool.
    pub spec: Arc<PoolSpec>,
    /// Addresses that could be given.
    pub total: u128,
    /// Held.
    pub used: u128,
    /// Neither held nor cooling.
    pub free: u128,
    /// Released, and before their time.
    pub cooling: u128,
    /// Its source no longer has it.
    pub draining: bool,
}

/// All that ipam knows. See the [module](super).
#[derive(Debug)]
pub struct Ledger {
    pub(super) networks: BTreeMap<NetworkName, Network>,
    sources: BTreeMap<PoolSource, Snapshot>,
    revision: Revision,
    cooldown: SignedDuration,
    pub(super) quota: Option<Box<dyn Quota>>,
}

impl Ledger {
    /// An empty ledger. Released addresses are not given again for `cooldown`; zero: at once.
    pub fn new(cooldown: SignedDuration) -> Self {
        Self {
            networks: BTreeMap::new(),
            sources: BTreeMap::new(),
            revision: Revision::default(),
            cooldown,
            quota: None,
        }
    }

    /// Asks `quota` before each allocation.
    #[must_use]
    pub fn with_quota(mut self, quota: Box<dyn Quota>) -> Self {
        self.quota = Some(quota);
        self
    }

    /// The ledger of a store: its records, and the revision that it reached. Pools come later, from their sources.
    pub fn load(
        cooldown: SignedDuration,
        revision: Revision,
        records: impl Iterator<Item = (Key, Record)>,
    ) -> Self {
        let mut ledger = Self::new(cooldown);
        for (key, record) in records {
            let revision = record.revision();
            ledger.apply(&Change {
                key,
                old: None,
                new: Some(record),
                revision,
            });
        }
        ledger.revision = ledger.revision.max(revision);
        ledger
    }

    /// The revision of the last change.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Makes the revision at least this one.
    pub fn advance(&mut self, revision: Revision) {
        self.revision = self.revision.max(revision);
    }

    /// Makes one change. Changes are made in the order in which they were planned.
    pub fn apply(&mut self, change: &Change) {
        match self.networks.get_mut(&change.key.network) {
            Some(network) => network.apply(change),
            None => self
                .networks
                .entry(change.key.network.clone())
                .or_default()
                .apply(change),
        }
        self.revision = self.revision.max(change.revision);
    }

    /// Is a cooldown configured?
    pub(super) fn cools(&self) -> bool {
        self.cooldown > SignedDuration::ZERO
    }

    /// What was released at or before this may be given again at `now`.
    pub fn ripe(&self, now: Timestamp) -> Timestamp {
        now.saturating_sub(self.cooldown).unwrap_or(Timestamp::MIN)
    }

    /// Replaces all pools of `source`: all of it, or, upon any problem, nothing.
    pub fn put_pools(
        &mut self,
        source: &PoolSource,
        revision: u64,
        raw: &[PoolConfig],
    ) -> Result<PutPoolsOutcome, PutPoolsError> {
        let last = self.sources.get(source).map_or(0, |snapshot| snapshot.revision);
        if revision != 0 && revision < last {
            return Err(PutPoolsError::Stale { told: revision, last });
        }
        let others = self.sources.iter().filter(|(other, _)| *other != source);
        let others = others
            .flat_map(|(_, snapshot)| snapshot.pools.values())
            .map(|spec| &**spec);
        let read = read_pools(source, raw, others).map_err(PutPoolsError::Problems)?;
        let pools: BTreeMap<_, _> = read
            .into_iter()
            .map(|spec| (spec.id.clone(), Arc::new(spec)))
            .collect();
        let snapshot = Snapshot { revision, pools };
        let before = self.sources.insert(source.clone(), snapshot).unwrap_or_default();
        Ok(self.refresh(source, &before))
    }

    /// Brings the networks up to date with the sources, after `source` changed from `before`.
    fn refresh(&mut self, source: &PoolSource, before: &Snapshot) -> PutPoolsOutcome {
        let empty = Snapshot::default();
        let now = self.sources.get(source).unwrap_or(&empty);
        let differs = |(id, spec): &(&PoolId, &Arc<PoolSpec>)| now.pools.get(*id) != Some(*spec);
        let left = before.pools.iter().filter(differs);
        let came = now
            .pools
            .iter()
            .filter(|(id, spec)| before.pools.get(*id) != Some(*spec));
        let touched: Vec<(PoolId, NetworkName)> = left
            .chain(came)
            .map(|(id, spec)| (id.clone(), spec.network.clone()))
            .collect();
        let networks: BTreeSet<_> = touched.iter().map(|(_, network)| network.clone()).collect();
        for name in networks {
            let specs = self.sources.values().flat_map(|snapshot| snapshot.pools.values());
            let specs = specs.filter(|spec| spec.network == name).cloned().collect();
            self.networks.entry(name).or_default().set_pools(specs);
        }
        let mut outcome = PutPoolsOutcome::default();
        let ids: BTreeSet<_> = touched.into_iter().map(|(id, _)| id).collect();
        for id in ids {
            if self.pool_status(&id, Timestamp::MIN).is_some() {
                outcome.changed.push(id);
            } else {
                outcome.gone.push(id);
            }
        }
        outcome
    }

    /// Forgets draining pools that became empty, and names them.
    pub fn end_drained(&mut self) -> Vec<PoolId> {
        self.networks
            .values_mut()
            .filter(|network| !network.draining.is_empty())
            .flat_map(Network::end_drained)
            .collect()
    }

    /// Every pool at `now`, live ones in the order in which they are tried, then those that drain.
    pub fn pools(&self, now: Timestamp) -> Vec<PoolStatus> {
        let ripe = self.ripe(now);
        let of = |network: &Network| {
            let live: Vec<_> = (0..network.pools.len())
                .filter_map(|index| live_status(network, index, ripe))
                .collect();
            let draining = network
                .draining
                .values()
                .map(|spec| draining_status(network, spec));
            live.into_iter().chain(draining).collect::<Vec<_>>()
        };
        self.networks.values().flat_map(of).collect()
    }

    /// One pool at `now`.
    pub fn pool_status(&self, id: &PoolId, now: Timestamp) -> Option<PoolStatus> {
        let ripe = self.ripe(now);
        self.networks.values().find_map(|network| {
            let live = network.pools.iter().position(|pool| pool.spec.id == *id);
            live.and_then(|index| live_status(network, index, ripe))
                .or_else(|| {
                    network
                        .draining
                        .get(id)
                        .map(|spec| draining_status(network, spec))
                })
        })
    }

    /// What an owner holds.
    pub fn held_by(&self, network: &NetworkName, owner: &Owner) -> Vec<Arc<Allocation>> {
        self.networks
            .get(network)
            .map_or_else(Vec::new, |network| network.held_by(owner).cloned().collect())
    }

    /// Who holds this address, or the block around it.
    pub fn holder(&self, network: &NetworkName, address: IpAddr) -> Option<Arc<Allocation>> {
        let range = Prefix::host(address).range();
        self.networks.get(network)?.overlapping(range).next().cloned()
    }

    /// The pool that an allocation belongs to today; `None` where no pool covers it.
    pub fn pool_of(&self, key: &Key) -> Option<&PoolId> {
        self.networks.get(&key.network)?.pool_of(key.prefix)
    }

    /// The pool that gives this prefix to others when its holder lets it go.
    pub fn giving_pool(&self, key: &Key) -> Option<&PoolId> {
        let pool = self.networks.get(&key.network)?.covering(key.prefix.range())?;
        Some(&pool.spec.id)
    }

    /// Allocations behind `after`, in the order of (network, prefix).
    pub fn allocations(&self, after: Option<&Key>) -> impl Iterator<Item = &Arc<Allocation>> {
        let first = after.map(|key| key.network.clone());
        let networks = self.networks.range::<NetworkName, _>((
            first.as_ref().map_or(Bound::Unbounded, Bound::Included),
            Bound::Unbounded,
        ));
        let after = after.cloned();
        networks.flat_map(move |(name, network)| {
            let start = match &after {
                Some(key) if key.network == *name => Bound::Excluded(key.prefix),
                _ => Bound::Unbounded,
            };
            network
                .allocations
                .range((start, Bound::Unbounded))
                .map(|(_, allocation)| allocation)
        })
    }

    /// Pools in which something ripened after `after`, and no later than `now`.
    pub fn ripened(&self, after: Timestamp, now: Timestamp) -> Vec<PoolId> {
        let (after, ripe) = (self.ripe(after), self.ripe(now));
        let pools = self.networks.values().flat_map(|network| &network.pools);
        let ripened = pools.filter(|pool| {
            [Family::V4, Family::V6]
                .into_iter()
                .any(|family| pool.space(family).ripened(after, ripe))
        });
        ripened.map(|pool| pool.spec.id.clone()).collect()
    }

    /// When the next address may be given again, after `now`.
    pub fn next_ripe(&self, now: Timestamp) -> Option<Timestamp> {
        let ripe = self.ripe(now);
        let released = self
            .networks
            .values()
            .filter_map(|network| network.next_unripe(ripe))
            .min()?;
        released.saturating_add(self.cooldown).ok()
    }

    /// Rebuilds everything that is derived from records and pools, and compares.
    pub fn check(&self) -> Result<(), String> {
        for (name, network) in &self.networks {
            if *network != network.rebuilt() {
                return Err(format!(
                    "what is derived in network `{name}` is not what its records say"
                ));
            }
            let mut last: Option<Prefix> = None;
            for prefix in network.allocations.keys().copied() {
                if let Some(last) = last.filter(|last| last.range().overlaps(prefix.range())) {
                    return Err(format!("{last} and {prefix} overlap in network `{name}`"));
                }
                last = Some(prefix);
            }
        }
        Ok(())
    }
}

fn live_status(network: &Network, index: usize, ripe: Timestamp) -> Option<PoolStatus> {
    let pool = network.pools.get(index)?;
    let (v4, v6) = (
        pool.space(Family::V4).usage(ripe),
        pool.space(Family::V6).usage(ripe),
    );
    Some(PoolStatus {
        spec: Arc::clone(&pool.spec),
        total: v4.total.saturating_add(v6.total),
        used: v4.used.saturating_add(v6.used),
        free: v4.free.saturating_add(v6.free),
        cooling: v4.cooling.saturating_add(v6.cooling),
        draining: false,
    })
}

fn draining_status(network: &Network, spec: &Arc<PoolSpec>) -> PoolStatus {
    let used = network.draining_used(spec);
    PoolStatus {
        spec: Arc::clone(spec),
        total: used,
        used,
        free: 0,
        cooling: 0,
        draining: true,
    }
}
