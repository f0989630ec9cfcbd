//! What ipam knows and how it decides: pure, synchronous, without I/O. Time comes in as an argument.
//!
//! ```text
//! Ledger ─┬─ sources        whose pools, as last told
//!         └─ Network ─┬─ allocations, by prefix (never two that overlap) and by owner
//!                     ├─ cooling      released prefixes, durable
//!                     └─ pools ─ Space a family: what is free (derived from all of the above)
//! ```
//!
//! Every change is a [`Change`] of one record, from old to new. Applied it moves the ledger forward; reversed, back.
//! [`Ledger::check`] rebuilds all that is derived and compares.

mod adopt;
mod allocate;
mod cooldown;
mod draft;
mod explain;
mod free_set;
mod ledger;
mod network;
mod pool;
mod record;
mod refusal;
mod release;
mod space;

pub use adopt::{Adoption, AdoptionRequest, Conflict, Holding};
pub use allocate::{Ask, Missing, Plan, PoolChoice, Quota, Selector, Want, Wanted};
pub use explain::{Explanation, Verdict};
pub use free_set::FreeSet;
pub use ledger::{Ledger, PoolStatus, PutPoolsError, PutPoolsOutcome};
pub use pool::{PoolConfig, PoolProblem, PoolRange, PoolSpec, read_pools};
pub use record::{Allocation, Change, Cooling, Key, Record};
pub use refusal::Refusal;
pub use release::{MoveAsk, ReleaseAsk};

#[cfg(test)]
mod tests;
