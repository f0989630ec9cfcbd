//! What `groundplane ctl` asks.

use std::sync::Arc;

use tonic::service::Routes;

use crate::gateway::Gateway;

/// What we serve.
pub(crate) fn routes(_gateway: &Arc<Gateway>) -> Routes {
    Routes::default()
}
