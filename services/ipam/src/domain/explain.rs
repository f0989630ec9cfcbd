//! Why somebody has, or would not get, an address.

use std::sync::Arc;

use groundplane_core::{Family, Kinded as _, PoolId};
use jiff::Timestamp;

use super::allocate::{Ask, Want, admits, choose};
use super::ledger::Ledger;
use super::network::{Network, Pool};
use super::record::Allocation;
use super::refusal::Refusal;

/// What one pool has to say to one want.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The pool.
    pub pool: PoolId,
    /// The family that is wanted.
    pub family: Family,
    /// Reason and text, where it would not serve.
    pub objection: Option<(&'static str, String)>,
}

/// Everything that decides on a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// What the owner holds.
    pub held: Vec<Arc<Allocation>>,
    /// Each pool, in the order in which it would be tried, for each want.
    pub verdicts: Vec<Verdict>,
    /// The outcome in one sentence.
    pub summary: String,
}

impl Ledger {
    /// Explains what [`Ledger::plan_allocate`] would decide.
    pub fn explain(&self, ask: &Ask, now: Timestamp) -> Explanation {
        let empty = Network::default();
        let network = self.networks.get(&ask.network).unwrap_or(&empty);
        let held: Vec<_> = network.held_by(&ask.owner).cloned().collect();
        let chosen = choose(network, &ask.selector);
        let mut verdicts = Vec::new();
        for wanted in &ask.wanted {
            for pool in &network.pools {
                let objection = match &chosen {
                    Err(refusal) => Some((refusal.reason(), refusal.to_string())),
                    Ok(chosen) => self.objection(network, pool, ask, wanted.want, chosen.as_ref(), now),
                };
                verdicts.push(Verdict {
                    pool: pool.spec.id.clone(),
                    family: wanted.want.family(),
                    objection,
                });
            }
        }
        let summary = self.summary(ask, &held, now);
        Explanation {
            held,
            verdicts,
            summary,
        }
    }

    fn objection(
        &self,
        network: &Network,
        pool: &Pool,
        ask: &Ask,
        want: Want,
        chosen: Option<&PoolId>,
        now: Timestamp,
    ) -> Option<(&'static str, String)> {
        let family = want.family();
        if pool.space(family).is_empty() {
            return Some(("POOL_NOT_FOUND", format!("it has no {family} addresses")));
        }
        match want {
            Want::Any { length, .. } => {
                if let Err(why) = admits(&pool.spec, &ask.owner, &ask.selector, chosen) {
                    return Some(("POOL_NOT_FOUND", why));
                }
                let found = pool.space(family).pick(family, length, self.ripe(now));
                found
                    .is_none()
                    .then(|| ("POOL_EXHAUSTED", format!("it has no room for {want}")))
            }
            Want::Exact(prefix) => {
                let range = prefix.range();
                if !pool.spec.covers(range) {
                    return Some(("OUTSIDE_POOLS", format!("it does not cover {prefix}")));
                }
                if let Some(taken) = network
                    .overlapping(range)
                    .next()
                    .filter(|held| held.owner != ask.owner)
                {
                    return Some(("ADDRESS_TAKEN", format!("{prefix} is taken by {}", taken.owner)));
                }
                let id = Some(&pool.spec.id);
                if let Some(chosen) = chosen.filter(|chosen| Some(*chosen) != id) {
                    return Some(("OUTSIDE_POOLS", format!("pool `{chosen}` was asked for")));
                }
                if let Err(why) = admits(&pool.spec, &ask.owner, &ask.selector, id) {
                    return Some(("OUTSIDE_POOLS", why));
                }
                let usable = pool.space(family).is_usable(range);
                (!usable).then(|| ("ADDRESS_RESERVED", format!("{prefix} is excluded")))
            }
        }
    }

    fn summary(&self, ask: &Ask, held: &[Arc<Allocation>], now: Timestamp) -> String {
        let list = |held: &[Arc<Allocation>]| {
            let texts: Vec<_> = held.iter().map(|held| held.key.prefix.to_string()).collect();
            texts.join(" and ")
        };
        match self.plan_allocate(ask, now) {
            _ if ask.wanted.is_empty() && held.is_empty() => {
                format!("{} holds nothing and asks for nothing", ask.owner)
            }
            Ok(plan) if plan.changes.is_empty() && plan.missing.is_empty() => {
                let held = if ask.wanted.is_empty() {
                    held
                } else {
                    &plan.allocations
                };
                format!("{} holds {}", ask.owner, list(held))
            }
            Ok(plan) => {
                let mut text = match plan.allocations.as_slice() {
                    [] => format!("{} would get nothing", ask.owner),
                    some => format!("{} would get {}", ask.owner, list(some)),
                };
                for missing in &plan.missing {
                    text = format!("{text}, without {}: {}", missing.family, missing.refusal);
                }
                text
            }
            Err(Refusal::AlreadyHolds { held, wanted, .. }) => {
                format!(
                    "{} holds {held} and would have to release it to get {wanted}",
                    ask.owner
                )
            }
            Err(refusal) => format!("{} would get no address: {refusal}", ask.owner),
        }
    }
}
