//! The changes of one decision, as they are put together.

use std::sync::Arc;

use groundplane_core::{Prefix, Revision};
use jiff::Timestamp;

use super::ledger::Ledger;
use super::network::Network;
use super::record::{Allocation, Change, Cooling, Key, Record};

/// Collects the changes of one decision, each with a revision of its own.
pub(super) struct Draft {
    revision: Revision,
    pub(super) changes: Vec<Change>,
}

impl Draft {
    pub(super) fn new(ledger: &Ledger) -> Self {
        Self::with_capacity(ledger, 1)
    }

    /// With room for as many changes as are likely.
    pub(super) fn with_capacity(ledger: &Ledger, changes: usize) -> Self {
        Self {
            revision: ledger.revision(),
            changes: Vec::with_capacity(changes),
        }
    }

    pub(super) fn change(
        &mut self,
        key: Key,
        old: Option<Record>,
        new: impl FnOnce(Revision) -> Option<Record>,
    ) {
        self.revision = self.revision.next();
        self.changes.push(Change {
            key,
            old,
            new: new(self.revision),
            revision: self.revision,
        });
    }

    /// Gives a prefix that nobody holds to `owner`. What cools down there is forgotten; of a block, the rest goes on
    /// cooling, unless it was released no later than `ripe`.
    pub(super) fn hold(&mut self, network: &Network, new: Allocation, ripe: Timestamp) -> Arc<Allocation> {
        let prefix = new.key.prefix;
        let mut old = None;
        for (cooled, cooling) in network.cooling_in(prefix.range()) {
            if cooled == prefix {
                old = Some(Record::Cooling(cooling));
                continue;
            }
            let at = |prefix| Key {
                network: new.key.network.clone(),
                prefix,
            };
            self.change(at(cooled), Some(Record::Cooling(cooling)), |_| None);
            if cooling.released > ripe {
                for rest in around(prefix, cooled) {
                    self.change(at(rest), None, |revision| {
                        Some(Record::Cooling(Cooling { revision, ..cooling }))
                    });
                }
            }
        }
        self.replace(old, new)
    }

    /// Puts an allocation in the place of `old`.
    pub(super) fn replace(&mut self, old: Option<Record>, mut new: Allocation) -> Arc<Allocation> {
        self.revision = self.revision.next();
        if matches!(&old, Some(Record::Held(held)) if held.owner != new.owner) {
            // A release and an allocation at once: watches tell each with a revision of its own.
            self.revision = self.revision.next();
        }
        new.revision = self.revision;
        let (key, allocation) = (new.key.clone(), Arc::new(new));
        let record = Some(Record::Held(Arc::clone(&allocation)));
        self.changes.push(Change {
            key,
            old,
            new: record,
            revision: self.revision,
        });
        allocation
    }
}

/// The prefixes that make up `whole` together with `part`; none, where `part` is not within `whole`.
fn around(part: Prefix, whole: Prefix) -> Vec<Prefix> {
    if !whole.range().contains(part.range()) {
        return Vec::new();
    }
    let (family, first) = (part.family(), part.range().first());
    let sibling = |length: u8| {
        let bit = 1_u128 << (family.bits() - length);
        let number = (first ^ bit) & !(bit - 1);
        Prefix::new(family.address(number)?, length).ok()
    };
    (whole.length() + 1..=part.length()).filter_map(sibling).collect()
}
