//! Stores: one in a file, one in memory.

pub mod memory;
pub mod redb;
mod stored;

#[cfg(test)]
mod contract;
