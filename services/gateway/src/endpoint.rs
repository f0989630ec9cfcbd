//! The endpoint controller: the one part that acts without a lease, since the lease lives behind the endpoint that just died.
//!
//! ```text
//! API server of this machine ──watch──► ClusterView ──┐
//! file of the last candidates ────────────────────────┼──► run ◄──► decide (pure)
//! health ──verdicts──► stream ────────────────────────┘     │
//!                                                          └──► eip: read, move; events, metrics, ctl
//! ```
//!
//! One agent runs on each machine of the control plane and decides by itself. That several act on the same failure is avoided by ranks
//! (`rank`), and harmless where it happens anyway: a move names the assignment that it was decided on, and eip refuses it where that
//! is there no more. Kubernetes is reached through the API server on the same machine: the in-cluster address leads to any of them,
//! and, where the endpoint's own Service is what leads there, to the dead one. Nothing here waits for it: candidates are known from the
//! file, and probes, reads and moves need no API server. Nor does it take one to believe that no older controller, which moves the
//! endpoint too, runs: one that was seen is waited for, one that was not is not.

mod candidate;
mod clients;
pub(crate) mod cluster;
mod decide;
mod events;
mod file;
mod metrics;
pub(crate) mod objects;
mod ports;
mod rank;
mod refused;
mod run;
mod status;
mod values;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use groundplane_core::DriverName;
use groundplane_runtime::Context;
use groundplane_runtime::grpc::Channel;
use tokio::sync::watch;
use tonic::service::Routes;

pub(crate) use candidate::usual;
pub use candidate::{ApiServer, Candidate, ClusterView, Machine};
pub use ports::{EndpointCloud, EndpointWatch, Reports, Witness};
pub use values::{Failure, Holding, Observation, Order, Question, Record, Report, Why};

use crate::cluster::{ConnectError, Rivals, Tracks, connect};
use values::Settings;

/// The full name of what we serve.
const SERVICE: &str = "groundplane.gateway.v1.GatewayService";
/// The component which says whether anybody could hold the endpoint.
const COMPONENT: &str = "endpoint.candidates";

/// What an agent is told.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// Name of the node that it runs on.
    pub node: String,
    /// The cluster, for eip.
    pub cluster: String,
    /// Of the API server on this machine. None: as KUBECONFIG says, else as the surroundings of the pod say.
    pub kubeconfig: Option<PathBuf>,
    /// The endpoint's address, where it is told by that.
    pub address: Option<IpAddr>,
    /// The endpoint's port; `None`: that of the machines' own API servers.
    pub port: Option<u16>,
    /// Port of the machines' own API servers; `None`: as the cluster says.
    pub node_port: Option<u16>,
    /// Labels of the nodes that could hold it; empty: those of the control plane.
    pub node_selector: String,
    /// Only nodes whose name starts so. Empty: all.
    pub node_prefix: String,
    /// How often the endpoint is read where nothing happens.
    pub refresh: Duration,
    /// What each rank waits longer.
    pub rank_step: Duration,
    /// Holders are judged by their own addresses alone, and the endpoint's is not probed: machines carry it themselves.
    pub own_addresses_only: bool,
    /// Where the last candidates are kept.
    pub candidates_file: Option<PathBuf>,
    /// The external Service, `namespace` and name, for events.
    pub service: Option<(String, String)>,
    /// The cloud whose older controllers move the endpoint, too: while one of them is known to run, this agent moves nothing. `None`: none
    /// is looked for.
    pub rivals: Option<DriverName>,
}

impl AgentConfig {
    fn settings(&self) -> Settings {
        Settings {
            node: self.node.clone(),
            port: self.port,
            step: self.rank_step,
            refresh: self.refresh,
            own_addresses_only: self.own_addresses_only,
        }
    }
}

/// What an agent works with.
#[derive(Clone)]
pub struct AgentPorts {
    /// Reads and moves the endpoint.
    pub eip: Arc<dyn EndpointCloud>,
    /// Watches it.
    pub health: Arc<dyn EndpointWatch>,
    /// The cluster; `None` until it has answered.
    pub cluster: watch::Receiver<Option<ClusterView>>,
    /// Told of moves.
    pub witness: Arc<dyn Witness>,
    /// Older controllers that run.
    pub(crate) rivals: Rivals,
}

impl std::fmt::Debug for AgentPorts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentPorts")
            .field("cluster", &self.cluster)
            .finish_non_exhaustive()
    }
}

impl AgentPorts {
    /// The services behind these channels, for a cluster that is `cluster` by name to eip.
    pub fn over(
        eip: Channel,
        health: Channel,
        cluster: String,
        view: watch::Receiver<Option<ClusterView>>,
        witness: Arc<dyn Witness>,
    ) -> Self {
        Self {
            eip: Arc::new(clients::EipOverGrpc::new(eip, cluster)),
            health: Arc::new(clients::HealthOverGrpc::new(health)),
            cluster: view,
            witness,
            rivals: Rivals::none(),
        }
    }
}

/// The candidates with their ranks, and the name of the one that the cloud says holds the endpoint.
pub(crate) fn overview(
    view: &ClusterView,
    endpoint: IpAddr,
    port: Option<u16>,
    holder: &str,
) -> (Vec<(Candidate, u32)>, Option<String>) {
    let candidates = candidate::candidates(view, endpoint, port);
    let holder = candidate::holder(&candidates, holder).map(|holder| holder.node.clone());
    let rank = |node: &str| {
        let names = candidates.iter().map(|candidate| candidate.node.as_str());
        rank::rank(endpoint, names, holder.as_deref(), node)
    };
    let ranked = candidates
        .iter()
        .map(|candidate| (candidate.clone(), rank(&candidate.node)))
        .collect();
    (ranked, holder)
}

/// Starts an agent, and returns what it serves. Waits for nothing: neither an API server nor a cloud.
///
/// # Errors
/// There is no way to the Kubernetes API.
pub async fn start_agent(
    config: AgentConfig,
    eip: Channel,
    health: Channel,
    context: &Context,
) -> Result<Routes, ConnectError> {
    let (client, _) = connect(config.kubeconfig.as_deref()).await?;
    let (nodes, view) = cluster::watch_cluster(&client, &config.node_selector, &config.node_prefix, context);
    let witness = Arc::new(events::Events {
        client: client.clone(),
        node: config.node.clone(),
        service: config.service.clone(),
        nodes,
        clock: Arc::clone(&context.clock),
        tasks: context.tasks.clone(),
    });
    let rivals = match config.rivals {
        // Whoever writes what is not watched here is not seen: pods and the lease tell.
        Some(driver) => Rivals::watch(client, driver, true, Tracks::nowhere(), context),
        None => Rivals::none(),
    };
    let ports = AgentPorts {
        rivals,
        ..AgentPorts::over(eip, health, config.cluster.clone(), view, witness)
    };
    Ok(start_agent_with(config, ports, context))
}

/// As [`start_agent`], with ports of the caller's own: for simulations.
pub fn start_agent_with(config: AgentConfig, ports: AgentPorts, context: &Context) -> Routes {
    let agent = run::Agent::new(config, ports, context);
    let status = agent.status();
    context.health.serves(SERVICE, &[COMPONENT]);
    context.tasks.spawn("endpoint agent", agent.run());
    status::routes(status)
}
