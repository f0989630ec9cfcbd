//! What an owner asks for.

use groundplane_cloud::Placement;
use groundplane_core::{Family, Owner, Prefix};

/// What an owner wants in one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) family: Family,
    /// The very address; `None`: any.
    pub(crate) address: Option<Prefix>,
    /// What the owner's status has now: of several that it holds, this one stays.
    pub(crate) in_use: Option<Prefix>,
    /// Where it cannot be had, do without it.
    pub(crate) optional: bool,
}

/// A request for addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) owner: Owner,
    /// At most one a family.
    pub(crate) wanted: Vec<Wanted>,
    pub(crate) placement: Placement,
    /// Read the cloud anew.
    pub(crate) fresh: bool,
    /// Others that let this owner share what they hold.
    pub(crate) sharers: Vec<Owner>,
    /// Reservations of an older controller, by id, that a person has said to be this owner's.
    pub(crate) adopt: Vec<String>,
}

/// Somebody who goes on using addresses that their owner lets go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Heir {
    pub(crate) owner: Owner,
    pub(crate) addresses: Vec<Prefix>,
}
