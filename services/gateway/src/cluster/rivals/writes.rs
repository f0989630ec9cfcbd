//! Writes of older controllers that are news: somebody writes by the name of one, beside us. Pure.
//!
//! The API server remembers for years who wrote what, so that only what is added while we look counts: what was there at the first look,
//! and what somebody brings back from a backup, does not. While one is known to run by its pods or its lease, its writes tell nothing
//! more; and those of one that has just been stopped are its last.
//!
//! A controller writes when it has something to say, and says nothing in between. So one that wrote counts as running for a while, and
//! each time that it was wrong to believe that it had stopped, for twice as long.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// So long after its pods went, or its lease was renewed for the last time, one may still be writing.
const FAREWELL: Duration = Duration::from_secs(30);

/// One that wrote counts as running for so long, the first time.
const FIRST: Duration = Duration::from_secs(5 * 60);

/// And no longer than this.
const LONGEST: Duration = Duration::from_secs(60 * 60);

/// What is older by both clocks was not written now, but brought back: no two clocks differ by so much, in seconds.
const OLD: i64 = 3600;

/// The last write of an older controller to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Write {
    /// `Node n1`.
    pub(super) object: String,
    pub(super) uid: Box<str>,
    /// By what name it writes.
    pub(super) manager: &'static str,
    /// By the API server's clock.
    pub(super) at: Option<Timestamp>,
}

/// When the object of this UID was last written to by this name.
type Seen = HashMap<(Box<str>, &'static str), Option<Timestamp>>;

/// Remembers which writes were seen.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// The last write to each object by each name; `None`: nothing was looked at yet.
    seen: Option<Seen>,
    /// When somebody was last known to run otherwise.
    known: Option<Instant>,
    news: Option<News>,
    /// How often there was news after it had been believed that there would be none.
    times: u32,
}

/// Somebody writes.
#[derive(Clone, Debug)]
pub(super) struct News {
    /// What it wrote first, since it was noticed.
    pub(super) write: Write,
    /// When it wrote last, as far as we know.
    last: Instant,
    /// How long it is believed to run after that.
    hold: Duration,
}

impl Ledger {
    /// Takes in what was seen; `None`: that could not be read, and is as it was. `known`: somebody is known to run otherwise.
    pub(super) fn see(&mut self, writes: Option<Vec<Write>>, known: bool, now: Instant, wall: Timestamp) {
        if known {
            self.known = Some(now);
            self.news = None;
        }
        if self
            .news
            .as_ref()
            .is_some_and(|news| now.saturating_duration_since(news.last) >= news.hold)
        {
            self.news = None;
        }
        let Some(writes) = writes else {
            return;
        };
        let explained = self
            .known
            .is_some_and(|last| now.saturating_duration_since(last) < FAREWELL);
        let new = self.seen.as_ref().and_then(|seen| {
            let mut writes = writes.iter();
            writes.find(|write| is_new(seen, write, wall)).cloned()
        });
        let seen = writes
            .into_iter()
            .map(|write| ((write.uid, write.manager), write.at));
        self.seen = Some(seen.collect());
        if let Some(write) = new.filter(|_| !explained) {
            self.note(write, now);
        }
    }

    fn note(&mut self, write: Write, now: Instant) {
        if let Some(news) = &mut self.news {
            news.last = now;
            return;
        }
        let hold = FIRST
            .saturating_mul(2_u32.saturating_pow(self.times))
            .min(LONGEST);
        self.times = self.times.saturating_add(1);
        self.news = Some(News {
            write,
            last: now,
            hold,
        });
    }

    /// Who writes; `None`: nobody that is not known otherwise.
    pub(super) fn news(&self) -> Option<&News> {
        self.news.as_ref()
    }
}

/// Was this written since the last look?
fn is_new(seen: &Seen, write: &Write, wall: Timestamp) -> bool {
    let Some(at) = write.at else {
        return false;
    };
    let recent = wall.as_second().saturating_sub(at.as_second()) <= OLD;
    match seen.get(&(write.uid.clone(), write.manager)) {
        Some(before) => before.is_none_or(|before| at > before) && recent,
        None => recent,
    }
}

#[cfg(test)]
mod tests;
