//! Nodes that were looked at and have no BGP peers to be told, and why: for people who ask what is left to do.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::cluster::objects::Key;

/// Fed by the controller of BGP, which forgets a node as soon as it has peers, or is gone.
#[derive(Debug, Default)]
pub(crate) struct Peerless(Mutex<BTreeMap<Key, String>>);

impl Peerless {
    /// The node has none.
    pub(crate) fn is(&self, node: &Key, why: impl Into<String>) {
        self.0.lock().insert(node.clone(), why.into());
    }

    /// The node has some, or is nobody's concern any more.
    pub(crate) fn is_not(&self, node: &Key) {
        self.0.lock().remove(node);
    }

    /// All of them.
    pub(crate) fn all(&self) -> BTreeMap<Key, String> {
        self.0.lock().clone()
    }
}
