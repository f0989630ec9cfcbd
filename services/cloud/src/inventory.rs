//! The one cache of one kind of cloud object.
//!
//! ```text
//!  get(max_age) ─┬─ young enough ──────────────► snapshot
//!                ├─ a running read is ─► its waiters ─┐
//!  fresh() ──────┴─────────────► waiters of the next ─┤   at most one read runs, and one is queued
//!                                                     ▼
//!                      driver task: loader() ─► + updates made meanwhile ─► snapshot ─► waiters
//!  update, put, remove ─► the snapshot at once, and the log of the running read
//! ```
//!
//! Invariants: an error goes to every waiter and never replaces a snapshot. A write of ours is never lost to a read that began
//! before it: what was folded in while a read ran is folded into its result again, so folding must be idempotent. Reads run in a
//! task of their own, so a caller that goes away takes no one's answer with it.
//!
//! Owner: [`Inventory`]; all clones are the same. One short lock, never held across an await; snapshots are copied on write only
//! while somebody holds them, so a writer that drops its snapshot before it folds in pays O(1), not O(items).

mod config;
mod snapshot;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use groundplane_core::Clock;
use groundplane_runtime::Tasks;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::{CloudError, CloudErrorKind};
pub use config::InventoryConfig;
pub use snapshot::{Keyed, Snapshot};

/// Between the beginnings of two reads, while somebody waits for the second one when the first ends. Who comes alone waits for nobody; of
/// many who come at once, more share a read.
const GAP: Duration = Duration::from_millis(500);

type Answer<T> = Result<Arc<Snapshot<T>>, CloudError>;
type Waiter<T> = oneshot::Sender<Answer<T>>;
type Fold<T> = Box<dyn Fn(&mut Snapshot<T>) + Send + Sync>;
type Loader<T> = dyn Fn() -> BoxFuture<'static, Result<Vec<T>, CloudError>> + Send + Sync;

/// When a read began: what it finds may be older, but not younger.
#[derive(Clone, Copy, Debug)]
struct Began {
    /// For whoever is told. People and programs set that clock.
    wall: Timestamp,
    /// By this one its age is measured, whatever happens to the other.
    at: Instant,
}

/// A read that runs.
struct Running<T> {
    began: Began,
    waiters: Vec<Waiter<T>>,
    /// Writes of ours since it began.
    folds: Vec<Fold<T>>,
}

struct State<T> {
    current: Option<Arc<Snapshot<T>>>,
    /// When the read began that found it.
    read: Option<Instant>,
    running: Option<Running<T>>,
    /// Who waits for a read that has not begun.
    queued: Vec<Waiter<T>>,
    /// Is there a driver task, which will take `queued`?
    driven: bool,
}

struct Inner<T> {
    state: Mutex<State<T>>,
    loader: Box<Loader<T>>,
    clock: Arc<dyn Clock>,
    tasks: Tasks,
}

/// All cloud objects of one kind, as last read. Cheap to clone; all clones are the same.
pub struct Inventory<T> {
    inner: Arc<Inner<T>>,
}

impl<T> Clone for Inventory<T> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

impl<T> fmt::Debug for Inventory<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.inner.state.lock();
        f.debug_struct("Inventory")
            .field(
                "items",
                &state.current.as_ref().map(|snapshot| snapshot.items.len()),
            )
            .field(
                "read_at",
                &state.current.as_ref().map(|snapshot| snapshot.read_at),
            )
            .finish_non_exhaustive()
    }
}

