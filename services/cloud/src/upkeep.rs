//! Keeps an inventory warm, and tells by readiness how that goes.

use std::time::Duration;

use groundplane_runtime::{Component, Tasks};

use crate::Inventory;

/// Pauses after a read that failed: the first, and the longest. Short, so that a cloud that is back is noticed soon.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

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
        let mut pause = FIRST_PAUSE;
        loop {
            let wait = match inventory.get(max_age).await {
                Ok(_) => {
                    component.ready();
                    pause = FIRST_PAUSE;
                    max_age.max(FIRST_PAUSE)
                }
                Err(error) => {
                    component.not_ready(error.to_string());
                    let wait = error.retry_after.unwrap_or(pause);
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    wait
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    });
}
