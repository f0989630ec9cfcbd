//! What ipam needs of the world: a place that remembers.

use std::fmt;
use std::sync::Arc;

use groundplane_core::{ErrorKind, Kinded, Revision};

use crate::domain::{Change, Key, Record};

/// A durable store of records.
///
/// One owner writes to it, by batches. Each change of a batch is a compare-and-swap of one record: it is refused where the
/// stored record is not the one that the change starts from. A batch is written completely or not at all, and is safe from
/// a crash once `commit` returns `Ok`. After `Err` nothing of it is ever seen by this owner.
pub(crate) trait Store: fmt::Debug + Send {
    /// `redb` or `memory`.
    fn kind(&self) -> &'static str;

    /// Everything that is stored.
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`] where a record cannot be read.
    fn load(&mut self) -> Result<Loaded, StoreError>;

    /// Writes a batch, and the revision that it makes.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`]: nothing was written; a later commit may succeed, without a restart.
    /// [`StoreError::Corrupt`]: a person must look.
    fn commit(&mut self, revision: Revision, changes: &[&Change]) -> Result<(), StoreError>;
}

/// What was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Loaded {
    /// Made once with the store.
    pub id: String,
    /// Of the last batch.
    pub revision: Revision,
    /// In the order of their keys.
    pub records: Vec<(Key, Record)>,
}

/// Why a store did not do what it was asked. Cheap to clone: a batch that fails tells all its callers.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Disk full, I/O error. It may end by itself.
    #[error("the store cannot write: {0}")]
    Unavailable(Arc<str>),
    /// Stored data is damaged, or not what it should be. It is left as it is.
    #[error("the store is damaged, and left as it is: {0}")]
    Corrupt(Arc<str>),
    /// Another process has it.
    #[error(
        "the store {0} is in use by another process; stop that one first, or give this one a file of its own"
    )]
    InUse(Arc<str>),
}

impl Kinded for StoreError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Unavailable(_) | Self::InUse(_) => ErrorKind::Unavailable,
            Self::Corrupt(_) => ErrorKind::Corrupt,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Unavailable(_) | Self::InUse(_) => "STORE_UNAVAILABLE",
            Self::Corrupt(_) => "STORE_CORRUPT",
        }
    }
}
