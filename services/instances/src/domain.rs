//! Which machine is behind a node. Pure.

mod find;
mod sought;

pub(crate) use find::{Found, find};
pub(crate) use sought::{Sought, SoughtError};
