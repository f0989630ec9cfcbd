//! The service in this process: with the cloud in a box behind the `equinix` driver, and with an ipam that answers as told.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code outside of test functions"
)]

mod any_cloud;
mod cloud;
mod endpoint;
mod left;
mod pools;
mod world;
