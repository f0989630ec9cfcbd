//! Faults: what goes wrong, for which call. Rules are written by a test; plans are drawn from a seed.
//!
//! The answer for a call depends on the call and on how often the same was called before, never on time or on
//! what other objects do, so that a seed gives the same faults in every run.

mod plan;

use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ident::ProjectId;
use plan::ActivePlan;
pub use plan::RandomPlan;

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Action {
    /// Answer with this, and do nothing.
    Status(StatusFault),
    /// Do it, then answer with this.
    StatusAfter(StatusFault),
    /// Wait before doing it. Adds up with other faults.
    Latency {
        /// How long.
        millis: u64,
    },
    /// Do nothing and never answer, until the client leaves.
    Hang,
    /// Do it, and never answer.
    HangAfter,
    /// Close the connection, and do nothing.
    DropBefore,
    /// Do it, then close the connection without an answer.
    DropAfter,
    /// Announce the whole body, send half of it, close the connection.
    HalfBody,
    /// Leave the last objects out of a list, and lower `meta.total`: a page that looks complete and is not.
    MissingItems {
        /// How many.
        count: usize,
    },
    /// A complete answer which is not JSON.
    MalformedJson,
}

impl Action {
    /// A status without more.
    pub fn status(status: u16) -> Self {
        Self::Status(StatusFault::new(status))
    }

    /// 429, with what a client needs to know when it may come back.
    pub fn too_many_requests(retry_after_seconds: Option<u64>, reset_unix: Option<i64>) -> Self {
        Self::Status(StatusFault {
            retry_after: retry_after_seconds,
            reset: reset_unix,
            ..StatusFault::new(429)
        })
    }

    /// A wait.
    pub fn latency(duration: Duration) -> Self {
        Self::Latency {
            millis: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// The name in the journal.
    pub fn name(&self) -> String {
        match self {
            Self::Status(fault) => format!("status {}", fault.status),
            Self::StatusAfter(fault) => format!("status {} after", fault.status),
            Self::Latency { millis } => format!("latency {millis} ms"),
            Self::Hang => "hang".to_owned(),
            Self::HangAfter => "hang after".to_owned(),
            Self::DropBefore => "drop before".to_owned(),
            Self::DropAfter => "drop after".to_owned(),
            Self::HalfBody => "half body".to_owned(),
            Self::MissingItems { count } => format!("missing items {count}"),
            Self::MalformedJson => "malformed json".to_owned(),
        }
    }
}

/// An answer that nobody wanted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatusFault {
    /// The status.
    pub status: u16,
    /// The body; `{"errors":["injected"]}` where absent.
    #[serde(default)]
    pub body: Option<Value>,
    /// `Retry-After`, in seconds.
    #[serde(default)]
    pub retry_after: Option<u64>,
    /// `X-RateLimit-Reset`, in Unix seconds; `X-RateLimit-Remaining` is 0 then.
    #[serde(default)]
    pub reset: Option<i64>,
}

impl StatusFault {
    /// This status, nothing else.
    pub fn new(status: u16) -> Self {
        Self {
            status,
            body: None,
            retry_after: None,
            reset: None,
        }
    }
}

/// Which of the calls that match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// All of them.
    #[default]
    Every,
    /// The first so many.
    First(u64),
    /// Just this one, counted from 1.
    Nth(u64),
    /// One in so many.
    EveryNth(u64),
}

impl When {
    fn hits(self, call: u64) -> bool {
        match self {
            Self::Every => true,
            Self::First(count) => call <= count,
            Self::Nth(number) => call == number,
            Self::EveryNth(number) => number > 0 && call.is_multiple_of(number),
        }
    }
}

/// A fault, and the calls that it is for. What is not said matches everything.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultRule {
    /// Calls of this project.
    #[serde(default)]
    pub project: Option<ProjectId>,
    /// `GET`, `POST` …
    #[serde(default)]
    pub method: Option<String>,
    /// The route below `/metal/v1` or `/v1`, such as `/projects/{pid}/ips`.
    #[serde(default)]
    pub route: Option<String>,
    /// A part of the path, of the query or of the request's body: an id, a tag, an address.
    #[serde(default)]
    pub object: Option<String>,
    /// Which of them.
    #[serde(default)]
    pub when: When,
    /// What goes wrong.
    pub action: Action,
}

impl FaultRule {
    /// For every call.
    pub fn new(action: Action) -> Self {
        Self {
            project: None,
            method: None,
            route: None,
            object: None,
            when: When::Every,
            action,
        }
    }

    /// For calls to one route.
    pub fn on(method: &str, route: &str, action: Action) -> Self {
        Self {
            method: Some(method.to_owned()),
            route: Some(route.to_owned()),
            ..Self::new(action)
        }
    }

