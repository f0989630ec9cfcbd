//! The processes: the gateway, twice, and the services, each as it is. A process can be killed, and what it was about to do is lost.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use groundplane_core::ClusterId;
use groundplane_gateway::{Channels, Config, Lease, Lifecycle, Reclaim, ReclaimMode};
use groundplane_proto::ipam::v1::ipam_service_server::IpamServiceServer;
use groundplane_runtime::Context;
use groundplane_runtime::grpc::{Channel, Listen, MemoryConnector, Server, Target, channel, memory};
use groundplane_tests::chaos::{Announcer, contracts_of};
use tokio::io::copy_bidirectional;
use tonic::service::Routes;

use super::pools::NoPools;
use super::world::{CLUSTER, Pace, World};
use super::{api, cloud};

type Failure = Box<dyn std::error::Error>;

/// What runs as a process of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// ipam, eip, bgp and instances.
    Services,
    /// The gateway, or the other one.
    Gateway(usize),
}

/// All of them.
pub(crate) const ROLES: [Role; 3] = [Role::Services, Role::Gateway(0), Role::Gateway(1)];
/// The services, as gateways call them.
const CALLED: [&str; 4] = ["ipam", "eip", "bgp", "instances"];

/// The contracts that are spoken here.
static CONTRACTS: LazyLock<Vec<u8>> = LazyLock::new(|| contracts_of(&CALLED));

/// Starts a process.
pub(crate) async fn start(world: &World, role: Role) -> Result<(), Failure> {
    let context = Context::with_clock(Arc::clone(&world.clock) as _);
    let life = world.begin(role, context.tasks.token());
    match role {
        Role::Services => services(world, life, &context).await,
        Role::Gateway(_) => gateway(world, life, &context),
    }
}

async fn services(world: &World, life: usize, context: &Context) -> Result<(), Failure> {
    let ipam = NoPools {
        store: format!("store-{life}"),
    };
    let ipam = Routes::new(IpamServiceServer::new(ipam));
    let (mut instances, mut eip, mut bgp) = (
        groundplane_instances::Config::default(),
        groundplane_eip::Config::default(),
        groundplane_bgp::Config::default(),
    );
    if world.pace == Pace::Quick {
        instances.max_age = Duration::from_secs(30).into();
        eip.max_age = Duration::from_secs(30).into();
        bgp.refresh = Duration::from_secs(60).into();
    }
    let cloud = || cloud::cloud(world, life);
    let eip = groundplane_eip::start(eip, cloud(), None, context).await?;
    let bgp = groundplane_bgp::start(bgp, cloud(), context).await?;
    let instances = groundplane_instances::start(instances, cloud(), context).await?;
    let served = [ipam, eip, bgp, instances];
    for (name, routes) in CALLED.into_iter().zip(served) {
        let connector = serve(name, routes, context).await?;
        world.serves(life, name, connector);
    }
    Ok(())
}

async fn serve(name: &'static str, routes: Routes, context: &Context) -> Result<MemoryConnector, Failure> {
    let (listener, connector) = memory();
    let server = Server::new(name, context)
        .listen(Listen::Memory(listener))
        .routes(routes);
    server.reflection(false, &CONTRACTS).start().await?;
    Ok(connector)
}

fn gateway(world: &World, life: usize, context: &Context) -> Result<(), Failure> {
    let channels = Channels {
        ipam: reach(world, life, "ipam", context)?,
        eip: reach(world, life, "eip", context)?,
        bgp: reach(world, life, "bgp", context)?,
        instances: reach(world, life, "instances", context)?,
    };
    let mut config = Config {
        cluster: Some(CLUSTER.parse::<ClusterId>()?),
        pools: Some(false),
        announcer: match world.plan.announcer {
            Announcer::Nobody => groundplane_gateway::Announcer::Empty,
            Announcer::KubeVip => groundplane_gateway::Announcer::KubeVip,
            Announcer::Metallb => groundplane_gateway::Announcer::Metallb,
            Announcer::MetallbConfigMap => groundplane_gateway::Announcer::MetallbConfigmap,
        },
        ..Config::default()
    };
    if world.pace == Pace::Quick {
        hurry(&mut config, world.reclaims());
    }
    let client = api::client(world, life);
    groundplane_gateway::start_with(client, "system".to_owned(), config, channels, context)?;
    Ok(())
}

/// Everything is looked for often, and nothing is too much at once.
fn hurry(config: &mut Config, reclaims: bool) {
    config.resync = Duration::from_secs(5).into();
    config.cloud_resync = Duration::from_secs(20).into();
    config.node_monitor_period = Duration::from_secs(2).into();
    config.lifecycle = Lifecycle {
        max_delete_fraction: 1.0,
        ..Lifecycle::default()
    };
    config.reclaim = Reclaim {
        // Every other run does without, so that nothing hides behind it that should have been given back at once.
        mode: if reclaims {
            ReclaimMode::On
        } else {
            ReclaimMode::Off
        },
        grace: Duration::from_secs(20).into(),
        max_fraction: 1.0,
    };
    config.lease = Lease {
        duration: Duration::from_secs(5).into(),
        retry: Duration::from_secs(1).into(),
        ..Lease::default()
    };
}

/// A way to a service, whichever process serves it at the moment.
fn reach(world: &World, life: usize, name: &'static str, context: &Context) -> Result<Channel, Failure> {
    let (listener, connector) = memory();
    let mut incoming = listener.take().ok_or("taken")?;
    let (world, stopping) = (world.clone(), context.tasks.token());
    let tasks = world.tasks.clone();
    tasks.clone().spawn("way", async move {
        while let Some(mut near) = incoming.recv().await {
            let Some((serving, connector)) = world.served(name) else {
                // Nobody is there: the connection is refused.
                continue;
            };
            if world.is_dead(life) {
                return;
            }
            let (stopping, gone) = (stopping.clone(), world.killed(serving));
            tasks.spawn("bytes", async move {
                let Ok(mut far) = connector.connect().await else {
                    return;
                };
                tokio::select! {
                    biased;
                    () = stopping.cancelled() => {}
                    () = gone.cancelled() => {}
                    // A cut connection is what this is about.
                    _ = copy_bidirectional(&mut near, &mut far) => {}
                }
            });
        }
    });
    Ok(channel(&Target::Memory(connector), None)?.describe(&CONTRACTS)?)
}
