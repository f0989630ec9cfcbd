//! instances: does this machine exist, is it on, what are its addresses, zone and type.
//!
//! ```text
//!  grpc ──► app::Instances ─┬─ no list of machines: the machine is what its node says
//!                           └─ Inventory (one list for everybody) ──► domain::find (pure)
//!                                └─ not in it ──► app::Unlisted (by id, one read for everybody)
//! ```
//!
//! Has no state of its own. Invariants: absence is told only by a complete list, for a request with `fresh` by one that began after
//! the request arrived, and never by a list that a person keeps. Where the request has a provider id, the cloud must say of that id,
//! too, that it does not exist: a list is of one project. Any number of requests at once costs one list, nodes which nobody knows cost a
//! list every 2 s at most, and a machine that is not in the list a call every 10 s, or one for each time that it is proven to be gone.

mod app;
mod domain;
mod error;
mod grpc;

use groundplane_cloud::Cloud;
use groundplane_proto::instances::v1::instances_service_server::InstancesServiceServer;
use groundplane_runtime::Context;
use tonic::service::Routes;

/// The section `instances` of the configuration file.
pub use groundplane_cloud::InventoryConfig as Config;

/// The full name of the gRPC service.
const SERVICE: &str = "groundplane.instances.v1.InstancesService";
/// The component which says whether the cloud answers.
const COMPONENT: &str = "instances.cloud";

/// Why the service cannot start. There is no reason today: a driver without machines is served from what nodes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {}

/// Starts the service. Does not wait for the cloud: until that answers, the component `instances.cloud` is not ready.
///
/// # Errors
/// None today.
#[allow(
    clippy::unused_async,
    reason = "every service starts in the same way, and some wait for a store"
)]
pub async fn start(config: Config, cloud: Cloud, context: &Context) -> Result<Routes, StartError> {
    let instances = app::Instances::new(cloud, config.max_age.0, context);
    instances.keep(context.health.component(COMPONENT), &context.tasks);
    context.health.serves(SERVICE, &[COMPONENT]);
    Ok(Routes::new(InstancesServiceServer::new(grpc::Rpc::new(
        instances,
    ))))
}
