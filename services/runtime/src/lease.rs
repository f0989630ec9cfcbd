//! Leader election on a coordination/v1 Lease.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::Tasks;

/// Which lease, and who asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseConfig {
    /// Namespace of the Lease object.
    pub namespace: String,
    /// Name of the Lease object.
    pub name: String,
    /// Who we are: unique among the candidates, for example the pod's name.
    pub identity: String,
    /// How long the lease lasts without a renewal.
    pub duration: Duration,
    /// How often a candidate looks whether it is free.
    pub retry: Duration,
}
impl LeaseConfig {
    /// The usual times: 15 s, looked at every 2 s.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, identity: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            duration: Duration::from_secs(15),
            retry: Duration::from_secs(2),
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Standing {
    valid_until: Option<Instant>,
    transitions: i64,
    annotations: BTreeMap<String, String>,
}

/// Whether this process leads. Cheap to clone; all clones are the same.
#[derive(Clone, Debug)]
pub struct Leadership {
    standing: watch::Receiver<Standing>,
}

/// Takes part in the election until the process stops.
pub fn start(
    client: kube::Client,
    config: LeaseConfig,
    annotations: watch::Receiver<BTreeMap<String, String>>,
    tasks: &Tasks,
) -> Leadership {
    let (send, standing) = watch::channel(Standing::default());
    tasks.spawn("lease", async move { drop((client, config, annotations, send)) });
    Leadership { standing }
}

impl Leadership {
    /// Do we lead right now?
    pub fn is_leader(&self) -> bool {
        self.valid_until().is_some()
    }
    /// Until when decisions are valid; `None` if we do not lead.
    pub fn valid_until(&self) -> Option<Instant> {
        self.standing
            .borrow()
            .valid_until
            .filter(|until| Instant::now() < *until)
    }
    /// Waits until we lead.
    pub async fn acquired(&self) {
        std::future::pending().await
    }
    /// Waits until we do not lead.
    pub async fn lost(&self) {
        std::future::pending().await
    }
    /// The Lease's annotations as the holder before us left them.
    pub fn lease_annotations(&self) -> BTreeMap<String, String> {
        self.standing.borrow().annotations.clone()
    }
    /// How often the lease has changed hands: grows with each new holder.
    pub fn transitions(&self) -> i64 {
        self.standing.borrow().transitions
    }
}
