//! What goes wrong, and when.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use super::call::Call;

/// What happens to a request, or to its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// Answered with this status, and never reaches the API server.
    Status(u16),
    /// 429, with this many seconds of `Retry-After`.
    TooMany(u32),
    /// Taken, and never answered.
    Hang,
    /// Passed on after this time.
    Slow(Duration),
    /// The connection is dropped; the request never reaches the API server.
    DropBefore,
    /// The API server has done what it was asked; the connection is dropped, and the answer lost.
    DropAfter,
    /// Half of the answer, then the connection is dropped.
    HalfBody,
    /// A watch that is told at once, in its stream, that something is wrong: 410 is what the API server says when it has
    /// forgotten the version.
    ErrorEvent(u16),
    /// A stream that is cut after so many pieces.
    Cut(u32),
}

impl Fault {
    /// Can it happen to such a call? Watches that hang are left out of plans: a client may take minutes to give up on one.
    fn fits(self, call: &Call) -> bool {
        let (watch, list) = (call.verb == "watch", call.verb == "list");
        match self {
            Self::ErrorEvent(_) | Self::Cut(_) => watch,
            Self::HalfBody => !watch,
            Self::Hang => !watch && !list,
            Self::Status(409) => call.is_write(),
            Self::Status(410) => watch || call.continued,
            _ => true,
        }
    }
}

/// One fault, and for which calls. Of several rules for a call, the first that is not used up decides.
#[derive(Clone, Debug)]
#[must_use]
pub struct Rule {
    verb: &'static str,
    resource: &'static str,
    name: Option<String>,
    continued: bool,
    skip: u32,
    left: Option<u32>,
    fault: Fault,
}

impl Rule {
    /// This fault for every call of this verb and resource, as [`Call`] has them; `*` is any, and `services*` has its
    /// subresources, too.
    pub fn on(verb: &'static str, resource: &'static str, fault: Fault) -> Self {
        Self {
            verb,
            resource,
            name: None,
            continued: false,
            skip: 0,
            left: None,
            fault,
        }
    }

    /// Only for the object of this name.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Only where a list goes on.
    pub fn continued(mut self) -> Self {
        self.continued = true;
        self
    }

    /// Not for the first so many of them.
    pub fn skip(mut self, calls: u32) -> Self {
        self.skip = calls;
        self
    }

    /// Only for so many of them.
    pub fn times(mut self, calls: u32) -> Self {
        self.left = Some(calls);
        self
    }

    fn concerns(&self, call: &Call) -> bool {
        let resource = match self.resource.strip_suffix('*') {
            Some(begin) => call.resource.starts_with(begin),
            None => call.resource == self.resource,
        };
        resource
            && (self.verb == "*" || self.verb == call.verb)
            && self.name.as_ref().is_none_or(|name| *name == call.name)
            && (call.continued || !self.continued)
    }

    fn decide(&mut self, call: &Call) -> Option<Fault> {
        if !self.concerns(call) || self.left == Some(0) {
            return None;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        if let Some(left) = &mut self.left {
            *left -= 1;
        }
        Some(self.fault)
    }
}

/// Faults at random, by a seed: whether the n-th call of one kind to one object fails, and how, does not depend on the order in
/// which objects are worked on.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// Calls in a thousand that fail.
    pub per_mille: u32,
    /// Each is as likely as the others, where it fits the call.
    pub faults: Vec<Fault>,
}

impl Plan {
    /// What happens to the n-th call of one kind to one object.
    pub fn decide(&self, call: &Call, nth: u64) -> Option<Fault> {
        let mut hasher = DefaultHasher::new();
        // Not the namespace: it has a name of its own in each run.
        (self.seed, call.verb, &call.resource, &call.name, nth).hash(&mut hasher);
        let mut random = fastrand::Rng::with_seed(hasher.finish());
        if random.u32(..1000) >= self.per_mille {
            return None;
        }
        let fitting: Vec<Fault> = self
            .faults
            .iter()
            .copied()
            .filter(|fault| fault.fits(call))
            .collect();
        random.choice(fitting)
    }
}

/// All that goes wrong at the moment.
#[derive(Debug, Default)]
pub(super) struct Faults {
    rules: Vec<Rule>,
    plan: Option<Plan>,
    calls: HashMap<Call, u64>,
}

impl Faults {
    pub(super) fn add(&mut self, rules: impl IntoIterator<Item = Rule>) {
        self.rules.extend(rules);
    }

    pub(super) fn plan(&mut self, plan: Plan) {
        self.plan = Some(plan);
        self.calls.clear();
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn decide(&mut self, call: &Call) -> Option<Fault> {
        if let Some(fault) = self.rules.iter_mut().find_map(|rule| rule.decide(call)) {
            return Some(fault);
        }
        let plan = self.plan.as_ref()?;
        let nth = self.calls.entry(call.clone()).or_default();
        *nth += 1;
        plan.decide(call, *nth)
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    fn call(verb: &'static str, resource: &str, name: &str) -> Call {
        Call {
            verb,
            resource: resource.to_owned(),
            name: name.to_owned(),
            ..Call::default()
        }
    }

    #[test]
    fn a_rule_counts_only_the_calls_that_concern_it() {
        let mut faults = Faults::default();
        faults.add([Rule::on("patch", "services*", Fault::Status(409))
            .name("web")
            .skip(1)
            .times(2)]);
        let status = call("patch", "services/status", "web");
        let decided: Vec<_> = (0..4).map(|_| faults.decide(&status).is_some()).collect();
        assert_eq!(decided, [false, true, true, false]);
        assert_eq!(faults.decide(&call("patch", "services", "other")), None);
        assert_eq!(faults.decide(&call("get", "services", "web")), None);
    }

    #[test]
    fn a_plan_fails_the_same_calls_whatever_the_order_and_only_as_they_can_fail() {
        let plan = || Plan {
            seed: 7,
            per_mille: 300,
            faults: vec![Fault::Status(410), Fault::Hang, Fault::Status(500), Fault::Cut(1)],
        };
        let run = |by_turn: bool| {
            let mut faults = Faults::default();
            faults.plan(plan());
            let mut found = vec![Vec::new(); 10];
            for step in 0..200 {
                let object = if by_turn { step % 10 } else { step / 20 };
                let patch = call("patch", "nodes", &object.to_string());
                found[object].push(faults.decide(&patch));
            }
            found
        };
        let found = run(true);
        assert_eq!(found, run(false));
        let hits: Vec<Fault> = found.into_iter().flatten().flatten().collect();
        assert!((30..=90).contains(&hits.len()), "{}", hits.len());
        assert!(
            hits.iter()
                .all(|hit| matches!(hit, Fault::Hang | Fault::Status(500))),
            "{hits:?}"
        );
    }
}