impl<T: Clone + Send + Sync + 'static> Inventory<T> {
    /// An inventory that has read nothing yet. `loader` reads all of it, completely or not at all.
    pub fn new<Read>(
        loader: impl Fn() -> Read + Send + Sync + 'static,
        clock: Arc<dyn Clock>,
        tasks: Tasks,
    ) -> Self
    where
        Read: Future<Output = Result<Vec<T>, CloudError>> + Send + 'static,
    {
        let state = State {
            current: None,
            read: None,
            running: None,
            queued: Vec::new(),
            driven: false,
        };
        Self {
            inner: Arc::new(Inner {
                state: Mutex::new(state),
                loader: Box::new(move || Box::pin(loader())),
                clock,
                tasks,
            }),
        }
    }

    /// What was read at most `max_age` ago, reading where it must.
    ///
    /// # Errors
    /// Those of the read. What was read before stays, see [`Inventory::cached`].
    pub async fn get(&self, max_age: Duration) -> Answer<T> {
        let receiver = {
            let mut state = self.inner.state.lock();
            if let (Some(snapshot), Some(read)) = (&state.current, state.read)
                && read.elapsed() <= max_age
            {
                return Ok(Arc::clone(snapshot));
            }
            let (waiter, receiver) = oneshot::channel();
            match &mut state.running {
                Some(running) if running.began.at.elapsed() <= max_age => running.waiters.push(waiter),
                _ => self.enqueue(&mut state, waiter),
            }
            receiver
        };
        answer(receiver).await
    }

    /// What a read says that began after this call. Callers that come before that read begins share it.
    ///
    /// # Errors
    /// Those of the read. What was read before stays, see [`Inventory::cached`].
    pub async fn fresh(&self) -> Answer<T> {
        let (waiter, receiver) = oneshot::channel();
        self.enqueue(&mut self.inner.state.lock(), waiter);
        answer(receiver).await
    }

    /// What was read last, however old; with our own writes since.
    pub fn cached(&self) -> Option<Arc<Snapshot<T>>> {
        self.inner.state.lock().current.clone()
    }

    /// How long ago the last good read began; `None` before the first.
    pub fn age(&self) -> Option<Duration> {
        self.inner.state.lock().read.map(|read| read.elapsed())
    }

    /// Folds a write of ours in. `change` must be idempotent: a read that runs may or may not have seen the write, and gets it
    /// again. It makes the next lookup index all items anew: where items are [`Keyed`], prefer [`Inventory::put`].
    pub fn update(&self, change: impl Fn(&mut Vec<T>) + Send + Sync + 'static) {
        self.fold(move |snapshot| snapshot.change(&change));
    }

    fn fold(&self, fold: impl Fn(&mut Snapshot<T>) + Send + Sync + 'static) {
        let mut state = self.inner.state.lock();
        if let Some(current) = &mut state.current {
            fold(Arc::make_mut(current));
        }
        if let Some(running) = &mut state.running {
            running.folds.push(Box::new(fold));
        }
    }

    fn enqueue(&self, state: &mut State<T>, waiter: Waiter<T>) {
        state.queued.push(waiter);
        if !state.driven {
            state.driven = true;
            let inventory = self.clone();
            self.inner
                .tasks
                .spawn("cloud-inventory", async move { inventory.drive().await });
        }
    }

    /// Reads for as long as somebody waits for a read. Of reads that follow each other without a pause, each begins [`GAP`] after the one
    /// before at the earliest, and takes everybody along who came meanwhile.
    async fn drive(self) {
        let stop = self.inner.tasks.token();
        while self.begin() {
            let next = Instant::now() + GAP;
            tokio::select! {
                result = (self.inner.loader)() => self.finish(result),
                () = stop.cancelled() => {
                    let stopping = CloudError::new(CloudErrorKind::Unavailable, "read inventory", "shutting down");
                    self.finish(Err(stopping));
                }
            }
            if self.is_awaited() {
                tokio::select! {
                    () = tokio::time::sleep_until(next) => {}
                    () = stop.cancelled() => {}
                }
            }
        }
    }

    fn is_awaited(&self) -> bool {
        !self.inner.state.lock().queued.is_empty()
    }

    /// Turns the queue into a running read; false where nobody waits.
    fn begin(&self) -> bool {
        let mut state = self.inner.state.lock();
        state.driven = !state.queued.is_empty();
        if state.driven {
            let waiters = std::mem::take(&mut state.queued);
            state.running = Some(Running {
                began: Began {
                    wall: self.inner.clock.now(),
                    at: Instant::now(),
                },
                waiters,
                folds: Vec::new(),
            });
        }
        state.driven
    }

    fn finish(&self, result: Result<Vec<T>, CloudError>) {
        let mut state = self.inner.state.lock();
        let Some(Running {
            began,
            waiters,
            folds,
        }) = state.running.take()
        else {
            return;
        };
        let answer = result.map(|items| {
            let mut snapshot = Snapshot::new(items, began.wall);
            for fold in &folds {
                fold(&mut snapshot);
            }
            Arc::new(snapshot)
        });
        if let Ok(snapshot) = &answer {
            state.current = Some(Arc::clone(snapshot));
            state.read = Some(began.at);
        }
        drop(state);
        for waiter in waiters {
            // Whoever does not wait any more needs no answer.
            waiter.send(answer.clone()).ok();
        }
    }
}

impl<T: Keyed + Clone + Send + Sync + 'static> Inventory<T> {
    /// Folds in that `item` is there now, instead of the one with its id where there was one. O(1).
    pub fn put(&self, item: T) {
        self.fold(move |snapshot| snapshot.put(item.clone()));
    }

    /// Folds in that the item with this id is gone. O(1); the order of items changes.
    pub fn remove(&self, id: &str) {
        let id = id.to_owned();
        self.fold(move |snapshot| snapshot.remove(&id));
    }

    /// Looks into what was read last without taking hold of it, so that writes go on without copying.
    /// `look` must be short: it runs within the lock.
    pub fn peek<R>(&self, look: impl FnOnce(&Snapshot<T>) -> R) -> Option<R> {
        self.inner.state.lock().current.as_deref().map(look)
    }
}

async fn answer<T>(receiver: oneshot::Receiver<Answer<T>>) -> Answer<T> {
    receiver.await.unwrap_or_else(|_| {
        Err(CloudError::new(
            CloudErrorKind::Unavailable,
            "read inventory",
            "the read ended without an answer",
        ))
    })
}
