//! Taking a running cluster over from an older controller: what it has left, what becomes of it, and the little that needs a person's
//! word.
//!
//! ```text
//! gather (reads the cluster and the cloud) ──Facts──► plan (pure) ──► items, and an id that stands for what a person decides
//!                                                                        └──id──► apply: gathers anew, and goes on if it is the same plan
//! ```
//!
//! Nearly all of it the controllers do by themselves, as they always do. What they do not do is give a Service a reservation of which
//! nothing but a name says that it is this cluster's: another cluster may have a Service of that name.

mod apply;
mod gather;
mod plan;

pub(crate) use apply::{ApplyError, Outcome, apply};
pub(crate) use gather::{GatherError, gather};
pub(crate) use plan::{Action, Item, plan};
