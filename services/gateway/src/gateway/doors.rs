//! Who may get an address while reservations that look like nobody's are deleted: nobody.
//!
//! The cloud tells owners by name. A Service that is created between the proof that no Service has a reservation's name and the deletion
//! of that reservation would find it, use it, and lose it. Only the leader gives addresses and reclaims them, so a lock of one process
//! is enough.

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Open for who gets an address, and closed meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Doors(RwLock<()>);

impl Doors {
    /// Waits until they are open, and holds them so.
    pub(crate) async fn pass(&self) -> RwLockReadGuard<'_, ()> {
        self.0.read().await
    }

    /// Waits until nobody is between them, and keeps them closed.
    pub(crate) async fn close(&self) -> RwLockWriteGuard<'_, ()> {
        self.0.write().await
    }
}
