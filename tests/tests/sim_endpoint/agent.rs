//! An agent: `health`, `eip` and the gateway's endpoint controller as they are, in a process of its own that can be killed.

use std::net::IpAddr;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use groundplane_cloud::testing::{FakeCloud, FakeEndpoint};
use groundplane_cloud::{
    CloudError, CloudErrorKind, ConfiguredEndpoint, Endpoint, EndpointAssignment, EndpointIps,
    EndpointSelector,
};
use groundplane_core::ProviderId;
use groundplane_gateway::endpoint::{AgentConfig, AgentPorts, Record, Witness, start_agent_with};
use groundplane_health::HealthConfig;
use groundplane_health::domain::{Outcome, Sign};
use groundplane_health::ports::Probe;
use groundplane_proto::eip::v1 as eip;
use groundplane_proto::eip::v1::eip_service_client::EipServiceClient;
use groundplane_proto::eip::v1::eip_service_server::{EipService, EipServiceServer};
use groundplane_runtime::Context;
use groundplane_runtime::grpc::{Channel, Server};
use groundplane_tests::chaos::contracts_of;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep};
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use super::sight::Sight;
use super::world::{Life, World, address, endpoint, name, number};

type Failure = Box<dyn std::error::Error>;

/// Starts an agent on a machine.
pub(crate) async fn start(world: &World, machine: usize) -> Result<(), Failure> {
    let context = Context::with_clock(Arc::clone(&world.clock) as _);
    let (life, file, view) = {
        let mut state = world.state();
        let life = state.lives.len();
        let (tell, view) = watch::channel(None);
        // What it finds in its file.
        let knows = state.machines[machine].file.clone().unwrap_or_default();
        state.lives.push(Life {
            machine,
            killed: context.tasks.token(),
            sights: [(None, Sight::default())].into(),
            ever: knows.iter().map(|node| node.machine).collect(),
            knows,
            tell,
        });
        state.machines[machine].agent = Some(life);
        state.machines[machine].restart = None;
        (life, world.file(machine), view)
    };
    world.note(format_args!("agent {life} starts on {machine}"));
    let eyes = Eyes {
        world: world.clone(),
        life,
        machine,
    };
    let health = groundplane_health::start_with(&HealthConfig::default(), eyes, &context);
    let health = serve("health", health, &context).await?;
    let watched = Watched {
        world: world.clone(),
        life,
        behind: EipServiceClient::new(eip(world, life, machine, &context).await?),
    };
    let watched = Routes::new(EipServiceServer::new(watched));
    let eip = serve("eip", watched, &context).await?;
    let config = AgentConfig {
        node: name(machine),
        cluster: "sim".to_owned(),
        kubeconfig: None,
        address: Some(endpoint().ip()),
        port: Some(endpoint().port()),
        node_port: None,
        node_selector: String::new(),
        node_prefix: String::new(),
        refresh: REFRESH,
        rank_step: STEP,
        own_addresses_only: world.own_addresses_only(),
        candidates_file: Some(file),
        service: None,
        rivals: None,
    };
    let ports = AgentPorts::over(eip, health, config.cluster.clone(), view, Arc::new(Nobody));
    start_agent_with(config, ports, &context);
    Ok(())
}

/// Between two reads where nothing happens: the default.
const REFRESH: Duration = Duration::from_secs(60);
/// What one rank waits longer than the one before.
pub(crate) const STEP: Duration = Duration::from_millis(500);

struct Nobody;

impl Witness for Nobody {
    fn moved(&self, _: &Record) {}
}

async fn eip(world: &World, life: usize, machine: usize, context: &Context) -> Result<Routes, Failure> {
    let clouds = FakeCloud::new();
    clouds.set_endpoint(Some(&world.fake));
    let mut cloud = clouds.cloud();
    cloud.endpoint = Some(ConfiguredEndpoint {
        selector: EndpointSelector::Address(endpoint().ip()),
        ips: Arc::new(Gate {
            world: world.clone(),
            life,
            machine,
        }),
    });
    Ok(groundplane_eip::start(groundplane_eip::Config::default(), cloud, None, context).await?)
}

