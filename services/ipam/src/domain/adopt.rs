//! Adoption: the cluster tells what its objects hold, and the ledger follows.
//!
//! The store may be empty, new, or restored from an old backup. So where a record and a live status disagree, the live
//! status wins: the record's owner loses the prefix if the snapshot covers its kind and it holds the prefix no more.
//! Nothing is taken on doubt: not from another cluster, not from a kind that the snapshot does not cover, and not what
//! was given after the snapshot began, where we can know that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use groundplane_core::{ClusterId, Family, NetworkName, Owner, OwnerKind, Prefix, Revision};
use jiff::Timestamp;

use super::allocate::claimed;
use super::draft::Draft;
use super::ledger::Ledger;
use super::record::{Allocation, Change, Key, Record};

/// What one object holds by its own word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The object.
    pub owner: Owner,
    /// Its UID; empty where it is not told.
    pub uid: Arc<str>,
    /// The address space.
    pub network: NetworkName,
    /// What it holds.
    pub prefixes: Vec<Prefix>,
}

/// A cluster's complete snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdoptionRequest {
    /// Which cluster.
    pub cluster: ClusterId,
    /// What its objects hold.
    pub holdings: Vec<Holding>,
    /// Kinds of owner that the snapshot covers completely.
    pub kinds: BTreeSet<OwnerKind>,
    /// Allocations with a later revision were made after the snapshot began and are not taken away; `None`: there can be
    /// none, since nothing was given to this cluster yet.
    pub newer: Option<Revision>,
}

/// A holding that somebody else holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Index of the holding in the request.
    pub holding: usize,
    /// Which of its prefixes.
    pub prefix: Prefix,
    /// Who holds it, or a part of it.
    pub holder: Arc<Owner>,
}

/// What an adoption did. Its changes are made already.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Adoption {
    /// Prefixes that were taken over.
    pub adopted: u32,
    /// Holdings that somebody else holds.
    pub conflicts: Vec<Conflict>,
    /// Index of a holding, and a prefix of it that no pool covers.
    pub uncovered: Vec<(usize, Prefix)>,
    /// What was taken from owners that hold it no more, because a live status claims it.
    pub evicted: Vec<Arc<Allocation>>,
    /// What was taken from owners whose live status has another prefix of that family instead.
    pub superseded: Vec<Arc<Allocation>>,
    /// What changed.
    pub changes: Vec<Change>,
}

/// Which owner's status has which prefix.
type Live<'a> = BTreeMap<(&'a NetworkName, &'a Owner), Vec<Prefix>>;

/// One adoption under way.
struct Work<'a> {
    ledger: &'a mut Ledger,
    request: &'a AdoptionRequest,
    live: Live<'a>,
    done: Adoption,
    now: Timestamp,
}

impl Ledger {
    /// Takes over what the cluster's objects hold, and makes the changes at once, each before the next decision.
    pub fn adopt(&mut self, request: &AdoptionRequest, now: Timestamp) -> Adoption {
        let mut live = Live::new();
        for holding in &request.holdings {
            live.entry((&holding.network, &holding.owner))
                .or_default()
                .extend(&holding.prefixes);
        }
        let mut work = Work {
            ledger: self,
            request,
            live,
            done: Adoption::default(),
            now,
        };
        // Who is recorded and alive keeps what it has, whatever the order of the snapshot.
        for (index, holding) in request.holdings.iter().enumerate() {
            for prefix in &holding.prefixes {
                work.settle(index, holding, *prefix);
            }
        }
        for holding in &request.holdings {
            work.supersede(holding);
        }
        work.done
    }
}

impl Work<'_> {
    fn settle(&mut self, index: usize, holding: &Holding, prefix: Prefix) {
        let range = prefix.range();
        let network = self.ledger.networks.get(&holding.network);
        let there: Vec<Arc<Allocation>> =
            network.map_or_else(Vec::new, |network| network.overlapping(range).cloned().collect());
        if let [held] = there.as_slice()
            && *held.owner == holding.owner
            && held.key.prefix == prefix
        {
            let mut draft = Draft::new(self.ledger);
            claimed(&mut draft, held, &holding.uid);
            self.make(draft);
            return;
        }
        if let Some(holder) = there.iter().find(|held| !self.yields(held, holding)) {
            let holder = Arc::clone(&holder.owner);
            self.done.conflicts.push(Conflict {
                holding: index,
                prefix,
                holder,
            });
            return;
        }
        let Some(pool) = network
            .and_then(|network| network.covering(range))
            .map(|pool| Arc::clone(&pool.id))
        else {
            self.done.uncovered.push((index, prefix));
            return;
        };
        for held in there {
            let mut draft = Draft::new(self.ledger);
            draft.change(held.key.clone(), Some(Record::Held(Arc::clone(&held))), |_| None);
            self.make(draft);
            self.done.evicted.push(held);
        }
        let owner = self.ledger.networks.get(&holding.network).map_or_else(
            || Arc::new(holding.owner.clone()),
            |network| network.owner(&holding.owner),
        );
        let new = Allocation {
            key: Key {
                network: holding.network.clone(),
                prefix,
            },
            owner,
            uid: Arc::clone(&holding.uid),
            pool: Some(pool),
            since: self.now,
            revision: Revision(0),
        };
        let mut draft = Draft::new(self.ledger);
        if let Some(network) = self.ledger.networks.get(&holding.network) {
            draft.hold(network, new, self.ledger.ripe(self.now));
        }
        self.make(draft);
        self.done.adopted += 1;
    }

    /// Does a recorded allocation give way to a live status?
    fn yields(&self, held: &Allocation, holding: &Holding) -> bool {
        !self.is_live(held) && (*held.owner == holding.owner || self.is_known(held))
    }

    /// Does the snapshot say everything there is to know of this allocation?
    fn is_known(&self, held: &Allocation) -> bool {
        held.owner.cluster == self.request.cluster
            && self.request.kinds.contains(&held.owner.kind)
            && self.request.newer.is_none_or(|newer| held.revision <= newer)
    }

    fn is_live(&self, held: &Allocation) -> bool {
        self.live
            .get(&(&held.key.network, &*held.owner))
            .is_some_and(|prefixes| prefixes.contains(&held.key.prefix))
    }

    /// Takes from an owner what its own status does not have, where it has another prefix of that family: that record is
    /// from another time.
    fn supersede(&mut self, holding: &Holding) {
        let Some(network) = self.ledger.networks.get(&holding.network) else {
            return;
        };
        let held: Vec<_> = network.held_by(&holding.owner).cloned().collect();
        let live = |family: Family| {
            held.iter()
                .any(|held| held.key.prefix.family() == family && self.is_live(held))
        };
        let stale: Vec<_> = held
            .iter()
            .filter(|held| self.is_known(held) && !self.is_live(held) && live(held.key.prefix.family()))
            .cloned()
            .collect();
        for held in stale {
            let mut draft = Draft::new(self.ledger);
            if let Some(network) = self.ledger.networks.get(&holding.network) {
                self.ledger.let_go(&mut draft, network, &held, self.now);
            }
            self.make(draft);
            self.done.superseded.push(held);
        }
    }

    fn make(&mut self, draft: Draft) {
        for change in draft.changes {
            self.ledger.apply(&change);
            self.done.changes.push(change);
        }
    }
}
