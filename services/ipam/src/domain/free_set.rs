//! Free addresses as ranges of numbers, IPv4 and IPv6 alike.

use std::cell::RefCell;
use std::collections::BTreeMap;

use rangemap::RangeInclusiveSet;

/// A set of addresses (numbers within one family) that gives the first of them, or the first aligned block, at once.
///
/// Its cost grows with the logarithm of the number of gaps, never with the number of addresses. A search for blocks
/// remembers where it found the last one, so that what is too fragmented is not walked again.
#[derive(Clone, Debug, Default)]
pub struct FreeSet {
    ranges: RangeInclusiveSet<u128>,
    count: u128,
    /// By size (in bits): no aligned block of that size starts below this.
    floors: RefCell<BTreeMap<u32, u128>>,
}

impl PartialEq for FreeSet {
    fn eq(&self, other: &Self) -> bool {
        self.ranges == other.ranges && self.count == other.count
    }
}

impl FreeSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many addresses, saturating.
    pub fn count(&self) -> u128 {
        self.count
    }

    /// Is every address from `first` to `last` in here?
    pub fn contains(&self, first: u128, last: u128) -> bool {
        self.ranges.get(&first).is_some_and(|range| last <= *range.end())
    }

    /// The first address.
    pub fn first(&self) -> Option<u128> {
        self.ranges.first().map(|range| *range.start())
    }

    /// The first block of 2^`bits` addresses that starts at a multiple of its size.
    pub fn first_block(&self, bits: u32) -> Option<u128> {
        if bits == 0 {
            return self.first();
        }
        let floor = self.floors.borrow().get(&bits).copied().unwrap_or(0);
        let found = self
            .ranges
            .overlapping(floor..=u128::MAX)
            .find_map(|range| block_within(floor.max(*range.start()), *range.end(), bits));
        self.floors.borrow_mut().insert(bits, found.unwrap_or(u128::MAX));
        found
    }

    /// Adds the addresses from `first` to `last`; those that are there already stay.
    pub fn insert(&mut self, first: u128, last: u128) {
        let new: u128 = self
            .ranges
            .gaps(&(first..=last))
            .fold(0, |sum, gap| sum.saturating_add(size(*gap.start(), *gap.end())));
        self.count = self.count.saturating_add(new);
        self.ranges.insert(first..=last);
        for (bits, floor) in self.floors.get_mut() {
            *floor = (*floor).min(first & !mask(*bits));
        }
    }

    /// Takes the addresses from `first` to `last` out, and says how many of them were in.
    pub fn remove(&mut self, first: u128, last: u128) -> u128 {
        if first == last {
            let there = self.ranges.contains(&first);
            if there {
                self.ranges.remove(first..=last);
                self.count = self.count.saturating_sub(1);
            }
            return there.into();
        }
        let removed: u128 = self.ranges.overlapping(first..=last).fold(0, |sum, range| {
            sum.saturating_add(size(first.max(*range.start()), last.min(*range.end())))
        });
        if removed > 0 {
            self.ranges.remove(first..=last);
            self.count = self.count.saturating_sub(removed);
        }
        removed
    }

    /// A copy of the ranges.
    pub(super) fn ranges(&self) -> RangeInclusiveSet<u128> {
        self.ranges.clone()
    }
}

/// How many addresses from `first` to `last`, saturating.
pub(super) fn size(first: u128, last: u128) -> u128 {
    (last - first).saturating_add(1)
}

/// The low bits which a block of 2^`bits` addresses leaves open.
fn mask(bits: u32) -> u128 {
    1_u128.checked_shl(bits).map_or(u128::MAX, |size| size - 1)
}

/// The first aligned block of 2^`bits` addresses from `first` to `last`.
pub(super) fn block_within(first: u128, last: u128, bits: u32) -> Option<u128> {
    let mask = mask(bits);
    let start = if first & mask == 0 {
        first
    } else {
        (first | mask).checked_add(1)?
    };
    (start <= last && last - start >= mask).then_some(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_address_is_given_and_a_gap_is_filled_first() {
        let mut set = FreeSet::new();
        set.insert(10, 19);
        assert_eq!((set.first(), set.count()), (Some(10), 10));
        assert_eq!(set.remove(10, 12), 3);
        set.insert(11, 11);
        assert_eq!((set.first(), set.count()), (Some(11), 8));
        assert_eq!(set.remove(0, 100), 8);
        assert_eq!((set.first(), set.count()), (None, 0));
    }

    #[test]
    fn a_block_is_aligned_to_its_size() {
        let mut set = FreeSet::new();
        set.insert(5, 30);
        assert_eq!(set.first_block(3), Some(8));
        set.remove(8, 15);
        assert_eq!(set.first_block(3), Some(16));
        set.remove(16, 23);
        assert_eq!(set.first_block(3), None, "24 to 30 is one short");
        set.insert(31, 31);
        assert_eq!(set.first_block(3), Some(24), "what is given back is found again");
    }

    #[test]
    fn a_block_comes_back_in_parts_and_is_found_where_it_starts() {
        let mut set = FreeSet::new();
        set.insert(0, 15);
        for block in [0, 4, 8, 12] {
            assert_eq!(set.first_block(2), Some(block));
            set.remove(block, block + 3);
        }
        assert_eq!(set.first_block(2), None);
        for address in [7, 5, 6, 4] {
            assert_eq!(set.first_block(2), None);
            set.insert(address, address);
        }
        assert_eq!(set.first_block(2), Some(4));
    }

    #[test]
    fn the_ends_of_ipv6_do_not_overflow() {
        let mut set = FreeSet::new();
        set.insert(0, u128::MAX);
        assert_eq!(set.count(), u128::MAX);
        assert_eq!(set.first_block(127), Some(0));
        assert_eq!(set.first_block(128), Some(0));
        set.remove(0, 0);
        assert_eq!(set.first_block(127), Some(1 << 127));
        assert_eq!(set.first_block(128), None);
        set.remove(1, u128::MAX - 1);
        assert_eq!(set.first_block(1), None);
        assert_eq!(set.first(), Some(u128::MAX));
    }
}
