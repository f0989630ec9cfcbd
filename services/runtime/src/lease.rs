//! Leader election on a `coordination/v1` Lease.
//!
//! ```text
//! election (pure: what to do now)  ◄──events── keeper (calls the API server) ──watch──► Leadership (asked by everybody)
//!                                  ──next────►
//! ```
//!
//! Two candidates never lead at once, whatever the delays, as long as their clocks run alike within a quarter:
//! a holder trusts itself until the *start* of its last successful renewal plus three quarters of the duration, by its own
//! monotonic clock; a candidate takes the lease only after it saw it unchanged for a whole duration by its own clock,
//! and only if it is still unchanged then (`resourceVersion`). No wall clock takes part.
//!
//! A write whose answer is lost may have had its effect, and then nobody else takes the lease either. So whoever gets no answer reads, and
//! where it finds what it wrote, that counts as any renewal does: from before the write was sent. `renewTime` serves as the mark by which
//! a write is known again; it is different in each, and that it looks like a time matters to people alone.
//!
//! Identities must differ between processes that run at the same time: a process that finds its own identity in the lease
//! takes it for its own from before a restart.

mod election;
mod keeper;

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::Tasks;
use keeper::Keeper;

/// Which lease, and who asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseConfig {
    /// Namespace of the Lease object.
    pub namespace: String,
    /// Name of the Lease object.
    pub name: String,
    /// Who we are: unique among the processes that run at the same time, for example the pod's name.
    pub identity: String,
    /// How long the lease lasts without a renewal, in whole seconds. It is renewed five times as often.
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

/// What the process knows of its leadership.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) valid_until: Option<Instant>,
    pub(crate) transitions: i64,
    pub(crate) annotations: BTreeMap<String, String>,
}

/// Whether this process leads. Cheap to clone; all clones are the same.
#[derive(Clone, Debug)]
pub struct Leadership {
    standing: watch::Receiver<Standing>,
}

/// Takes part in the election until the process stops; then lets go of the lease, once every other task has ended.
///
/// With each renewal, the newest `annotations` are written to the Lease; annotations of others are left alone.
pub fn start(
    client: kube::Client,
    config: LeaseConfig,
    annotations: watch::Receiver<BTreeMap<String, String>>,
    tasks: &Tasks,
) -> Leadership {
    let allowed = watch::Sender::new(true).subscribe();
    start_while(client, config, annotations, allowed, tasks)
}

/// As [`start`], but takes and keeps the lease only while `allowed` says so. When it does not any more, leadership ends at once, and the
/// lease runs out by itself.
pub fn start_while(
    client: kube::Client,
    config: LeaseConfig,
    annotations: watch::Receiver<BTreeMap<String, String>>,
    allowed: watch::Receiver<bool>,
    tasks: &Tasks,
) -> Leadership {
    let (publish, standing) = watch::channel(Standing::default());
    let keeper = Keeper::new(client, config, annotations, allowed, publish);
    let all = tasks.clone();
    tasks.spawn_last("lease", async move { keeper.run(&all).await });
    Leadership { standing }
}

impl Leadership {
    /// Do we lead right now? Ask again before each write that only the leader may make.
    pub fn is_leader(&self) -> bool {
        self.valid_until().is_some()
    }

    /// Until when decisions are valid that are made now; `None` if we do not lead.
    pub fn valid_until(&self) -> Option<Instant> {
        self.standing
            .borrow()
            .valid_until
            .filter(|until| Instant::now() < *until)
    }

    /// Waits until we lead. Never returns if the process stops before.
    pub async fn acquired(&self) {
        let mut standing = self.standing.clone();
        while !self.is_leader() {
            if standing.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Waits until we do not lead.
    pub async fn lost(&self) {
        let mut standing = self.standing.clone();
        loop {
            let until = standing.borrow_and_update().valid_until;
            let Some(until) = until.filter(|until| Instant::now() < *until) else {
                return;
            };
            tokio::select! {
                () = tokio::time::sleep_until(until) => {}
                changed = standing.changed() => if changed.is_err() {
                    // Nobody renews any more.
                    tokio::time::sleep_until(until).await;
                }
            }
        }
    }

    /// The Lease's annotations as the holder before us left them; as last read, while we do not lead.
    pub fn lease_annotations(&self) -> BTreeMap<String, String> {
        self.standing.borrow().annotations.clone()
    }

    /// The number of our term: greater than that of every holder before us. 0 before the first.
    pub fn transitions(&self) -> i64 {
        self.standing.borrow().transitions
    }
}
