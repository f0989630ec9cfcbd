//! bgp: does this project and this machine speak BGP, and with whom.
//!
//! ```text
//!  grpc ──► app::Bgp ─┬─ app::Project: on once, for everybody
//!                     ├─ Inventory of sessions: one list for everybody; a missing one is made
//!                     ├─ app::Refusals: sessions that the cloud would not make
//!                     └─ domain::Known (pure): the peers of each machine, and when to ask again
//! ```
//!
//! Has no state of its own: what it remembers is a cache. Invariants: what the project already has is adopted and never changed; a
//! session is made only where the list lacks it; peers that were good stay until an answer replaces them. Passwords are secrets:
//! never logged, and told to nobody but who asks for the machine they belong to.

mod app;
mod config;
mod domain;
mod error;
mod grpc;

use std::sync::Arc;

use groundplane_cloud::Cloud;
use groundplane_proto::bgp::v1::bgp_service_server::BgpServiceServer;
use groundplane_runtime::Context;
use tonic::service::Routes;

pub use config::Config;

/// The full name of the gRPC service.
const SERVICE: &str = "groundplane.bgp.v1.BgpService";
/// The component which says whether the cloud answers.
const COMPONENT: &str = "bgp.cloud";

/// Why the service cannot start. There is no reason today: where BGP is not configured, calls say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {}

/// Starts the service. Does not wait for the cloud: until that answers, the component `bgp.cloud` is not ready.
///
/// # Errors
/// None today.
#[allow(
    clippy::unused_async,
    reason = "every service starts in the same way, and some wait for a store"
)]
pub async fn start(config: Config, cloud: Cloud, context: &Context) -> Result<Routes, StartError> {
    let component = context.health.component(COMPONENT);
    let bgp = cloud.bgp.map(|fabric| app::Bgp::new(fabric, &config, context));
    match &bgp {
        Some(bgp) => bgp.keep(component, &context.tasks),
        None => component.ready(),
    }
    context.health.serves(SERVICE, &[COMPONENT]);
    Ok(Routes::new(BgpServiceServer::new(grpc::Rpc::new(
        bgp.map(Arc::new),
    ))))
}
