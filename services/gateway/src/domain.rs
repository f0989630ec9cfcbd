//! Decisions that several parts of the gateway need: pure and synchronous, over what the cache holds of an object.
//!
//! Knows no task, no client and no message. The controllers act on it, adoption tells ipam of it, and gRPC explains it; none of
//! them asks another. What only one controller decides stands beside it, as its `plan`.

pub(crate) mod service;
