//! What can go wrong, and the statuses of that.

use groundplane_cloud::{CloudError, CloudErrorKind};
use groundplane_core::{ErrorKind, Family, Kinded, ProviderId};
use groundplane_runtime::grpc::{Details, InvalidField, status};
use tonic::Status;

/// A call that failed. Never holds a password.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum BgpError {
    #[error(transparent)]
    Invalid(#[from] InvalidField),
    #[error("BGP is not configured")]
    Off,
    /// The machine has no address of a family in which machines are to speak BGP.
    #[error(
        "the machine `{machine}` has no {} address; name its family in bgp.families if it is to speak BGP",
        families.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
    )]
    NoFamily {
        machine: ProviderId,
        families: Vec<Family>,
    },
    #[error("no machine `{0}`")]
    MachineNotFound(ProviderId),
    #[error(transparent)]
    Cloud(CloudError),
}

impl BgpError {
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
            Self::Invalid(error) => error.kind(),
            Self::Off | Self::NoFamily { .. } => ErrorKind::Precondition,
            Self::MachineNotFound(_) => ErrorKind::NotFound,
            Self::Cloud(error) => error.kind(),
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Invalid(error) => error.reason(),
            Self::Off => "BGP_OFF",
            Self::NoFamily { .. } => "NO_FAMILY",
            Self::MachineNotFound(_) => "MACHINE_NOT_FOUND",
            Self::Cloud(error) => error.reason(),
        }
    }
}

impl From<BgpError> for Status {
    fn from(error: BgpError) -> Self {
        let mut details = Details::default();
        match &error {
            BgpError::Invalid(error) => details = error.details(),
            BgpError::MachineNotFound(id) => details.resource = Some(("machine".to_owned(), id.to_string())),
            BgpError::Cloud(error) => details.retry_after = error.retry_after,
            BgpError::Off | BgpError::NoFamily { .. } => {}
        }
        status("bgp", &error, details)
    }
}