    /// Only where path, query or body contain this.
    #[must_use]
    pub fn object(mut self, part: impl Into<String>) -> Self {
        self.object = Some(part.into());
        self
    }

    /// Only the first `calls`.
    #[must_use]
    pub fn first(self, calls: u64) -> Self {
        Self {
            when: When::First(calls),
            ..self
        }
    }

    /// Only call number `call`, from 1.
    #[must_use]
    pub fn nth(self, call: u64) -> Self {
        Self {
            when: When::Nth(call),
            ..self
        }
    }
}

/// A call, as rules see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallView<'a> {
    pub(crate) project: Option<ProjectId>,
    pub(crate) method: &'a str,
    pub(crate) route: &'a str,
    /// With the query.
    pub(crate) path: &'a str,
    pub(crate) body: &'a [u8],
}

impl CallView<'_> {
    fn is_of(&self, project: Option<ProjectId>, method: Option<&str>, route: Option<&str>) -> bool {
        project.is_none_or(|project| self.project == Some(project))
            && method.is_none_or(|method| method.eq_ignore_ascii_case(self.method))
            && route.is_none_or(|route| route == self.route)
    }

    fn mentions(&self, part: &str) -> bool {
        self.path.contains(part)
            || (!part.is_empty()
                && self
                    .body
                    .windows(part.len())
                    .any(|bytes| bytes == part.as_bytes()))
    }
}

/// What happens to a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) latency: Duration,
    pub(crate) action: Option<Action>,
}

impl Verdict {
    fn add(&mut self, action: &Action) {
        match action {
            Action::Latency { millis } => self.latency += Duration::from_millis(*millis),
            other if self.action.is_none() => self.action = Some(other.clone()),
            _ => {}
        }
    }

    pub(crate) fn name(&self) -> Option<String> {
        match &self.action {
            Some(action) => Some(action.name()),
            None => (!self.latency.is_zero()).then(|| format!("latency {} ms", self.latency.as_millis())),
        }
    }
}

/// Names a rule or a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FaultId(pub u64);

#[derive(Debug)]
struct ActiveRule {
    id: FaultId,
    rule: FaultRule,
    calls: u64,
    hits: u64,
}

#[derive(Debug, Default)]
struct Active {
    rules: Vec<ActiveRule>,
    plans: Vec<ActivePlan>,
    next: u64,
}

/// A rule or plan, and what became of it.
#[derive(Clone, Debug, Serialize)]
pub struct FaultStatus {
    /// Its name.
    pub id: FaultId,
    /// The rule; absent for a plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<FaultRule>,
    /// The plan; absent for a rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<RandomPlan>,
    /// Calls that matched.
    pub calls: u64,
    /// Calls that it was applied to.
    pub hits: u64,
}

/// The faults of a sandbox. Of several rules that hit a call latencies add up, and of the rest the oldest one
/// acts.
#[derive(Debug, Default)]
pub struct Faults {
    active: Mutex<Active>,
}

impl Faults {
    /// Adds a rule.
    pub fn add(&self, rule: FaultRule) -> FaultId {
        let mut active = self.active.lock();
        let id = FaultId(active.next);
        active.next += 1;
        active.rules.push(ActiveRule {
            id,
            rule,
            calls: 0,
            hits: 0,
        });
        id
    }

    /// Adds a plan.
    pub fn plan(&self, plan: RandomPlan) -> FaultId {
        let mut active = self.active.lock();
        let id = FaultId(active.next);
        active.next += 1;
        active.plans.push(ActivePlan::new(id, plan));
        id
    }

    /// Removes a rule or plan; false where there is none. A call that hangs stays where it is.
    pub fn remove(&self, id: FaultId) -> bool {
        let mut active = self.active.lock();
        let before = active.rules.len() + active.plans.len();
        active.rules.retain(|rule| rule.id != id);
        active.plans.retain(|plan| plan.id != id);
        active.rules.len() + active.plans.len() < before
    }

    /// Removes all of them, or those that name this project.
    pub fn clear(&self, project: Option<ProjectId>) {
        let mut active = self.active.lock();
        active
            .rules
            .retain(|row| project.is_some() && row.rule.project != project);
        active
            .plans
            .retain(|row| project.is_some() && row.plan.project != project);
    }

    /// How often a rule or plan was applied.
    pub fn hits(&self, id: FaultId) -> u64 {
        self.list()
            .into_iter()
            .find(|row| row.id == id)
            .map_or(0, |row| row.hits)
    }

    /// All of them.
    pub fn list(&self) -> Vec<FaultStatus> {
        let active = self.active.lock();
        let rules = active.rules.iter().map(|row| FaultStatus {
            id: row.id,
            rule: Some(row.rule.clone()),
            plan: None,
            calls: row.calls,
            hits: row.hits,
        });
        rules.chain(active.plans.iter().map(ActivePlan::status)).collect()
    }

