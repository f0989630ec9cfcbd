//! Which events are sent, and which only counted. Pure.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};

use super::Event;
use crate::cluster::objects::Key;

/// A repetition is told at most this often.
const REPEAT: SignedDuration = SignedDuration::from_secs(60);

/// An event that has not repeated for this long starts anew.
const FORGET: SignedDuration = SignedDuration::from_mins(10);

/// Different events of one object that may be sent at once.
const BURST: u32 = 25;

/// After a burst, one of its different events may be sent this often.
const REFILL: SignedDuration = SignedDuration::from_secs(30);

/// Beyond this many, the old are forgotten: 2 MB at most.
const REMEMBERED: usize = 4096;

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Subject {
    pub(super) kind: &'static str,
    pub(super) key: Key,
    pub(super) uid: Box<str>,
}

/// What to do with an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Send it, under this name.
    Create {
        /// Name of the event.
        name: String,
    },
    /// It is known: say how often it has happened.
    Count {
        /// Name of the event.
        name: String,
        /// How often, this time included.
        count: i32,
        /// When for the first time.
        first: Timestamp,
    },
    /// Nothing: it was told a moment ago, or the object has been too loud.
    Quiet,
}

#[derive(Debug)]
struct Known {
    name: String,
    count: i32,
    first: Timestamp,
    told: Timestamp,
    seen: Timestamp,
}

#[derive(Debug)]
struct Bucket {
    left: u32,
    filled: Timestamp,
}

/// Remembers what was told.
#[derive(Debug, Default)]
pub(super) struct Aggregator {
    known: HashMap<(Box<str>, &'static str, String), Known>,
    buckets: HashMap<Box<str>, Bucket>,
    number: u64,
}

impl Aggregator {
    /// Decides about an event that happened now.
    pub(super) fn step(&mut self, subject: &Subject, event: &Event, now: Timestamp) -> Step {
        self.tidy(now);
        let key = (subject.uid.clone(), event.reason, event.message.clone());
        if let Some(known) = self.known.get_mut(&key) {
            known.count = known.count.saturating_add(1);
            known.seen = now;
            if now.duration_since(known.told) < REPEAT {
                return Step::Quiet;
            }
            known.told = now;
            return Step::Count {
                name: known.name.clone(),
                count: known.count,
                first: known.first,
            };
        }
        if !self.may_speak(&subject.uid, now) {
            return Step::Quiet;
        }
        self.number += 1;
        // As everybody names them: unique by time, and by our own number within it.
        let stamp = u128::try_from(now.as_nanosecond()).unwrap_or_default();
        let name = format!("{}.{:x}{:04x}", subject.key.name, stamp, self.number & 0xffff);
        self.known.insert(
            key,
            Known {
                name: name.clone(),
                count: 1,
                first: now,
                told: now,
                seen: now,
            },
        );
        Step::Create { name }
    }

    /// It could not be sent: the next time is the first.
    pub(super) fn forget(&mut self, subject: &Subject, event: &Event) {
        self.known
            .remove(&(subject.uid.clone(), event.reason, event.message.clone()));
    }

    fn may_speak(&mut self, uid: &str, now: Timestamp) -> bool {
        let bucket = self.buckets.entry(uid.into()).or_insert(Bucket {
            left: BURST,
            filled: now,
        });
        if now.duration_since(bucket.filled) >= REFILL {
            bucket.left = (bucket.left + 1).min(BURST);
            bucket.filled = now;
        }
        let may = bucket.left > 0;
        bucket.left = bucket.left.saturating_sub(1);
        may
    }

    fn tidy(&mut self, now: Timestamp) {
        if self.known.len() < REMEMBERED {
            return;
        }
        self.known
            .retain(|_, known| now.duration_since(known.seen) < FORGET);
        if self.known.len() >= REMEMBERED {
            // All of them are recent. To tell one of them anew is better than to grow without end.
            self.known.clear();
        }
        self.buckets
            .retain(|_, bucket| now.duration_since(bucket.filled) < FORGET);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(name: &str) -> Subject {
        Subject {
            kind: "Node",
            key: Key::cluster_wide(name),
            uid: format!("uid-{name}").into(),
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).unwrap()
    }

    #[test]
    fn what_repeats_is_counted_and_told_once_a_minute() {
        let mut aggregator = Aggregator::default();
        let (subject, event) = (subject("n"), Event::warning("Failed", "no"));
        let Step::Create { name } = aggregator.step(&subject, &event, at(0)) else {
            panic!()
        };
        assert_eq!(aggregator.step(&subject, &event, at(5)), Step::Quiet);
        assert_eq!(
            aggregator.step(&subject, &event, at(60)),
            Step::Count {
                name,
                count: 3,
                first: at(0)
            }
        );
        assert_eq!(aggregator.step(&subject, &event, at(61)), Step::Quiet);
    }

    #[test]
    fn what_could_not_be_sent_is_told_the_next_time() {
        let mut aggregator = Aggregator::default();
        let (subject, event) = (subject("n"), Event::warning("Failed", "no"));
        aggregator.step(&subject, &event, at(0));
        aggregator.forget(&subject, &event);
        assert!(matches!(
            aggregator.step(&subject, &event, at(1)),
            Step::Create { .. }
        ));
    }

    #[test]
    fn an_object_that_is_too_loud_is_silenced_and_others_are_not() {
        let mut aggregator = Aggregator::default();
        let loud = subject("loud");
        let told = (0..100)
            .map(|i| aggregator.step(&loud, &Event::normal("Changed", format!("{i}")), at(0)))
            .filter(|step| matches!(step, Step::Create { .. }))
            .count();
        assert_eq!(told, 25);
        let quiet = aggregator.step(&subject("quiet"), &Event::normal("Changed", "x"), at(0));
        assert!(matches!(quiet, Step::Create { .. }));
        let later = aggregator.step(&loud, &Event::normal("Changed", "later"), at(30));
        assert!(matches!(later, Step::Create { .. }));
    }

    #[test]
    fn memory_is_bounded() {
        let mut aggregator = Aggregator::default();
        for i in 0..10_000 {
            aggregator.step(&subject(&i.to_string()), &Event::normal("A", "b"), at(0));
        }
        assert!(aggregator.known.len() <= REMEMBERED);
    }
}
