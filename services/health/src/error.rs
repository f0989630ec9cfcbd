//! What can go wrong, and the statuses of that.

use groundplane_core::{ErrorKind, Kinded};
use groundplane_runtime::grpc::{Details, status};
use tonic::Status;

/// A call that failed.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum HealthError {
    #[error("{field}: {message}")]
    Invalid { field: String, message: String },
    #[error("the service is stopping")]
    Stopping,
}

impl HealthError {
    /// A field of the request that is wrong.
    pub(crate) fn invalid(field: impl Into<String>, message: impl std::fmt::Display) -> Self {
        Self::Invalid {
            field: field.into(),
            message: message.to_string(),
        }
    }
}

impl Kinded for HealthError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Invalid { .. } => ErrorKind::Invalid,
            Self::Stopping => ErrorKind::Unavailable,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "INVALID_FIELD",
            Self::Stopping => "STOPPING",
        }
    }
}

impl From<HealthError> for Status {
    fn from(error: HealthError) -> Self {
        let mut details = Details::default();
        if let HealthError::Invalid { field, message } = &error {
            details.violations.push((field.clone(), message.clone()));
        }
        status("health", &error, details)
    }
}
