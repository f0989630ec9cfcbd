//! Stores: one in a file, one in memory.

pub(crate) mod memory;
pub(crate) mod redb;
mod stored;

#[cfg(test)]
mod contract;
