//! What is free in one pool, in one family. Derived state: rebuilt from the pool and the records in it.

use std::ops::RangeInclusive;

use groundplane_core::{AddressRange, Family, Prefix};
use jiff::Timestamp;
use rangemap::RangeInclusiveSet;

use super::cooldown::Cooldown;
use super::free_set::{FreeSet, block_within, size};

/// The addresses of one family in one pool.
///
/// Each usable address is in exactly one place: free, held back (reserved, given by address only), cooling, or used.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Space {
    /// What may be given at all: ranges less exclusions and edges.
    usable: RangeInclusiveSet<u128>,
    /// What of it is given only by address.
    reserved: RangeInclusiveSet<u128>,
    total: u128,
    free: FreeSet,
    held_back: FreeSet,
    cooldown: Cooldown,
}

/// How a space is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) total: u128,
    pub(super) used: u128,
    pub(super) free: u128,
    pub(super) cooling: u128,
}

impl Space {
    /// A space in which everything is free.
    pub(super) fn new(
        ranges: impl Iterator<Item = AddressRange>,
        excluded: impl Iterator<Item = AddressRange>,
        reserved: impl Iterator<Item = AddressRange>,
    ) -> Self {
        let mut space = Self::default();
        for range in ranges {
            space.usable.insert(range.first()..=range.last());
        }
        for range in excluded {
            space.usable.remove(range.first()..=range.last());
        }
        for range in reserved {
            space.reserved.insert(range.first()..=range.last());
        }
        let usable: Vec<_> = space.usable.iter().cloned().collect();
        for range in usable {
            space.total = space.total.saturating_add(size(*range.start(), *range.end()));
            space.give(*range.start(), *range.end());
        }
        space
    }

    /// Is nothing of this family in the pool?
    pub(super) fn is_empty(&self) -> bool {
        self.usable.is_empty()
    }

    /// May every address of `range` be given, be it by address only?
    pub(super) fn is_usable(&self, range: AddressRange) -> bool {
        self.usable
            .get(&range.first())
            .is_some_and(|usable| range.last() <= *usable.end())
    }

    /// May every address of `range` be given to who asks for any?
    fn is_automatic(&self, range: AddressRange) -> bool {
        self.is_usable(range) && !self.reserved.overlaps(&(range.first()..=range.last()))
    }

    /// Somebody holds these addresses now.
    pub(super) fn take(&mut self, range: AddressRange) {
        self.free.remove(range.first(), range.last());
        if !self.reserved.is_empty() {
            self.held_back.remove(range.first(), range.last());
        }
    }

    /// Nobody holds these addresses any more.
    pub(super) fn give(&mut self, first: u128, last: u128) {
        let parts: Vec<_> = self
            .usable
            .overlapping(first..=last)
            .map(|usable| first.max(*usable.start())..=last.min(*usable.end()))
            .collect();
        for part in parts {
            if self.reserved.is_empty() {
                self.free.insert(*part.start(), *part.end());
                continue;
            }
            for gap in self.reserved.gaps(&part) {
                self.free.insert(*gap.start(), *gap.end());
            }
            for reserved in self.reserved.overlapping(part.clone()) {
                let (first, last) = (
                    (*part.start()).max(*reserved.start()),
                    (*part.end()).min(*reserved.end()),
                );
                self.held_back.insert(first, last);
            }
        }
    }

    /// What of `range` may be given to who asks for any.
    fn automatic(&self, range: AddressRange) -> Vec<RangeInclusive<u128>> {
        let (first, last) = (range.first(), range.last());
        let usable = self.usable.overlapping(first..=last);
        usable
            .map(|usable| first.max(*usable.start())..=last.min(*usable.end()))
            .flat_map(|part| self.reserved.gaps(&part).collect::<Vec<_>>())
            .collect()
    }

    fn automatic_size(&self, range: AddressRange) -> u128 {
        if self.is_automatic(range) {
            return range.size();
        }
        let parts = self.automatic(range);
        parts.iter().fold(0, |sum, part| {
            sum.saturating_add(size(*part.start(), *part.end()))
        })
    }

    /// Puts a free prefix into the queue, if any of it is ever given to who asks for any.
    pub(super) fn cool(&mut self, prefix: Prefix, released: Timestamp) {
        let range = prefix.range();
        let size = self.automatic_size(range);
        if size > 0 && self.cooldown.insert(released, prefix, size) {
            self.free.remove(range.first(), range.last());
        }
    }

    /// Would any of this prefix cool down here?
    pub(super) fn cools(&self, prefix: Prefix) -> bool {
        self.automatic_size(prefix.range()) > 0
    }

    /// Takes a prefix out of the queue: its addresses are free at once.
    pub(super) fn thaw(&mut self, prefix: Prefix, released: Timestamp) {
        if self.cooldown.remove(released, prefix) {
            let range = prefix.range();
            self.give(range.first(), range.last());
        }
    }

    /// The prefix of `length` bits that is given next to who asks for any: the first that was never used, else the one
    /// that cools longest, if it was released no later than `ripe`.
    pub(super) fn pick(&self, family: Family, length: u8, ripe: Timestamp) -> Option<Prefix> {
        let bits = u32::from(family.bits().checked_sub(length)?);
        let first = match self.free.first_block(bits) {
            Some(first) => first,
            None => self.pick_cooled(bits, length, ripe)?,
        };
        Prefix::new(family.address(first)?, length).ok()
    }

    fn pick_cooled(&self, bits: u32, length: u8, ripe: Timestamp) -> Option<u128> {
        let fits = |prefix: &Prefix| prefix.length() <= length && self.is_automatic(prefix.range());
        if let Some(whole) = self.cooldown.ripe(ripe).find(fits) {
            return Some(whole.range().first());
        }
        // Only parts: they must be put together, with one another and with what is free.
        let mut merged = self.free.ranges();
        self.cooldown
            .ripe(ripe)
            .flat_map(|prefix| self.automatic(prefix.range()))
            .find_map(|part| {
                let first = *part.start();
                merged.insert(part);
                let around = merged.get(&first)?;
                block_within(*around.start(), *around.end(), bits)
            })
    }

    /// How it is used, where what was released no later than `ripe` counts as free.
    pub(super) fn usage(&self, ripe: Timestamp) -> Usage {
        let cooling = self.cooldown.unripe(ripe);
        let open = self.free.count().saturating_add(self.held_back.count());
        Usage {
            total: self.total,
            used: self
                .total
                .saturating_sub(open)
                .saturating_sub(self.cooldown.total()),
            free: open.saturating_add(self.cooldown.total().saturating_sub(cooling)),
            cooling,
        }
    }

    /// How many addresses are free but given by address only.
    pub(super) fn held_back(&self) -> u128 {
        self.held_back.count()
    }

    /// Was anything released after `after`, and no later than `ripe`?
    pub(super) fn ripened(&self, after: Timestamp, ripe: Timestamp) -> bool {
        self.cooldown.ripened(after, ripe)
    }

    /// When the first prefix behind `ripe` was released.
    pub(super) fn next_unripe(&self, ripe: Timestamp) -> Option<Timestamp> {
        self.cooldown.next_unripe(ripe)
    }

    /// The prefix that cools longest, where at least `most` do and it was released no later than `ripe`.
    pub(super) fn surplus(&self, most: usize, ripe: Timestamp) -> Option<(Timestamp, Prefix)> {
        let oldest = self.cooldown.oldest().filter(|(released, _)| *released <= ripe);
        oldest.filter(|_| self.cooldown.len() >= most)
    }
}
