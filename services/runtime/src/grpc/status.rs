//! The one table between kinds of error and gRPC statuses, read in both directions.
//!
//! A server never answers UNKNOWN, and never lets the text of a defect out: the client gets "internal error" and a
//! trace id, the log gets the cause.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use groundplane_core::{ErrorKind, Kinded};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, PreconditionViolation, QuotaViolation, StatusExt as _};
use tracing::error;

use crate::telemetry::trace;

/// Behind the service's name in `google.rpc.ErrorInfo.domain`.
const DOMAIN: &str = "groundplane";

/// What a client is told to wait where the server knows no better.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What a status says besides its code, reason and text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// Type and name of what was not found, or exists.
    pub resource: Option<(String, String)>,
    /// Field (or subject) and description of what is wrong with it, one each.
    pub violations: Vec<(String, String)>,
    /// When to try again.
    pub retry_after: Option<Duration>,
    /// More for programs: `ErrorInfo.metadata`. No secrets.
    pub metadata: Vec<(String, String)>,
}

/// The code of a kind.
pub fn code(kind: ErrorKind) -> Code {
    match kind {
        ErrorKind::Invalid => Code::InvalidArgument,
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::AlreadyExists => Code::AlreadyExists,
        ErrorKind::Conflict => Code::Aborted,
        ErrorKind::Precondition => Code::FailedPrecondition,
        ErrorKind::Exhausted => Code::ResourceExhausted,
        ErrorKind::Unauthenticated => Code::Unauthenticated,
        ErrorKind::Denied => Code::PermissionDenied,
        ErrorKind::Unavailable => Code::Unavailable,
        ErrorKind::Timeout => Code::DeadlineExceeded,
        ErrorKind::Compacted => Code::OutOfRange,
        ErrorKind::Unsupported => Code::Unimplemented,
        ErrorKind::Corrupt => Code::DataLoss,
        ErrorKind::Internal => Code::Internal,
    }
}

/// The status with which `service` (`ipam`) answers `error`.
pub fn status<E: Kinded>(service: &'static str, error: &E, details: Details) -> Status {
    let kind = error.kind();
    let message = match kind {
        ErrorKind::Internal => {
            error!(service, reason = error.reason(), cause = %Chain(error), "internal error");
            internal_message()
        }
        ErrorKind::Corrupt => {
            error!(service, reason = error.reason(), cause = %Chain(error), "stored data is damaged");
            error.to_string()
        }
        _ => error.to_string(),
    };
    build(service, kind, error.reason(), message, details)
}

/// The status with which `service` passes on what a service behind it answered: same kind, reason, text and metadata.
pub fn forward(service: &'static str, error: &RpcError) -> Status {
    let details = Details {
        retry_after: error.retry_after,
        metadata: error.metadata.clone().into_iter().collect(),
        ..Details::default()
    };
    build(service, error.kind, &error.reason, error.message.clone(), details)
}

fn internal_message() -> String {
    trace::current_trace_id().map_or_else(
        || "internal error".to_owned(),
        |id| format!("internal error (trace {id})"),
    )
}

fn build(service: &str, kind: ErrorKind, reason: &str, message: String, details: Details) -> Status {
    let mut rich = ErrorDetails::new();
    rich.set_error_info(
        reason,
        format!("{service}.{DOMAIN}"),
        details
            .metadata
            .into_iter()
            .collect::<std::collections::HashMap<_, _>>(),
    );
    if let Some((kind, name)) = details.resource {
        rich.set_resource_info(kind, name, "", "");
    }
    let violations = details.violations;
    match kind {
        ErrorKind::Precondition if !violations.is_empty() => {
            let violation = |(subject, text)| PreconditionViolation::new(reason, subject, text);
            rich.set_precondition_failure(violations.into_iter().map(violation).collect::<Vec<_>>());
        }
        ErrorKind::Exhausted if !violations.is_empty() => {
            let violation = |(subject, text)| QuotaViolation::new(subject, text);
            rich.set_quota_failure(violations.into_iter().map(violation).collect::<Vec<_>>());
        }
        _ => {
            for (field, text) in violations {
                rich.add_bad_request_violation(field, text);
            }
        }
    }
    match (kind, details.retry_after) {
        (_, Some(after)) => {
            rich.set_retry_info(Some(after));
        }
        (ErrorKind::Unavailable, None) => {
            rich.set_retry_info(Some(RETRY_AFTER));
        }
        _ => {}
    }
    Status::with_error_details(code(kind), message, rich)
}

