//! Decisions, without I/O.

mod verdict;

pub use verdict::{Candidate, Event, Monitor, Settings, Verdict};
