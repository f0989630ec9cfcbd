//! Tells ipam what the cluster's objects hold.

use std::sync::Arc;

use groundplane_runtime::Context;

use crate::gateway::Gateway;

/// Starts it.
pub(crate) fn start(_gateway: &Arc<Gateway>, _context: &Context) {}
