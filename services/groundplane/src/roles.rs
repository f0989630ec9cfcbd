//! What a process runs: one service, or all of them.

use std::cell::OnceCell;
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Context as _;
use groundplane_cloud::Cloud;
use groundplane_core::{ErrorKind, Kinded as _};
use groundplane_gateway::Channels;
use groundplane_gateway::endpoint::{AgentConfig, start_agent};
use groundplane_ipam::StartError;
use groundplane_proto::FILE_DESCRIPTOR_SET;
use groundplane_runtime::args::{AdminArgs, ListenArgs};
use groundplane_runtime::grpc::{Channel, Listen, Server, Target};
use groundplane_runtime::shutdown::{self, Signals};
use groundplane_runtime::telemetry::{LogFilter, Telemetry};
use groundplane_runtime::tls::ClientCredentials;
use groundplane_runtime::{Context, admin};
use tonic::service::Routes;
use tracing::{info, warn};

use crate::args::{AgentArgs, ServeArgs};
use crate::config::{Config, Legacy, Loaded};
use crate::wiring::{Addresses, connect_with};

/// Where `ctl` looks for a gateway, and where one listens, unless told otherwise.
pub(crate) const GATEWAY_TARGET: &str = "http://127.0.0.1:9470";

/// The same of an agent.
pub(crate) const AGENT_TARGET: &str = "http://127.0.0.1:9476";

/// What a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    All,
    Ipam,
    Eip,
    Bgp,
    Health,
    Instances,
    Gateway,
    Agent,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Ipam => "ipam",
            Self::Eip => "eip",
            Self::Bgp => "bgp",
            Self::Health => "health",
            Self::Instances => "instances",
            Self::Gateway => "gateway",
            Self::Agent => "agent",
        }
    }

    /// Does it need the cloud's configuration and its secrets?
    fn calls_cloud(self) -> bool {
        !matches!(self, Self::Ipam | Self::Health | Self::Gateway)
    }

    /// The port on loopback where it listens unless told otherwise. That of `all` is the gateway's.
    fn port(self) -> u16 {
        match self {
            Self::All | Self::Gateway => 9470,
            Self::Ipam => 9471,
            Self::Eip => 9472,
            Self::Bgp => 9473,
            Self::Instances => 9474,
            Self::Health => 9475,
            Self::Agent => 9476,
        }
    }
}

/// Runs an agent until it is asked to stop, or fails.
pub(crate) async fn run_agent(args: AgentArgs) -> anyhow::Result<()> {
    let AgentArgs { node, serve } = args;
    let node = match node {
        Some(node) => node,
        None => std::fs::read_to_string("/proc/sys/kernel/hostname")
            .context("the machine's name cannot be read; name the node with --node or GROUNDPLANE_NODE")?
            .trim()
            .to_lowercase(),
    };
    run_on(Role::Agent, serve, node).await
}

/// Runs the role until it is asked to stop, or fails.
pub(crate) async fn run(role: Role, args: ServeArgs) -> anyhow::Result<()> {
    run_on(role, args, String::new()).await
}

/// As [`run`], on the node of this name, which agents only need.
async fn run_on(role: Role, args: ServeArgs, node: String) -> anyhow::Result<()> {
    let ServeArgs {
        config,
        kubeconfig,
        addresses,
        listen,
        client,
        admin,
        telemetry,
    } = args;
    let file = config.config.clone();
    let Loaded { config, legacy } = config.load(role.calls_cloud())?;
    let telemetry = Telemetry::init(role.name(), &telemetry)?;
    let context = Context::new();
    let tls = client.tls().as_ref().map(ClientCredentials::load).transpose()?;
    if let Some(tls) = &tls {
        tls.watch(&context);
    }
    let process = Process {
        role,
        addresses: addresses.or(&config.services),
        gateway: config.gateway(kubeconfig.as_deref()),
        agent: config.agent(&node, kubeconfig.as_deref()),
        config,
        listen,
        tls,
        context,
        cloud: OnceCell::new(),
    };
    info!(
        role = role.name(),
        version = env!("CARGO_PKG_VERSION"),
        driver = %process.config.driver,
        config = %file.map_or_else(|| "none".into(), |path| path.display().to_string()),
        "starting"
    );
    tell(&legacy);
    let outcome = process.run(&admin, telemetry.log_filter()).await;
    telemetry.shutdown().await;
    outcome
}

