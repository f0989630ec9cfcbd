//! What can go wrong with the API endpoint.

use groundplane_cloud::{CloudError, CloudErrorKind, EndpointAssignment};
use groundplane_core::{ErrorKind, Kinded, ProviderId};
use groundplane_runtime::grpc::Details;

/// A call about the API endpoint that failed.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum EndpointError {
    #[error("no API endpoint is configured, or driver `{0}` cannot move one")]
    NotConfigured(&'static str),
    #[error("no such API endpoint: {0}")]
    NotFound(CloudError),
    #[error("the API endpoint is not one address: {0}")]
    Ambiguous(CloudError),
    #[error("several machines hold the API endpoint ({}); take all but one away, then it can be moved", holders(.0))]
    Shared(Vec<EndpointAssignment>),
    #[error("the API endpoint is not where this was decided on: {0}")]
    Changed(String),
    #[error("the cloud has no machine `{machine}`: {error}")]
    MachineNotFound { machine: ProviderId, error: CloudError },
    /// Definite, and its own kind says what.
    #[error(transparent)]
    Refused(CloudError),
    /// Of some step nobody knows whether it happened. The next call looks.
    #[error("the cloud did not answer; asking again finishes what was begun ({0})")]
    Unanswered(CloudError),
}

fn holders(assignments: &[EndpointAssignment]) -> String {
    let one = |one: &EndpointAssignment| format!("{} by assignment {}", one.machine, one.id);
    assignments.iter().map(one).collect::<Vec<_>>().join(", ")
}

impl EndpointError {
    /// The endpoint cannot be read.
    pub(crate) fn unreadable(error: CloudError) -> Self {
        match error.kind {
            CloudErrorKind::NotFound => Self::NotFound(error),
            CloudErrorKind::Refused => Self::Ambiguous(error),
            _ => Self::Refused(error),
        }
    }

    /// What the status says besides.
    pub(crate) fn details(&self) -> Details {
        let mut details = Details::default();
        match self {
            Self::NotConfigured(_) | Self::Changed(_) => {}
            Self::NotFound(error) => details.resource = Some(("endpoint".to_owned(), error.message.clone())),
            Self::Ambiguous(error) => {
                details
                    .violations
                    .push(("endpoint".to_owned(), error.message.clone()));
            }
            Self::Shared(assignments) => {
                details
                    .violations
                    .push(("endpoint".to_owned(), holders(assignments)));
            }
            Self::MachineNotFound { machine, .. } => {
                details.resource = Some(("machine".to_owned(), machine.to_string()));
            }
            Self::Refused(error) | Self::Unanswered(error) => details.retry_after = error.retry_after,
        }
        details
    }
}

impl Kinded for EndpointError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NotConfigured(_) | Self::Ambiguous(_) | Self::Shared(_) => ErrorKind::Precondition,
            Self::NotFound(_) | Self::MachineNotFound { .. } => ErrorKind::NotFound,
            Self::Changed(_) => ErrorKind::Conflict,
            Self::Refused(error) => error.kind(),
            Self::Unanswered(_) => ErrorKind::Unavailable,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::NotConfigured(_) => "ENDPOINT_NOT_CONFIGURED",
            Self::NotFound(_) => "ENDPOINT_NOT_FOUND",
            Self::Ambiguous(_) => "ENDPOINT_AMBIGUOUS",
            Self::Shared(_) => "ENDPOINT_SHARED",
            Self::Changed(_) => "ENDPOINT_CHANGED",
            Self::MachineNotFound { .. } => "MACHINE_NOT_FOUND",
            Self::Refused(error) => error.reason(),
            Self::Unanswered(_) => "CLOUD_UNAVAILABLE",
        }
    }
}
