//! The cluster, as the gateway sees it and writes to it.
//!
//! ```text
//! API ──watch──► Index ──► controllers ──► Writer (gate: do we lead?) ──patch──► API
//!                  ▲                                                            │
//!                  └──────────── fold: the answer to our own write ◄────────────┘
//! ```

mod client;
mod events;
mod identity;
mod index;
mod leader;
mod metrics;
pub(crate) mod objects;
mod promptly;
mod reader;
mod rivals;
mod secrets;
mod watch;
mod writer;

use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Patch;
use kube::{Api, Client};
use serde_json::Value;
use tokio::time::timeout;
use tracing::debug;

pub use client::ConnectError;
pub(crate) use client::connect;
#[cfg(test)]
pub(crate) use events::Recorded;
pub(crate) use events::{Event, Events};
pub(crate) use identity::ClusterIdentity;
pub(crate) use index::{Change, Index};
pub(crate) use leader::{Leader, identity};
pub(crate) use metrics::WriteMetrics;
use objects::{Key, NodeObject, ServiceObject, Slim};
pub(crate) use reader::ReadError;
pub(crate) use rivals::{Rival, Rivals, Tracks, Verdict};
pub use secrets::{SecretError, Secrets, StoredSecret};
pub(crate) use watch::{OnChange, Scope, follow};
pub(crate) use writer::{Part, WriteError, Writer};

/// The lease is read within this time.
const HOLDER_PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

/// The objects of one kind: read from the index, written through the gate.
pub(crate) struct Objects<T> {
    /// What we know of them.
    pub(crate) index: Index<T>,
    client: Client,
    writer: Writer,
}

impl<T: std::fmt::Debug> std::fmt::Debug for Objects<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Objects")
            .field("index", &self.index)
            .field("writer", &self.writer)
            .finish_non_exhaustive()
    }
}

impl<T> Clone for Objects<T> {
    fn clone(&self) -> Self {
        Self {
            index: self.index.clone(),
            client: self.client.clone(),
            writer: self.writer.clone(),
        }
    }
}

impl<T: Slim> Objects<T> {
    /// What `index` knows, read by `client` and written by `writer`.
    pub(crate) fn new(index: Index<T>, client: Client, writer: Writer) -> Self {
        Self {
            index,
            client,
            writer,
        }
    }

    /// What writes them, for kinds that have no index.
    pub(crate) fn writer(&self) -> &Writer {
        &self.writer
    }

    /// The object, as far as we know.
    pub(crate) fn get(&self, key: &Key) -> Option<Arc<T>> {
        self.index.get(key)
    }

    /// Patches an object, and returns what it is then. Who looks into the index afterwards sees it.
    pub(crate) async fn patch(
        &self,
        key: &Key,
        part: Part,
        patch: &Patch<Value>,
    ) -> Result<Arc<T>, WriteError> {
        match self.writer.patch(key, part, patch).await {
            Ok(object) => Ok(self.index.fold(object)),
            Err(error) => {
                self.catch_up(key, &error).await;
                Err(error)
            }
        }
    }

    /// Deletes exactly this object, if it is still as it was read.
    pub(crate) async fn delete(&self, object: &T) -> Result<(), WriteError> {
        let deleted = self.writer.delete(object).await;
        if let Err(error) = &deleted {
            self.catch_up(object.key(), error).await;
        }
        deleted
    }

    /// The object as the API server has it right now, whatever a watch has told; `None`: there is none. Who looks into the index
    /// afterwards sees no older one.
    pub(crate) async fn read(&self, key: &Key) -> Result<Option<Arc<T>>, ReadError> {
        let object = reader::read(&self.client, key).await?;
        Ok(object.map(|object| self.index.fold(object)))
    }

    /// Every object in the cluster as the API server has them right now, whatever is followed. Not for the index.
    pub(crate) async fn list(&self) -> Result<Vec<Arc<T>>, ReadError> {
        let listed = reader::list(&self.client).await?;
        Ok(listed.into_iter().map(Arc::new).collect())
    }

    /// After a lost race, the next look must know what won. Where the watch is broken, it would not, and lose again for as long.
    async fn catch_up(&self, key: &Key, error: &WriteError) {
        if matches!(error, WriteError::Conflict(_))
            && let Err(error) = self.read(key).await
        {
            debug!(kind = T::KIND, object = %key, %error, "what won the race could not be read");
        }
    }
}

/// The cluster. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(crate) struct Cluster {
    /// For what has no index.
    pub(crate) client: Client,
    pub(crate) nodes: Objects<NodeObject>,
    pub(crate) services: Objects<ServiceObject>,
    pub(crate) leader: Leader,
    pub(crate) events: Events,
    pub(crate) identity: ClusterIdentity,
}

impl Cluster {
    /// Who holds our lease, as the API server has it; `None`: nobody, or it cannot be read.
    pub(crate) async fn holder(&self) -> Option<String> {
        let (namespace, name) = self.leader.lease();
        let api: Api<Lease> = Api::namespaced(self.client.clone(), namespace);
        let lease = timeout(HOLDER_PATIENCE, api.get_opt(name)).await.ok()?.ok()??;
        let holder = lease.spec?.holder_identity?;
        (!holder.is_empty()).then_some(holder)
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster")
            .field("nodes", &self.nodes)
            .field("services", &self.services)
            .field("leader", &self.leader)
            .finish_non_exhaustive()
    }
}