/// Tells an operator, once, what was made of the inputs of the older controllers.
fn tell(legacy: &Legacy) {
    if let Some(name) = legacy.of {
        info!(
            "the configuration is that of {name}; `groundplane ctl config show` tells where each value comes from"
        );
    }
    for remark in &legacy.remarks {
        warn!("{remark}");
    }
}

/// A process to be: everything that its services are made of.
struct Process {
    role: Role,
    addresses: Addresses,
    gateway: groundplane_gateway::Config,
    /// `None`: no API endpoint is configured.
    agent: Option<AgentConfig>,
    config: Config,
    listen: ListenArgs,
    tls: Option<ClientCredentials>,
    context: Context,
    cloud: OnceCell<Cloud>,
}

impl Process {
    async fn run(&self, admin: &AdminArgs, log: &LogFilter) -> anyhow::Result<()> {
        let signals = Signals::listen()?;
        // Taken before anything is started, so that a port in use costs nothing.
        let server = self.server().bind().await?;
        admin::start(admin, &self.context, log).await?;
        let routes = match self.role {
            Role::All => self.all().await?,
            Role::Ipam => self.ipam().await?,
            Role::Eip => {
                let ipam = self
                    .addresses
                    .ipam
                    .as_ref()
                    .map(|target| self.connect(target))
                    .transpose()?;
                self.eip(ipam).await?
            }
            Role::Bgp => self.bgp().await?,
            Role::Health => self.health().await?,
            Role::Instances => self.instances().await?,
            Role::Gateway => self.gateway(self.elsewhere()?).await?,
            Role::Agent => self.agent().await?,
        };
        server.routes(routes).serve()?;
        Ok(shutdown::run(&self.context.tasks, signals).await?)
    }

    fn server(&self) -> Server {
        let mut server = Server::new(self.role.name(), &self.context).args(&self.listen);
        if self.listen.listen.is_empty() {
            server = server.listen(Listen::Tcp(SocketAddr::from((
                Ipv4Addr::LOCALHOST,
                self.role.port(),
            ))));
        }
        server.reflection(
            self.listen.reflection || self.role == Role::All,
            FILE_DESCRIPTOR_SET,
        )
    }

    /// Every service, each behind a server of its own in memory, so that both ways run the same code.
    async fn all(&self) -> anyhow::Result<Routes> {
        self.say_what_it_does();
        let ipam = self.inside("ipam", self.ipam().await?).await?;
        let eip = self.inside("eip", self.eip(Some(ipam.clone())).await?).await?;
        let bgp = self.inside("bgp", self.bgp().await?).await?;
        let instances = self.inside("instances", self.instances().await?).await?;
        self.gateway(Channels {
            ipam,
            eip,
            bgp,
            instances,
        })
        .await
    }

    /// Serves a service in memory, and returns the way to it.
    async fn inside(&self, name: &'static str, routes: Routes) -> anyhow::Result<Channel> {
        let server = Server::new(name, &self.context).routes(routes);
        Ok(server.within(FILE_DESCRIPTOR_SET).await?)
    }

    /// The services that a gateway calls, by address.
    fn elsewhere(&self) -> anyhow::Result<Channels> {
        let Addresses {
            ipam,
            eip,
            bgp,
            instances,
        } = &self.addresses;
        Ok(Channels {
            ipam: self.reach("ipam", ipam.as_ref())?,
            eip: self.reach("eip", eip.as_ref())?,
            bgp: self.reach("bgp", bgp.as_ref())?,
            instances: self.reach("instances", instances.as_ref())?,
        })
    }

