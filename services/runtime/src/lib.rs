//! What every groundplane process needs and no service should write twice: arguments, configuration, telemetry,
//! TLS, gRPC in both directions, health, tasks, shutdown, leader leases.
//!
//! ```text
//! args ──► tls::install ──► telemetry ──► config ──► Context { tasks, metrics, health, clock }
//!                                                        │
//!                         service::start(config, deps, &Context) ──► Routes
//!                                                        │
//!           grpc::Server (binds first, serves after) ────┘      shutdown: NOT_SERVING, cancel, drain, flush
//! ```
//!
//! One module a worry. Services see [`Context`], [`config`] and [`grpc`]; only the binary sees the rest.

pub mod admin;
pub mod args;
mod backoff;
pub mod config;
mod context;
pub mod grpc;
pub mod health;
#[cfg(feature = "lease")]
pub mod lease;
pub mod metrics;
pub mod shutdown;
pub mod tasks;
pub mod telemetry;
pub mod tls;

pub use backoff::Backoff;
pub use context::Context;
pub use health::{Component, Health};
pub use metrics::Metrics;
pub use tasks::Tasks;
