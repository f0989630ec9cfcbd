//! What was read at one time, and the index over it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::OnceLock;

use jiff::Timestamp;

use crate::{Machine, Reservation, Session};

/// An item that is found by keys.
pub trait Keyed {
    /// Its id: no two items have the same.
    fn id(&self) -> &str;

    /// What else it is looked for by. Several items may share such a key.
    fn keys(&self) -> Vec<Cow<'_, str>>;
}

impl Keyed for Reservation {
    fn id(&self) -> &str {
        &self.id
    }

    /// Its tags.
    fn keys(&self) -> Vec<Cow<'_, str>> {
        self.tags.iter().map(|tag| Cow::Borrowed(tag.as_str())).collect()
    }
}

impl Keyed for Machine {
    fn id(&self) -> &str {
        self.id.as_str()
    }

    /// Its bare id, its host name and its addresses.
    fn keys(&self) -> Vec<Cow<'_, str>> {
        let addresses = self.addresses.iter().map(|address| address.address.as_str());
        [self.id.id(), self.hostname.as_str()]
            .into_iter()
            .chain(addresses)
            .map(Cow::Borrowed)
            .collect()
    }
}

impl Keyed for Session {
    fn id(&self) -> &str {
        &self.id
    }

    /// Its machine.
    fn keys(&self) -> Vec<Cow<'_, str>> {
        vec![Cow::Borrowed(self.machine.as_str())]
    }
}

/// Positions of items by key; the items of one key in no particular order.
type Index = HashMap<Box<str>, Vec<usize>>;

/// Everything that one read found, with our own writes since.
#[derive(Clone, Debug)]
pub struct Snapshot<T> {
    /// What there is.
    pub items: Vec<T>,
    /// When the read began: older changes are in here.
    pub read_at: Timestamp,
    /// Made by the first lookup, then kept up to date.
    index: OnceLock<Index>,
}

impl<T> Deref for Snapshot<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items
    }
}

impl<T> Snapshot<T> {
    /// What a read that began at `read_at` found.
    pub fn new(items: Vec<T>, read_at: Timestamp) -> Self {
        Self {
            items,
            read_at,
            index: OnceLock::new(),
        }
    }

    /// Changes anything.
    pub(super) fn change(&mut self, change: impl Fn(&mut Vec<T>)) {
        change(&mut self.items);
        self.index.take();
    }
}

impl<T: Keyed> Snapshot<T> {
    /// The items that have `key`, as their id or otherwise; each once, in no particular order. O(found).
    pub fn find<'a>(&'a self, key: &str) -> impl Iterator<Item = &'a T> + use<'a, T> {
        let index = self.index.get_or_init(|| {
            let mut index = Index::with_capacity(self.items.len());
            for (position, item) in self.items.iter().enumerate() {
                enter(&mut index, item, position);
            }
            index
        });
        let positions = index.get(key).map_or(&[][..], Vec::as_slice);
        positions.iter().filter_map(|position| self.items.get(*position))
    }

    fn position(&self, id: &str) -> Option<usize> {
        if let Some(index) = self.index.get() {
            let mut candidates = index.get(id)?.iter();
            return candidates
                .find(|position| self.items.get(**position).is_some_and(|i| i.id() == id))
                .copied();
        }
        self.items.iter().position(|item| item.id() == id)
    }

    pub(super) fn put(&mut self, item: T) {
        let position = self.position(item.id());
        let Some(slot) = position.and_then(|position| self.items.get_mut(position)) else {
            if let Some(index) = self.index.get_mut() {
                enter(index, &item, self.items.len());
            }
            self.items.push(item);
            return;
        };
        if let (Some(index), Some(position)) = (self.index.get_mut(), position) {
            leave(index, slot, position);
            enter(index, &item, position);
        }
        *slot = item;
    }

    pub(super) fn remove(&mut self, id: &str) {
        let Some(position) = self.position(id) else { return };
        let removed = self.items.swap_remove(position);
        let Some(index) = self.index.get_mut() else { return };
        leave(index, &removed, position);
        if let Some(moved) = self.items.get(position) {
            leave(index, moved, self.items.len());
            enter(index, moved, position);
        }
    }
}

fn all_keys<T: Keyed>(item: &T) -> impl Iterator<Item = Cow<'_, str>> {
    std::iter::once(Cow::Borrowed(item.id())).chain(item.keys())
}

fn enter<T: Keyed>(index: &mut Index, item: &T, position: usize) {
    for key in all_keys(item) {
        if let Some(positions) = index.get_mut(&*key) {
            // An item that has a key twice was entered just now.
            if positions.last() != Some(&position) {
                positions.push(position);
            }
        } else {
            index.insert(key.into(), vec![position]);
        }
    }
}

fn leave<T: Keyed>(index: &mut Index, item: &T, position: usize) {
    for key in all_keys(item) {
        if let Some(positions) = index.get_mut(&*key) {
            positions.retain(|other| *other != position);
            if positions.is_empty() {
                index.remove(&*key);
            }
        }
    }
}
