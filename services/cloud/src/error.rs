//! What can go wrong with a cloud, by what a caller may do about it.

use std::time::Duration;

use groundplane_core::{ErrorKind, Kinded};
use groundplane_runtime::grpc::RpcError;

/// What a caller may do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloudErrorKind {
    /// It is not there. From a complete read: proof of absence.
    NotFound,
    /// The cloud says that it exists already, or that another holds it.
    AlreadyExists,
    /// The quota is spent.
    QuotaExceeded,
    /// The cloud refuses our token.
    Unauthenticated,
    /// Our token may not do this.
    Denied,
    /// We ask too often.
    RateLimited,
    /// The cloud is away, answers 5xx, half an answer, or nonsense.
    Unavailable,
    /// No answer in time. The effect may or may not have happened.
    Timeout,
    /// The cloud refuses the request for good.
    Refused,
}

/// A call to a cloud that failed. Never holds a secret.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{operation}: {message}")]
pub struct CloudError {
    /// What a caller may do about it.
    pub kind: CloudErrorKind,
    /// What was tried: `list reservations`, `create session for 1111…`.
    pub operation: String,
    /// The cloud's words, or ours where it had none.
    pub message: String,
    /// When to try again, where the cloud said so.
    pub retry_after: Option<Duration>,
}

impl CloudError {
    /// An error of `kind` in `operation`.
    pub fn new(kind: CloudErrorKind, operation: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            kind,
            operation: operation.into(),
            message: message.into(),
            retry_after: None,
        }
    }

    /// Is it of this kind?
    pub fn is(&self, kind: CloudErrorKind) -> bool {
        self.kind == kind
    }
}

/// Says of a project that is not there what it is: a mistake, and not the absence of what was asked for.
pub(crate) fn not_absence(mut error: CloudError) -> CloudError {
    if error.is(CloudErrorKind::NotFound) {
        error.kind = CloudErrorKind::Refused;
    }
    error
}

/// What a provider answered to `operation`, in its words where it has some.
pub(crate) fn answered(kind: CloudErrorKind, operation: &str, error: RpcError) -> CloudError {
    let message = if error.message.is_empty() {
        format!("the provider answered {}", error.reason)
    } else {
        error.message
    };
    CloudError {
        retry_after: error.retry_after,
        ..CloudError::new(kind, operation, message)
    }
}

impl Kinded for CloudError {
    fn kind(&self) -> ErrorKind {
        match self.kind {
            CloudErrorKind::NotFound => ErrorKind::NotFound,
            CloudErrorKind::AlreadyExists => ErrorKind::AlreadyExists,
            CloudErrorKind::QuotaExceeded => ErrorKind::Exhausted,
            CloudErrorKind::Unauthenticated => ErrorKind::Unauthenticated,
            CloudErrorKind::Denied => ErrorKind::Denied,
            CloudErrorKind::RateLimited | CloudErrorKind::Unavailable => ErrorKind::Unavailable,
            CloudErrorKind::Timeout => ErrorKind::Timeout,
            CloudErrorKind::Refused => ErrorKind::Precondition,
        }
    }

    fn reason(&self) -> &'static str {
        match self.kind {
            CloudErrorKind::NotFound => "NOT_FOUND",
            CloudErrorKind::AlreadyExists => "ALREADY_EXISTS",
            CloudErrorKind::QuotaExceeded => "QUOTA_EXCEEDED",
            CloudErrorKind::Unauthenticated => "CLOUD_UNAUTHENTICATED",
            CloudErrorKind::Denied => "CLOUD_DENIED",
            CloudErrorKind::RateLimited => "RATE_LIMITED",
            CloudErrorKind::Unavailable => "CLOUD_UNAVAILABLE",
            CloudErrorKind::Timeout => "CLOUD_TIMEOUT",
            CloudErrorKind::Refused => "CLOUD_REFUSED",
        }
    }
}
