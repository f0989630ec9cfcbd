//! What cools down in one space: released prefixes, oldest first.
//!
//! *Ripe* at some time is what was released no later than that, less the cooldown.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Bound;

use groundplane_core::{Family, Prefix};
use jiff::Timestamp;

/// The queue. Every question is answered in the logarithm of its length, save how much of it is ripe: that is counted on
/// from the last time it was asked, as time goes on.
#[derive(Clone, Debug)]
pub(super) struct Cooldown {
    /// With how many addresses of the prefix the space takes part.
    queue: BTreeMap<(Timestamp, Prefix), u128>,
    total: u128,
    /// How many addresses were ripe when that was asked last.
    counted: Cell<(Timestamp, u128)>,
}

impl Default for Cooldown {
    fn default() -> Self {
        Self {
            queue: BTreeMap::new(),
            total: 0,
            counted: Cell::new((Timestamp::MIN, 0)),
        }
    }
}

impl PartialEq for Cooldown {
    fn eq(&self, other: &Self) -> bool {
        self.queue == other.queue && self.total == other.total
    }
}

/// An end of a part of the queue.
type End = Bound<(Timestamp, Prefix)>;

/// Behind everything that was released at `at`.
fn behind(at: Timestamp) -> End {
    Family::V6
        .address(u128::MAX)
        .map_or(Bound::Unbounded, |last| Bound::Included((at, Prefix::host(last))))
}

/// From there on.
fn after(bound: End) -> (End, End) {
    match bound {
        Bound::Included(last) => (Bound::Excluded(last), Bound::Unbounded),
        other => (other, Bound::Unbounded),
    }
}

impl Cooldown {
    /// Adds a prefix that has `size` addresses here. `false` if it is there already.
    pub(super) fn insert(&mut self, released: Timestamp, prefix: Prefix, size: u128) -> bool {
        if self.queue.contains_key(&(released, prefix)) {
            return false;
        }
        self.queue.insert((released, prefix), size);
        self.total = self.total.saturating_add(size);
        self.recount(released, |ripe| ripe.saturating_add(size));
        true
    }

    /// Takes a prefix out. `false` if it is not there.
    pub(super) fn remove(&mut self, released: Timestamp, prefix: Prefix) -> bool {
        let Some(size) = self.queue.remove(&(released, prefix)) else {
            return false;
        };
        self.total = self.total.saturating_sub(size);
        self.recount(released, |ripe| ripe.saturating_sub(size));
        true
    }

    fn recount(&self, released: Timestamp, change: impl Fn(u128) -> u128) {
        let (until, ripe) = self.counted.get();
        if released <= until {
            self.counted.set((until, change(ripe)));
        }
    }

    /// Prefixes.
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Addresses.
    pub(super) fn total(&self) -> u128 {
        self.total
    }

    /// The prefix that cools longest.
    pub(super) fn oldest(&self) -> Option<(Timestamp, Prefix)> {
        self.queue.first_key_value().map(|(first, _)| *first)
    }

    /// Addresses that are not ripe.
    pub(super) fn unripe(&self, ripe: Timestamp) -> u128 {
        let (until, counted) = self.counted.get();
        let (from, sum) = if ripe >= until {
            (after(behind(until)).0, counted)
        } else {
            // The clock went back.
            (Bound::Unbounded, 0)
        };
        let more = self.queue.range((from, Bound::Unbounded));
        let more = more.take_while(|((released, _), _)| *released <= ripe);
        let sum = more.fold(sum, |sum, (_, size)| sum.saturating_add(*size));
        self.counted.set((ripe, sum));
        self.total.saturating_sub(sum)
    }

    /// Ripe prefixes, oldest first.
    pub(super) fn ripe(&self, ripe: Timestamp) -> impl Iterator<Item = Prefix> {
        let all = self
            .queue
            .keys()
            .take_while(move |(released, _)| *released <= ripe);
        all.map(|(_, prefix)| *prefix)
    }

    /// Was anything released later than `before`, and is ripe?
    pub(super) fn ripened(&self, before: Timestamp, ripe: Timestamp) -> bool {
        let last = self.queue.range((Bound::Unbounded, behind(ripe))).next_back();
        last.is_some_and(|((released, _), _)| *released > before)
    }

    /// When the first was released of what is not ripe.
    pub(super) fn next_unripe(&self, ripe: Timestamp) -> Option<Timestamp> {
        self.queue
            .range(after(behind(ripe)))
            .next()
            .map(|((released, _), _)| *released)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    proptest! {
        #[test]
        fn it_counts_like_one_who_looks_at_everything(
            steps in prop::collection::vec((0_u8..4, 0_i64..20, 0_u8..9), 1..60),
        ) {
            let mut queue = Cooldown::default();
            let mut naive = BTreeMap::new();
            for (what, second, last) in steps {
                let prefix: Prefix = format!("10.0.0.{last}").parse().unwrap();
                let size = u128::from(last) + 1;
                match what {
                    0 | 1 => {
                        let new = naive.insert((at(second), prefix), size).is_none();
                        prop_assert_eq!(queue.insert(at(second), prefix, size), new);
                    }
                    2 => {
                        let there = naive.remove(&(at(second), prefix)).is_some();
                        prop_assert_eq!(queue.remove(at(second), prefix), there);
                    }
                    _ => {
                        let unripe = naive.iter().filter(|((released, _), _)| *released > at(second));
                        prop_assert_eq!(queue.unripe(at(second)), unripe.clone().map(|(_, size)| size).sum::<u128>());
                        prop_assert_eq!(queue.next_unripe(at(second)), unripe.map(|((at, _), _)| *at).min());
                        let between = naive.keys().any(|(released, _)| *released > at(5) && *released <= at(second));
                        prop_assert_eq!(queue.ripened(at(5), at(second)), between);
                        prop_assert_eq!(queue.ripe(at(second)).count() + naive.keys()
                            .filter(|(released, _)| *released > at(second)).count(), queue.len());
                    }
                }
                prop_assert_eq!(queue.total(), naive.values().sum::<u128>());
            }
        }
    }
}
