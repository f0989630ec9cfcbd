//! Decisions, without I/O.

mod ask;
mod settle;

pub(crate) use ask::{Ask, Wanted};
pub(crate) use settle::{Choice, Held, Needs, Plan, Refusal, covers, settle};
