//! One call at a time for each owner; owners do not wait for each other.

use std::collections::HashMap;
use std::sync::Arc;

use groundplane_core::Owner;
use parking_lot::Mutex;
use tokio::sync::{Mutex as Gate, OwnedMutexGuard};

/// The owners that are being served, and who waits for them.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<HashMap<Owner, Arc<Gate<()>>>>);

/// An owner's turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    owner: Owner,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Turns {
    /// Waits for the owner's turn.
    pub(crate) async fn take(&self, owner: &Owner) -> Turn<'_> {
        let gate = Arc::clone(self.0.lock().entry(owner.clone()).or_default());
        // Made before the wait: a caller that gives up puts away behind itself, too.
        let mut turn = Turn {
            turns: self,
            owner: owner.clone(),
            guard: None,
        };
        turn.guard = Some(gate.lock_owned().await);
        turn
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.guard.take();
        let mut owners = self.turns.0.lock();
        // Whoever waits holds a count of its own, taken under this lock.
        if owners
            .get(&self.owner)
            .is_some_and(|gate| Arc::strong_count(gate) == 1)
        {
            owners.remove(&self.owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn owner(name: &str) -> Owner {
        Owner::service(
            "c".parse().unwrap(),
            "default".parse().unwrap(),
            name.parse().unwrap(),
        )
    }

    #[tokio::test]
    async fn an_owner_waits_for_itself_and_for_nobody_else() {
        let turns = Turns::default();
        let first = turns.take(&owner("a")).await;
        assert!(turns.take(&owner("a")).now_or_never().is_none());
        assert!(turns.take(&owner("b")).now_or_never().is_some());
        drop(first);
        assert!(turns.take(&owner("a")).now_or_never().is_some());
    }

    #[tokio::test]
    async fn nothing_is_kept_of_owners_that_are_done_or_gave_up() {
        let turns = Turns::default();
        let first = turns.take(&owner("a")).await;
        let again = owner("a");
        let mut second = Box::pin(turns.take(&again));
        assert!((&mut second).now_or_never().is_none());
        drop(second);
        drop(first);
        assert!(turns.0.lock().is_empty());
    }
}
