//! Use cases: watch an endpoint, probe an address.
//!
//! ```text
//!  request ──► Watched ──► task `endpoint`: Monitor (pure) ──► Report ──► every follower
//!                              ▲ outcomes
//!                          task `probe`, one an address
//! ```
//!
//! One task an endpoint owns its [`crate::domain::Monitor`]; requests come in by one `watch`, reports go out by another. The lock guards the map of
//! what is watched and is never held across an await. A watch ends [`LINGER`] after its last follower went and nobody came back.

mod follow;
mod watch;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use groundplane_runtime::{Context, Tasks};
use parking_lot::Mutex;
use tokio::sync::watch as channel;
use tokio::time::Instant;

use crate::domain::{Decision, Outcome, Settings, Sign, Situation};
use crate::metrics::Metrics;
use crate::ports::Probe;

/// What was learned outlives the last follower by this much.
const LINGER: Duration = Duration::from_secs(60);

/// What a caller says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) endpoint: SocketAddr,
    pub(crate) situation: Situation,
    pub(crate) revision: u64,
}

/// What is told.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    /// Of the request that this takes into account.
    pub(crate) revision: u64,
    pub(crate) decision: Decision,
    pub(crate) observations: Vec<Observation>,
}

/// What the last probe of an address said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Observation {
    /// Empty: the endpoint.
    pub(crate) node: String,
    pub(crate) address: SocketAddr,
    pub(crate) sign: Option<Sign>,
    pub(crate) misses: u32,
    pub(crate) detail: String,
    /// When it ended, and how long it took.
    pub(crate) probed: Option<(std::time::Instant, Duration)>,
}

/// What is watched, and how.
pub(crate) struct Health<P> {
    inner: Arc<Inner<P>>,
}

impl<P> Clone for Health<P> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

struct Inner<P> {
    probe: P,
    settings: Settings,
    tasks: Tasks,
    metrics: Metrics,
    watched: Mutex<BTreeMap<SocketAddr, Watched>>,
}

/// A watch that runs.
struct Watched {
    asked: channel::Sender<Asked>,
    told: Arc<channel::Sender<Option<Arc<Report>>>>,
}

/// Reads what is told of one endpoint.
#[derive(Debug)]
pub(crate) struct Follower {
    endpoint: SocketAddr,
    told: channel::Receiver<Option<Arc<Report>>>,
}

impl Follower {
    /// What it follows.
    pub(crate) fn endpoint(&self) -> SocketAddr {
        self.endpoint
    }

    /// The next report; `None` when the service stops.
    pub(crate) async fn next(&mut self) -> Option<Arc<Report>> {
        loop {
            self.told.changed().await.ok()?;
            if let Some(report) = self.told.borrow_and_update().clone() {
                return Some(report);
            }
        }
    }
}

impl<P: Probe> Health<P> {
    pub(crate) fn new(probe: P, settings: Settings, context: &Context) -> Self {
        Self {
            inner: Arc::new(Inner {
                probe,
                settings,
                tasks: context.tasks.clone(),
                metrics: Metrics::register(&context.metrics),
                watched: Mutex::default(),
            }),
        }
    }

    /// Watches an endpoint from now on, and with what is known of it.
    pub(crate) fn watch(&self, asked: Asked) -> Follower {
        let endpoint = asked.endpoint;
        let mut watched = self.inner.watched.lock();
        if let Some(running) = watched.get(&endpoint) {
            let told = running.told.subscribe();
            running.asked.send_replace(asked);
            return Follower { endpoint, told };
        }
        let (asked, requests) = channel::channel(asked);
        let (told, reports) = channel::channel(None);
        let told = Arc::new(told);
        let task = watch::Watch::new(Arc::clone(&self.inner), endpoint, requests, Arc::clone(&told));
        watched.insert(endpoint, Watched { asked, told });
        self.inner.metrics.watched(watched.len());
        drop(watched);
        self.inner.tasks.spawn("endpoint", task.run());
        Follower {
            endpoint,
            told: reports,
        }
    }

    /// Says anew how things are, for a watch that a follower keeps alive.
    pub(crate) fn say(&self, asked: Asked) {
        if let Some(running) = self.inner.watched.lock().get(&asked.endpoint) {
            running.asked.send_replace(asked);
        }
    }

    /// Probes an address now.
    pub(crate) async fn probe(&self, address: SocketAddr) -> Outcome {
        self.inner.probe.probe(address).await
    }
}

impl<P> Inner<P> {
    /// Ends a watch, unless somebody follows it.
    fn close(&self, endpoint: SocketAddr) -> bool {
        let mut watched = self.watched.lock();
        if watched
            .get(&endpoint)
            .is_some_and(|watched| watched.told.receiver_count() > 0)
        {
            return false;
        }
        watched.remove(&endpoint);
        self.metrics.watched(watched.len());
        true
    }
}

impl<P> std::fmt::Debug for Health<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Health")
            .field("settings", &self.inner.settings)
            .field("watched", &self.inner.watched.lock().len())
            .finish_non_exhaustive()
    }
}

/// Now, for the domain. Of tokio, since tests stop that clock.
fn now() -> std::time::Instant {
    Instant::now().into_std()
}

#[cfg(test)]
mod tests;
