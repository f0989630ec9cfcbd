//! The gate that every write to Kubernetes passes.
//!
//! Right before it is sent, the writer asks whether we lead, and gives the call no more time than decisions are valid for: a
//! replica that lost the lease cannot act on what it decided before. The client never repeats a call by itself; who wrote looks
//! again and decides again.

use std::time::Duration;

use groundplane_core::{ErrorKind, Kinded, names};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use serde::Serialize;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::leader::Leader;
use super::metrics::{Verb, WriteMetrics};
use super::objects::{Key, Seen, Slim, collection};

/// Why a write did not happen, or may not have happened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// Another replica leads.
    #[error("another replica leads")]
    NotLeader,
    /// No answer in time: the write may or may not have had its effect.
    #[error("the API server did not answer in time")]
    Timeout,
    /// The object has changed since we read it.
    #[error("the object has changed")]
    Conflict(#[source] kube::Error),
    /// The object does not exist.
    #[error("the object does not exist")]
    Gone(#[source] kube::Error),
    /// The API server is away, or busy.
    #[error("the API server is not available")]
    Unavailable(#[source] kube::Error),
    /// We may not write this.
    #[error("the API server does not allow it: {0}")]
    Denied(#[source] kube::Error),
    /// The API server does not accept it.
    #[error("the API server refuses it: {0}")]
    Refused(#[source] kube::Error),
}

impl From<kube::Error> for WriteError {
    fn from(error: kube::Error) -> Self {
        let kube::Error::Api(status) = &error else {
            return Self::Unavailable(error);
        };
        match status.code {
            401 | 403 => Self::Denied(error),
            404 => Self::Gone(error),
            409 => Self::Conflict(error),
            408 | 504 => Self::Timeout,
            429 | 500..=599 => Self::Unavailable(error),
            _ => Self::Refused(error),
        }
    }
}

impl Kinded for WriteError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NotLeader | Self::Unavailable(_) => ErrorKind::Unavailable,
            Self::Timeout => ErrorKind::Timeout,
            Self::Conflict(_) => ErrorKind::Conflict,
            Self::Gone(_) => ErrorKind::NotFound,
            Self::Denied(_) => ErrorKind::Denied,
            Self::Refused(_) => ErrorKind::Invalid,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::NotLeader => "NOT_LEADER",
            Self::Timeout => "API_TIMEOUT",
            Self::Conflict(_) => "API_CONFLICT",
            Self::Gone(_) => "API_NOT_FOUND",
            Self::Unavailable(_) => "API_UNAVAILABLE",
            Self::Denied(_) => "API_DENIED",
            Self::Refused(_) => "API_REFUSED",
        }
    }
}

/// Which part of the object a patch may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Metadata and spec.
    Main,
    /// The status.
    Status,
}

/// Writes to Kubernetes. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(crate) struct Writer {
    client: Client,
    leader: Leader,
    patience: Duration,
    metrics: WriteMetrics,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer")
            .field("leader", &self.leader)
            .finish_non_exhaustive()
    }
}

impl Writer {
    /// Writes with `client` while `leader` leads; no call takes longer than `patience`.
    pub(crate) fn new(client: Client, leader: Leader, patience: Duration, metrics: WriteMetrics) -> Self {
        Self {
            client,
            leader,
            patience,
            metrics,
        }
    }

    /// Patches an object, and returns what it is then.
    pub(crate) async fn patch<T>(&self, key: &Key, part: Part, patch: &Patch<Value>) -> Result<T, WriteError>
    where
        T: Slim,
    {
        let parameters = parameters();
        let requests = kube::core::Request::new(collection::<T>(key));
        let request = match part {
            Part::Main => requests.patch(&key.name, &parameters, patch),
            Part::Status => requests.patch_subresource("status", &key.name, &parameters, patch),
        };
        let call = async {
            let request = request.map_err(kube::Error::BuildRequest)?;
            self.client.request::<Seen<T>>(request).await
        };
        self.gated(T::PLURAL, Verb::Patch, call)
            .await
            .map(|seen| seen.object)
    }

