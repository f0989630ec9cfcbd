//! What can go wrong, and the statuses of that.

use groundplane_core::{ErrorKind, Kinded};
use groundplane_runtime::grpc::{Details, RpcError, forward, status};
use tonic::Status;

/// A call that failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum GatewayError {
    /// There is no API endpoint.
    #[error("no API endpoint is configured; write `endpoint.tag` or `endpoint.address`")]
    NoEndpoint,
    /// A kind of object that we do not explain.
    #[error("`{0}` is no kind that can be explained; ask for `service` or `node`")]
    Kind(String),
    /// The cluster has no such object.
    #[error("the cluster has no {kind} `{name}`")]
    NotFound { kind: &'static str, name: String },
    /// The cache has not listed yet.
    #[error("the gateway has not read the cluster yet")]
    NotSynced,
    /// The cluster's id is not known yet.
    #[error("the cluster's id is not known yet: the API server has not answered")]
    NoCluster,
    /// Another replica leads.
    #[error("another replica leads; ask that one")]
    NotLeader,
    /// The store to accept is none.
    #[error("the store's id must not be empty")]
    NoStore,
    /// ipam has another store than the one to accept.
    #[error("ipam has the store `{present}`, not `{asked}`")]
    OtherStore { present: String, asked: String },
    /// The store was accepted, but not adopted in time.
    #[error(
        "the store is accepted, and ipam has not been told yet what the cluster holds; it goes on in the background"
    )]
    Adopting,
    /// A service behind us failed.
    #[error(transparent)]
    Service(#[from] RpcError),
}

impl Kinded for GatewayError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Kind(_) | Self::NoStore => ErrorKind::Invalid,
            Self::NotFound { .. } => ErrorKind::NotFound,
            Self::NotSynced | Self::NoCluster | Self::NotLeader | Self::Adopting => ErrorKind::Unavailable,
            Self::NoEndpoint | Self::OtherStore { .. } => ErrorKind::Precondition,
            Self::Service(error) => error.kind,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::NoEndpoint => "ENDPOINT_NOT_CONFIGURED",
            Self::Kind(_) => "UNKNOWN_KIND",
            Self::NotFound { .. } => "OBJECT_NOT_FOUND",
            Self::NotSynced => "NOT_SYNCED",
            Self::NoCluster => "CLUSTER_UNKNOWN",
            Self::NotLeader => "NOT_LEADER",
            Self::NoStore => "STORE_ID_EMPTY",
            Self::OtherStore { .. } => "OTHER_STORE",
            Self::Adopting => "ADOPTING",
            Self::Service(error) => error.reason(),
        }
    }
}

impl From<GatewayError> for Status {
    fn from(error: GatewayError) -> Self {
        let mut details = Details::default();
        match &error {
            GatewayError::Service(error) => return forward("gateway", error),
            GatewayError::NotFound { kind, name } => {
                details.resource = Some(((*kind).to_owned(), name.clone()));
            }
            GatewayError::Kind(_) => details.violations.push(("kind".to_owned(), error.to_string())),
            GatewayError::NoStore => details
                .violations
                .push(("store_id".to_owned(), error.to_string())),
            GatewayError::OtherStore { present, .. } => {
                details.metadata.push(("store_id".to_owned(), present.clone()));
            }
            _ => {}
        }
        status("gateway", &error, details)
    }
}
