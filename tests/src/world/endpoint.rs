//! A control plane whose API endpoint can move: three machines in the sandbox cloud, an API server on each, and an agent beside each.
//!
//! ```text
//!   agent 0 ──kubeconfig──► kube-apiserver 0 ┐
//!   agent 1 ──────────────► kube-apiserver 1 ├── etcd
//!   agent 2 ──────────────► kube-apiserver 2 ┘
//!     │ └ probes: through the Fabric, where a machine's packets can be dropped
//!     └ moves: the sandbox cloud, which knows every holder that there was
//! ```

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use groundplane_proto::FILE_DESCRIPTOR_SET;
use groundplane_proto::gateway::v1::gateway_service_client::GatewayServiceClient;
use groundplane_proto::gateway::v1::{GetEndpointStatusRequest, GetEndpointStatusResponse};
use groundplane_runtime::grpc::channel;
use groundplane_sandbox::{DeviceId, DeviceOptions, HolderChange, Project, ReservationOptions, most_holders};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::sync::MutexGuard;
use tokio::time::timeout;

use super::{CloudApi, CloudCorner};
use crate::eventually::eventually;
use crate::fabric::{Fabric, Place};
use crate::groundplane::{Launch, Process};
use crate::kube_api::{ControlPlane, MEMBERS, NodeDraft, SERVER_NAME, User};
use crate::scratch::Scratch;

/// What every node of a control plane carries.
const LABEL: &str = "node-role.kubernetes.io/control-plane";
/// How long a move may take before it is given up: far more than any, so that only what never comes runs into it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Patient enough for a machine that does much else at the same time, so that nothing fails but what is made to fail.
pub const PATIENT: &str = "  period: 250ms\n  timeout: 1500ms\n  misses: 4\n  doubt: 3s\n";

/// What to start.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct EndpointOptions {
    cloud: CloudApi,
    elsewhere: Option<(usize, &'static str)>,
    health: String,
    endpoint: String,
    environment: Vec<(String, String)>,
}

impl EndpointOptions {
    /// On this cloud; on Equinix Metal by default.
    pub fn on(cloud: CloudApi) -> Self {
        Self {
            cloud,
            ..Self::default()
        }
    }

    /// With machine `number` in this region (or metro), not in the project's.
    pub fn elsewhere(mut self, number: usize, region: &'static str) -> Self {
        self.elsewhere = Some((number, region));
        self
    }

    /// With further keys of the section `health`: YAML, indented by two blanks.
    pub fn health(mut self, yaml: &str) -> Self {
        self.health.push_str(yaml);
        self
    }

    /// With further keys of the section `endpoint`: YAML, indented by two blanks.
    pub fn endpoint(mut self, yaml: &str) -> Self {
        self.endpoint.push_str(yaml);
        self
    }

    /// With environment variables for every agent.
    pub fn environment(mut self, variables: impl IntoIterator<Item = (String, String)>) -> Self {
        self.environment.extend(variables);
        self
    }

    /// Starts it on the control plane that this process shares, with the endpoint at machine 0, and waits until every agent knows
    /// all of it.
    ///
    /// # Errors
    /// When something does not start.
    pub async fn start(self, name: &str) -> Result<EndpointWorld> {
        let mut world = self.start_without_agents(name).await?;
        world.hold(0);
        for number in 0..MEMBERS {
            world.start_agent(number)?;
        }
        for number in 0..MEMBERS {
            world.settled(number).await?;
        }
        Ok(world)
    }

