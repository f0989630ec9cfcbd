//! What the controllers, adoption and gRPC share. They all know it; it knows none of them.

mod adoption;
mod doors;
mod memory;
mod peerless;
mod prefixes;
mod rooms;

use std::sync::Arc;

use groundplane_core::Clock;
use groundplane_runtime::Context;
use tokio_util::sync::CancellationToken;

use crate::announcers::Backend;
use crate::clients::Services;
use crate::cluster::objects::read_also;
use crate::cluster::{Cluster, Index};
use crate::config::Config;
use crate::endpoint::objects::ServerSlice;
use crate::metrics::ReconcileMetrics;
use crate::queue::Queue;

pub(crate) use adoption::{Adoption, Standing};
pub(crate) use doors::Doors;
pub(crate) use memory::{Known, Memory};
pub(crate) use peerless::Peerless;
pub(crate) use prefixes::Prefixes;
pub(crate) use rooms::Rooms;

/// Services wait for this reason if only another state of the pools helps them.
pub(crate) const WAITS_FOR_ADDRESS: &str = "an address";

/// Services wait for this reason if another Service has what they ask for.
pub(crate) const WAITS_FOR_SERVICE: &str = "another Service";

/// Services wait for this reason until the announcer's backend has been told, or tells no more.
pub(crate) const WAITS_FOR_ANNOUNCER: &str = "the announcer";

/// The gateway: what it knows, whom it can ask, and what wants to be looked at.
pub(crate) struct Gateway {
    pub(crate) config: Config,
    pub(crate) cluster: Cluster,
    /// Where the API servers listen: followed where there is an API endpoint.
    pub(crate) servers: Index<ServerSlice>,
    pub(crate) services: Services,
    pub(crate) queues: Queues,
    /// Does ipam know what the cluster holds?
    pub(crate) adoption: Adoption,
    /// What Services hold, as far as this process has asked.
    pub(crate) held: Memory,
    /// Who looks at which address.
    pub(crate) rooms: Rooms,
    /// Room for addresses that BGP announces.
    pub(crate) prefixes: Prefixes,
    /// Nodes that have no BGP peers to be told.
    pub(crate) peerless: Peerless,
    /// May addresses be given?
    pub(crate) doors: Doors,
    /// What the announcer has behind it.
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: ReconcileMetrics,
    pub(crate) stopping: CancellationToken,
}

/// One queue a controller.
#[derive(Clone, Debug)]
pub(crate) struct Queues {
    pub(crate) nodes: Queue,
    pub(crate) bgp: Queue,
    pub(crate) services: Queue,
}

impl Queues {
    /// Empty queues.
    pub(crate) fn new() -> Self {
        Self {
            nodes: Queue::new("node"),
            bgp: Queue::new("bgp"),
            services: Queue::new("service"),
        }
    }
}

impl Gateway {
    /// What the controllers share, from what they were given.
    pub(crate) fn new(
        config: Config,
        cluster: Cluster,
        services: Services,
        queues: Queues,
        backend: Arc<dyn Backend>,
        context: &Context,
    ) -> Self {
        let names = config.annotation_names();
        let told: Vec<String> = config.empty.annotations().map(str::to_owned).collect();
        // Before anything is read of the cluster.
        read_also(move |key| {
            names.iter().any(|name| name.number_in(key).is_some()) || told.iter().any(|name| name == key)
        });
        Self {
            config,
            cluster,
            servers: Index::new(1),
            services,
            queues,
            adoption: Adoption::default(),
            held: Memory::default(),
            rooms: Rooms::default(),
            prefixes: Prefixes::default(),
            peerless: Peerless::default(),
            doors: Doors::default(),
            backend,
            clock: Arc::clone(&context.clock),
            metrics: ReconcileMetrics::register(&context.metrics),
            stopping: context.tasks.token(),
        }
    }
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway")
            .field("cluster", &self.cluster)
            .finish_non_exhaustive()
    }
}
