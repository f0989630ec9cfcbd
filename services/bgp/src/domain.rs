//! What is known of machines' peers, and when to ask again. Pure.

mod known;

pub(crate) use known::{Known, Peering, Step};
