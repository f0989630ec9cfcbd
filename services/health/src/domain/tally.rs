//! What the probes of one address said.
//!
//! ```text
//!                    miss                  miss × misses
//!  answers ────────────────────► missing ─────────────────► failed
//!     ▲           answer            │                          │
//!     ├─────────────────────────────┘                          │
//!     └────────────────────────────────────────────────────────┘
//!                          answer × recovery, in a row
//! ```

use std::time::{Duration, Instant};

use super::Settings;

/// How much life a probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sign {
    /// Nothing came back: lost on the way, or nobody there.
    Silent,
    /// Something came back, but not what says that it is ready: refused, reset, 500, a certificate that is not trusted. So the way to
    /// it is open, and we are not cut off from it.
    Alive,
    /// It is ready.
    Ready,
}

/// What one probe said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How much life it found.
    pub sign: Sign,
    /// For people; where it is ready, only what is odd about it.
    pub detail: String,
    /// How long it took.
    pub took: Duration,
}

/// What an outcome changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It answered, and does no more.
    Missing,
    /// It missed as many as make a failure.
    Failed,
    /// It had missed too few for a failure, and answers again.
    Answers,
    /// It had failed, and answered often enough to count as well.
    Recovered,
}

/// The outcomes of one address.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    last: Option<(Outcome, Instant)>,
    misses: u32,
    answers: u32,
    failed: Option<Instant>,
    answered: Option<Instant>,
}

impl Tally {
    /// Takes an outcome in.
    pub(super) fn record(&mut self, outcome: Outcome, ended: Instant, settings: &Settings) -> Option<Change> {
        let before = self.misses;
        let change = if outcome.sign == Sign::Ready {
            self.misses = 0;
            self.answers = self.answers.saturating_add(1);
            self.answered = Some(ended);
            if self.failed.is_some() && self.answers >= settings.recovery {
                self.failed = None;
                Some(Change::Recovered)
            } else {
                (before > 0 && self.failed.is_none()).then_some(Change::Answers)
            }
        } else {
            self.answers = 0;
            self.misses = self.misses.saturating_add(1);
            if self.failed.is_none() && self.misses >= settings.misses {
                self.failed = Some(ended);
                Some(Change::Failed)
            } else {
                (before == 0 && self.failed.is_none()).then_some(Change::Missing)
            }
        };
        self.last = Some((outcome, ended));
        change
    }

    /// Did the last probe find it ready?
    pub fn is_ready(&self) -> bool {
        self.sign() == Some(Sign::Ready)
    }

    /// Has it failed, and not recovered?
    pub fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// When it failed.
    pub(super) fn failed_at(&self) -> Option<Instant> {
        self.failed
    }

    /// When it was ready last.
    pub(super) fn answered_at(&self) -> Option<Instant> {
        self.answered
    }

    /// What the last probe found.
    pub fn sign(&self) -> Option<Sign> {
        self.last.as_ref().map(|(outcome, _)| outcome.sign)
    }

    /// The last outcome, and when it came.
    pub fn last(&self) -> Option<(&Outcome, Instant)> {
        self.last.as_ref().map(|(outcome, ended)| (outcome, *ended))
    }

    /// Misses in a row.
    pub fn misses(&self) -> u32 {
        self.misses
    }

    /// What the last probe said, for people.
    pub(super) fn detail(&self) -> &str {
        self.last.as_ref().map_or("", |(outcome, _)| &outcome.detail)
    }

    /// Is the last outcome so fresh that it says how things are?
    pub(super) fn is_fresh(&self, settings: &Settings, now: Instant) -> bool {
        self.last
            .as_ref()
            .is_some_and(|(_, ended)| now.saturating_duration_since(*ended) <= settings.interval())
    }
}
