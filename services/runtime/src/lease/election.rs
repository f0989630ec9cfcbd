//! Who holds the lease, decided without any I/O: events and times come in, the next thing to do goes out.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
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
    /// The mark of the write that renewed it last.
    pub(super) renewed: Option<Timestamp>,
    pub(super) annotations: BTreeMap<String, String>,
}

/// A write of ours, from the moment before it was sent. Its answer may never come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Attempt {
    mark: Timestamp,
    begun: Instant,
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
/// *holder* writes every fifth of the duration. A candidate becomes holder by a write of its own that succeeded, as the answer or,
/// where that was lost, the lease says; a holder becomes candidate by time, or by reading that somebody else holds the lease.
#[derive(Debug)]
pub(super) struct Election {
    identity: String,
    duration: Duration,
    retry: Duration,
    seen: Option<Seen>,
    /// Does `seen` stem from the last call, and not from one before a call of unknown outcome?
    fresh: bool,
    held: Option<Held>,
    /// Our writes, as long as they could still keep us holder.
    attempts: Vec<Attempt>,
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
            attempts: Vec::new(),
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

    /// A write with this mark, which no other has, is about to be sent.
    pub(super) fn attempt(&mut self, mark: Timestamp, begun: Instant) {
        let kept = self.trust();
        self.attempts.retain(|attempt| begun < attempt.begun + kept);
        self.attempts.push(Attempt { mark, begun });
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
                match self.recognized(now) {
                    Some((record, begun)) => self.hold(&record, begun, now),
                    None => self.decide(now),
                }
            }
            Event::Written(record, begun) => {
                self.fresh = true;
                let next = self.hold(&record, begun, now);
                self.seen = Some(Seen { record, since: now });
                next
            }
        }
    }

    fn holds(&self, now: Instant) -> Option<Held> {
        self.held.filter(|held| now < held.valid_until)
    }

    /// How long a holder trusts itself after the start of a renewal.
    fn trust(&self) -> Duration {
        self.duration * 3 / 4
    }

    /// The lease is ours by a write that was begun then.
    fn hold(&mut self, record: &Record, begun: Instant, now: Instant) -> Next {
        self.held = Some(Held {
            valid_until: begun + self.trust(),
            transitions: record.transitions,
        });
        Next::Pause((begun + self.duration / 5).max(now))
    }

    /// The write of ours that the lease, as it was read, stems from, if that still keeps us holder.
    fn recognized(&self, now: Instant) -> Option<(Record, Instant)> {
        let record = &self.seen.as_ref()?.record;
        let mark = record.renewed.filter(|_| record.holder == self.identity)?;
        let attempt = self.attempts.iter().find(|attempt| attempt.mark == mark)?;
        (now < attempt.begun + self.trust()).then(|| (record.clone(), attempt.begun))
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
