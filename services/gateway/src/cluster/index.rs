//! What we know of the objects of one kind: a synchronous index, fed by the watch and by the answers to our own writes.
//!
//! Owner: the watch of its kind writes, everybody reads. One `RwLock`, never held across an await. An object is only ever
//! replaced by a newer one, so that a reconcile sees what the one before it wrote, whatever the watch is still to tell.
//! Absence from here proves nothing about the world.
//!
//! Objects can be found by addresses that they name: who has an address is asked for every Service, and must not cost a look at all others.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::sync::watch;
use tokio::time::Instant;

use super::objects::{Key, Slim};

/// How an object changed in the index, and that somebody else changed it.
#[derive(Debug)]
pub(crate) struct Change<T> {
    pub(crate) key: Key,
    /// What it was; `None`: it is new.
    pub(crate) before: Option<Arc<T>>,
    /// What it is; `None`: it is gone.
    pub(crate) after: Option<Arc<T>>,
}

struct State<T> {
    objects: BTreeMap<Key, Arc<T>>,
    /// The addresses that an object is found by.
    marks: fn(&T) -> Vec<IpAddr>,
    /// Who has which mark.
    marked: HashMap<IpAddr, BTreeSet<Key>>,
    /// Watches that have not listed yet.
    unlisted: usize,
    /// Watches that are broken, by scope, and since when.
    broken: HashMap<Arc<str>, Instant>,
}

/// The objects of one kind. Cheap to clone; all clones are the same.
pub(crate) struct Index<T> {
    state: Arc<RwLock<State<T>>>,
    synced: Arc<watch::Sender<bool>>,
}

impl<T> Clone for Index<T> {
    fn clone(&self) -> Self {
        Self {
            state: Arc::clone(&self.state),
            synced: Arc::clone(&self.synced),
        }
    }
}

impl<T> std::fmt::Debug for Index<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Index")
            .field("objects", &self.state.read().objects.len())
            .finish_non_exhaustive()
    }
}

impl<T: Slim> Index<T> {
    /// An empty index that `watches` feed.
    pub(crate) fn new(watches: usize) -> Self {
        Self::marked(watches, |_| Vec::new())
    }

    /// The same, whose objects are found by these addresses: [`Index::with_mark`].
    pub(crate) fn marked(watches: usize, marks: fn(&T) -> Vec<IpAddr>) -> Self {
        Self {
            state: Arc::new(RwLock::new(State {
                objects: BTreeMap::new(),
                marks,
                marked: HashMap::new(),
                unlisted: watches,
                broken: HashMap::new(),
            })),
            synced: Arc::new(watch::Sender::new(watches == 0)),
        }
    }

    /// The object, as far as we know.
    pub(crate) fn get(&self, key: &Key) -> Option<Arc<T>> {
        self.state.read().objects.get(key).cloned()
    }