/// The contracts that are spoken here.
static CONTRACTS: LazyLock<Vec<u8>> = LazyLock::new(|| contracts_of(&["health", "eip"]));

async fn serve(name: &'static str, routes: Routes, context: &Context) -> Result<Channel, Failure> {
    let server = Server::new(name, context).routes(routes);
    Ok(server.within(&CONTRACTS).await?)
}

/// Probes of the simulated network.
struct Eyes {
    world: World,
    life: usize,
    machine: usize,
}

/// A probe that runs. Dropped before its end, it never was.
struct Running<'a> {
    eyes: &'a Eyes,
    target: Option<usize>,
    number: u64,
    ended: bool,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let mut state = self.eyes.world.state();
            let sight = state.lives[self.eyes.life].sights.entry(self.target);
            sight.or_default().forget(self.number);
        }
    }
}

impl Probe for Eyes {
    async fn probe(&self, to: SocketAddr) -> Outcome {
        let target = (0..5).find(|machine| address(*machine) == to);
        let number = {
            let mut state = self.world.state();
            let sights = &mut state.lives[self.life].sights;
            sights.entry(target).or_default().begin()
        };
        let mut running = Running {
            eyes: self,
            target,
            number,
            ended: false,
        };
        let (took, sign) = self.world.look(self.machine, to);
        sleep(took).await;
        {
            let mut state = self.world.state();
            let sights = &mut state.lives[self.life].sights;
            let seen = (Instant::now(), sign);
            sights
                .entry(target)
                .or_default()
                .end(number, seen, &self.world.settings);
        }
        running.ended = true;
        let detail = match sign {
            Sign::Ready => "",
            Sign::Alive => "500: as told",
            Sign::Silent => "timed out",
        };
        Outcome {
            sign,
            detail: detail.to_owned(),
            took,
        }
    }
}

/// The agent's way to the cloud. What the cloud has received takes effect, whether the agent lives to see it or not.
struct Gate {
    world: World,
    life: usize,
    machine: usize,
}

impl Gate {
    async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(FakeEndpoint) -> futures::future::BoxFuture<'static, Result<T, CloudError>> + Send,
    ) -> Result<T, CloudError> {
        if self.world.is_dead(self.life) {
            return Err(gone());
        }
        if !self.world.finds_cloud(self.machine) {
            return std::future::pending().await;
        }
        let (tell, told) = oneshot::channel();
        let work = work(self.world.fake.clone());
        self.world.tasks.spawn("call", async move {
            tell.send(work.await).ok();
        });
        told.await.unwrap_or_else(|_| Err(gone()))
    }

    async fn write<T: Send + 'static>(
        &self,
        what: String,
        work: impl FnOnce(FakeEndpoint) -> futures::future::BoxFuture<'static, Result<T, CloudError>> + Send,
    ) -> Result<T, CloudError> {
        let life = self.life;
        if self.world.step(life) {
            return Err(gone());
        }
        self.world.note(format_args!("agent {life}: {what}"));
        let answer = self.call(work).await;
        if self.world.step(life) {
            return Err(gone());
        }
        let told = answer
            .as_ref()
            .map_or_else(ToString::to_string, |_| "done".to_owned());
        self.world.note(format_args!("agent {life}: {what}: {told}"));
        answer
    }
}

fn refused() -> CloudError {
    CloudError::new(CloudErrorKind::Refused, "assign", "it is of another metro")
}

fn gone() -> CloudError {
    CloudError::new(CloudErrorKind::Denied, "call", "the agent is dead")
}

#[async_trait]
impl EndpointIps for Gate {
    fn calls_per_move(&self) -> u32 {
        self.world.fake.calls_per_move()
    }

    fn moves_atomically(&self) -> bool {
        self.world.fake.moves_atomically()
    }

    fn machine(&self, id: &ProviderId) -> Option<ProviderId> {
        self.world.fake.machine(id)
    }

