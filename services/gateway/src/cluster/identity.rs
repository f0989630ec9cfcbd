//! Which cluster this is.

use std::sync::Arc;
use std::time::Duration;

use groundplane_core::ClusterId;
use groundplane_runtime::Backoff;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

const PATIENCE: Duration = Duration::from_secs(10);
const PAUSES: Backoff = Backoff {
    first: Duration::from_millis(500),
    longest: Duration::from_secs(10),
};

/// The cluster's id, once it is known. Cheap to clone; all clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct ClusterIdentity {
    id: Arc<watch::Sender<Option<ClusterId>>>,
}

impl ClusterIdentity {
    /// `configured`, or not known yet.
    pub(crate) fn new(configured: Option<ClusterId>) -> Self {
        Self {
            id: Arc::new(watch::Sender::new(configured)),
        }
    }

    /// The id, if it is known.
    pub(crate) fn get(&self) -> Option<ClusterId> {
        self.id.borrow().clone()
    }

    /// Waits for the id.
    pub(crate) async fn known(&self) -> ClusterId {
        let mut id = self.id.subscribe();
        loop {
            if let Some(id) = id.borrow_and_update().clone() {
                return id;
            }
            if id.changed().await.is_err() {
                // Cannot be: we hold the sender.
                return std::future::pending().await;
            }
        }
    }

    /// Reads the UID of `kube-system`, until the API server tells it or the process stops.
    pub(crate) async fn learn(self, client: Client, stopping: CancellationToken) {
        let api: Api<Namespace> = Api::all(client);
        for failures in 0.. {
            if self.get().is_some() {
                return;
            }
            let error = match tokio::time::timeout(PATIENCE, api.get_metadata("kube-system")).await {
                Ok(Ok(namespace)) => {
                    let uid = namespace.metadata.uid.unwrap_or_default();
                    match ClusterId::try_from(uid) {
                        Ok(id) => {
                            info!(cluster = %id, "cluster is known by the UID of kube-system");
                            self.id.send_replace(Some(id));
                            return;
                        }
                        Err(error) => error.to_string(),
                    }
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no answer within {PATIENCE:?}"),
            };
            let pause = PAUSES.pause(failures);
            warn!(
                error,
                ?pause,
                "cannot learn which cluster this is; `cluster` in the configuration would say it"
            );
            tokio::select! {
                () = stopping.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }
}
