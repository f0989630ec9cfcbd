//! Records: what is known of one prefix, durably.

use std::sync::Arc;

use groundplane_core::{NetworkName, Owner, PoolId, Prefix, Revision};
use jiff::Timestamp;

/// Where a record stands: an address space, and a prefix in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The address space.
    pub network: NetworkName,
    /// One address or a block.
    pub prefix: Prefix,
}

/// One address or block, and who holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Which prefix, in which network.
    pub key: Key,
    /// Who holds it.
    pub owner: Arc<Owner>,
    /// UID of the object that holds it; empty where it was not told.
    pub uid: Arc<str>,
    /// The pool that it was given from. Which pool covers it today is the ledger's to say.
    pub pool: Option<Arc<PoolId>>,
    /// Since when.
    pub since: Timestamp,
    /// Revision of the store at its last change.
    pub revision: Revision,
}

/// A prefix that was released, and is given again only when its time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cooling {
    /// When it was released.
    pub released: Timestamp,
    /// Revision of the store then.
    pub revision: Revision,
}

/// What is known of a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Somebody holds it.
    Held(Arc<Allocation>),
    /// Nobody holds it any more.
    Cooling(Cooling),
}

impl Record {
    /// Revision of the store at the last change of this record.
    pub fn revision(&self) -> Revision {
        match self {
            Self::Held(allocation) => allocation.revision,
            Self::Cooling(cooling) => cooling.revision,
        }
    }
}

/// One record, from what it was to what it becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which record.
    pub key: Key,
    /// What it was; `None`: there was none.
    pub old: Option<Record>,
    /// What it becomes; `None`: it goes.
    pub new: Option<Record>,
    /// The revision that this change makes. No two changes share one.
    pub revision: Revision,
}

impl Change {
    /// The change that takes this one back.
    #[must_use]
    pub fn reversed(&self) -> Self {
        Self {
            key: self.key.clone(),
            old: self.new.clone(),
            new: self.old.clone(),
            revision: self.revision,
        }
    }
}