/// An error with everything that caused it, in one line.
struct Chain<'a>(&'a dyn Error);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

/// A call that failed, as the client sees it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RpcError {
    /// What may be done about it.
    pub kind: ErrorKind,
    /// `ErrorInfo.reason`, or the code's name where the server gave none.
    pub reason: String,
    /// For people.
    pub message: String,
    /// `ErrorInfo.metadata`.
    pub metadata: BTreeMap<String, String>,
    /// When the server asks to be tried again.
    pub retry_after: Option<Duration>,
    /// The code as it came.
    pub code: Code,
}

impl RpcError {
    /// What may be done about it.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The client gave up by itself.
    pub(crate) fn timeout(message: impl Into<String>) -> Self {
        Self::from(Status::deadline_exceeded(message))
    }
}

impl From<Status> for RpcError {
    fn from(status: Status) -> Self {
        let details = status.get_error_details();
        let info = details.error_info();
        let kind = kind(&status, info.is_some_and(|info| info.domain.ends_with(DOMAIN)));
        let mut message = status.message().to_owned();
        if let Some(cause) = status.source() {
            // Ours, not the server's: "transport error" alone helps nobody.
            message = format!("{message}: {}", Chain(cause));
        }
        Self {
            kind,
            reason: info.map_or_else(|| code_name(status.code()).to_owned(), |info| info.reason.clone()),
            message,
            metadata: info
                .map(|info| info.metadata.clone().into_iter().collect())
                .unwrap_or_default(),
            retry_after: details.retry_info().and_then(|retry| retry.retry_delay),
            code: status.code(),
        }
    }
}

impl Kinded for RpcError {
    fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The code's name; the server's own reason is the field.
    fn reason(&self) -> &'static str {
        code_name(code(self.kind))
    }
}

/// What a status means to the client. `ours` says that a groundplane service gave it.
fn kind(status: &Status, ours: bool) -> ErrorKind {
    match status.code() {
        // A status with a source was made on this side: the connection failed, whatever tonic calls it.
        Code::Unknown | Code::Internal if status.source().is_some() => ErrorKind::Unavailable,
        // Generated clients say this, without a source, when the connection's task is gone.
        Code::Unknown if status.message().starts_with("Service was not ready") => ErrorKind::Unavailable,
        // tonic says so when a timeout of its own strikes ("Timeout expired"), and we never cancel and look.
        Code::Cancelled | Code::DeadlineExceeded => ErrorKind::Timeout,
        // Also what tonic says when a message is too long; that is no watch to start again.
        Code::OutOfRange if ours => ErrorKind::Compacted,
        Code::InvalidArgument => ErrorKind::Invalid,
        Code::NotFound => ErrorKind::NotFound,
        Code::AlreadyExists => ErrorKind::AlreadyExists,
        Code::Aborted => ErrorKind::Conflict,
        Code::FailedPrecondition => ErrorKind::Precondition,
        Code::ResourceExhausted => ErrorKind::Exhausted,
        Code::Unauthenticated => ErrorKind::Unauthenticated,
        Code::PermissionDenied => ErrorKind::Denied,
        Code::Unavailable => ErrorKind::Unavailable,
        Code::Unimplemented => ErrorKind::Unsupported,
        Code::DataLoss => ErrorKind::Corrupt,
        Code::Ok | Code::OutOfRange | Code::Unknown | Code::Internal => ErrorKind::Internal,
    }
}

/// The name that the gRPC specification gives a code.
pub fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests;