    /// Deletes exactly this object, if it is still as it was read.
    pub(crate) async fn delete<T>(&self, object: &T) -> Result<(), WriteError>
    where
        T: Slim,
    {
        let key = object.key();
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(object.uid().to_owned()),
                resource_version: Some(object.version().to_owned()),
            }),
            ..DeleteParams::default()
        };
        let request = kube::core::Request::new(collection::<T>(key));
        let request = request.delete(&key.name, &parameters);
        let call = async {
            let request = request.map_err(kube::Error::BuildRequest)?;
            self.client.request_status::<Seen<T>>(request).await
        };
        self.gated(T::PLURAL, Verb::Delete, call).await.map(drop)
    }

    /// Creates an object.
    pub(crate) async fn create<K>(
        &self,
        api: &Api<K>,
        what: &'static str,
        object: &K,
    ) -> Result<K, WriteError>
    where
        K: Clone + std::fmt::Debug + Serialize + serde::de::DeserializeOwned,
    {
        let parameters = PostParams {
            field_manager: Some(names::FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        self.gated(what, Verb::Create, api.create(&parameters, object))
            .await
    }

    /// Patches an object of a kind that has no index.
    pub(crate) async fn merge<K>(
        &self,
        api: &Api<K>,
        what: &'static str,
        name: &str,
        patch: Value,
    ) -> Result<K, WriteError>
    where
        K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        let patch = Patch::Merge(patch);
        let parameters = parameters();
        self.gated(what, Verb::Patch, api.patch(name, &parameters, &patch))
            .await
    }

    /// Offers what we want an object to say, by server-side apply without force: what another manager has taken over is a conflict, and
    /// stays.
    pub(crate) async fn offer<K>(
        &self,
        api: &Api<K>,
        what: &'static str,
        name: &str,
        part: Part,
        object: Value,
    ) -> Result<K, WriteError>
    where
        K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        let parameters = PatchParams::apply(names::FIELD_MANAGER);
        let patch = Patch::Apply(object);
        let call = async {
            match part {
                Part::Main => api.patch(name, &parameters, &patch).await,
                Part::Status => api.patch_status(name, &parameters, &patch).await,
            }
        };
        self.gated(what, Verb::Patch, call).await
    }

    /// Deletes an object by its name, if it is still as it was read. That there is none is fine.
    pub(crate) async fn remove_read<K>(
        &self,
        api: &Api<K>,
        what: &'static str,
        name: &str,
        uid: &str,
        version: &str,
    ) -> Result<(), WriteError>
    where
        K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: Some(version.to_owned()),
            }),
            ..DeleteParams::default()
        };
        let call = async { api.delete(name, &parameters).await.map(drop) };
        match self.gated(what, Verb::Delete, call).await {
            Err(WriteError::Gone(_)) => Ok(()),
            removed => removed,
        }
    }

    /// Deletes an object of ours by its name. That there is none is fine.
    pub(crate) async fn remove<K>(
        &self,
        api: &Api<K>,
        what: &'static str,
        name: &str,
    ) -> Result<(), WriteError>
    where
        K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        let parameters = DeleteParams::default();
        let call = async { api.delete(name, &parameters).await.map(drop) };
        match self.gated(what, Verb::Delete, call).await {
            Err(WriteError::Gone(_)) => Ok(()),
            removed => removed,
        }
    }

    /// Makes a call if we lead, and gives it no more time than that is sure for.
    async fn gated<R>(
        &self,
        what: &'static str,
        verb: Verb,
        call: impl Future<Output = Result<R, kube::Error>>,
    ) -> Result<R, WriteError> {
        let Some(valid) = self.leader.valid_until() else {
            return Err(WriteError::NotLeader);
        };
        let until = valid.min(Instant::now() + self.patience);
        let result = match timeout_at(until, call).await {
            Ok(result) => result.map_err(WriteError::from),
            Err(_) => Err(WriteError::Timeout),
        };
        let counted = result.as_ref().map_or_else(Kinded::reason, |_| "OK");
        self.metrics.count(what, verb, counted);
        result
    }
}

fn parameters() -> PatchParams {
    PatchParams {
        field_manager: Some(names::FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

#[cfg(test)]
mod tests;
