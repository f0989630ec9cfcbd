//! ipam: which address belongs to whom.

pub mod adapters;
pub mod domain;
pub mod ports;