    /// Counts a call with every rule and plan that matches it.
    pub(crate) fn decide(&self, call: &CallView<'_>) -> Verdict {
        let mut active = self.active.lock();
        let mut verdict = Verdict::default();
        for row in &mut active.rules {
            let FaultRule {
                project,
                method,
                route,
                object,
                when,
                action,
            } = &row.rule;
            if !call.is_of(*project, method.as_deref(), route.as_deref())
                || !object.as_deref().is_none_or(|part| call.mentions(part))
            {
                continue;
            }
            row.calls += 1;
            if when.hits(row.calls) {
                row.hits += 1;
                verdict.add(action);
            }
        }
        for plan in &mut active.plans {
            if let Some(action) = plan.decide(call) {
                verdict.add(&action);
            }
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call<'a>(method: &'a str, path: &'a str, body: &'a str) -> CallView<'a> {
        CallView {
            project: None,
            method,
            route: "/ips/{id}",
            path,
            body: body.as_bytes(),
        }
    }

    #[test]
    fn a_rule_counts_only_what_it_matches() {
        let faults = Faults::default();
        let rule = FaultRule::on("DELETE", "/ips/{id}", Action::status(500))
            .object("abc")
            .nth(2);
        let id = faults.add(rule);
        let hit = |method, path| faults.decide(&call(method, path, "")).action.is_some();
        assert!(!hit("DELETE", "/ips/abc"));
        assert!(!hit("GET", "/ips/abc"));
        assert!(!hit("DELETE", "/ips/xyz"));
        assert!(hit("DELETE", "/ips/abc"));
        assert!(!hit("DELETE", "/ips/abc"));
        assert_eq!(faults.hits(id), 1);
        assert!(faults.remove(id) && !faults.remove(id));
    }

    #[test]
    fn an_object_is_found_in_the_body_too() {
        let faults = Faults::default();
        faults.add(FaultRule::new(Action::Hang).object("service=x"));
        assert!(
            faults
                .decide(&call("POST", "/ips", r#"{"tags":["service=x"]}"#))
                .action
                .is_some()
        );
        assert!(
            faults
                .decide(&call("POST", "/ips", r#"{"tags":["service=y"]}"#))
                .action
                .is_none()
        );
    }

    #[test]
    fn when_picks_calls() {
        let hits = |when: When| (1..=6).filter(|call| when.hits(*call)).collect::<Vec<_>>();
        assert_eq!(hits(When::First(2)), [1, 2]);
        assert_eq!(hits(When::Nth(5)), [5]);
        assert_eq!(hits(When::EveryNth(3)), [3, 6]);
        assert_eq!(hits(When::EveryNth(0)), [0_u64; 0]);
        assert_eq!(hits(When::Every).len(), 6);
    }

    #[test]
    fn latencies_add_up_and_the_oldest_action_wins() {
        let faults = Faults::default();
        faults.add(FaultRule::new(Action::latency(Duration::from_millis(3))));
        faults.add(FaultRule::new(Action::status(503)));
        faults.add(FaultRule::new(Action::latency(Duration::from_millis(4))));
        faults.add(FaultRule::new(Action::DropBefore));
        let verdict = faults.decide(&call("GET", "/x", ""));
        assert_eq!(
            (verdict.latency.as_millis(), verdict.action),
            (7, Some(Action::status(503)))
        );
    }

    #[test]
    fn clearing_one_project_leaves_the_others() {
        let faults = Faults::default();
        let (a, b) = (
            ProjectId::from(uuid::Uuid::from_u128(1)),
            ProjectId::from(uuid::Uuid::from_u128(2)),
        );
        faults.add(FaultRule {
            project: Some(a),
            ..FaultRule::new(Action::Hang)
        });
        faults.add(FaultRule {
            project: Some(b),
            ..FaultRule::new(Action::Hang)
        });
        faults.clear(Some(a));
        assert_eq!(faults.list().len(), 1);
        faults.clear(None);
        assert!(faults.list().is_empty());
    }

    #[test]
    fn a_rule_is_read_from_json_and_a_misspelt_field_is_refused() {
        let text =
            r#"{"method":"GET","when":{"first":3},"action":{"status":{"status":429,"retry_after":2}}}"#;
        let rule: FaultRule = serde_json::from_str(text).unwrap();
        assert_eq!(rule.when, When::First(3));
        assert_eq!(rule.action, Action::too_many_requests(Some(2), None));
        assert!(serde_json::from_str::<FaultRule>(r#"{"action":"hang"}"#).is_ok());
        assert!(serde_json::from_str::<FaultRule>(r#"{"rout":"/x","action":"hang"}"#).is_err());
    }
}