    /// All objects, by their keys.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.state.read().objects.values().cloned().collect()
    }

    /// Keys of the objects that are found by this address.
    pub(crate) fn with_mark(&self, mark: IpAddr) -> BTreeSet<Key> {
        self.state.read().marked.get(&mark).cloned().unwrap_or_default()
    }

    /// Is there an object that `wanted` accepts?
    pub(crate) fn any(&self, wanted: impl Fn(&T) -> bool) -> bool {
        self.state.read().objects.values().any(|object| wanted(object))
    }

    /// Keys of the objects that `wanted` accepts.
    pub(crate) fn keys(&self, wanted: impl Fn(&T) -> bool) -> Vec<Key> {
        let state = self.state.read();
        state
            .objects
            .values()
            .filter(|object| wanted(object))
            .map(|object| object.key().clone())
            .collect()
    }

    /// How many.
    pub(crate) fn len(&self) -> usize {
        self.state.read().objects.len()
    }

    /// Has every watch listed at least once?
    pub(crate) fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Waits until every watch has listed.
    pub(crate) async fn synced(&self) {
        let mut synced = self.synced.subscribe();
        while !*synced.borrow_and_update() {
            if synced.changed().await.is_err() {
                // Cannot be: we hold the sender.
                return std::future::pending().await;
            }
        }
    }

    /// How old what we know may be: zero while all watches work.
    pub(crate) fn age(&self) -> Duration {
        let state = self.state.read();
        state
            .broken
            .values()
            .map(Instant::elapsed)
            .max()
            .unwrap_or_default()
    }

    /// Does every watch work, so that we know of what happens?
    pub(crate) fn is_followed(&self) -> bool {
        self.state.read().broken.is_empty()
    }

    /// The watch of `scope` failed; since then we may miss changes.
    pub(crate) fn broke(&self, scope: &Arc<str>) {
        self.state
            .write()
            .broken
            .entry(Arc::clone(scope))
            .or_insert_with(Instant::now);
    }

    /// The watch of `scope` works.
    pub(crate) fn works(&self, scope: &Arc<str>) {
        if self.state.read().broken.contains_key(scope) {
            self.state.write().broken.remove(scope);
        }
    }

    /// The watch tells of an object. `None`: nothing that we did not know.
    pub(crate) fn apply(&self, object: T) -> Option<Change<T>> {
        self.state.write().apply(object)
    }

    /// The watch tells that an object is gone.
    pub(crate) fn delete(&self, object: &T) -> Option<Change<T>> {
        let before = self.state.write().take(object.key())?;
        Some(Change {
            key: before.key().clone(),
            before: Some(before),
            after: None,
        })
    }

    /// A watch has listed: what it did not list of its scope (a namespace; empty: all) is gone.
    pub(super) fn reset(&self, scope: &str, listed: Vec<T>, first: bool) -> Vec<Change<T>> {
        let mut state = self.state.write();
        let live: HashSet<Key> = listed.iter().map(|object| object.key().clone()).collect();
        let gone: Vec<Key> = state
            .objects
            .keys()
            .filter(|key| (scope.is_empty() || &*key.namespace == scope) && !live.contains(*key))
            .cloned()
            .collect();
        let mut changes: Vec<Change<T>> = gone
            .into_iter()
            .filter_map(|key| {
                let before = state.take(&key);
                before.map(|before| Change {
                    key,
                    before: Some(before),
                    after: None,
                })
            })
            .collect();
        changes.extend(listed.into_iter().filter_map(|object| state.apply(object)));
        if first {
            state.unlisted = state.unlisted.saturating_sub(1);
        }
        let synced = state.unlisted == 0;
        drop(state);
        self.synced
            .send_if_modified(|before| std::mem::replace(before, synced) != synced);
        changes
    }

    /// The API answered a write of ours with this. Never brings an object back that the watch has seen going.
    pub(super) fn fold(&self, object: T) -> Arc<T> {
        let object = Arc::new(object);
        let mut state = self.state.write();
        let supersedes = state
            .objects
            .get(object.key())
            .is_some_and(|known| known.uid() == object.uid() && newer(object.version(), known.version()));
        if supersedes {
            state.put(&object);
        }
        object
    }
}

impl<T: Slim> State<T> {
    fn apply(&mut self, object: T) -> Option<Change<T>> {
        let key = object.key().clone();
        let known = self.objects.get(&key);
        // An answer to our own write came first.
        let is_old =
            |known: &Arc<T>| known.uid() == object.uid() && !newer(object.version(), known.version());
        if known.is_some_and(is_old) {
            return None;
        }
        let same = known.is_some_and(|known| known.uid() == object.uid() && known.says_the_same(&object));
        let after = Arc::new(object);
        let before = self.put(&after);
        (!same).then_some(Change {
            key,
            before,
            after: Some(after),
        })
    }

    /// The object is this from now on. Returns what it was.
    fn put(&mut self, after: &Arc<T>) -> Option<Arc<T>> {
        let before = self.objects.insert(after.key().clone(), Arc::clone(after));
        self.mark(after.key(), before.as_deref(), Some(after));
        before
    }

    /// The object is no more. Returns what it was.
    fn take(&mut self, key: &Key) -> Option<Arc<T>> {
        let before = self.objects.remove(key)?;
        self.mark(key, Some(&before), None);
        Some(before)
    }

    /// Its marks follow it.
    fn mark(&mut self, key: &Key, before: Option<&T>, after: Option<&T>) {
        let (old, new) = (before.map(self.marks), after.map(self.marks));
        let (old, new) = (old.unwrap_or_default(), new.unwrap_or_default());
        if old == new {
            return;
        }
        for mark in old {
            if let Some(keys) = self.marked.get_mut(&mark) {
                keys.remove(key);
                if keys.is_empty() {
                    self.marked.remove(&mark);
                }
            }
        }
        for mark in new {
            self.marked.entry(mark).or_default().insert(key.clone());
        }
    }
}

/// Is `version` newer than `than`? Versions are numbers; one that is not is taken for newer.
fn newer(version: &str, than: &str) -> bool {
    match (version.parse::<u128>(), than.parse::<u128>()) {
        (Ok(version), Ok(than)) => version > than,
        _ => version != than,
    }
}

#[cfg(test)]
mod tests;
