//! Since when which reservation has been nobody's: pure.
//!
//! A process that starts anew, or leads anew, knows nothing: the grace begins again, which is the safe side.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::time::Instant;

#[derive(Debug)]
struct Seen {
    since: Instant,
    told: bool,
}

/// Reservations that were seen without an owner, by id, each time since it was first seen so.
#[derive(Debug, Default)]
pub(super) struct Ledger(HashMap<String, Seen>);

impl Ledger {
    /// These are nobody's now. One that was explained in between starts anew. Returns those that have been it for the grace, in order.
    pub(super) fn see(&mut self, orphans: &HashSet<String>, now: Instant, grace: Duration) -> Vec<String> {
        self.0.retain(|id, _| orphans.contains(id));
        for id in orphans {
            self.0.entry(id.clone()).or_insert(Seen {
                since: now,
                told: false,
            });
        }
        let is_due = |seen: &Seen| now.saturating_duration_since(seen.since) >= grace;
        let mut due: Vec<_> = self
            .0
            .iter()
            .filter(|(_, seen)| is_due(seen))
            .map(|(id, _)| id.clone())
            .collect();
        due.sort();
        due
    }

    /// Is this the first time that it is told of?
    pub(super) fn tell(&mut self, id: &str) -> bool {
        self.0
            .get_mut(id)
            .is_some_and(|seen| !std::mem::replace(&mut seen.told, true))
    }

    /// Nothing is known any more.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[&str]) -> HashSet<String> {
        ids.iter().map(|id| (*id).to_owned()).collect()
    }

    /// E51: the grace counts while it is nobody's without a break.
    #[test]
    fn the_grace_has_no_gaps() {
        let (grace, start) = (Duration::from_secs(60), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut ledger = Ledger::default();
        assert_eq!(ledger.see(&ids(&["a", "b"]), start, grace), [""; 0]);
        assert_eq!(ledger.see(&ids(&["a"]), after(30), grace), [""; 0]);
        assert_eq!(ledger.see(&ids(&["b", "a"]), after(60), grace), ["a"]);
        assert_eq!(ledger.see(&ids(&["b", "a"]), after(120), grace), ["a", "b"]);
        ledger.forget();
        assert_eq!(ledger.see(&ids(&["a"]), after(180), grace), [""; 0]);
    }

    #[test]
    fn each_is_told_of_once() {
        let mut ledger = Ledger::default();
        ledger.see(&ids(&["a"]), Instant::now(), Duration::ZERO);
        assert!(ledger.tell("a") && !ledger.tell("a") && !ledger.tell("b"));
        ledger.see(&ids(&[]), Instant::now(), Duration::ZERO);
        ledger.see(&ids(&["a"]), Instant::now(), Duration::ZERO);
        assert!(ledger.tell("a"));
    }
}
