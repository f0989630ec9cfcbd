//! A map that remembers the order of insertion: what a paging list needs. Look-up, insert and remove cost
//! O(log n), so that thousands of objects come and go without a quadratic term.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// Values by key, listed in the order in which they came.
#[derive(Debug)]
pub(crate) struct Ordered<K, V> {
    rows: BTreeMap<u64, V>,
    places: HashMap<K, u64>,
    next: u64,
}

impl<K, V> Default for Ordered<K, V> {
    fn default() -> Self {
        Self {
            rows: BTreeMap::new(),
            places: HashMap::new(),
            next: 0,
        }
    }
}

impl<K: Copy + Eq + Hash, V> Ordered<K, V> {
    /// Adds at the end. A key that is there already keeps its place and gets the new value.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        let next = &mut self.next;
        let place = *self.places.entry(key).or_insert_with(|| {
            *next += 1;
            *next
        });
        self.rows.insert(place, value);
    }

    pub(crate) fn get(&self, key: K) -> Option<&V> {
        self.rows.get(self.places.get(&key)?)
    }

    pub(crate) fn get_mut(&mut self, key: K) -> Option<&mut V> {
        self.rows.get_mut(self.places.get(&key)?)
    }

    pub(crate) fn contains(&self, key: K) -> bool {
        self.places.contains_key(&key)
    }

    pub(crate) fn remove(&mut self, key: K) -> Option<V> {
        self.rows.remove(&self.places.remove(&key)?)
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.rows.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_survives_removal_and_replacement() {
        let mut map = Ordered::default();
        for key in [3, 1, 2] {
            map.insert(key, key * 10);
        }
        map.remove(1);
        map.insert(3, 33);
        map.insert(1, 11);
        assert_eq!(map.values().copied().collect::<Vec<_>>(), [33, 20, 11]);
        assert_eq!((map.get(2), map.get(9), map.len()), (Some(&20), None, 3));
    }
}
