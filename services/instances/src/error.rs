//! What can go wrong, and the statuses of that.

use groundplane_cloud::CloudError;
use groundplane_core::{ErrorKind, Kinded, ProviderId};
use groundplane_runtime::grpc::{Details, status};
use tonic::Status;

use crate::domain::SoughtError;

/// A call that failed.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum InstancesError {
    #[error(transparent)]
    Sought(#[from] SoughtError),
    #[error("provider id `{0}` is of another cloud")]
    Foreign(ProviderId),
    #[error("`{0}` is not in the list of machines, which a person keeps: that proves nothing")]
    Unlisted(String),
    #[error("no machine for `{0}`")]
    NotFound(String),
    #[error("several machines match `{name}`: {}", provider_ids.join(", "))]
    Ambiguous { name: String, provider_ids: Vec<String> },
    #[error(transparent)]
    Cloud(#[from] CloudError),
    #[error("routes are not offered by this driver")]
    Routes,
}

impl Kinded for InstancesError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Sought(_) => ErrorKind::Invalid,
            Self::Foreign(_) | Self::Unlisted(_) | Self::Ambiguous { .. } => ErrorKind::Precondition,
            Self::NotFound(_) => ErrorKind::NotFound,
            Self::Cloud(error) => error.kind(),
            Self::Routes => ErrorKind::Unsupported,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Sought(SoughtError::ProviderId(..)) => "PROVIDER_ID_SYNTAX",
            Self::Sought(_) => "INVALID_FIELD",
            // To a client both mean: not ours, leave the node alone.
            Self::Foreign(_) | Self::Unlisted(_) => "FOREIGN",
            Self::NotFound(_) => "MACHINE_NOT_FOUND",
            Self::Ambiguous { .. } => "AMBIGUOUS",
            Self::Cloud(error) => error.reason(),
            Self::Routes => "NOT_IMPLEMENTED",
        }
    }
}

impl From<InstancesError> for Status {
    fn from(error: InstancesError) -> Self {
        let mut details = Details::default();
        match &error {
            InstancesError::Sought(cause) => {
                let field = match cause {
                    SoughtError::Node(..) => "node",
                    SoughtError::ProviderId(..) | SoughtError::Nothing => "provider_id",
                };
                details.violations.push((field.to_owned(), cause.to_string()));
            }
            InstancesError::NotFound(name) => details.resource = Some(("machine".to_owned(), name.clone())),
            InstancesError::Unlisted(_) => details
                .metadata
                .push(("detail".to_owned(), "UNLISTED".to_owned())),
            InstancesError::Ambiguous {
                provider_ids: ids, ..
            } => {
                details.metadata.push(("provider_ids".to_owned(), ids.join(",")));
            }
            InstancesError::Cloud(error) => details.retry_after = error.retry_after,
            InstancesError::Foreign(_) | InstancesError::Routes => {}
        }
        status("instances", &error, details)
    }
}
