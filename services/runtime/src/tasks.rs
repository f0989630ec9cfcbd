//! The only place that starts tasks, so that every task has a name, is awaited at shutdown, and cannot die unseen.
//!
//! Invariants: a task that panics, and a critical task that ends before the process was asked to stop, cancel the
//! process; the first such failure is what [`Tasks::wait`] returns. The lock guards two small collections and is
//! never held across an await.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use crate::telemetry::panics;
use futures::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument as _, debug, error, info_span};

/// Why the process stops though nobody asked it to.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// A critical task failed.
    #[error("task `{name}` failed")]
    Failed {
        /// The task.
        name: &'static str,
        /// What it said.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A critical task ended, which it should do at shutdown only.
    #[error("task `{name}` ended before it was asked to")]
    Ended {
        /// The task.
        name: &'static str,
    },
    /// A task panicked. The panic itself is in the log, by the panic hook.
    #[error("task `{name}` panicked: {message}")]
    Panicked {
        /// The task.
        name: &'static str,
        /// The panic's text, if it is a fixed one.
        message: &'static str,
    },
}

/// Tasks that did not end within the time that a drain was given.
#[derive(Debug, thiserror::Error)]
#[error("still running after {}: {}", humantime(*.waited), .names.join(", "))]
pub struct DrainTimeout {
    /// How long was waited.
    pub waited: Duration,
    /// Names of those still running, once each.
    pub names: Vec<&'static str>,
}

fn humantime(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

/// When a task has to end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// When the process stops.
    Ordinary,
    /// After all ordinary ones.
    Last,
}

#[derive(Default)]
struct State {
    next: u64,
    running: BTreeMap<u64, (&'static str, Order)>,
    failure: Option<TaskError>,
}

struct Inner {
    tracker: TaskTracker,
    token: CancellationToken,
    state: Mutex<State>,
    ended: Notify,
}

/// The tasks of a process. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub struct Tasks {
    inner: Arc<Inner>,
}

impl Tasks {
    /// No tasks yet.
    pub fn new() -> Self {
        Self {
            inner: Arc::new(Inner {
                tracker: TaskTracker::new(),
                token: CancellationToken::new(),
                state: Mutex::new(State::default()),
                ended: Notify::new(),
            }),
        }
    }

    /// Cancelled when the process is asked to stop. Tasks and streams end upon it.
    pub fn token(&self) -> CancellationToken {
        self.inner.token.clone()
    }

    /// Starts a task that may end at any time. It must end soon after [`Tasks::token`] is cancelled.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.start(name, Order::Ordinary, async move {
            task.await;
            None
        });
    }

    /// Starts a task that puts things away after the others: it may await [`Tasks::settled`]. The bound of the drain
    /// holds for it, too.
    pub fn spawn_last(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.start(name, Order::Last, async move {
            task.await;
            None
        });
    }

    /// Waits until the process stops and every task has ended, save those of [`Tasks::spawn_last`].
    pub async fn settled(&self) {
        self.inner.token.cancelled().await;
        loop {
            // Made before the look, so that no end falls between.
            let ended = self.inner.ended.notified();
            let busy = self
                .inner
                .state
                .lock()
                .running
                .values()
                .any(|(_, order)| *order == Order::Ordinary);
            if !busy {
                return;
            }
            ended.await;
        }
    }

    /// Starts a task without which the process is of no use: if it fails, or ends before the process was asked to
    /// stop, the process stops.
    pub fn spawn_critical<E>(
        &self,
        name: &'static str,
        task: impl Future<Output = Result<(), E>> + Send + 'static,
    ) where
        E: Error + Send + Sync + 'static,
    {
        let token = self.token();
        self.start(name, Order::Ordinary, async move {
            match task.await {
                Ok(()) if token.is_cancelled() => None,
                Ok(()) => Some(TaskError::Ended { name }),
                Err(source) => Some(TaskError::Failed {
                    name,
                    source: Box::new(source),
                }),
            }
        });
    }

    /// Waits until the process is to stop, and says why: `Ok` if it was asked to, else what failed first.
    pub async fn wait(&self) -> Result<(), TaskError> {
        self.inner.token.cancelled().await;
        self.inner.state.lock().failure.take().map_or(Ok(()), Err)
    }

    /// Cancels, then waits at most `bound` for all tasks to end.
    pub async fn drain(&self, bound: Duration) -> Result<(), DrainTimeout> {
        self.inner.token.cancel();
        self.inner.tracker.close();
        if tokio::time::timeout(bound, self.inner.tracker.wait())
            .await
            .is_ok()
        {
            return Ok(());
        }
        let mut names: Vec<_> = self
            .inner
            .state
            .lock()
            .running
            .values()
            .map(|(name, _)| *name)
            .collect();
        names.sort_unstable();
        names.dedup();
        Err(DrainTimeout { waited: bound, names })
    }

    #[allow(clippy::disallowed_methods, reason = "the one place that starts tasks")]
    fn start(
        &self,
        name: &'static str,
        order: Order,
        task: impl Future<Output = Option<TaskError>> + Send + 'static,
    ) {
        let running = Running::enter(self, name, order);
        let tasks = self.clone();
        let task = async move {
            let failure = match AssertUnwindSafe(task).catch_unwind().await {
                Ok(failure) => failure,
                Err(panic) => Some(TaskError::Panicked {
                    name,
                    message: panics::text(&*panic),
                }),
            };
            if let Some(failure) = failure {
                tasks.fail(failure);
            }
            drop(running);
            debug!(task = name, "task ended");
        };
        // A task is not part of the request that happened to start it.
        let span = info_span!(parent: None, "task", name);
        tokio::spawn(self.inner.tracker.track_future(task.instrument(span)));
    }

    fn fail(&self, failure: TaskError) {
        error!(error = &failure as &dyn Error, "stopping");
        self.inner.state.lock().failure.get_or_insert(failure);
        self.inner.token.cancel();
    }
}

