//! What can go wrong, and the statuses of that.

mod endpoint;

use groundplane_cloud::CloudError;
use groundplane_core::{ErrorKind, Family, Kinded, Prefix};
use groundplane_runtime::grpc::{Details, InvalidField, RpcError, forward, status};
use tonic::Status;

pub(crate) use endpoint::EndpointError;

/// A call that failed.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum EipError {
    #[error(transparent)]
    Invalid(#[from] InvalidField),
    #[error(transparent)]
    Cloud(#[from] CloudError),
    /// A write of which nobody knows whether it happened. The next call looks.
    #[error("the cloud did not answer; asking again finds what became of it ({0})")]
    Unanswered(CloudError),
    #[error("{address} is held by another: reservation {reservation} ({holder})")]
    Taken {
        address: Prefix,
        reservation: String,
        holder: String,
    },
    /// No Service may have it, whoever asks: what a Service announces is taken from the API servers.
    #[error("{address} is the address of the API endpoint, which no Service may have; name another, or none")]
    OfEndpoint { address: Prefix },
    #[error("already holds {}; release that first", held.map_or_else(|| "a reservation that waits for its address".to_owned(), |held| held.to_string()))]
    AlreadyHolds { held: Option<Prefix> },
    #[error("the cloud denied reservation {0}; delete it there, or talk to its support, then try again")]
    Denied(String),
    /// It went while it was being changed.
    #[error("reservation {0} went away meanwhile")]
    Vanished(String),
    #[error(
        "another Service holds the address, and it cannot be shared: the cloud changes no tags, by which it would be passed on; give the \
         Service an address of its own, or have the cloud's provider offer ReplaceTags (`replaces_tags`)"
    )]
    SharingUnsupported,
    #[error("the cloud has no elastic {0} addresses")]
    FamilyUnsupported(Family),
    #[error("the cloud has one network; `{0}` is not known")]
    NetworkUnsupported(String),
    #[error("pool `{0}`: addresses come from the cloud, which has no pools")]
    PoolNotFound(String),
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    #[error(transparent)]
    Ipam(#[from] RpcError),
    #[error("{0} is not offered by this driver")]
    Unsupported(&'static str),
}

impl EipError {
    /// May a family that is optional go without, because of this? Only where the answer is definite.
    pub(crate) fn is_definite(&self) -> bool {
        matches!(
            self.kind(),
            ErrorKind::Precondition
                | ErrorKind::Exhausted
                | ErrorKind::Unsupported
                | ErrorKind::AlreadyExists
        )
    }
}

impl Kinded for EipError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Invalid(error) => error.kind(),
            Self::Cloud(error) => error.kind(),
            Self::Unanswered(_) => ErrorKind::Unavailable,
            Self::Taken { .. } | Self::OfEndpoint { .. } => ErrorKind::AlreadyExists,
            Self::AlreadyHolds { .. } | Self::Denied(_) | Self::SharingUnsupported => ErrorKind::Precondition,
            Self::Vanished(_) => ErrorKind::Conflict,
            Self::FamilyUnsupported(_) | Self::NetworkUnsupported(_) | Self::Unsupported(_) => {
                ErrorKind::Unsupported
            }
            Self::PoolNotFound(_) => ErrorKind::NotFound,
            Self::Endpoint(error) => error.kind(),
            Self::Ipam(error) => error.kind,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Invalid(error) => error.reason(),
            Self::Cloud(error) => error.reason(),
            Self::Unanswered(_) => "CLOUD_UNAVAILABLE",
            Self::Taken { .. } => "ADDRESS_TAKEN",
            Self::OfEndpoint { .. } => "ADDRESS_OF_ENDPOINT",
            Self::AlreadyHolds { .. } => "ALREADY_HOLDS",
            Self::Denied(_) => "RESERVATION_DENIED",
            Self::Vanished(_) => "RESERVATION_VANISHED",
            Self::SharingUnsupported => "SHARING_UNSUPPORTED",
            Self::FamilyUnsupported(_) => "FAMILY_UNSUPPORTED",
            Self::NetworkUnsupported(_) => "NETWORK_UNSUPPORTED",
            Self::PoolNotFound(_) => "POOL_NOT_FOUND",
            Self::Endpoint(error) => error.reason(),
            Self::Ipam(error) => error.reason(),
            Self::Unsupported(_) => "NOT_IMPLEMENTED",
        }
    }
}

impl From<EipError> for Status {
    fn from(error: EipError) -> Self {
        let mut details = Details::default();
        match &error {
            EipError::Ipam(error) => return forward("eip", error),
            EipError::Endpoint(error) => details = error.details(),
            EipError::Invalid(error) => details = error.details(),
            EipError::Cloud(error) | EipError::Unanswered(error) => details.retry_after = error.retry_after,
            EipError::Taken {
                address,
                reservation,
                holder,
            } => {
                details.resource = Some(("address".to_owned(), address.to_string()));
                details.metadata.push(("holder".to_owned(), holder.clone()));
                details
                    .metadata
                    .push(("reservation".to_owned(), reservation.clone()));
            }
            EipError::OfEndpoint { address } => {
                details.resource = Some(("address".to_owned(), address.to_string()));
            }
            EipError::PoolNotFound(pool) => details.resource = Some(("pool".to_owned(), pool.clone())),
            EipError::Denied(id) => details.metadata.push(("reservation".to_owned(), id.clone())),
            EipError::AlreadyHolds { held: Some(held) } => {
                details.metadata.push(("address".to_owned(), held.to_string()));
            }
            _ => {}
        }
        status("eip", &error, details)
    }
}
