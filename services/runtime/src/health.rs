//! Readiness: who is ready, who is not, and why. Feeds `/readyz`, and `grpc.health.v1` a service at a time.
//!
//! Each part that must work before its process is of use takes a [`Component`] and says when it is ready. What
//! counts as not ready: a component that says so, one that has not yet spoken ("starting"), and all of them once the
//! process is asked to stop. State is published through a `watch`; the closures that change it never block.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    /// `None` is ready, `Some` the reason why not.
    components: BTreeMap<&'static str, Option<String>>,
    /// The components that a gRPC service (by its full name) cannot work without.
    services: BTreeMap<String, BTreeSet<&'static str>>,
}

impl State {
    fn set(&mut self, name: &'static str, reason: Option<String>) -> bool {
        self.components.insert(name, reason.clone()) != Some(reason)
    }

    fn unready(&self) -> Vec<(&'static str, String)> {
        self.components
            .iter()
            .filter_map(|(name, why)| Some((*name, why.clone()?)))
            .collect()
    }

    fn serving(&self, service: &str) -> Option<bool> {
        if service.is_empty() {
            return Some(self.components.values().all(Option::is_none));
        }
        let needs = self.services.get(service)?;
        Some(
            needs
                .iter()
                .all(|name| matches!(self.components.get(name), Some(None))),
        )
    }
}

/// The readiness of a process. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub struct Health {
    state: Arc<watch::Sender<State>>,
    stopping: CancellationToken,
}

impl Health {
    /// No components yet. Nothing is ready any more once `stopping` is cancelled.
    pub fn new(stopping: CancellationToken) -> Self {
        Self {
            state: Arc::new(watch::Sender::new(State::default())),
            stopping,
        }
    }

    /// Adds a component, which is not ready ("starting") until it says so.
    pub fn component(&self, name: &'static str) -> Component {
        let component = Component {
            name,
            state: Arc::clone(&self.state),
        };
        component.not_ready("starting");
        component
    }

    /// Declares that this process serves the gRPC service with this full name (`groundplane.ipam.v1.IpamService`), and
    /// that it needs `components`; one that does not exist yet counts as not ready. Health checks of a service that nobody
    /// declared get `NOT_FOUND`.
    pub fn serves(&self, service: impl Into<String>, components: &[&'static str]) {
        let service = service.into();
        self.state.send_modify(|state| {
            state.services.entry(service).or_default().extend(components);
        });
    }

    /// Is everything ready?
    pub fn is_ready(&self) -> bool {
        self.unready().is_empty()
    }

    /// What is not ready, and why, by name.
    pub fn unready(&self) -> Vec<(&'static str, String)> {
        if self.stopping.is_cancelled() {
            return vec![("process", "stopping".to_owned())];
        }
        self.state.borrow().unready()
    }

    /// Does this gRPC service serve? The empty name stands for the process. `None` if nobody declared it.
    pub fn serving(&self, service: &str) -> Option<bool> {
        let serving = self.state.borrow().serving(service)?;
        Some(serving && !self.stopping.is_cancelled())
    }

    /// Returns after the answer of [`Health::serving`] or [`Health::unready`] may have changed. What changed before
    /// the first call is not missed if the subscription was made before it was read.
    pub(crate) fn changes(&self) -> Changes {
        Changes {
            state: self.state.subscribe(),
            stopping: self.stopping.clone(),
            told: false,
        }
    }

    /// Waits until everything is ready.
    pub async fn ready(&self) {
        let mut changes = self.changes();
        while !self.is_ready() {
            if !changes.next().await {
                // Stopping: nothing becomes ready again.
                std::future::pending::<()>().await;
            }
        }
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health")
            .field("unready", &self.unready())
            .finish_non_exhaustive()
    }
}

/// Wakes whoever follows a [`Health`].
#[derive(Debug)]
pub(crate) struct Changes {
    state: watch::Receiver<State>,
    stopping: CancellationToken,
    told: bool,
}

impl Changes {
    /// Waits for a change. `false` once there will be no more: the stop has been told before.
    pub(crate) async fn next(&mut self) -> bool {
        if self.told {
            return false;
        }
        tokio::select! {
            biased;
            () = self.stopping.cancelled() => {
                self.told = true;
                true
            }
            changed = self.state.changed() => changed.is_ok(),
        }
    }
}

/// One part of a process that is ready or not. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub struct Component {
    name: &'static str,
    state: Arc<watch::Sender<State>>,
}

impl Component {
    /// Says that it works.
    pub fn ready(&self) {
        if self.state.send_if_modified(|state| state.set(self.name, None)) {
            tracing::info!(component = self.name, "ready");
        }
    }

    /// Says that it does not work, and why: for people, without secrets.
    pub fn not_ready(&self, reason: impl Into<String>) {
        let reason = reason.into();
        if self
            .state
            .send_if_modified(|state| state.set(self.name, Some(reason.clone())))
        {
            tracing::info!(component = self.name, reason, "not ready");
        }
    }
}

impl fmt::Debug for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Component").field(&self.name).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_starts_not_ready_and_says_why() {
        let health = Health::new(CancellationToken::new());
        let store = health.component("store");
        assert_eq!(health.unready(), [("store", "starting".to_owned())]);
        store.ready();
        assert!(health.is_ready());
        store.not_ready("disk full");
        assert_eq!(health.unready(), [("store", "disk full".to_owned())]);
    }

    #[test]
    fn a_service_serves_only_while_all_it_needs_is_ready() {
        let health = Health::new(CancellationToken::new());
        health.serves("a.v1.A", &["store", "cloud"]);
        assert_eq!(health.serving("a.v1.A"), Some(false));
        let (store, cloud, other) = (
            health.component("store"),
            health.component("cloud"),
            health.component("other"),
        );
        store.ready();
        assert_eq!(health.serving("a.v1.A"), Some(false));
        cloud.ready();
        assert_eq!(
            health.serving("a.v1.A"),
            Some(true),
            "`other` is none of its business"
        );
        assert_eq!(health.serving(""), Some(false));
        other.ready();
        assert_eq!(health.serving(""), Some(true));
        assert_eq!(health.serving("b.v1.B"), None);
    }

    #[test]
    fn nothing_is_ready_once_the_process_stops() {
        let stopping = CancellationToken::new();
        let health = Health::new(stopping.clone());
        health.serves("a.v1.A", &["store"]);
        health.component("store").ready();
        stopping.cancel();
        assert_eq!(health.serving("a.v1.A"), Some(false));
        assert!(!health.is_ready());
    }

    #[tokio::test]
    async fn a_follower_is_told_of_the_stop_once_and_then_of_the_end() {
        let stopping = CancellationToken::new();
        let health = Health::new(stopping.clone());
        let mut changes = health.changes();
        health.component("store");
        assert!(changes.next().await);
        stopping.cancel();
        assert!(changes.next().await);
        assert!(!changes.next().await);
    }
}
