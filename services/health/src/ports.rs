//! What the decisions need of the world.

use std::future::Future;
use std::net::SocketAddr;

use crate::domain::Outcome;

/// Asks an address whether it is ready.
pub trait Probe: Send + Sync + 'static {
    /// Asks now. Ends within the configured timeout, and never fails: what went wrong is the outcome. Several may run at a time, also
    /// of one address. Dropping it ends it.
    fn probe(&self, address: SocketAddr) -> impl Future<Output = Outcome> + Send;
}
