//! Decisions, without I/O.

mod find;
mod monitor;
mod rank;
mod settings;
mod situation;
mod tally;

pub use monitor::{Decision, Monitor, Observed, Step, Turn};
pub use settings::Settings;
pub use situation::{Candidate, Cause, Event, Holder, Situation};
pub use tally::{Change, Outcome, Sign, Tally};
