//! What can go wrong, and the statuses of that.

use groundplane_cloud::{CloudError, CloudErrorKind};
use groundplane_core::{ErrorKind, Kinded, ProviderId};
use groundplane_runtime::grpc::{Details, status};
use tonic::Status;

/// A call that failed. Never holds a password.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum BgpError {
    #[error("{field}: {message}")]
    Invalid { field: String, message: String },
    #[error("BGP is not configured")]
    Off,
    #[error("no machine `{0}`")]
    MachineNotFound(ProviderId),
    #[error(transparent)]
    Cloud(CloudError),
}

impl BgpError {
    /// A field of the request that is wrong.
    pub(crate) fn invalid(field: impl Into<String>, message: &dyn std::fmt::Display) -> Self {
        Self::Invalid {
            field: field.into(),
            message: message.to_string(),
        }
    }

    /// What the cloud said about one machine.
    pub(crate) fn of_machine(machine: &ProviderId, error: CloudError) -> Self {
        match error.kind {
            CloudErrorKind::NotFound => Self::MachineNotFound(machine.clone()),
            _ => Self::Cloud(error),
        }
    }
}

impl From<CloudError> for BgpError {
    fn from(error: CloudError) -> Self {
        Self::Cloud(error)
    }
}

impl Kinded for BgpError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Invalid { .. } => ErrorKind::Invalid,
            Self::Off => ErrorKind::Precondition,
            Self::MachineNotFound(_) => ErrorKind::NotFound,
            Self::Cloud(error) => error.kind(),
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "INVALID_FIELD",
            Self::Off => "BGP_OFF",
            Self::MachineNotFound(_) => "MACHINE_NOT_FOUND",
            Self::Cloud(error) => error.reason(),
        }
    }
}

impl From<BgpError> for Status {
    fn from(error: BgpError) -> Self {
        let mut details = Details::default();
        match &error {
            BgpError::Invalid { field, message } => details.violations.push((field.clone(), message.clone())),
            BgpError::MachineNotFound(id) => details.resource = Some(("machine".to_owned(), id.to_string())),
            BgpError::Cloud(error) => details.retry_after = error.retry_after,
            BgpError::Off => {}
        }
        status("bgp", &error, details)
    }
}
