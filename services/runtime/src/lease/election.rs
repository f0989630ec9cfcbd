//! Who holds the lease, decided without any I/O: events and times come in, the next thing to do goes out.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::Standing;

/// What the Lease object says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// `resourceVersion`: changes with every write, renewals included.
    pub(super) version: String,
    /// Empty when released.
    pub(super) holder: String,
    /// How long its holder wants it to last without a renewal.
    pub(super) duration: Duration,
    pub(super) transitions: i64,
    pub(super) annotations: BTreeMap<String, String>,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The time that [`Next::Pause`] named has come. Also the first event.
    Tick,
    /// The lease was read; `None`: there is none.
    Read(Option<Record>),
    /// Our write succeeded; it was begun at this time.
    Written(Record, Instant),
    /// Our write was refused, since the lease is not what we thought.
    Refused,
    /// A call failed, or did not end in time: it may or may not have had its effect.
    Failed,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Read the lease.
    Read,
    /// Create it, ours, with this number.
    Create { transitions: i64 },
    /// Write it, ours, with this number, if it still has this version.
    Write { version: String, transitions: i64 },
    /// Nothing until then.
    Pause(Instant),
}

/// Our term as holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    valid_until: Instant,
    transitions: i64,
}

/// A record, and when we first saw this version of it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    record: Record,
    since: Instant,
}

/// One candidate.
///
/// States: *candidate* (`held` is none, or no longer valid) reads every `retry` and takes the lease when it may;
/// *holder* writes every fifth of the duration. A candidate becomes holder by a write of its own that succeeded; a holder
/// becomes candidate by time, or by reading that somebody else holds the lease.
#[derive(Debug)]
pub(super) struct Election {
    identity: String,
    duration: Duration,
    retry: Duration,
    seen: Option<Seen>,
    /// Does `seen` stem from the last call, and not from one before a call of unknown outcome?
    fresh: bool,
    held: Option<Held>,
    /// Have we tried to write since we last saw somebody else's record? Then what we read may be our own work.
    tried: bool,
    /// As the holder before us left them.
    inherited: BTreeMap<String, String>,
}

impl Election {
    pub(super) fn new(identity: String, duration: Duration, retry: Duration) -> Self {
        Self {
            identity,
            duration,
            retry,
            seen: None,
            fresh: false,
            held: None,
            tried: false,
            inherited: BTreeMap::new(),
        }
    }

    /// What others may know.
    pub(super) fn standing(&self) -> Standing {
        Standing {
            valid_until: self.held.map(|held| held.valid_until),
            transitions: self.held.map_or(0, |held| held.transitions),
            annotations: self.inherited.clone(),
        }
    }

    /// Gives up whatever is held, and says which version of the lease there is to let go of.
    pub(super) fn resign(&mut self, now: Instant) -> Option<(String, i64)> {
        let held = self.held.take()?;
        let seen = self
            .seen
            .as_ref()
            .filter(|_| self.fresh && now < held.valid_until)?;
        Some((seen.record.version.clone(), held.transitions))
    }

    /// One step. `now` never goes back.
    pub(super) fn step(&mut self, event: Event, now: Instant) -> Next {
        match event {
            Event::Tick if self.holds(now).is_some() && self.fresh => self.take(),
            Event::Tick | Event::Refused => {
                self.fresh = false;
                Next::Read
            }
            Event::Failed => {
                self.fresh = false;
                let pause = if self.holds(now).is_some() {
                    self.urgent()
                } else {
                    self.retry
                };
                Next::Pause(now + pause)
            }
            Event::Read(record) => {
                self.fresh = true;
                self.observe(record, now);
                self.decide(now)
            }
            Event::Written(record, begun) => {
                self.fresh = true;
                let valid_until = begun + self.duration * 3 / 4;
                self.held = Some(Held {
                    valid_until,
                    transitions: record.transitions,
                });
                self.seen = Some(Seen { record, since: now });
                Next::Pause((begun + self.duration / 5).max(now))
            }
        }
    }

    fn holds(&self, now: Instant) -> Option<Held> {
        self.held.filter(|held| now < held.valid_until)
    }

    /// How soon a holder tries again: often enough for several tries before its time is up.
    fn urgent(&self) -> Duration {
        self.duration / 20
    }

    fn observe(&mut self, record: Option<Record>, now: Instant) {
        match record {
            Some(record) => {
                let known = self
                    .seen
                    .as_ref()
                    .is_some_and(|seen| seen.record.version == record.version);
                let own = record.holder == self.identity && self.tried;
                self.tried = own;
                if !own {
                    self.inherited.clone_from(&record.annotations);
                }
                if !known {
                    self.seen = Some(Seen { record, since: now });
                }
            }
            // Somebody deleted it. Whoever held it may still trust it, so what was seen keeps its time.
            None => {
                if let Some(seen) = &mut self.seen {
                    seen.record.version.clear();
                }
            }
        }
    }

    fn decide(&mut self, now: Instant) -> Next {
        let ours = self
            .seen
            .as_ref()
            .is_some_and(|seen| seen.record.holder == self.identity);
        if !ours {
            // Somebody else's, or nobody's: whatever we held is gone.
            self.held = None;
        }
        match self.free_at() {
            Some(at) if now < at => Next::Pause(at.min(now + self.retry)),
            _ => {
                if self.holds(now).is_none() {
                    self.held = None;
                }
                self.take()
            }
        }
    }

    /// When the lease may be taken; `None`: at once.
    fn free_at(&self) -> Option<Instant> {
        let Seen { record, since } = self.seen.as_ref()?;
        let free = record.holder.is_empty() || record.holder == self.identity;
        (!free).then(|| *since + record.duration.max(self.duration))
    }

    /// The write that makes or keeps it ours.
    fn take(&mut self) -> Next {
        self.tried = true;
        let last = self.seen.as_ref().map_or(0, |seen| seen.record.transitions);
        let transitions = self.held.map_or(last + 1, |held| held.transitions);
        match &self.seen {
            Some(seen) if !seen.record.version.is_empty() => Next::Write {
                version: seen.record.version.clone(),
                transitions,
            },
            _ => Next::Create { transitions },
        }
    }
}

#[cfg(test)]
mod tests;