    /// As [`EndpointOptions::start`], with an endpoint that nobody holds, and no agent.
    ///
    /// # Errors
    /// When something does not start.
    pub async fn start_without_agents(self, name: &str) -> Result<EndpointWorld> {
        let plane = ControlPlane::shared().await?;
        let state = Scratch::new("endpoint")?;
        let name = format!("{name}-{:06x}", fastrand::u32(..0x0100_0000));
        let cloud = CloudCorner::new(self.cloud.project(), &state).await?;
        // Another for each world, so that no connection of the one before is in the way.
        let base = 100 + 4 * fastrand::u8(..35);
        let endpoint = SocketAddr::new(plane.block().address(base), plane.port());
        cloud.project.add_reservation(ReservationOptions {
            address: Some(endpoint.ip()),
            ..ReservationOptions::tagged([tag(&name)])
        });
        let mut places = Vec::new();
        for (number, last) in (0..MEMBERS).zip(base + 1..) {
            let node = format!("{name}-{number}");
            let elsewhere = self.elsewhere.filter(|(one, _)| *one == number);
            let device = DeviceOptions {
                metro: elsewhere.map(|(_, region)| region.to_owned()),
                ..DeviceOptions::named(&node)
            };
            places.push(Place {
                device: cloud.project.add_device(device),
                front: SocketAddr::new(plane.block().address(last), plane.port()),
                server: plane.connection(number)?.address(),
            });
        }
        let fabric = Fabric::start(&cloud.project, endpoint, &places)?;
        let world = EndpointWorld {
            agents: (0..MEMBERS).map(|_| None).collect(),
            options: self,
            name,
            endpoint,
            places,
            fabric,
            cloud,
            sockets: tempfile::tempdir().context("a folder for sockets")?,
            state,
            plane,
        };
        for number in 0..MEMBERS {
            world.create_node(number).await?;
        }
        Ok(world)
    }
}

/// All of it. Dropping it ends the agents; the control plane stays for the next.
#[derive(Debug)]
pub struct EndpointWorld {
    agents: Vec<Option<Process>>,
    options: EndpointOptions,
    name: String,
    endpoint: SocketAddr,
    places: Vec<Place>,
    /// The network.
    pub fabric: Fabric,
    cloud: CloudCorner,
    sockets: tempfile::TempDir,
    state: Scratch,
    /// The API servers.
    pub plane: MutexGuard<'static, ControlPlane>,
}

/// The cloud.
impl EndpointWorld {
    /// The project of the sandbox cloud.
    pub fn project(&self) -> &Project {
        &self.cloud.project
    }

    /// The cloud.
    pub fn cloud(&self) -> CloudApi {
        self.options.cloud
    }

    /// The endpoint.
    pub fn endpoint(&self) -> SocketAddr {
        self.endpoint
    }

    /// Its address.
    pub fn address(&self) -> IpAddr {
        self.endpoint.ip()
    }

    /// Machine `number` in the cloud.
    pub fn device(&self, number: usize) -> DeviceId {
        self.places[number].device
    }

    /// Gives the endpoint to machine `number`, and takes it from whoever has it, as a person does.
    pub fn hold(&self, number: usize) {
        for held in self.project().holders(self.address()) {
            self.project().unassign(held.id);
        }
        self.project().assign(self.device(number), self.address());
    }

    /// The machines that hold the endpoint now.
    pub fn holders(&self) -> Vec<usize> {
        let held = self.project().holders(self.address()).into_iter();
        held.filter_map(|held| self.number_of(held.device)).collect()
    }

    fn number_of(&self, device: DeviceId) -> Option<usize> {
        self.places.iter().position(|place| place.device == device)
    }

    /// Every change of holder so far.
    pub fn history(&self) -> Vec<HolderChange> {
        self.project().holder_changes(self.address())
    }

    /// Waits until one machine alone holds the endpoint which is none of these, and says which one.
    ///
    /// # Errors
    /// When it does not come to that; with what the agents say.
    pub async fn leaves(&self, left: &[usize]) -> Result<usize> {
        let left: Vec<DeviceId> = left.iter().map(|number| self.device(*number)).collect();
        let moved = self.project().until_held(
            self.address(),
            |holders| matches!(holders, [holder] if !left.contains(&holder.device)),
        );
        if let Ok(holders) = timeout(PATIENCE, moved).await {
            let holder = holders.first().context("nobody holds it")?.device;
            return self
                .number_of(holder)
                .context("a machine of somebody else holds it");
        }
        let mut said = Vec::new();
        for number in 0..MEMBERS {
            said.push(self.status(number).await);
        }
        bail!(
            "the endpoint is still at {:?}; the agents say {said:#?}",
            self.holders()
        )
    }

    /// That there never were two holders, and that there is one now.
    ///
    /// # Errors
    /// With the history where that is not so.
    pub fn one_at_a_time(&self) -> Result<()> {
        let history = self.history();
        ensure!(most_holders(&history) == 1, "two at once: {history:#?}");
        let holders = self.project().holders(self.address());
        ensure!(holders.len() == 1, "in the end there are {holders:?}");
        Ok(())
    }
}

