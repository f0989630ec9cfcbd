//! What one agent has seen of one address, counted here anew and apart from `health`, so that a slip there is not repeated here.

use std::collections::BTreeMap;
use std::time::Duration;

use groundplane_health::domain::{Settings, Sign};
use tokio::time::Instant;

/// An outcome: when it came, and what it said.
type Seen = (Instant, Sign);

/// What the probes of one address said, in the order in which they began.
#[derive(Debug, Default)]
pub(crate) struct Sight {
    next: u64,
    /// Probes that run, and those that ended before one that began earlier.
    open: BTreeMap<u64, Option<Seen>>,
    last: Option<Seen>,
    before: Option<Sign>,
    misses: u32,
    answers: u32,
    failed: Option<Instant>,
}

impl Sight {
    /// A probe begins.
    pub(crate) fn begin(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        self.open.insert(number, None);
        number
    }

    /// A probe was given up.
    pub(crate) fn forget(&mut self, number: u64) {
        self.open.remove(&number);
    }

    /// A probe ended.
    pub(crate) fn end(&mut self, number: u64, seen: Seen, settings: &Settings) {
        self.open.insert(number, Some(seen));
        while let Some(first) = self.open.first_entry() {
            let Some(seen) = *first.get() else { return };
            first.remove();
            self.count(seen, settings);
        }
    }

    fn count(&mut self, seen: Seen, settings: &Settings) {
        self.before = self.last.map(|(_, sign)| sign);
        self.last = Some(seen);
        if seen.1 == Sign::Ready {
            self.misses = 0;
            self.answers += 1;
            if self.answers >= settings.recovery {
                self.failed = None;
            }
        } else {
            self.answers = 0;
            self.misses += 1;
            if self.misses >= settings.misses {
                self.failed.get_or_insert(seen.0);
            }
        }
    }

    /// Was it ready in the last interval? What ended in this very instant may not have been told yet.
    pub(crate) fn was_ready(&self, settings: &Settings, now: Instant) -> bool {
        self.last.is_some_and(|(ended, sign)| {
            let fresh = now - ended <= settings.interval() + settings.period;
            let told = if ended == now { self.before } else { None };
            fresh && (sign == Sign::Ready || told == Some(Sign::Ready))
        })
    }

    /// Did it miss as often as makes a failure, and not answer since? For how long by now?
    pub(crate) fn dead_for(&self, now: Instant) -> Option<Duration> {
        let ready = self
            .last
            .is_some_and(|(ended, sign)| sign == Sign::Ready && ended != now);
        self.failed.filter(|_| !ready).map(|failed| now - failed)
    }

    /// Did anything come back in the last interval?
    pub(crate) fn is_heard(&self, settings: &Settings, now: Instant) -> bool {
        self.last.is_some_and(|(ended, sign)| {
            let told = if ended == now { self.before } else { None };
            now - ended <= settings.interval() + settings.period
                && (sign != Sign::Silent || told.is_some_and(|sign| sign != Sign::Silent))
        })
    }

    /// Is it ready now, for all that may have been told?
    pub(crate) fn answers(&self, now: Instant) -> bool {
        self.last
            .is_some_and(|(ended, sign)| sign == Sign::Ready && ended != now)
    }
}
