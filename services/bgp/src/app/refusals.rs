//! Sessions that the cloud would not make: not asked for again with each look at a machine that has others.

use std::collections::BTreeMap;
use std::time::Duration;

use groundplane_core::{Family, ProviderId};
use parking_lot::Mutex;
use tokio::time::Instant;

/// How long a refusal stands. Machines are looked at every few minutes, and a machine that may not speak IPv6 today may next to never do so
/// in the same hour.
const STANDS: Duration = Duration::from_secs(3600);

/// When which session was refused.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<BTreeMap<(ProviderId, Family), Instant>>);

impl Refusals {
    /// The cloud refused it for good, just now. What does not stand any more goes.
    pub(super) fn remember(&self, machine: &ProviderId, family: Family) {
        let mut refusals = self.0.lock();
        refusals.retain(|_, since| since.elapsed() < STANDS);
        refusals.insert((machine.clone(), family), Instant::now());
    }

    /// Is it not to be asked for now?
    pub(super) fn stands(&self, machine: &ProviderId, family: Family) -> bool {
        let refusals = self.0.lock();
        let since = refusals.get(&(machine.clone(), family));
        since.is_some_and(|since| since.elapsed() < STANDS)
    }
}
