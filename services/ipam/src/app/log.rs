//! The last changes, for watches that follow.

use std::collections::VecDeque;
use std::sync::Arc;

use groundplane_core::{PoolId, Revision};

use super::error::IpamError;
use crate::domain::{Allocation, PoolStatus};

/// Changes that are kept for watches to resume from. About 400 bytes each: 6 MB when full.
const KEPT: usize = 16_384;

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Somebody holds this now; the pool is where it belongs today.
    Allocated(Arc<Allocation>, Option<PoolId>),
    /// Nobody, or somebody else, holds this now.
    Released(Arc<Allocation>, Option<PoolId>),
    /// A pool is new or different, or drains.
    Pool(Box<PoolStatus>),
    /// A pool is gone.
    PoolGone(PoolId),
    /// Addresses of this pool may be given (again).
    Freed(PoolId),
}

impl Event {
    /// The pool whose fill it changes.
    pub(super) fn pool(&self) -> Option<&PoolId> {
        match self {
            Self::Allocated(_, pool) | Self::Released(_, pool) => pool.as_ref(),
            Self::Pool(_) | Self::PoolGone(_) | Self::Freed(_) => None,
        }
    }

    /// Events of pools make no revision: they are told again to whoever resumes from theirs.
    fn is_of_pool(&self) -> bool {
        !matches!(self, Self::Allocated(..) | Self::Released(..))
    }
}

/// An event and the revision of the store after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The revision.
    pub revision: Revision,
    /// The event.
    pub event: Event,
}

/// Where a watch is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cursor(u64);

/// The log. Positions count up from the start of the process.
#[derive(Debug)]
pub(super) struct EventLog {
    entries: VecDeque<Entry>,
    /// Position of the first entry.
    first: u64,
    /// Everything behind this revision is in the log.
    floor: Revision,
    newest: Revision,
}

impl EventLog {
    pub(super) fn new(revision: Revision) -> Self {
        Self {
            entries: VecDeque::new(),
            first: 0,
            floor: revision,
            newest: revision,
        }
    }

    /// The revision of what was made durable last.
    pub(super) fn newest(&self) -> Revision {
        self.newest
    }

    /// The store reached this revision.
    pub(super) fn advance(&mut self, revision: Revision) {
        self.newest = self.newest.max(revision);
    }

    /// Adds an event of this revision.
    pub(super) fn push(&mut self, revision: Revision, event: Event) {
        self.advance(revision);
        let full = self.entries.len() == KEPT;
        if let Some(dropped) = full.then(|| self.entries.pop_front()).flatten() {
            self.floor = self.floor.max(dropped.revision);
            self.first += 1;
        }
        self.entries.push_back(Entry { revision, event });
    }

    /// Adds an event of a pool, which makes no revision.
    pub(super) fn push_of_pool(&mut self, event: Event) {
        self.push(self.newest, event);
    }

    /// Behind the last entry.
    pub(super) fn end(&self) -> Cursor {
        Cursor(self.first + self.entries.len() as u64)
    }

    /// Where a watch resumes that has seen everything up to `from`.
    pub(super) fn resume(&self, from: Revision) -> Result<Cursor, IpamError> {
        if from < self.floor || from > self.newest {
            return Err(IpamError::Compacted {
                from,
                floor: self.floor,
                newest: self.newest,
            });
        }
        let seen =
            |entry: &Entry| entry.revision < from || entry.revision == from && !entry.event.is_of_pool();
        let skipped = self.entries.iter().take_while(|entry| seen(entry)).count();
        Ok(Cursor(self.first + skipped as u64))
    }

    /// At most `most` entries from `cursor` on, and where to go on.
    pub(super) fn read(&self, cursor: Cursor, most: usize) -> Result<(Vec<Entry>, Cursor), IpamError> {
        let Some(skipped) = cursor.0.checked_sub(self.first) else {
            return Err(IpamError::Compacted {
                from: Revision(0),
                floor: self.floor,
                newest: self.newest,
            });
        };
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
        let read: Vec<_> = self.entries.iter().skip(skipped).take(most).cloned().collect();
        let next = Cursor(cursor.0 + read.len() as u64);
        Ok((read, next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gone(name: &str) -> Event {
        let source = groundplane_core::PoolSource("file".parse().unwrap());
        Event::PoolGone(PoolId {
            source,
            namespace: None,
            name: name.parse().unwrap(),
        })
    }

    #[test]
    fn what_is_forgotten_cannot_be_resumed_from() {
        let mut log = EventLog::new(Revision(5));
        assert!(log.resume(Revision(4)).is_err());
        assert!(log.resume(Revision(6)).is_err());
        for revision in 0..=KEPT as u64 {
            log.push(Revision(6 + revision), gone("a"));
        }
        assert!(log.resume(Revision(5)).is_err(), "the first entry was dropped");
        assert_eq!(log.resume(Revision(6)).unwrap(), Cursor(1));
        assert!(log.read(Cursor(0), 1).is_err());
    }

    #[test]
    fn events_of_pools_are_told_again_to_who_resumes_from_their_revision() {
        let mut log = EventLog::new(Revision(5));
        log.push_of_pool(gone("a"));
        let (read, next) = log.read(log.resume(Revision(5)).unwrap(), 10).unwrap();
        assert_eq!(
            read,
            [Entry {
                revision: Revision(5),
                event: gone("a")
            }]
        );
        assert_eq!(next, log.end());
    }
}