/// The cluster.
impl EndpointWorld {
    /// The name of the node of machine `number`.
    pub fn node_name(&self, number: usize) -> String {
        format!("{}-{number}", self.name)
    }

    /// Nodes, by the API server of machine `via`.
    ///
    /// # Errors
    /// When it has no certificate yet.
    pub fn nodes(&self, via: usize) -> Result<Api<Node>> {
        Ok(Api::all(self.plane.connection(via)?.client(User::Admin)?))
    }

    async fn create_node(&self, number: usize) -> Result<()> {
        let place = self.places[number];
        let node = NodeDraft::new(&self.node_name(number))
            .label(LABEL, "")
            .provider_id(&self.options.cloud.provider_id(self.project(), place.device)?)
            .address("InternalIP", &place.front.ip().to_string())
            .build();
        let created = self.nodes(0)?.create(&PostParams::default(), &node).await;
        created.context("create a node").map(drop)
    }

    /// Cordons the node of machine `number`, or ends that, by the API server of machine `via`.
    ///
    /// # Errors
    /// The API's.
    pub async fn cordon(&self, via: usize, number: usize, cordoned: bool) -> Result<()> {
        let patch = json!({ "spec": { "unschedulable": cordoned } });
        let name = self.node_name(number);
        let patched = self.nodes(via)?;
        patched
            .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .context("cordon a node")
            .map(drop)
    }

    /// Deletes the node of machine `number`, by the API server of machine `via`.
    ///
    /// # Errors
    /// The API's.
    pub async fn delete_node(&self, via: usize, number: usize) -> Result<()> {
        let name = self.node_name(number);
        let deleted = self.nodes(via)?.delete(&name, &DeleteParams::default()).await;
        deleted.context("delete a node").map(drop)
    }

    /// Asks the API server at the endpoint whether it is ready, as anybody would.
    ///
    /// # Errors
    /// When it is not.
    pub async fn answers(&self) -> Result<()> {
        crate::tls::install();
        let authority = std::fs::read(self.plane.authority())?;
        let http = reqwest::Client::builder()
            .no_proxy()
            .timeout(Duration::from_secs(5))
            .tls_certs_only(reqwest::Certificate::from_pem_bundle(&authority)?)
            // The certificate is for that name, whatever the address.
            .resolve(SERVER_NAME, self.endpoint)
            .build()?;
        let url = format!("https://{SERVER_NAME}:{}/readyz", self.endpoint.port());
        eventually("the API answers at the endpoint", async || {
            let status = http.get(&url).send().await?.status();
            ensure!(status.is_success(), "it says {status}");
            Ok(())
        })
        .await
    }
}

/// The agents.
impl EndpointWorld {
    /// Where agent `number` is asked by `groundplane ctl`.
    pub fn target(&self, number: usize) -> String {
        format!("unix:{}", self.sockets.path().join(number.to_string()).display())
    }

    /// The configuration of agent `number`.
    fn config(&self, number: usize) -> Result<String> {
        Ok(format!(
            "cluster: {name:?}\n{driver}endpoint:\n  tag: {tag:?}\n  port: {port}\n  nodePort: {port}\n  \
             candidatesFile: {candidates}\n{endpoint}\
             health:\n  probe: {{caFile: {authority}, serverName: {SERVER_NAME}}}\n{health}gateway:\n  kubeconfig: {kubeconfig}\n",
            name = self.name,
            tag = tag(&self.name),
            driver = self.driver(),
            port = self.endpoint.port(),
            candidates = quoted(&self.state.join(&format!("candidates-{number}.json"))),
            authority = quoted(&self.plane.authority()),
            kubeconfig = quoted(&self.plane.connection(number)?.kubeconfig(User::Admin)),
            endpoint = self.options.endpoint,
            health = self.options.health,
        ))
    }

