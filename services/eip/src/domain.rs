//! Decisions, without I/O.

mod ask;
mod audit;
mod endpoint;
mod settle;
mod tags;

pub(crate) use ask::{Ask, Heir, Wanted};
pub(crate) use audit::{Finding, Marks, Population, Standing, audit, is_endpoint};
pub(crate) use endpoint::{End, Move, Step, Wish};
pub(crate) use settle::{Bequest, Choice, Held, Needs, Plan, Refusal, covers, settle};
pub(crate) use tags::{has_all, own_tag, passed_on};
