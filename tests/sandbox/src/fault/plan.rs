//! Faults drawn from a seed.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::{Action, CallView, FaultId, FaultStatus};
use crate::ident::{ProjectId, digest, mix};

/// Faults at random, the same for the same seed: whether the n-th call to an object fails, and how, follows
/// from the seed, the method, the path with its query, the request's body and n. So it does not matter in which
/// order objects are worked on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomPlan {
    /// The seed.
    pub seed: u64,
    /// Calls in a thousand that fail.
    pub per_mille: u32,
    /// Each is as likely as the others; repeat one to make it likelier.
    pub actions: Vec<Action>,
    /// Calls of this project.
    #[serde(default)]
    pub project: Option<ProjectId>,
    /// Calls of this method.
    #[serde(default)]
    pub method: Option<String>,
    /// Calls to this route.
    #[serde(default)]
    pub route: Option<String>,
    /// No object gets more faults than that, so that whoever tries again gets there in the end. `None`: no
    /// limit.
    #[serde(default)]
    pub at_most: Option<u32>,
}

#[derive(Debug, Default)]
struct Tally {
    calls: u64,
    hits: u32,
}

/// A plan at work.
#[derive(Debug)]
pub(super) struct ActivePlan {
    pub(super) id: FaultId,
    pub(super) plan: RandomPlan,
    tallies: HashMap<u64, Tally>,
    calls: u64,
    hits: u64,
}

impl ActivePlan {
    pub(super) fn new(id: FaultId, plan: RandomPlan) -> Self {
        Self {
            id,
            plan,
            tallies: HashMap::new(),
            calls: 0,
            hits: 0,
        }
    }

    pub(super) fn status(&self) -> FaultStatus {
        FaultStatus {
            id: self.id,
            rule: None,
            plan: Some(self.plan.clone()),
            calls: self.calls,
            hits: self.hits,
        }
    }

    pub(super) fn decide(&mut self, call: &CallView<'_>) -> Option<Action> {
        let plan = &self.plan;
        if !call.is_of(plan.project, plan.method.as_deref(), plan.route.as_deref()) {
            return None;
        }
        let object = [call.method.as_bytes(), call.path.as_bytes(), call.body]
            .into_iter()
            .fold(plan.seed, digest);
        let tally = self.tallies.entry(object).or_default();
        self.calls += 1;
        tally.calls += 1;
        let draw = mix(object ^ mix(tally.calls));
        if plan.at_most.is_some_and(|most| tally.hits >= most) || draw % 1_000 >= u64::from(plan.per_mille) {
            return None;
        }
        let choices = u64::try_from(plan.actions.len())
            .ok()
            .filter(|count| *count > 0)?;
        let choice = usize::try_from(mix(draw) % choices).ok()?;
        tally.hits += 1;
        self.hits += 1;
        plan.actions.get(choice).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(seed: u64) -> RandomPlan {
        RandomPlan {
            seed,
            per_mille: 300,
            actions: vec![Action::status(500), Action::DropAfter, Action::Hang],
            project: None,
            method: None,
            route: None,
            at_most: None,
        }
    }

    /// The faults of `calls` calls to each of ten objects, in the order that `order` gives.
    fn run(plan: RandomPlan, order: &[usize]) -> Vec<Vec<Option<Action>>> {
        let mut active = ActivePlan::new(FaultId(0), plan);
        let mut faults = vec![Vec::new(); 10];
        for object in order {
            let path = format!("/metal/v1/ips/{object}");
            let call = CallView {
                project: None,
                method: "GET",
                route: "/ips/{id}",
                path: &path,
                body: b"",
            };
            faults[*object].push(active.decide(&call));
        }
        faults
    }

    #[test]
    fn the_same_seed_fails_the_same_calls_whatever_the_order() {
        let by_object: Vec<usize> = (0..10).flat_map(|object| [object; 20]).collect();
        let by_turn: Vec<usize> = (0..20).flat_map(|_| 0..10).collect();
        let faults = run(plan(5), &by_object);
        assert_eq!(faults, run(plan(5), &by_turn));
        assert_ne!(faults, run(plan(6), &by_turn));
        let hits = faults.iter().flatten().flatten().count();
        assert!((30..=90).contains(&hits), "{hits} of 200 at 300 per mille");
        for action in plan(5).actions {
            assert!(
                faults.iter().flatten().flatten().any(|hit| *hit == action),
                "{action:?} never drawn"
            );
        }
    }

    #[test]
    fn no_object_gets_more_faults_than_allowed() {
        let plan = RandomPlan {
            at_most: Some(2),
            per_mille: 1_000,
            ..plan(1)
        };
        let order: Vec<usize> = (0..5).flat_map(|_| 0..10).collect();
        for faults in run(plan, &order) {
            assert_eq!(faults.iter().flatten().count(), 2);
            assert!(faults[0].is_some() && faults[1].is_some());
        }
    }

    #[test]
    fn a_plan_without_actions_does_nothing() {
        let plan = RandomPlan {
            actions: Vec::new(),
            per_mille: 1_000,
            ..plan(1)
        };
        assert!(run(plan, &[0, 1]).iter().flatten().all(Option::is_none));
    }
}
