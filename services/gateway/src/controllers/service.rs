//! Services.

use std::sync::Arc;

use groundplane_runtime::Context;

use crate::cluster::Change;
use crate::cluster::objects::ServiceObject;
use crate::gateway::Gateway;

/// Starts it.
pub(crate) fn start(_gateway: &Arc<Gateway>, _context: &Context) {}

/// A Service has changed.
pub(crate) fn changed(gateway: &Gateway, change: &Change<ServiceObject>) {
    gateway.queues.services.wake(change.key.clone());
}
