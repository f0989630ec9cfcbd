//! What tests of other crates need: a cloud in memory, and the contracts that every driver is held to.
//!
//! A contract panics where it is broken. It wants a cloud furnished as its arguments say, and leaves nothing behind but what it says.

mod contract;
mod endpoint;
mod endpoint_contract;
mod fake;
pub mod loopback;
#[cfg(test)]
pub(crate) mod overheard;
#[cfg(test)]
pub(crate) mod sandbox_cases;
#[cfg(test)]
pub(crate) mod sandboxed;

pub use contract::{bgp_fabric_contract, elastic_ips_contract, machine_source_contract};
pub use endpoint::{
    EndpointAnswer, EndpointCall, EndpointChange, EndpointEffect, EndpointFault, FakeEndpoint,
};
pub use endpoint_contract::endpoint_ips_contract;
pub use fake::{FakeCloud, Operation};
