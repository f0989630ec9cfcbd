//! health: is the API endpoint alive, and if not, who should hold it.
//!
//! ```text
//!  grpc ──► app::Health ──► one task an endpoint: domain::Monitor (pure) decides
//!                               ▲
//!             ports::Probe ─────┘  adapters: TCP, HTTP, HTTPS, gRPC
//! ```
//!
//! Moves nothing: whoever reads a verdict acts on it, or not. Has no state that outlives it. When it gives a verdict, and which, is told
//! in [`domain::Monitor`]'s module. Invariants: a verdict never names a machine that was not ready when it was probed last; there is none
//! while the holder is ready and is to stay; with nobody ready there is none, and the reason says so.

mod adapters;
mod app;
mod config;
pub mod domain;
mod error;
mod grpc;
mod metrics;
pub mod ports;

use groundplane_proto::health::v1::health_service_server::HealthServiceServer;
use groundplane_runtime::Context;
use tonic::service::Routes;

pub use adapters::CredentialsError;
pub use config::{HealthConfig, ProbeConfig, ProbeKind};

/// The full name of the gRPC service.
const SERVICE: &str = "groundplane.health.v1.HealthService";

/// Why the service cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The files that probes need are not in order.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

/// Starts the service. `config` was validated. Probes nothing before it is asked to.
///
/// # Errors
/// Where the files that probes need are missing, or do not hold what they should.
#[allow(
    clippy::unused_async,
    reason = "every service starts in the same way, and some wait for a store"
)]
pub async fn start(config: HealthConfig, context: &Context) -> Result<Routes, StartError> {
    let probe = adapters::Prober::new(config.probe.clone(), config.timeout)?;
    Ok(start_with(&config, probe, context))
}

/// As [`start`], with probes of the caller's own: for simulations.
pub fn start_with<P: ports::Probe>(config: &HealthConfig, probe: P, context: &Context) -> Routes {
    let health = app::Health::new(probe, config.settings(), context);
    context.health.serves(SERVICE, &[]);
    Routes::new(HealthServiceServer::new(grpc::Rpc::new(
        health,
        context.tasks.token(),
    )))
}
