//! What can go wrong, and the statuses of that.

use groundplane_core::{ErrorKind, Kinded};
use groundplane_runtime::grpc::{Details, InvalidField, status};
use tonic::Status;

/// A call that failed.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum HealthError {
    #[error(transparent)]
    Invalid(#[from] InvalidField),
    #[error("the service is stopping")]
    Stopping,
}

impl Kinded for HealthError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Invalid(error) => error.kind(),
            Self::Stopping => ErrorKind::Unavailable,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Invalid(error) => error.reason(),
            Self::Stopping => "STOPPING",
        }
    }
}

impl From<HealthError> for Status {
    fn from(error: HealthError) -> Self {
        let details = match &error {
            HealthError::Invalid(error) => error.details(),
            HealthError::Stopping => Details::default(),
        };
        status("health", &error, details)
    }
}
