//! What kind of failure an error is: what a caller may do about it, never how it came about.

/// Kinds of failure. Each maps to one gRPC code (`groundplane-runtime`, `grpc::status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorKind {
    /// The request itself is wrong. Sending it again is of no use.
    Invalid,
    /// What the request names does not exist.
    NotFound,
    /// What the request creates exists, and differs.
    AlreadyExists,
    /// A race was lost: read again, then decide again.
    Conflict,
    /// The state forbids it (in use, adopting elsewhere). No use until the state changes.
    Precondition,
    /// A pool is empty or a quota is spent.
    Exhausted,
    /// The caller did not say who it is.
    Unauthenticated,
    /// The caller may not do this.
    Denied,
    /// A dependency is away, or busy. Try again later.
    Unavailable,
    /// The time ran out. The effect may or may not have happened.
    Timeout,
    /// A watch resumes from a revision that is gone. Start it again.
    Compacted,
    /// Not implemented, or not by this driver.
    Unsupported,
    /// Stored data is damaged. A person must act.
    Corrupt,
    /// A defect of ours.
    Internal,
}

impl ErrorKind {
    /// May the same call be sent again, unchanged, after a pause? True only where every groundplane mutation is safe
    /// to repeat under its owner.
    pub fn is_retryable(self) -> bool {
        matches!(self, Self::Unavailable | Self::Timeout | Self::Conflict)
    }
}

/// An error which says its kind, and a stable reason for programs.
pub trait Kinded: std::error::Error {
    /// What a caller may do about it.
    fn kind(&self) -> ErrorKind;
    /// `UPPER_SNAKE`, stable across releases; goes into `google.rpc.ErrorInfo.reason`.
    fn reason(&self) -> &'static str;
}
