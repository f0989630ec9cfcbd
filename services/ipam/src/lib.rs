//! ipam: which address belongs to whom. Pools, allocations, and the store that they survive in.
//!
//! ```text
//! grpc ──► app ──► domain (pure: decides)          app: one lock, one writer thread, answers only what is durable
//!           └────► ports ◄── adapters (redb, memory)
//! ```
//!
//! Invariants: an address has one holder; what was acknowledged survives `kill -9`; a call that failed for the store's sake
//! changed nothing; a cluster that has not told what its objects hold is given nothing.

mod adapters;
mod app;
mod config;
pub mod domain;
mod grpc;
mod metrics;
mod ports;

use std::path::Path;
use std::sync::Arc;

use groundplane_core::PoolSource;
use groundplane_proto::ipam::v1::ipam_service_server::{IpamServiceServer, SERVICE_NAME};
use groundplane_runtime::Context;
use groundplane_runtime::config::Problem;
use jiff::SignedDuration;
use tonic::service::Routes;

#[cfg(test)]
mod tests;

pub use app::IpamError;
pub use config::{Config, FILE, IpamConfig, STORE_FILE, StoreConfig, StoreKind, validate_pools};
pub use domain::PoolConfig;
pub use ports::StoreError;

use adapters::memory::MemoryStore;
use adapters::redb::RedbStore;
use app::App;
use grpc::IpamRpc;
use metrics::PoolCollector;
use ports::Store;

/// What must work for ipam to serve.
const COMPONENT: &str = "ipam.store";

/// Snapshots of large clusters: 10,000 holdings are about 2 MB.
const LARGEST_MESSAGE: usize = 64 * 1024 * 1024;

/// Why ipam does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration is not in order.
    #[error("{}", problems(.0))]
    Config(Vec<Problem>),
    /// The store cannot be opened or read. The file is left as it is.
    #[error("{}", store(.0))]
    Store(StoreError),
    /// The configured pools were not taken.
    #[error(transparent)]
    Pools(#[from] IpamError),
    /// The process is out of threads.
    #[error("the store's thread cannot be started")]
    Thread(#[from] std::io::Error),
}

impl From<StoreError> for StartError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// With the way out, where the disk is at fault.
fn store(error: &StoreError) -> String {
    match error {
        StoreError::Unavailable(_) => format!(
            "{error}; make room on its disk, or mend it, and start again: what the store holds is kept as it is"
        ),
        StoreError::Corrupt(_) | StoreError::InUse(_) => error.to_string(),
    }
}

fn problems(problems: &[Problem]) -> String {
    let lines = problems
        .iter()
        .map(|problem| format!("{}: {}; {}", problem.path, problem.message, problem.help));
    lines.collect::<Vec<_>>().join("\n")
}

/// Starts ipam: opens its store, takes the configured pools, and gives what is to be served.
pub async fn start(config: Config, context: &Context) -> Result<Routes, StartError> {
    let problems = config.validate();
    if !problems.is_empty() {
        return Err(StartError::Config(problems));
    }
    let Config { pools, ipam } = config;
    let StoreConfig { kind, path } = ipam.store;
    let opening = tokio::task::spawn_blocking(move || open(kind, &path));
    let store = opening.await.map_err(std::io::Error::other)??;
    start_with(store, &pools, ipam.cooldown, context).await
}

fn open(kind: StoreKind, path: &Path) -> Result<Box<dyn Store>, StoreError> {
    Ok(match kind {
        StoreKind::Redb => Box::new(RedbStore::open(path)?),
        StoreKind::Memory => Box::new(MemoryStore::new()),
    })
}

/// Starts ipam over this store.
async fn start_with(
    mut store: Box<dyn Store>,
    pools: &[PoolConfig],
    cooldown: std::time::Duration,
    context: &Context,
) -> Result<Routes, StartError> {
    let component = context.health.component(COMPONENT);
    context.health.serves(SERVICE_NAME, &[COMPONENT]);
    let loading = tokio::task::spawn_blocking(move || store.load().map(|loaded| (loaded, store)));
    let (loaded, store) = loading.await.map_err(std::io::Error::other)??;
    let cooldown = SignedDuration::try_from(cooldown).unwrap_or(SignedDuration::MAX);
    let app = App::start(store, loaded, cooldown, component.clone(), context)?;
    let source = PoolSource(FILE.parse().map_err(|error| IpamError::field("source", error))?);
    app.put_pools(&source, 0, pools)?;
    let collector = PoolCollector {
        shared: Arc::clone(app.shared()),
        clock: Arc::clone(&context.clock),
    };
    context
        .metrics
        .register(|registry| registry.register_collector(Box::new(collector)));
    component.ready();
    let service = IpamServiceServer::new(IpamRpc {
        app,
        stopping: context.tasks.token(),
    })
    .max_decoding_message_size(LARGEST_MESSAGE)
    .max_encoding_message_size(LARGEST_MESSAGE);
    Ok(Routes::new(service))
}
