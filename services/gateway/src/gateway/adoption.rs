//! Whether ipam knows what the cluster's objects hold. Written by [`crate::adoption`], read by everybody who needs an address.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::timeout;

/// Does ipam know what the cluster holds?
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Not yet: we do not lead, ipam is away, or it is being told right now.
    #[default]
    Waiting,
    /// It does.
    Adopted {
        /// The store's id.
        store: String,
        /// Its highest revision that we know of.
        revision: u64,
    },
    /// It has another store than the one that this cluster trusts.
    Refused {
        /// The store that this cluster trusts.
        trusted: String,
        /// The store that ipam has.
        offered: String,
    },
}

impl Standing {
    /// What is the matter with ipam's store, in words; `None`: nothing is.
    pub(crate) fn refusal(&self) -> Option<String> {
        let Self::Refused { trusted, offered } = self else {
            return None;
        };
        Some(format!(
            "ipam has the store {offered}, and this cluster trusts {trusted}. If the new one is right, run \
             `groundplane ctl store accept {offered}`."
        ))
    }
}

/// Where the adoption stands. Cheap to clone; all clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Adoption {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    standing: watch::Sender<Standing>,
    /// The store that a person has accepted, until it is adopted.
    accepted: parking_lot::Mutex<Option<String>>,
    wanted: Notify,
}

impl Adoption {
    /// Where it stands.
    pub(crate) fn standing(&self) -> Standing {
        self.inner.standing.borrow().clone()
    }

    /// Waits until it is decided, but not for long. Returns where it stands then.
    pub(crate) async fn settled(&self, patience: Duration) -> Standing {
        let mut standing = self.inner.standing.subscribe();
        let decided = standing.wait_for(|standing| *standing != Standing::Waiting);
        match timeout(patience, decided).await {
            Ok(Ok(decided)) => decided.clone(),
            _ => self.standing(),
        }
    }

    /// ipam said that it does not know what the cluster holds: it is told (again).
    pub(crate) fn want(&self) {
        self.inner.wanted.notify_one();
    }

    /// Trusts this store from now on, whatever was trusted before.
    pub(crate) fn accept(&self, store: &str) {
        *self.inner.accepted.lock() = Some(store.to_owned());
        self.want();
    }

    /// Waits until this store is adopted, but not for long. Was it?
    pub(crate) async fn adopts(&self, accepted: &str, patience: Duration) -> bool {
        let mut standing = self.inner.standing.subscribe();
        let is_it =
            |standing: &Standing| matches!(standing, Standing::Adopted { store, .. } if store == accepted);
        matches!(timeout(patience, standing.wait_for(is_it)).await, Ok(Ok(_)))
    }

    /// Waits until somebody wants it done (again).
    pub(crate) async fn wanted(&self) {
        self.inner.wanted.notified().await;
    }

    /// The store that a person has accepted, and that is not adopted yet.
    pub(crate) fn accepted(&self) -> Option<String> {
        self.inner.accepted.lock().clone()
    }

    /// The store that a person had accepted is adopted. A word that came meanwhile stands.
    pub(crate) fn fulfilled(&self, accepted: &str) {
        let mut waiting = self.inner.accepted.lock();
        if waiting.as_deref() == Some(accepted) {
            *waiting = None;
        }
    }

    /// It stands like this from now on.
    pub(crate) fn set(&self, standing: Standing) {
        self.inner.standing.send_if_modified(|before| {
            let changed = *before != standing;
            *before = standing;
            changed
        });
    }
}
