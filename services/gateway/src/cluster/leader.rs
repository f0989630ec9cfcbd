//! Who may write: one replica of the gateway at a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use groundplane_runtime::Tasks;
use groundplane_runtime::lease::{self, Leadership, LeaseConfig};
use tokio::sync::watch;
use tokio::time::Instant;

use super::Rivals;

/// This process's share in the election. Cheap to clone; all clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Leader {
    source: Source,
    identity: Arc<str>,
    annotations: Arc<watch::Sender<BTreeMap<String, String>>>,
    rivals: Rivals,
    /// Namespace and name of the lease.
    lease: Arc<(String, String)>,
}

#[derive(Clone, Debug)]
enum Source {
    Lease(Leadership),
    #[cfg(test)]
    Given(watch::Receiver<Option<Instant>>),
}

impl Leader {
    /// Takes part in the election of `lease`, while `rivals` let anybody.
    pub(crate) fn elect(client: kube::Client, lease: LeaseConfig, rivals: Rivals, tasks: &Tasks) -> Self {
        let annotations = watch::Sender::new(BTreeMap::new());
        let identity = lease.identity.as_str().into();
        let named = Arc::new((lease.namespace.clone(), lease.name.clone()));
        let leadership = lease::start_while(client, lease, annotations.subscribe(), rivals.allowed(), tasks);
        Self {
            source: Source::Lease(leadership),
            identity,
            annotations: Arc::new(annotations),
            rivals,
            lease: named,
        }
    }

    /// A leader until the given time.
    #[cfg(test)]
    pub(crate) fn given(until: watch::Receiver<Option<Instant>>) -> Self {
        Self {
            source: Source::Given(until),
            identity: "test".into(),
            annotations: Arc::new(watch::Sender::new(BTreeMap::new())),
            rivals: Rivals::none(),
            lease: Arc::default(),
        }
    }

    /// Who we are in the election while we lead; empty while we do not.
    pub(crate) fn identity(&self) -> &str {
        if self.is_leader() { &self.identity } else { "" }
    }

    /// Older controllers, whose presence keeps everybody from leading.
    pub(crate) fn rivals(&self) -> &Rivals {
        &self.rivals
    }

    /// Namespace and name of the lease.
    pub(crate) fn lease(&self) -> (&str, &str) {
        (&self.lease.0, &self.lease.1)
    }

    /// Until when decisions are valid that are made now; `None` if we do not lead.
    pub(crate) fn valid_until(&self) -> Option<Instant> {
        match &self.source {
            Source::Lease(leadership) => leadership.valid_until(),
            #[cfg(test)]
            Source::Given(until) => until.borrow().filter(|until| Instant::now() < *until),
        }
    }

    /// Do we lead right now?
    pub(crate) fn is_leader(&self) -> bool {
        self.valid_until().is_some()
    }

    /// Waits until we lead. Never returns if the process stops before.
    pub(crate) async fn acquired(&self) {
        match &self.source {
            Source::Lease(leadership) => leadership.acquired().await,
            #[cfg(test)]
            Source::Given(until) => {
                let mut until = until.clone();
                while !self.is_leader() {
                    if until.changed().await.is_err() {
                        return std::future::pending().await;
                    }
                }
            }
        }
    }

    /// Waits until we do not lead.
    pub(crate) async fn lost(&self) {
        match &self.source {
            Source::Lease(leadership) => leadership.lost().await,
            #[cfg(test)]
            Source::Given(until) => {
                let mut until = until.clone();
                while self.is_leader() {
                    if until.changed().await.is_err() {
                        return std::future::pending().await;
                    }
                }
            }
        }
    }

    /// The number of our term: what another replica may have changed since an earlier one, we do not know.
    pub(crate) fn term(&self) -> i64 {
        match &self.source {
            Source::Lease(leadership) => leadership.transitions(),
            #[cfg(test)]
            Source::Given(until) => {
                use std::hash::{DefaultHasher, Hash as _, Hasher as _};
                // Each time that is given is a term of its own.
                let mut hasher = DefaultHasher::new();
                until.borrow().hash(&mut hasher);
                i64::from_ne_bytes(hasher.finish().to_ne_bytes())
            }
        }
    }

    /// The lease's annotations as the holder before us left them.
    pub(crate) fn inherited(&self) -> BTreeMap<String, String> {
        match &self.source {
            Source::Lease(leadership) => leadership.lease_annotations(),
            #[cfg(test)]
            Source::Given(_) => BTreeMap::new(),
        }
    }

    /// Writes an annotation to the lease with its next renewal, and with every one after it.
    pub(crate) fn annotate(&self, key: &str, value: &str) {
        self.annotations.send_if_modified(|annotations| {
            let before = annotations.insert(key.to_owned(), value.to_owned());
            before.as_deref() != Some(value)
        });
    }
}

/// A name for this process that no other one has, not even its own successor: `<host>_<uuid>`.
pub(crate) fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    let host = if host.is_empty() { "groundplane" } else { host };
    format!("{host}_{}", uuid::Uuid::new_v4())
}
