//! One call: it has a slot, a deadline, and as many tries as are safe.

use std::future::Future;

use groundplane_core::ErrorKind;
use groundplane_runtime::grpc::{Channel, RpcError};
use tokio::time::{Instant, timeout_at};
use tonic::{Code, Request, Response, Status};
use tracing::debug;

use super::Remote;
use crate::error::answered;
use crate::tries::Tries;
use crate::{CloudError, CloudErrorKind};

/// Longest answer that is read: a page of 1,000 machines with many labels each.
pub(super) const LONGEST_ANSWER: usize = 16 << 20;

/// What `ErrorInfo.reason` says where the code has two meanings.
const RATE_LIMITED: &str = "RATE_LIMITED";
const QUOTA_EXCEEDED: &str = "QUOTA_EXCEEDED";

/// What is called, and what its failures mean.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    /// For people: `list reservations`.
    pub(super) name: String,
    /// In metrics.
    pub(super) method: &'static str,
    /// Does it have its effect once, however often it arrives?
    pub(super) repeats: bool,
    /// Does `NOT_FOUND` say that what it names is not there?
    pub(super) finds: bool,
    /// Does `RESOURCE_EXHAUSTED` speak of the quota, unless it says otherwise?
    pub(super) reserves: bool,
}

impl Operation {
    /// A read of what must be there: `NOT_FOUND` is an answer to something else.
    pub(super) fn read(name: impl Into<String>, method: &'static str) -> Self {
        Self {
            name: name.into(),
            method,
            repeats: true,
            finds: false,
            reserves: false,
        }
    }

    /// It names something, which may not be there.
    pub(super) fn finds(self) -> Self {
        Self { finds: true, ..self }
    }

    /// It is sent once.
    pub(super) fn once(self) -> Self {
        Self {
            repeats: false,
            ..self
        }
    }

    pub(super) fn error(&self, kind: CloudErrorKind, message: impl Into<String>) -> CloudError {
        CloudError::new(kind, &self.name, message)
    }

    /// The provider answered, and its answer is wrong.
    pub(super) fn nonsense(&self, message: impl Into<String>) -> CloudError {
        self.error(
            CloudErrorKind::Unavailable,
            format!("the provider's answer is wrong: {}", message.into()),
        )
    }
}

/// A call that failed.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) error: CloudError,
    pub(super) code: Code,
}

impl From<Failed> for CloudError {
    fn from(failed: Failed) -> Self {
        failed.error
    }
}

impl Remote {
    /// Calls, within the deadline that is configured.
    pub(super) async fn call<Q, A, Fut>(
        &self,
        operation: &Operation,
        request: Q,
        send: impl Fn(Channel, Request<Q>) -> Fut,
    ) -> Result<A, Failed>
    where
        Q: Clone,
        Fut: Future<Output = Result<Response<A>, Status>>,
    {
        // Waiting for a slot is the caller's time: its own deadline drops this future.
        let _slot = self.inner.slots.acquire().await.map_err(|_| Failed {
            error: operation.error(CloudErrorKind::Unavailable, "closed"),
            code: Code::Cancelled,
        })?;
        let deadline = Instant::now() + self.inner.deadline;
        let mut tries = Tries::default();
        loop {
            let failed = match self.attempt(operation, request.clone(), deadline, &send).await {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            let may_repeat = operation.repeats && is_passing(&failed);
            let Some(pause) = may_repeat.then(|| tries.rest(&failed.error, deadline)).flatten() else {
                return Err(failed);
            };
            debug!(error = %failed.error, ?pause, "trying again");
            tokio::time::sleep(pause).await;
        }
    }

    /// One try: counted, bounded.
    async fn attempt<Q, A, Fut>(
        &self,
        operation: &Operation,
        request: Q,
        deadline: Instant,
        send: &impl Fn(Channel, Request<Q>) -> Fut,
    ) -> Result<A, Failed>
    where
        Fut: Future<Output = Result<Response<A>, Status>>,
    {
        let mut request = Request::new(request);
        request.set_timeout(deadline.saturating_duration_since(Instant::now()));
        let observer = self.inner.metrics.start(operation.method);
        let status = match timeout_at(deadline, send(self.inner.channel.clone(), request)).await {
            Ok(Ok(answer)) => {
                observer.finish(Code::Ok);
                return Ok(answer.into_inner());
            }
            Ok(Err(status)) => status,
            Err(_) => Status::deadline_exceeded(format!("no answer within {:?}", self.inner.deadline)),
        };
        let code = status.code();
        observer.finish(code);
        let failed = classify(operation, status);
        if is_lost(&failed) {
            // Whoever answers next may be another program.
            self.inner.capabilities.doubt();
        }
        Err(failed)
    }
}

/// What a status means to whoever called.
pub(super) fn classify(operation: &Operation, status: Status) -> Failed {
    let error = RpcError::from(status);
    let limited = error.reason == RATE_LIMITED;
    let kind = match error.kind {
        ErrorKind::NotFound if operation.finds => CloudErrorKind::NotFound,
        ErrorKind::AlreadyExists => CloudErrorKind::AlreadyExists,
        ErrorKind::Exhausted | ErrorKind::Unavailable if limited => CloudErrorKind::RateLimited,
        ErrorKind::Exhausted if error.reason == QUOTA_EXCEEDED || operation.reserves => {
            CloudErrorKind::QuotaExceeded
        }
        ErrorKind::Exhausted => CloudErrorKind::RateLimited,
        ErrorKind::Unauthenticated => CloudErrorKind::Unauthenticated,
        ErrorKind::Denied => CloudErrorKind::Denied,
        ErrorKind::Timeout => CloudErrorKind::Timeout,
        ErrorKind::NotFound
        | ErrorKind::Invalid
        | ErrorKind::Precondition
        | ErrorKind::Unsupported
        | ErrorKind::Compacted => CloudErrorKind::Refused,
        ErrorKind::Unavailable | ErrorKind::Conflict | ErrorKind::Internal | ErrorKind::Corrupt => {
            CloudErrorKind::Unavailable
        }
    };
    let code = error.code;
    Failed {
        error: answered(kind, &operation.name, error),
        code,
    }
}

/// May the same call succeed a little later? A list that must be started anew is not the same call.
fn is_passing(failed: &Failed) -> bool {
    matches!(
        failed.error.kind,
        CloudErrorKind::Unavailable | CloudErrorKind::RateLimited
    ) && failed.code != Code::Aborted
}

/// Was an answer, or the connection, lost?
fn is_lost(failed: &Failed) -> bool {
    matches!(
        failed.code,
        Code::Unavailable | Code::Unknown | Code::Internal | Code::Cancelled | Code::DeadlineExceeded
    ) || failed.code == Code::Unimplemented
}
