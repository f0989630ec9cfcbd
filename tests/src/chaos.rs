//! Random faults by a seed: the plan of a run, which the simulation and the runs on a real API server share, and which seeds are run.

mod plan;
mod seeds;

pub use plan::{Action, Plan, Scale};
pub use seeds::{number_from, run_seeds};
