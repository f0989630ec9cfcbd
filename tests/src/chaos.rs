//! Random faults by a seed: the plan of a run, which the simulation and the runs on a real API server share.

mod plan;

pub use plan::{Action, Plan, Scale};
