//! What is known of machines' peers, when to ask again, and in which families. Pure.

pub(crate) mod families;
mod known;

pub(crate) use known::{Known, Peering, Step};
