//! eip: which elastic IP serves a Service or the API endpoint.
//!
//! ```text
//!  grpc ─┬► app::Eip ─┬─ static: adapters::pools ──► ipam
//!        │            └─ cloud:  app::cloud ──► domain::settle (pure) ──► create, delete
//!        │                          │  ▲
//!        │                          ▼  └── Inventory: one list for everybody
//!        └► app::ApiEndpoint ◄──► domain::endpoint (pure) ──► read, remove, assign
//! ```
//!
//! Has no state of its own. Invariants of the cloud's side: a reservation is made only after a complete list that began within the
//! call lacks the owner's tags, so an unanswered create is found again, by this process or the next; an owner's calls run one after
//! the other; nothing is deleted that does not carry the owner's tags in a list as fresh. What a user brought is never touched.
//! What no owner explains is deleted only when asked for by its id, and only if a list as fresh finds nothing else that does.
//!
//! Invariants of the API endpoint: `domain::endpoint`.

mod adapters;
mod app;
mod domain;
mod error;
mod grpc;
mod metrics;

use std::sync::Arc;

use groundplane_cloud::{AddressBackend, Cloud};
use groundplane_proto::eip::v1::eip_service_server::EipServiceServer;
use groundplane_runtime::Context;
use groundplane_runtime::grpc::Channel;
use tonic::service::Routes;

/// The section `eip` of the configuration file.
pub use groundplane_cloud::InventoryConfig as Config;

/// The full name of the gRPC service.
const SERVICE: &str = "groundplane.eip.v1.EipService";
/// The component which says whether the cloud answers.
const COMPONENT: &str = "eip.cloud";

/// Why the service cannot start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// The driver takes addresses from ipam's pools, and nobody said where ipam is.
    #[error("driver `{0}` takes addresses from ipam; say where ipam is")]
    NoIpam(&'static str),
}

/// Starts the service. Does not wait for the cloud: until that answers, the component `eip.cloud` is not ready.
///
/// # Errors
/// The driver needs ipam, and `ipam` is `None`.
#[allow(
    clippy::unused_async,
    reason = "every service starts in the same way, and some wait for a store"
)]
pub async fn start(
    config: Config,
    cloud: Cloud,
    ipam: Option<Channel>,
    context: &Context,
) -> Result<Routes, StartError> {
    let component = context.health.component(COMPONENT);
    let endpoint = app::ApiEndpoint::new(&cloud, context);
    let eip = match (cloud.addresses, ipam) {
        (AddressBackend::Ipam, None) => return Err(StartError::NoIpam(cloud.name)),
        (AddressBackend::Ipam, Some(channel)) => {
            // Whether ipam answers is told by each call; a readiness that waited for it would keep the calls away.
            component.ready();
            app::Eip::Pools(Box::new(adapters::Pools::new(
                channel,
                Arc::clone(&context.clock),
            )))
        }
        (AddressBackend::Cloud(addresses), _) => {
            let metrics = context.metrics.register(metrics::Metrics::register);
            let selector = cloud.endpoint.map(|endpoint| endpoint.selector);
            let cloud = app::CloudEips::new(addresses, selector, config.max_age.0, metrics, context);
            cloud.keep(component, &context.tasks);
            app::Eip::Cloud(cloud)
        }
    };
    context.health.serves(SERVICE, &[COMPONENT]);
    Ok(Routes::new(EipServiceServer::new(grpc::Rpc::new(eip, endpoint))))
}

/// Starts the part that reads and moves the API endpoint, and nothing else: for an agent. Keeps no inventory, needs no ipam, and has no
/// component: a cloud that is away is told by each call, and whoever asks says what that means for its readiness.
pub fn start_endpoint(cloud: &Cloud, context: &Context) -> Routes {
    let endpoint = app::ApiEndpoint::new(cloud, context);
    context.health.serves(SERVICE, &[]);
    Routes::new(EipServiceServer::new(grpc::Rpc::new(
        app::Eip::Elsewhere,
        endpoint,
    )))
}
