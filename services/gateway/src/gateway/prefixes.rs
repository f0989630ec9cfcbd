//! How many addresses BGP may announce.
//!
//! A session carries a number of prefixes; one more, and the other side ends it, on every machine and for every Service. So the address
//! that would be one too many is not given. Counted are the addresses that Services show, and the Services that are about to get one.
//!
//! Owner: the Service controller takes and leaves places, and remembers how many there are by the cloud's word. Short locks, never held
//! across an await.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use groundplane_core::Family;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::cluster::objects::Key;

/// Places for addresses.
#[derive(Debug, Default)]
pub(crate) struct Prefixes {
    /// Services that may get an address of a family, though they may not show it yet.
    admitted: Mutex<HashSet<(Key, Family)>>,
    /// How many the cloud allows, and when it said so. 0: any number.
    allowed: Mutex<Option<(u32, Instant)>>,
}

impl Prefixes {
    /// How many the cloud allowed when it was asked last, if that was no longer ago.
    pub(crate) fn allowed(&self, age: Duration) -> Option<u32> {
        let allowed = *self.allowed.lock();
        allowed
            .filter(|(_, at)| at.elapsed() <= age)
            .map(|(count, _)| count)
    }

    /// The cloud said how many it allows.
    pub(crate) fn allow(&self, count: u32) {
        *self.allowed.lock() = Some((count, Instant::now()));
    }

    /// May this Service get one more address of the family? `announced` are the addresses that others show, and `by` the Services that
    /// show them. If so, the place is its own until it leaves.
    pub(crate) fn admit<Address: Ord>(
        &self,
        key: &Key,
        family: Family,
        limit: u32,
        announced: &BTreeSet<Address>,
        by: &HashSet<Key>,
    ) -> bool {
        let mut admitted = self.admitted.lock();
        let on_their_way = admitted
            .iter()
            .filter(|(other, of)| *of == family && other != key && !by.contains(other))
            .count();
        let fits = announced.len() + on_their_way < usize::try_from(limit).unwrap_or(usize::MAX);
        if fits {
            admitted.insert((key.clone(), family));
        }
        fits
    }

    /// The Service gets no address, or has given its own back.
    pub(crate) fn leave(&self, key: &Key) {
        self.admitted.lock().retain(|(other, _)| other != key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// E52: those that show an address count by address, those that are about to by Service.
    #[test]
    fn the_last_place_is_given_once() {
        let prefixes = Prefixes::default();
        let (one, two): (Key, Key) = ("d/one".parse().unwrap(), "d/two".parse().unwrap());
        let by: HashSet<Key> = ["d/a", "d/b", "d/c"].map(|key| key.parse().unwrap()).into();
        // `b` and `c` share.
        let announced = BTreeSet::from([1, 2]);
        let admit = |key| prefixes.admit(key, Family::V4, 3, &announced, &by);
        assert!(admit(&one) && admit(&one), "its place is its own");
        assert!(!admit(&two));
        assert!(
            prefixes.admit(&two, Family::V6, 3, &announced, &by),
            "each family by itself"
        );
        prefixes.leave(&one);
        assert!(admit(&two));
    }
}