impl Default for Tasks {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks")
            .field("running", &self.inner.tracker.len())
            .finish_non_exhaustive()
    }
}

/// Keeps a task's name among the running ones for as long as it lives, however it ends.
struct Running {
    inner: Arc<Inner>,
    id: u64,
}

impl Running {
    fn enter(tasks: &Tasks, name: &'static str, order: Order) -> Self {
        let inner = Arc::clone(&tasks.inner);
        let mut state = inner.state.lock();
        let id = state.next;
        state.next += 1;
        state.running.insert(id, (name, order));
        drop(state);
        Self { inner, id }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.inner.state.lock().running.remove(&self.id);
        self.inner.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_failed_critical_task_stops_the_process_and_is_the_reason() {
        let tasks = Tasks::new();
        tasks.spawn_critical("store", async { Err(std::io::Error::other("disk full")) });
        let error = tasks.wait().await.unwrap_err();
        assert_eq!(error.to_string(), "task `store` failed");
        assert_eq!(error.source().unwrap().to_string(), "disk full");
        assert!(tasks.token().is_cancelled());
    }

    #[tokio::test]
    async fn a_critical_task_that_just_ends_stops_the_process() {
        let tasks = Tasks::new();
        tasks.spawn_critical("watch", async { Ok::<_, std::io::Error>(()) });
        assert!(matches!(
            tasks.wait().await,
            Err(TaskError::Ended { name: "watch" })
        ));
    }

    #[tokio::test]
    async fn a_critical_task_may_end_once_the_process_stops() {
        let tasks = Tasks::new();
        let token = tasks.token();
        tasks.spawn_critical("watch", async move {
            token.cancelled().await;
            Ok::<_, std::io::Error>(())
        });
        tasks.token().cancel();
        tasks.drain(Duration::from_secs(60)).await.unwrap();
        tasks.wait().await.unwrap();
    }

    #[tokio::test]
    async fn a_panicking_task_stops_the_process() {
        let tasks = Tasks::new();
        tasks.spawn("odd", async { panic!("at the disco") });
        let error = tasks.wait().await.unwrap_err();
        assert_eq!(error.to_string(), "task `odd` panicked: at the disco");
    }

    #[tokio::test(start_paused = true)]
    async fn a_last_task_can_wait_for_all_others() {
        let tasks = Tasks::new();
        let (send, receive) = tokio::sync::oneshot::channel::<()>();
        tasks.spawn("slow", async move { receive.await.unwrap() });
        let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let all = tasks.clone();
        tasks.spawn_last("tidy", async move {
            all.settled().await;
            told.send(()).unwrap();
        });
        tasks.token().cancel();
        assert!(tasks.drain(Duration::from_secs(1)).await.is_err());
        assert!(heard.try_recv().is_err(), "`slow` still runs");
        send.send(()).unwrap();
        tasks.drain(Duration::from_secs(1)).await.unwrap();
        heard.try_recv().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_is_bounded_and_names_who_did_not_end() {
        let tasks = Tasks::new();
        tasks.spawn("deaf", std::future::pending());
        tasks.spawn("deaf", std::future::pending());
        let token = tasks.token();
        tasks.spawn("good", async move { token.cancelled().await });
        let error = tasks.drain(Duration::from_secs(25)).await.unwrap_err();
        assert_eq!(error.to_string(), "still running after 25.0 s: deaf");
    }
}
