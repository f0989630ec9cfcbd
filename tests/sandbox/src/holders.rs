//! Which machines hold which addresses, from the first change to the last: what a test needs to prove that an address never had two
//! holders, and what it waits for instead of asking again and again.

use std::net::IpAddr;
use std::time::Instant;

use tokio::sync::watch;

use crate::ident::{AssignmentId, DeviceId};
use crate::model::Assignment;

/// An assignment that was made, or went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderChange {
    /// When. Changes are in the order in which they happened.
    pub at: Instant,
    /// The address.
    pub address: IpAddr,
    /// The assignment.
    pub assignment: AssignmentId,
    /// The machine.
    pub device: DeviceId,
    /// Made, or else taken away.
    pub given: bool,
}

/// All changes of a project. Machines' own addresses are not among them.
#[derive(Debug)]
pub(crate) struct Holders {
    began: Instant,
    changes: Vec<HolderChange>,
    count: watch::Sender<usize>,
}

impl Holders {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            changes: Vec::new(),
            count: watch::Sender::new(0),
        }
    }

    pub(crate) fn record(&mut self, assignment: &Assignment, given: bool) {
        if assignment.management {
            return;
        }
        self.changes.push(HolderChange {
            at: Instant::now(),
            address: assignment.address,
            assignment: assignment.id,
            device: assignment.device,
            given,
        });
        self.count.send_replace(self.changes.len());
    }

    /// The changes of one address.
    pub(crate) fn of(&self, address: IpAddr) -> impl Iterator<Item = &HolderChange> {
        self.changes
            .iter()
            .filter(move |change| change.address == address)
    }

    /// Microseconds since the project was made.
    pub(crate) fn micros(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.began).as_micros()).unwrap_or(u64::MAX)
    }

    /// How many changes there were, now and from now on.
    pub(crate) fn watch(&self) -> watch::Receiver<usize> {
        self.count.subscribe()
    }
}

/// How many machines held the address at the moment at which most did.
pub fn most_holders<'a>(changes: impl IntoIterator<Item = &'a HolderChange>) -> usize {
    let (mut now, mut most) = (0_usize, 0);
    for change in changes {
        now = if change.given {
            now + 1
        } else {
            now.saturating_sub(1)
        };
        most = most.max(now);
    }
    most
}
