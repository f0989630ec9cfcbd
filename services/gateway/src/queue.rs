//! The work queue of a controller: keys of objects that want to be looked at.
//!
//! ```text
//!            wake            next             done(Outcome)
//!   idle ──────────► ready ────────► running ───────────────► idle | waiting(until) | parked(reason)
//!                      ▲                │ wake: once more          │                    │
//!                      └────────────────┴──────────────────────────┴── time, wake ──────┘ wake, unpark(reason)
//! ```
//!
//! A key is there once, however often it is woken, and never given out twice at a time. Everything is decided by the synchronous
//! [`State`]; [`Queue`] adds the lock (one mutex, held for a few map operations, never across an await) and the waiting.

mod state;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::cluster::objects::Key;
use state::State;
pub(crate) use state::{Depth, Outcome};

/// A queue. Cheap to clone; all clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    name: &'static str,
    state: Mutex<State>,
    /// Told when a key became ready, or the earliest time to wait for changed.
    changed: Notify,
}

impl Queue {
    /// An empty queue; `name` stands for it in logs and metrics.
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            inner: Arc::new(Inner {
                name,
                state: Mutex::new(State::default()),
                changed: Notify::new(),
            }),
        }
    }

    /// Its name.
    pub(crate) fn name(&self) -> &'static str {
        self.inner.name
    }

    /// Wants `key` to be looked at now: something about it has changed.
    pub(crate) fn wake(&self, key: Key) {
        self.inner.state.lock().wake(key, Instant::now());
        self.inner.changed.notify_one();
    }

    /// As [`Queue::wake`], but leaves keys alone that wait for a time or a reason of their own: the resync's way.
    pub(crate) fn offer(&self, key: Key) {
        self.inner.state.lock().offer(key, Instant::now());
        self.inner.changed.notify_one();
    }

    /// Wakes the keys that were parked for this reason.
    pub(crate) fn unpark(&self, reason: &str) {
        self.inner.state.lock().unpark(reason, Instant::now());
        self.inner.changed.notify_one();
    }

    /// Waits for a key to work on. [`Queue::done`] must be called with it.
    pub(crate) async fn next(&self) -> Key {
        loop {
            // Made before the look, so that no change falls between.
            let changed = self.inner.changed.notified();
            let due = {
                let mut state = self.inner.state.lock();
                if let Some(key) = state.next(Instant::now()) {
                    if state.has_ready() {
                        // Another worker may take the next one.
                        self.inner.changed.notify_one();
                    }
                    return key;
                }
                state.due()
            };
            match due {
                Some(due) => {
                    tokio::select! {
                        () = changed => {}
                        () = tokio::time::sleep_until(due) => {}
                    }
                }
                None => changed.await,
            }
        }
    }

    /// The work on `key` has ended like this.
    pub(crate) fn done(&self, key: &Key, outcome: Outcome) {
        self.inner.state.lock().done(key, outcome, Instant::now());
        self.inner.changed.notify_one();
    }

    /// How full it is.
    pub(crate) fn depth(&self) -> Depth {
        self.inner.state.lock().depth(Instant::now())
    }

    /// Until when, or for what, `key` waits, for people: `None` if it does not.
    pub(crate) fn waits(&self, key: &Key) -> Option<Waits> {
        self.inner.state.lock().waits(key, Instant::now())
    }
}

/// What a key waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// Its turn.
    Turn,
    /// A time, this far away.
    Time(Duration),
    /// A reason to go away.
    Reason(&'static str),
}

#[cfg(test)]
mod tests;
