//! Partitions in simulated time: the real ipam server and the real clients over a simulated network that loses everything for
//! a while. Nothing is given twice, nobody gets two, and everybody gets one once the network is whole.
//!
//! The seed decides when who is cut off; a failing one is printed and fails again.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use groundplane_proto::FILE_DESCRIPTOR_SET;
use groundplane_proto::core::v1 as core;
use groundplane_proto::ipam::v1 as pb;
use groundplane_proto::ipam::v1::ipam_service_client::IpamServiceClient;
use groundplane_runtime::Context;
use groundplane_runtime::grpc::{
    Channel, Listen, MemoryConnector, Policy, Server, Target, call, channel, memory,
};
use serde::Deserialize;
use tokio::io::copy_bidirectional;

const PORT: u16 = 9471;
const CLIENTS: [&str; 3] = ["one", "two", "three"];
/// Owners of each client alone, and owners whom all of them ask for.
const OWN: usize = 6;
const SHARED: usize = 4;

type Failure = Box<dyn std::error::Error>;

/// The part of the configuration file that ipam reads.
#[derive(Deserialize)]
struct File {
    pools: Vec<groundplane_ipam::PoolConfig>,
    ipam: groundplane_ipam::IpamConfig,
}

/// What every client was told, by owner: the truth that the store must agree with.
type Told = Rc<RefCell<BTreeMap<String, String>>>;

/// Runs a task for as long as the simulated host lives.
#[allow(
    clippy::disallowed_methods,
    reason = "turmoil ends the tasks of a host with it"
)]
fn background(task: impl Future<Output = ()> + 'static) {
    tokio::task::spawn_local(task);
}

/// The server: real gRPC in memory, its bytes carried over the simulated network.
async fn ipam() -> Result<(), Failure> {
    let context = Context::new();
    let file: File = groundplane_runtime::config::parse(
        "sim",
        "pools: [{name: sim, addresses: [\"10.0.0.0/24\"]}]\nipam: {store: {kind: memory}, cooldown: 0s}\n",
    )?;
    let config = groundplane_ipam::Config {
        pools: file.pools,
        ipam: file.ipam,
    };
    let routes = groundplane_ipam::start(config, &context).await?;
    let (listener, connector) = memory();
    let server = Server::new("ipam", &context)
        .listen(Listen::Memory(listener))
        .routes(routes);
    server.reflection(false, FILE_DESCRIPTOR_SET).start().await?;
    let sockets = turmoil::net::TcpListener::bind((std::net::Ipv4Addr::UNSPECIFIED, PORT)).await?;
    loop {
        let (mut socket, _) = sockets.accept().await?;
        let mut pipe = connector.connect().await?;
        background(async move {
            // A cut connection is what this is about.
            drop(copy_bidirectional(&mut socket, &mut pipe).await);
        });
    }
}

/// The client's side of the same.
fn connect() -> Result<Channel, Failure> {
    let (listener, connector): (_, MemoryConnector) = memory();
    let mut incoming = listener.take().ok_or("taken")?;
    background(async move {
        while let Some(mut pipe) = incoming.recv().await {
            background(async move {
                if let Ok(mut socket) = turmoil::net::TcpStream::connect(("ipam", PORT)).await {
                    drop(copy_bidirectional(&mut pipe, &mut socket).await);
                }
            });
        }
    });
    Ok(channel(&Target::Memory(connector), None)?.describe(FILE_DESCRIPTOR_SET)?)
}

fn owner(name: &str) -> core::Owner {
    core::Owner {
        cluster: "sim".to_owned(),
        kind: "service".to_owned(),
        namespace: "default".to_owned(),
        name: name.to_owned(),
        slot: String::new(),
    }
}

/// Patient enough for every partition of the plan.
fn patience() -> Policy {
    Policy {
        total: Duration::from_secs(240),
        ..Policy::default()
    }
}

/// Asks for all of its owners, and writes down what it was told.
async fn ask(client: &'static str, told: Told) -> Result<(), Failure> {
    let ipam = IpamServiceClient::new(connect()?);
    let adopt = pb::AdoptRequest {
        cluster: "sim".to_owned(),
        kinds: vec!["service".to_owned()],
        ..Default::default()
    };
    call(patience(), || async { ipam.clone().adopt(adopt.clone()).await }).await?;
    let own = (0..OWN).map(|n| format!("{client}-{n}"));
    for name in own.chain((0..SHARED).map(|n| format!("shared-{n}"))) {
        let request = pb::AllocateRequest {
            owner: Some(owner(&name)),
            requests: vec![core::AddressRequest {
                family: core::Family::Ipv4.into(),
                ..Default::default()
            }],
            ..Default::default()
        };
        let answer = call(patience(), || async {
            ipam.clone().allocate(request.clone()).await
        })
        .await?;
        let prefix = answer
            .allocations
            .first()
            .ok_or("no allocation in the answer")?
            .prefix
            .clone();
        let before = told.borrow_mut().insert(name.clone(), prefix.clone());
        if before.is_some_and(|before| before != prefix) {
            return Err(format!("{name} was told two addresses").into());
        }
    }
    Ok(())
}

/// One simulated run.
fn run(seed: u64) -> Result<BTreeMap<String, String>, Failure> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut sim = turmoil::Builder::new()
        .simulation_duration(Duration::from_secs(600))
        .tick_duration(Duration::from_millis(5))
        .rng_seed(seed)
        .build();
    sim.host("ipam", ipam);
    let told = Told::default();
    for client in CLIENTS {
        sim.client(client, ask(client, Rc::clone(&told)));
    }
    // Until this tick the network is cut and mended at random; then it stays whole.
    let whole = 6_000;
    let mut cut = [false; CLIENTS.len()];
    for tick in 0.. {
        if sim.step()? {
            break;
        }
        if tick == whole {
            for client in CLIENTS {
                sim.repair(client, "ipam");
            }
        } else if tick < whole && random.u32(..100) == 0 {
            let index = random.usize(..CLIENTS.len());
            cut[index] = !cut[index];
            if cut[index] {
                sim.partition(CLIENTS[index], "ipam");
            } else {
                sim.repair(CLIENTS[index], "ipam");
            }
        }
    }
    Ok(told.take())
}

#[test]
fn partitions_give_nothing_twice_and_everybody_one() {
    for seed in 0..20 {
        let told = run(seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(
            told.len(),
            CLIENTS.len() * OWN + SHARED,
            "seed {seed}: somebody got nothing"
        );
        let mut holders = BTreeMap::new();
        for (owner, prefix) in &told {
            if let Some(other) = holders.insert(prefix, owner) {
                panic!("seed {seed}: {prefix} was given to {other} and to {owner}");
            }
        }
    }
}