    async fn endpoint(&self, selector: &EndpointSelector) -> Result<Endpoint, CloudError> {
        let selector = selector.clone();
        self.call(move |fake| Box::pin(async move { fake.endpoint(&selector).await }))
            .await
    }

    async fn assign(&self, address: IpAddr, machine: &ProviderId) -> Result<EndpointAssignment, CloudError> {
        let machine = machine.clone();
        let what = format!("assign to {:?}", number(&machine));
        let refuses = self.world.refuses(self.life, &machine);
        self.write(what, move |fake| {
            Box::pin(async move {
                if refuses {
                    return Err(refused());
                }
                fake.assign(address, &machine).await
            })
        })
        .await
    }

    async fn unassign(&self, assignment_id: &str) -> Result<(), CloudError> {
        let id = assignment_id.to_owned();
        let what = format!("take {id} away");
        self.world.judge_taking(self.life);
        self.write(what, move |fake| {
            Box::pin(async move { fake.unassign(&id).await })
        })
        .await
    }

    async fn reassign(
        &self,
        address: IpAddr,
        machine: &ProviderId,
    ) -> Result<EndpointAssignment, CloudError> {
        let machine = machine.clone();
        let what = format!("move to {:?}", number(&machine));
        self.world.judge_taking(self.life);
        let refuses = self.world.refuses(self.life, &machine);
        self.write(what, move |fake| {
            Box::pin(async move {
                if refuses {
                    return Err(refused());
                }
                fake.reassign(address, &machine).await
            })
        })
        .await
    }
}

/// Stands before `eip` and looks at what is asked for.
struct Watched {
    world: World,
    life: usize,
    behind: EipServiceClient<Routes>,
}

fn no<T>() -> Result<Response<T>, Status> {
    Err(Status::unimplemented("not in this simulation"))
}

#[tonic::async_trait]
impl EipService for Watched {
    async fn get_endpoint(
        &self,
        request: Request<eip::GetEndpointRequest>,
    ) -> Result<Response<eip::GetEndpointResponse>, Status> {
        self.behind.clone().get_endpoint(request.into_inner()).await
    }

    async fn move_endpoint(
        &self,
        request: Request<eip::MoveEndpointRequest>,
    ) -> Result<Response<eip::MoveEndpointResponse>, Status> {
        if self.world.step(self.life) {
            return Err(Status::unavailable("the agent is dead"));
        }
        let request = request.into_inner();
        self.world.judge(self.life, &request);
        let answer = self.behind.clone().move_endpoint(request).await;
        let (life, told) = (self.life, answer.as_ref().map(Response::get_ref));
        self.world.note(format_args!(
            "agent {life} is told {:?}",
            told.map_err(Status::message)
        ));
        answer
    }

    async fn ensure_address(
        &self,
        _: Request<eip::EnsureAddressRequest>,
    ) -> Result<Response<eip::EnsureAddressResponse>, Status> {
        no()
    }

    async fn release_address(
        &self,
        _: Request<eip::ReleaseAddressRequest>,
    ) -> Result<Response<eip::ReleaseAddressResponse>, Status> {
        no()
    }

    async fn audit_addresses(
        &self,
        _: Request<eip::AuditAddressesRequest>,
    ) -> Result<Response<eip::AuditAddressesResponse>, Status> {
        no()
    }

    async fn reclaim_addresses(
        &self,
        _: Request<eip::ReclaimAddressesRequest>,
    ) -> Result<Response<eip::ReclaimAddressesResponse>, Status> {
        no()
    }

    async fn list_addresses(
        &self,
        _: Request<eip::ListAddressesRequest>,
    ) -> Result<Response<eip::ListAddressesResponse>, Status> {
        no()
    }

    async fn ensure_load_balancer(
        &self,
        _: Request<eip::EnsureLoadBalancerRequest>,
    ) -> Result<Response<eip::EnsureLoadBalancerResponse>, Status> {
        no()
    }

    async fn delete_load_balancer(
        &self,
        _: Request<eip::DeleteLoadBalancerRequest>,
    ) -> Result<Response<eip::DeleteLoadBalancerResponse>, Status> {
        no()
    }
}
