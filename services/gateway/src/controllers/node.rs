//! Nodes.

use std::sync::Arc;

use groundplane_runtime::Context;

use crate::cluster::Change;
use crate::cluster::objects::NodeObject;
use crate::gateway::Gateway;

/// Starts it.
pub(crate) fn start(_gateway: &Arc<Gateway>, _context: &Context) {}

/// A node has changed.
pub(crate) fn changed(gateway: &Gateway, change: &Change<NodeObject>) {
    gateway.queues.nodes.wake(change.key.clone());
}
