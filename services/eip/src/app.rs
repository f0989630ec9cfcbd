//! Use cases.

mod cloud;
mod endpoint;
mod turns;

pub(crate) use cloud::{Answer, Audited, CloudEips, Given, Missing, Released};
pub(crate) use endpoint::{ApiEndpoint, Moved, Seen};

use crate::adapters::Pools;

/// Where addresses come from, as configured.
#[derive(Clone, Debug)]
pub(crate) enum Eip {
    /// From ipam's pools.
    Pools(Box<Pools>),
    /// From the cloud.
    Cloud(CloudEips),
    /// From another process: this one serves the API endpoint alone.
    Elsewhere,
}
