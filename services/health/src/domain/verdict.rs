//! When an endpoint has failed, and who should hold it.
//!
//! ```text
//!                       miss                    miss × misses
//!  Alive ─────────────────────► Suspected ─────────────────────► Failed ──► verdict, where a candidate is ready
//!    ▲   answer                     │                               │
//!    └──────────────────────────────┴───────────────────────────────┘
//! ```
//!
//! Whoever probes feeds the outcomes in; time comes as an argument. A verdict names the candidate to move to. It is given once, and
//! again after `dwell` where nothing came of it. The first move is never delayed. If the holder changes under us, counting and dwell
//! start again: another agent was quicker.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use groundplane_core::NodeName;

/// How quickly a failure is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Between two probes.
    pub period: Duration,
    /// Until a probe counts as missed.
    pub timeout: Duration,
    /// Misses in a row that make a failure.
    pub misses: u32,
    /// Between a verdict and the next one.
    pub dwell: Duration,
}

impl Default for Settings {
    /// Detected within 2.3 s: up to one period until the first probe after the failure, a period between each two, one timeout.
    fn default() -> Self {
        Self {
            period: Duration::from_millis(500),
            timeout: Duration::from_millis(800),
            misses: 3,
            dwell: Duration::from_secs(10),
        }
    }
}

/// A machine that could hold the endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    /// No new work shall come to it.
    pub cordoned: bool,
    /// It is on its way out.
    pub deleting: bool,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// All candidates, and who holds the endpoint (`None`: nobody).
    Changed(BTreeMap<NodeName, Candidate>, Option<NodeName>),
    /// The endpoint was probed; did it answer?
    Endpoint(bool),
    /// A candidate was probed; was it ready?
    Ready(NodeName, bool),
}

/// Who should hold the endpoint, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The candidate.
    pub move_to: NodeName,
    /// For people.
    pub reason: String,
    /// Since the last answer of the endpoint, or since we began to look.
    pub detected_after: Duration,
}

/// Watches one endpoint.
#[derive(Clone, Debug)]
pub struct Monitor {
    settings: Settings,
    candidates: BTreeMap<NodeName, Candidate>,
    holder: Option<NodeName>,
    /// When each candidate was ready last; a candidate that was not, the last time that it was asked, is missing.
    ready: BTreeMap<NodeName, Instant>,
    missed: u32,
    answered: Instant,
    judged: Option<Instant>,
}

impl Monitor {
    /// Knows of no candidate yet.
    pub fn new(settings: Settings, now: Instant) -> Self {
        Self {
            settings,
            candidates: BTreeMap::new(),
            holder: None,
            ready: BTreeMap::new(),
            missed: 0,
            answered: now,
            judged: None,
        }
    }

    /// Takes in what happened, and gives a verdict where one is due.
    pub fn step(&mut self, event: Event, now: Instant) -> Option<Verdict> {
        match event {
            Event::Changed(candidates, holder) => {
                self.ready.retain(|node, _| candidates.contains_key(node));
                self.candidates = candidates;
                if self.holder != holder {
                    self.holder = holder;
                    self.start_again(now);
                }
            }
            Event::Endpoint(true) => {
                self.missed = 0;
                self.answered = now;
            }
            Event::Endpoint(false) => self.missed = self.missed.saturating_add(1),
            Event::Ready(node, true) => {
                self.ready.insert(node, now);
            }
            Event::Ready(node, false) => {
                self.ready.remove(&node);
            }
        }
        self.judge(now)
    }

    fn start_again(&mut self, now: Instant) {
        self.missed = 0;
        self.answered = now;
        self.judged = None;
    }

    fn judge(&mut self, now: Instant) -> Option<Verdict> {
        let Some(reason) = self.failure() else {
            // What failed has recovered: the next failure is a first one.
            self.judged = None;
            return None;
        };
        if self
            .judged
            .is_some_and(|at| now.duration_since(at) < self.settings.dwell)
        {
            return None;
        }
        let move_to = self.choose(now)?;
        self.judged = Some(now);
        Some(Verdict {
            move_to,
            reason,
            detected_after: now.duration_since(self.answered),
        })
    }

    /// Why the endpoint should move; `None`: it should not.
    fn failure(&self) -> Option<String> {
        if self.missed >= self.settings.misses {
            return Some(format!("the endpoint missed {} probes in a row", self.missed));
        }
        let holder = self.holder.as_ref()?;
        let Some(candidate) = self.candidates.get(holder) else {
            // Not being told of the holder is no proof that it is gone: its probes are.
            return None;
        };
        match candidate {
            Candidate { deleting: true, .. } => Some(format!("{holder} is being deleted")),
            Candidate { cordoned: true, .. } => Some(format!("{holder} is cordoned")),
            Candidate { .. } => None,
        }
    }

    /// The first by name that was ready in the last interval (a period, and as long as its probe may take), that is not the holder, and
    /// that is to stay. Where none is to stay, a cordoned one will do, but not in place of a holder that works.
    fn choose(&self, now: Instant) -> Option<NodeName> {
        let interval = self.settings.period + self.settings.timeout;
        let failed = self.missed >= self.settings.misses;
        let mut fit: Vec<_> = self
            .candidates
            .iter()
            .filter(|(node, candidate)| {
                let ready = self
                    .ready
                    .get(*node)
                    .is_some_and(|at| now.duration_since(*at) <= interval);
                ready
                    && self.holder.as_ref() != Some(*node)
                    && !candidate.deleting
                    && (failed || !candidate.cordoned)
            })
            .collect();
        fit.sort_by_key(|(node, candidate)| (candidate.cordoned, (*node).clone()));
        fit.first().map(|(node, _)| (*node).clone())
    }
}

#[cfg(test)]
mod tests;