    /// Starts agent `number`, which was never started.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start_agent(&mut self, number: usize) -> Result<()> {
        let launch = Launch::new("agent")?;
        let launch = self
            .options
            .environment
            .iter()
            .fold(launch, |launch, (name, value)| launch.env(name, value));
        let process = launch
            .config(self.config(number)?)
            .args(["--node".to_owned(), self.node_name(number)])
            .args(["--listen".to_owned(), self.target(number)])
            .start()?;
        self.agents[number] = Some(process);
        Ok(())
    }

    /// Agent `number`.
    ///
    /// # Errors
    /// When it was never started.
    pub fn agent(&mut self, number: usize) -> Result<&mut Process> {
        let agent = self.agents.get_mut(number).and_then(Option::as_mut);
        agent.with_context(|| format!("agent {number} was never started"))
    }

    /// Kills every agent as `kill -9` does.
    ///
    /// # Errors
    /// When one cannot be.
    pub async fn kill_agents(&mut self) -> Result<()> {
        for agent in self.agents.iter_mut().flatten() {
            agent.kill9().await?;
        }
        Ok(())
    }

    /// Starts every agent again.
    ///
    /// # Errors
    /// When one does not start.
    pub async fn restart_agents(&mut self) -> Result<()> {
        for agent in self.agents.iter_mut().flatten() {
            agent.restart().await?;
        }
        Ok(())
    }

    /// A machine dies: its packets are dropped, and its agent does nothing more.
    ///
    /// # Errors
    /// When its agent has ended already.
    pub async fn die(&self, number: usize) -> Result<()> {
        self.fabric.cut(number);
        match self.agents.get(number).and_then(Option::as_ref) {
            Some(agent) => agent.child()?.pause().await,
            None => Ok(()),
        }
    }

    /// The machine goes on where it was.
    ///
    /// # Errors
    /// When its agent has ended.
    pub fn revive(&self, number: usize) -> Result<()> {
        self.fabric.join(number);
        match self.agents.get(number).and_then(Option::as_ref) {
            Some(agent) => agent.child()?.resume(),
            None => Ok(()),
        }
    }

    /// The configuration of the cloud, for other processes on these machines.
    pub fn driver(&self) -> String {
        self.options.cloud.config(&self.cloud.project, &self.cloud.token)
    }

    /// What agent `number` says.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn status(&self, number: usize) -> Result<GetEndpointStatusResponse> {
        let channel = channel(&self.target(number).parse()?, None)?.describe(FILE_DESCRIPTOR_SET)?;
        let mut client = GatewayServiceClient::new(channel);
        let answer = client.get_endpoint_status(GetEndpointStatusRequest {}).await?;
        Ok(answer.into_inner())
    }

    /// Waits until agent `number` says this.
    ///
    /// # Errors
    /// When it does not; with what it says instead.
    pub async fn says(
        &self,
        number: usize,
        what: &str,
        is_wanted: impl Fn(&GetEndpointStatusResponse) -> bool,
    ) -> Result<GetEndpointStatusResponse> {
        eventually(format_args!("agent {number} says: {what}"), async || {
            let status = self.status(number).await?;
            ensure!(is_wanted(&status), "it says {status:#?}");
            Ok(status)
        })
        .await
    }

    /// Waits until agent `number` sees every machine ready, and the endpoint.
    ///
    /// # Errors
    /// As [`EndpointWorld::says`].
    pub async fn settled(&self, number: usize) -> Result<()> {
        let ready = |status: &GetEndpointStatusResponse| {
            let all = status.candidates.iter().filter_map(|one| one.probe.as_ref());
            !status.holder.is_empty()
                && all.chain(&status.probe).filter(|probe| probe.ready).count() == MEMBERS + 1
        };
        self.says(number, "all is well", ready).await.map(drop)
    }

    /// Waits until agent `number` sees machine `of` ready, or not ready.
    ///
    /// # Errors
    /// As [`EndpointWorld::says`].
    pub async fn sees(&self, number: usize, of: usize, ready: bool) -> Result<()> {
        let node = self.node_name(of);
        let seen = |status: &GetEndpointStatusResponse| {
            let found = status.candidates.iter().find(|one| one.node == node);
            found.and_then(|one| one.probe.as_ref()).map(|probe| probe.ready) == Some(ready)
        };
        let what = format!("machine {of} is {}ready", if ready { "" } else { "not " });
        self.says(number, &what, seen).await.map(drop)
    }
}

/// The tag of the endpoint of this name. With a value, since the tags of some clouds have one.
fn tag(name: &str) -> String {
    format!("api={name}")
}

/// A path as YAML writes it.
fn quoted(path: &Path) -> String {
    format!("{:?}", path.display().to_string())
}
