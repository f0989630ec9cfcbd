//! Tells ipam what the cluster's objects hold, and whether its store is the one that this cluster trusts.
//!
//! ```text
//!            leader, Services listed
//!  Waiting ───────────────────────────► Adopt(complete snapshot, trusted store) ──► Adopted ──► follow the pools
//!     ▲                                        │ UNKNOWN_STORE                        │
//!     │                                        ▼                                      │ stream ended, ADOPTING was heard,
//!     └── lost the lease                    Refused ──AcceptStore──► Adopt            └─ store changed, revision went back: Adopt
//! ```
//!
//! Invariants: one Adopt at a time, by one task, while we lead. The snapshot is complete: it is made from a cache that has listed
//! everything. The trusted store's id and its highest revision stand in the lease's annotations, so that the next leader knows
//! them; a store that is another one, or an older one, cannot hand out addresses that Services hold.

mod runner;
mod snapshot;

use std::sync::Arc;

use groundplane_runtime::Context;

use crate::gateway::Gateway;

/// Starts it.
pub(crate) fn start(gateway: &Arc<Gateway>, context: &Context) {
    let gateway = Arc::clone(gateway);
    context.tasks.spawn("adoption", async move {
        tokio::select! {
            () = gateway.stopping.cancelled() => {}
            () = runner::run(&gateway) => {}
        }
    });
}

#[cfg(test)]
mod tests;
