//! Why there is no address: what a person, and a program, can do something about.

use std::sync::Arc;

use groundplane_core::{ErrorKind, Kinded, Owner, PoolId, PoolName, Prefix};

use super::allocate::Want;

/// Why there is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No pool covers it, or none that this owner may use.
    #[error("{0}")]
    OutsidePools(String),
    /// A pool covers it and excludes it.
    #[error("{prefix} is excluded from pool `{pool}`, or is the edge of a network")]
    Reserved {
        /// What was asked for.
        prefix: Prefix,
        /// The pool.
        pool: PoolId,
    },
    /// Only pools that their sources no longer have.
    #[error("pool `{0}` is being removed and gives no new addresses")]
    Draining(PoolId),
    /// Another object of that name.
    #[error("{owner} holds {held} with UID `{uid}`, which is another object; it has to be released first")]
    UidMismatch {
        /// Who asks.
        owner: Box<Owner>,
        /// What is held.
        held: Prefix,
        /// By which object.
        uid: Arc<str>,
    },
    /// The owner holds something else of that family.
    #[error("{owner} holds {held}; release or move it before asking for {wanted}")]
    AlreadyHolds {
        /// Who asks.
        owner: Box<Owner>,
        /// What it holds.
        held: Prefix,
        /// What it asks for.
        wanted: Want,
    },
    /// Somebody else holds it, or a part of it.
    #[error("{prefix} is taken by {holder}")]
    Taken {
        /// What was asked for.
        prefix: Prefix,
        /// Who holds it.
        holder: Arc<Owner>,
    },
    /// No such pool, or none that serves this owner.
    #[error("{0}")]
    PoolNotFound(String),
    /// The pool's name says too little.
    #[error("pool name `{name}` is ambiguous: {}", join(.candidates))]
    PoolAmbiguous {
        /// The name.
        name: PoolName,
        /// The pools of that name.
        candidates: Vec<PoolId>,
    },
    /// All that could serve are full.
    #[error("no room for {want} in {}{}", pools_text(.pools), held_back_text(*.held_back))]
    Exhausted {
        /// What was asked for.
        want: Want,
        /// The pools that were tried.
        pools: Vec<PoolId>,
        /// Addresses that are free there, but reserved.
        held_back: u128,
    },
    /// The namespace holds as many as it may.
    #[error("objects of this namespace may hold {limit} addresses, and hold {held}")]
    Quota {
        /// The most.
        limit: u64,
        /// How many they hold.
        held: u64,
    },
}

fn join(pools: &[PoolId]) -> String {
    pools
        .iter()
        .map(|pool| format!("`{pool}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

fn pools_text(pools: &[PoolId]) -> String {
    format!(
        "{} {}",
        if pools.len() == 1 { "pool" } else { "pools" },
        join(pools)
    )
}

fn held_back_text(count: u128) -> String {
    match count {
        0 => String::new(),
        count => format!("; {count} more are reserved for who asks for them by address"),
    }
}

impl Kinded for Refusal {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::OutsidePools(_)
            | Self::Reserved { .. }
            | Self::Draining(_)
            | Self::UidMismatch { .. }
            | Self::AlreadyHolds { .. } => ErrorKind::Precondition,
            Self::Taken { .. } => ErrorKind::AlreadyExists,
            Self::PoolNotFound(_) => ErrorKind::NotFound,
            Self::PoolAmbiguous { .. } => ErrorKind::Invalid,
            Self::Exhausted { .. } | Self::Quota { .. } => ErrorKind::Exhausted,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::OutsidePools(_) => "OUTSIDE_POOLS",
            Self::Reserved { .. } => "ADDRESS_RESERVED",
            Self::Draining(_) => "POOL_DRAINING",
            Self::UidMismatch { .. } => "UID_MISMATCH",
            Self::AlreadyHolds { .. } => "ALREADY_HOLDS",
            Self::Taken { .. } => "ADDRESS_TAKEN",
            Self::PoolNotFound(_) => "POOL_NOT_FOUND",
            Self::PoolAmbiguous { .. } => "POOL_AMBIGUOUS",
            Self::Exhausted { .. } => "POOL_EXHAUSTED",
            Self::Quota { .. } => "QUOTA_EXCEEDED",
        }
    }
}
