//! Random faults by a seed: what the simulations and the runs on a real API server have in common. The plan of a run, which seeds are run,
//! how what happens is written down and counted, and what people have in MetalLB's configuration.

mod chronicle;
mod clock;
mod contracts;
pub mod endpoint;
mod faults;
pub mod metallb;
mod plan;
mod seeds;
mod shifted;

pub use chronicle::{Chronicle, Fuse, Tally, add_up, missing};
pub use clock::WallClock;
pub use contracts::contracts_of;
pub use faults::{API_FAULTS, api_fault_name, api_plan};
pub use plan::{Action, Announcer, Plan, Scale};
pub use seeds::{number_from, run_seeds};
pub use shifted::ShiftedClock;
