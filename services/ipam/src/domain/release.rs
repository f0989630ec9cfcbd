//! Giving back, and handing over.

use std::collections::BTreeSet;
use std::sync::Arc;

use groundplane_core::{NetworkName, Owner, Prefix, Revision};
use jiff::Timestamp;

use super::allocate::{Plan, Want};
use super::draft::Draft;
use super::ledger::Ledger;
use super::network::Network;
use super::record::{Allocation, Cooling, Record};
use super::refusal::Refusal;

/// Released prefixes that a pool remembers, oldest forgotten first once their time is over: all of a /16, and a bound for
/// IPv6, where never-used space does not end.
const MOST_COOLED: usize = 65_536;

/// What is given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseAsk {
    /// By whom.
    pub owner: Owner,
    /// Only what the object with this UID holds, or an object whose UID was not told; empty: all.
    pub uid: Box<str>,
    /// The address space.
    pub network: NetworkName,
    /// Only these; empty: all.
    pub prefixes: Vec<Prefix>,
}

/// What changes hands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveAsk {
    /// Who gives.
    pub from: Owner,
    /// Who takes.
    pub to: Owner,
    /// UID of the object that takes.
    pub to_uid: Arc<str>,
    /// The address space.
    pub network: NetworkName,
}

impl Ledger {
    /// Decides what is taken back: the plan's allocations. That may be nothing.
    pub fn plan_release(&self, ask: &ReleaseAsk, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(network) = self.networks.get(&ask.network) else {
            return plan;
        };
        let mut draft = Draft::new(self);
        for held in network.held_by(&ask.owner) {
            let same = ask.uid.is_empty() || held.uid.is_empty() || *ask.uid == *held.uid;
            let meant = ask.prefixes.is_empty() || ask.prefixes.contains(&held.key.prefix);
            if same && meant {
                self.let_go(&mut draft, network, held, now);
                plan.allocations.push(Arc::clone(held));
            }
        }
        self.trim(&mut draft, network, &plan.allocations, now);
        plan.changes = draft.changes;
        plan
    }

    /// Takes an allocation from its owner. It cools down, where it is one that is given to who asks for any.
    pub(super) fn let_go(
        &self,
        draft: &mut Draft,
        network: &Network,
        held: &Arc<Allocation>,
        now: Timestamp,
    ) {
        let cools = self.cools() && network.cools(held.key.prefix);
        let old = Some(Record::Held(Arc::clone(held)));
        draft.change(held.key.clone(), old, |revision| {
            cools.then_some(Record::Cooling(Cooling {
                released: now,
                revision,
            }))
        });
    }

    /// Forgets the oldest of what cooled down, where a pool remembers very many: at most one for each that comes.
    fn trim(&self, draft: &mut Draft, network: &Network, released: &[Arc<Allocation>], now: Timestamp) {
        let ripe = self.ripe(now);
        let mut forgotten = BTreeSet::new();
        for allocation in released {
            let prefix = allocation.key.prefix;
            let Some(pool) = network.covering(prefix.range()) else {
                continue;
            };
            let Some((released, oldest)) = pool.space(prefix.family()).surplus(MOST_COOLED, ripe) else {
                continue;
            };
            let Some(cooling) = network
                .cooling
                .get(&oldest)
                .filter(|cooling| cooling.released == released)
            else {
                continue;
            };
            if forgotten.insert(oldest) {
                let key = super::Key {
                    network: allocation.key.network.clone(),
                    prefix: oldest,
                };
                draft.change(key, Some(Record::Cooling(*cooling)), |_| None);
            }
        }
    }

    /// Decides what goes from one owner to the other. The plan's allocations are what the other holds then.
    pub fn plan_move(&self, ask: &MoveAsk) -> Result<Plan, Refusal> {
        let mut plan = Plan::default();
        let Some(network) = self.networks.get(&ask.network) else {
            return Ok(plan);
        };
        let theirs: Vec<_> = network.held_by(&ask.to).cloned().collect();
        if let Some(other) = theirs
            .iter()
            .find(|held| !ask.to_uid.is_empty() && !held.uid.is_empty() && held.uid != ask.to_uid)
        {
            let (owner, held, uid) = (Box::new(ask.to.clone()), other.key.prefix, Arc::clone(&other.uid));
            return Err(Refusal::UidMismatch { owner, held, uid });
        }
        plan.allocations.clone_from(&theirs);
        if ask.from == ask.to {
            return Ok(plan);
        }
        let mut draft = Draft::new(self);
        let to = theirs
            .first()
            .map_or_else(|| Arc::new(ask.to.clone()), |held| Arc::clone(&held.owner));
        for held in network.held_by(&ask.from) {
            let prefix = held.key.prefix;
            if let Some(other) = theirs
                .iter()
                .find(|other| other.key.prefix.family() == prefix.family())
            {
                let (owner, held) = (Box::new(ask.to.clone()), other.key.prefix);
                return Err(Refusal::AlreadyHolds {
                    owner,
                    held,
                    wanted: Want::Exact(prefix),
                });
            }
            let (owner, uid) = (Arc::clone(&to), Arc::clone(&ask.to_uid));
            let new = Allocation {
                owner,
                uid,
                revision: Revision(0),
                ..(**held).clone()
            };
            plan.allocations
                .push(draft.replace(Some(Record::Held(Arc::clone(held))), new));
        }
        plan.changes = draft.changes;
        Ok(plan)
    }
}
