//! One look at a time at who has an address that Services name.
//!
//! Two Services that name one address are reconciled at the same time, and each must see what the other got. Only the leader gives
//! addresses, so locks of one process are enough.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;

use tokio::sync::{Mutex, MutexGuard};

/// So many addresses are looked at at a time, at most.
const ROOMS: usize = 64;

/// A lock for each address; several share one.
#[derive(Debug)]
pub(crate) struct Rooms(Vec<Mutex<()>>);

impl Default for Rooms {
    fn default() -> Self {
        Self((0..ROOMS).map(|_| Mutex::default()).collect())
    }
}

impl Rooms {
    /// Waits until nobody else looks at any of these addresses, and keeps others from it.
    pub(crate) async fn enter(&self, addresses: &[IpAddr]) -> Vec<MutexGuard<'_, ()>> {
        let mut rooms: Vec<usize> = addresses.iter().map(room).collect();
        // All in one order, so that nobody waits for somebody who waits for them.
        rooms.sort_unstable();
        rooms.dedup();
        let mut held = Vec::with_capacity(rooms.len());
        for room in rooms.into_iter().filter_map(|room| self.0.get(room)) {
            held.push(room.lock().await);
        }
        held
    }
}

fn room(address: &IpAddr) -> usize {
    let mut hasher = DefaultHasher::new();
    address.hash(&mut hasher);
    usize::try_from(hasher.finish() % 64).unwrap_or_default() % ROOMS
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn one_address_is_one_room() {
        let rooms = Rooms::default();
        let (one, other): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        assert_ne!(room(&one), room(&other), "or the test says nothing");
        let held = rooms.enter(&[one, other, one]).await;
        assert_eq!(held.len(), 2);
        assert!(rooms.enter(&[other]).now_or_never().is_none());
        drop(held);
        assert!(rooms.enter(&[other]).now_or_never().is_some());
    }
}
