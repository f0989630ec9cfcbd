//! health: is the API endpoint alive, and if not, who should hold it.
//!
//! [`domain`] decides; it does no I/O. What probes, and the stream which carries verdicts, come with the endpoint controller: until
//! then every call is UNIMPLEMENTED.

pub mod domain;
mod grpc;

use groundplane_proto::health::v1::health_service_server::HealthServiceServer;
use groundplane_runtime::Context;
use tonic::service::Routes;

/// The full name of the gRPC service.
const SERVICE: &str = "groundplane.health.v1.HealthService";

/// Why the service cannot start. There is no reason today.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {}

/// Starts the service.
///
/// # Errors
/// None today.
#[allow(
    clippy::unused_async,
    reason = "every service starts in the same way, and some wait for a store"
)]
pub async fn start(context: &Context) -> Result<Routes, StartError> {
    context.health.serves(SERVICE, &[]);
    Ok(Routes::new(HealthServiceServer::new(grpc::Rpc)))
}
