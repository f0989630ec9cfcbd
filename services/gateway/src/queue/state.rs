//! The queue without time and tasks.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::time::Duration;

use groundplane_runtime::Backoff;
use tokio::time::Instant;

use super::Waits;
use crate::cluster::objects::Key;

/// After errors.
const ERRORS: Backoff = Backoff {
    first: Duration::from_secs(5),
    longest: Duration::from_secs(300),
};

/// After lost races: what won has been read, or is about to be seen.
const CONFLICTS: Backoff = Backoff {
    first: Duration::from_millis(20),
    longest: Duration::from_millis(500),
};

/// So many races in a row may be lost to others who write. What conflicts for longer is no race, and waits like an error.
const RACES: u32 = 20;

/// How the work on a key has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The object is as it should be. Forgets earlier failures.
    Done,
    /// So far so good; look again after this time. Forgets earlier failures.
    After(Duration),
    /// A race was lost: look again soon; if that happens again and again, as after failures.
    Conflict,
    /// It failed; look again after a pause that grows with each failure, and is at least this long.
    Failed(Duration),
    /// It cannot succeed until a reason goes away ([`super::Queue::unpark`]), or the pause that a failure would have
    /// had is over, whichever is first.
    Parked(&'static str),
}

/// How full a queue is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Depth {
    /// Keys that could be worked on.
    pub(crate) ready: usize,
    /// Keys that are being worked on.
    pub(crate) running: usize,
    /// Keys that wait for a time or a reason.
    pub(crate) waiting: usize,
    /// How long the first of the ready ones has waited.
    pub(crate) oldest: Duration,
}

#[derive(Debug, Default)]
enum Place {
    #[default]
    Idle,
    Ready,
    Running {
        /// Was it woken meanwhile?
        again: bool,
    },
    Waiting {
        until: Instant,
        reason: Option<&'static str>,
    },
}

#[derive(Debug, Default)]
struct Slot {
    place: Place,
    failures: u32,
    conflicts: u32,
}

/// Keys and where they are. Every key in `ready` has a slot in place `Ready`, once; an entry of `timers` counts only if its
/// slot still waits for exactly that time.
#[derive(Debug, Default)]
pub(super) struct State {
    slots: HashMap<Key, Slot>,
    ready: VecDeque<(Key, Instant)>,
    timers: BinaryHeap<Reverse<(Instant, Key)>>,
    parked: HashMap<&'static str, BTreeSet<Key>>,
    running: usize,
    waiting: usize,
}

impl State {
    pub(super) fn wake(&mut self, key: Key, now: Instant) {
        let slot = self.slots.entry(key.clone()).or_default();
        match &mut slot.place {
            Place::Ready => return,
            Place::Running { again } => {
                *again = true;
                return;
            }
            Place::Waiting { reason, .. } => {
                self.waiting -= 1;
                if let Some(reason) = reason {
                    forget(&mut self.parked, reason, &key);
                }
            }
            Place::Idle => {}
        }
        slot.place = Place::Ready;
        self.ready.push_back((key, now));
    }

    pub(super) fn offer(&mut self, key: Key, now: Instant) {
        let waits = self
            .slots
            .get(&key)
            .is_some_and(|slot| !matches!(slot.place, Place::Idle));
        if !waits {
            self.wake(key, now);
        }
    }

    pub(super) fn unpark(&mut self, reason: &str, now: Instant) {
        for key in self.parked.remove(reason).unwrap_or_default() {
            // Not `wake`, which would look for it among the parked.
            if let Some(slot) = self.slots.get_mut(&key) {
                slot.place = Place::Ready;
                self.waiting -= 1;
                self.ready.push_back((key, now));
            }
        }
    }

    pub(super) fn next(&mut self, now: Instant) -> Option<Key> {
        self.ripen(now);
        let (key, _) = self.ready.pop_front()?;
        self.slots.entry(key.clone()).or_default().place = Place::Running { again: false };
        self.running += 1;
        Some(key)
    }

    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// When the next key becomes ready by time alone.
    pub(super) fn due(&mut self) -> Option<Instant> {
        while let Some(Reverse((until, key))) = self.timers.peek() {
            if self.is_due(key, *until) {
                return Some(*until);
            }
            self.timers.pop();
        }
        None
    }

    pub(super) fn done(&mut self, key: &Key, outcome: Outcome, now: Instant) {
        let Some(slot) = self.slots.get_mut(key) else {
            return;
        };
        let Place::Running { again } = slot.place else {
            return;
        };
        self.running -= 1;
        let (pause, reason) = match outcome {
            Outcome::Done | Outcome::After(_) => {
                (slot.failures, slot.conflicts) = (0, 0);
                if let Outcome::After(pause) = outcome {
                    (Some(pause), None)
                } else {
                    (None, None)
                }
            }
            Outcome::Conflict => {
                slot.conflicts = slot.conflicts.saturating_add(1);
                (Some(after_conflict(slot.conflicts)), None)
            }
            Outcome::Failed(at_least) => {
                slot.failures = slot.failures.saturating_add(1);
                (Some(ERRORS.pause(slot.failures - 1).max(at_least)), None)
            }
            Outcome::Parked(reason) => {
                slot.failures = slot.failures.saturating_add(1);
                (Some(ERRORS.pause(slot.failures - 1)), Some(reason))
            }
        };
        if again {
            slot.place = Place::Ready;
            self.ready.push_back((key.clone(), now));
            return;
        }
        let Some(pause) = pause else {
            self.slots.remove(key);
            return;
        };
        let until = now + pause;
        slot.place = Place::Waiting { until, reason };
        self.waiting += 1;
        self.timers.push(Reverse((until, key.clone())));
        if let Some(reason) = reason {
            self.parked.entry(reason).or_default().insert(key.clone());
        }
    }

    pub(super) fn depth(&self, now: Instant) -> Depth {
        let oldest = self
            .ready
            .front()
            .map(|(_, since)| now.saturating_duration_since(*since));
        Depth {
            ready: self.ready.len(),
            running: self.running,
            waiting: self.waiting,
            oldest: oldest.unwrap_or_default(),
        }
    }

    pub(super) fn waits(&self, key: &Key, now: Instant) -> Option<Waits> {
        match self.slots.get(key)?.place {
            Place::Idle => None,
            Place::Ready | Place::Running { .. } => Some(Waits::Turn),
            Place::Waiting {
                reason: Some(reason), ..
            } => Some(Waits::Reason(reason)),
            Place::Waiting { until, reason: None } => Some(Waits::Time(until.saturating_duration_since(now))),
        }
    }

    /// Moves what waited for a time that has come.
    fn ripen(&mut self, now: Instant) {
        while self.due().is_some_and(|until| until <= now) {
            if let Some(Reverse((_, key))) = self.timers.pop() {
                self.wake(key, now);
            }
        }
    }

    fn is_due(&self, key: &Key, at: Instant) -> bool {
        self.slots
            .get(key)
            .is_some_and(|slot| matches!(slot.place, Place::Waiting { until, .. } if until == at))
    }
}

/// The pause after so many conflicts in a row.
fn after_conflict(conflicts: u32) -> Duration {
    match conflicts.checked_sub(RACES + 1) {
        None => CONFLICTS.pause(conflicts.saturating_sub(1)),
        Some(more) => ERRORS.pause(more),
    }
}

fn forget(parked: &mut HashMap<&'static str, BTreeSet<Key>>, reason: &'static str, key: &Key) {
    if let Some(keys) = parked.get_mut(reason) {
        keys.remove(key);
        if keys.is_empty() {
            parked.remove(reason);
        }
    }
}
