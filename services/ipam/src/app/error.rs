//! Everything that a call may be refused for.

use groundplane_core::{ClusterId, ErrorKind, Kinded, Revision};

use crate::domain::{PutPoolsError, Refusal};
use crate::ports::StoreError;

/// Why a call failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum IpamError {
    /// Fields of the request, each with what is wrong.
    #[error("{}", fields(.0))]
    Invalid(Vec<(String, String)>),
    /// The cluster has not told what its objects hold.
    #[error("cluster `{0}` has to tell what its objects hold (Adopt) before addresses are given or taken")]
    Adopting(ClusterId),
    /// The cluster trusts another store.
    #[error(
        "the cluster trusts store `{theirs}`, and this is store `{ours}`: bring the right store back, or make the cluster \
         accept this one"
    )]
    UnknownStore {
        /// This store.
        ours: String,
        /// The store that the cluster trusts.
        theirs: String,
    },
    /// The decision was no.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The pools were not taken.
    #[error(transparent)]
    Pools(#[from] PutPoolsError),
    /// The store did not write.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The process stops.
    #[error("ipam is stopping")]
    Stopping,
    /// A watch resumes from what is forgotten.
    #[error(
        "revision {from} cannot be resumed from; changes are known from {floor} to {newest}: watch from 0"
    )]
    Compacted {
        /// Where the watch would resume.
        from: Revision,
        /// The oldest revision behind which everything is known.
        floor: Revision,
        /// The newest one.
        newest: Revision,
    },
    /// Not there yet.
    #[error("{0} arrives with floating pod addresses")]
    Unsupported(&'static str),
}

impl IpamError {
    /// One field that is wrong.
    pub fn field(field: impl Into<String>, message: impl std::fmt::Display) -> Self {
        Self::Invalid(vec![(field.into(), message.to_string())])
    }
}

fn fields(fields: &[(String, String)]) -> String {
    let texts: Vec<_> = fields
        .iter()
        .map(|(field, text)| format!("{field}: {text}"))
        .collect();
    texts.join("; ")
}

impl Kinded for IpamError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Invalid(_) | Self::Pools(PutPoolsError::Problems(_)) => ErrorKind::Invalid,
            Self::Adopting(_) | Self::Stopping => ErrorKind::Unavailable,
            Self::UnknownStore { .. } => ErrorKind::Precondition,
            Self::Refused(refusal) => refusal.kind(),
            Self::Pools(PutPoolsError::Stale { .. }) => ErrorKind::Conflict,
            Self::Store(error) => error.kind(),
            Self::Compacted { .. } => ErrorKind::Compacted,
            Self::Unsupported(_) => ErrorKind::Unsupported,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "INVALID_REQUEST",
            Self::Pools(PutPoolsError::Problems(_)) => "INVALID_POOLS",
            Self::Adopting(_) => "ADOPTING",
            Self::Stopping => "STOPPING",
            Self::UnknownStore { .. } => "UNKNOWN_STORE",
            Self::Refused(refusal) => refusal.reason(),
            Self::Pools(PutPoolsError::Stale { .. }) => "STALE_SNAPSHOT",
            Self::Store(error) => error.reason(),
            Self::Compacted { .. } => "COMPACTED",
            Self::Unsupported(_) => "NOT_IMPLEMENTED",
        }
    }
}
