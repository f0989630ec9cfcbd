//! Decisions, without I/O.

mod ask;
mod endpoint;
mod settle;

pub(crate) use ask::{Ask, Wanted};
pub(crate) use endpoint::{End, Move, Step, Wish};
pub(crate) use settle::{Choice, Held, Needs, Plan, Refusal, covers, settle};
