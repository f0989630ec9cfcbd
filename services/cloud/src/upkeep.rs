//! Keeps an inventory warm, and tells by readiness how that goes.

use std::time::Duration;

use groundplane_runtime::{Backoff, Component, Tasks};

use crate::Inventory;

/// Pauses after reads that failed. Short, so that a cloud that is back is noticed soon.
const PAUSES: Backoff = Backoff {
    first: Duration::from_secs(1),
    longest: Duration::from_secs(10),
};

/// Reads `inventory` now and whenever it is older than `max_age`, until the process stops. `component` is ready while the last
/// read was good; else it says what went wrong. A cloud that is away at the start ends nothing.
pub fn keep<T: Clone + Send + Sync + 'static>(
    inventory: &Inventory<T>,
    component: Component,
    max_age: Duration,
    tasks: &Tasks,
) {
    let (inventory, stop) = (inventory.clone(), tasks.token());
    tasks.spawn("cloud-upkeep", async move {
        let mut failures = 0;
        loop {
            let wait = match inventory.get(max_age).await {
                Ok(_) => {
                    component.ready();
                    failures = 0;
                    max_age.max(PAUSES.first)
                }
                Err(error) => {
                    component.not_ready(error.to_string());
                    failures += 1;
                    error.retry_after.unwrap_or_else(|| PAUSES.pause(failures - 1))
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    });
}