    fn reach(&self, name: &str, target: Option<&Target>) -> anyhow::Result<Channel> {
        let upper = name.to_uppercase();
        let target = target.with_context(|| {
            format!("the gateway does not know where {name} is; say it with --{name}, GROUNDPLANE_{upper} or `services.{name}`")
        })?;
        self.connect(target)
    }

    fn connect(&self, target: &Target) -> anyhow::Result<Channel> {
        connect_with(target, self.tls.as_ref())
    }

    /// The driver: one a process, so that its services share the client, its limits and its metrics.
    fn cloud(&self) -> anyhow::Result<Cloud> {
        if let Some(cloud) = self.cloud.get() {
            return Ok(cloud.clone());
        }
        let cloud = groundplane_cloud::connect(&self.config.cloud(), &self.context)?;
        Ok(self.cloud.get_or_init(|| cloud).clone())
    }

    async fn ipam(&self) -> anyhow::Result<Routes> {
        let config = groundplane_ipam::Config {
            pools: self.config.pools.clone(),
            ipam: self.config.ipam.clone(),
        };
        let path = config.ipam.store.path.clone();
        let started = groundplane_ipam::start(config, &self.context).await;
        started.map_err(|error| match &error {
            StartError::Store(store) if store.kind() == ErrorKind::Corrupt => anyhow::anyhow!(
                "{error}; put a backup in its place with `groundplane ctl store restore --store {path} --from COPY`, or set it \
                 aside with `groundplane ctl store rebuild --store {path}`: ipam then learns from the cluster who holds what",
                path = path.display()
            ),
            _ => error.into(),
        })
    }

    async fn eip(&self, ipam: Option<Channel>) -> anyhow::Result<Routes> {
        Ok(groundplane_eip::start(self.config.eip.clone(), self.cloud()?, ipam, &self.context).await?)
    }

    async fn bgp(&self) -> anyhow::Result<Routes> {
        Ok(groundplane_bgp::start(self.config.bgp.clone(), self.cloud()?, &self.context).await?)
    }

    async fn health(&self) -> anyhow::Result<Routes> {
        Ok(groundplane_health::start(self.config.health.clone(), &self.context).await?)
    }

    async fn instances(&self) -> anyhow::Result<Routes> {
        Ok(groundplane_instances::start(self.config.instances.clone(), self.cloud()?, &self.context).await?)
    }

    async fn gateway(&self, services: Channels) -> anyhow::Result<Routes> {
        Ok(groundplane_gateway::start(self.gateway.clone(), services, &self.context).await?)
    }

    /// health, eip and the endpoint controller, which need nobody else: no lease, no ipam, and no API server to start with.
    async fn agent(&self) -> anyhow::Result<Routes> {
        let config = self.agent.clone().context(
            "no API endpoint is configured that an agent could move; write `endpoint.tag` or `endpoint.address`, or run no agent",
        )?;
        let health = self.inside("health", self.health().await?).await?;
        let eip = groundplane_eip::start_endpoint(&self.cloud()?, &self.context);
        let eip = self.inside("eip", eip).await?;
        info!(
            node = config.node,
            "the API endpoint is watched, and moved when its holder dies"
        );
        Ok(start_agent(config, eip, health, &self.context).await?)
    }

    /// Tells an operator, once, what to expect of this configuration.
    fn say_what_it_does(&self) {
        let from_pools = self.config.cloud().addresses_from_pools();
        info!(driver = %self.config.driver, "nodes are initialised, and Services of type LoadBalancer get addresses");
        if from_pools && self.config.pools.is_empty() {
            warn!(
                "there is no pool of addresses yet, so no Service gets one; give it a first pool with --config FILE and, in the \
                 file: pools: [{{name: public, addresses: [\"192.0.2.0/24\"]}}], with a range of yours"
            );
        }
    }
}
