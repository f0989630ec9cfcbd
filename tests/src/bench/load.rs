//! Durable allocations a second through ipam's gRPC, beside calls that do nothing on the same server.

use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use groundplane_proto::core::v1::{AddressRequest, Family, Owner};
use groundplane_proto::ipam::v1::ipam_service_client::IpamServiceClient;
use groundplane_proto::ipam::v1::{AdoptRequest, AllocateRequest, GetStoreRequest};
use groundplane_runtime::grpc::Channel;
use tokio::task::JoinSet;

use super::subject::{Subject, quoted};
use super::{Row, Target, median, number, progress};

/// The name of the measure.
pub(super) const MEASURE: &str = "durable_allocations";

/// Clients, each with a connection of its own and one call under way.
const CLIENTS: usize = 64;
/// Rounds of each kind, in turn, so that a disturbance of the machine meets both.
const ROUNDS: usize = 5;
/// How long a round lasts.
const ROUND: Duration = Duration::from_secs(3);
/// How long connections and caches are warmed.
const WARM_UP: Duration = Duration::from_secs(1);
/// How long the file system is asked for its rate.
const SYNCING: Duration = Duration::from_secs(2);
/// What a flushed write of the probe holds: a page.
const PAGE: usize = 4096;

type Client = IpamServiceClient<Channel>;

/// What a client calls.
#[derive(Clone, Copy, Debug)]
enum Call {
    /// Nothing is done: `GetStore`.
    Nothing,
    /// An address for an owner that has none, durable when it is acknowledged.
    Allocate,
}

/// Runs the measure.
pub(super) async fn run() -> Result<Vec<Row>> {
    let ipam = Subject::start("ipam", |folder| Ok(config(folder))).await?;
    let clients: Vec<Client> = (0..CLIENTS)
        .map(|_| Ok(IpamServiceClient::new(ipam.channel()?)))
        .collect::<Result<_>>()?;
    adopt(clients.first().context("there is a client")?.clone()).await?;
    let owners = Arc::new(AtomicU64::new(0));
    let folder = ipam.process.folder().to_owned();
    let syncs = tokio::task::spawn_blocking(move || sync_rate(&folder)).await??;
    progress(&format!(
        "durable_allocations: the file system flushes {syncs:.0} times a second"
    ));

    let (mut calls, mut allocations) = (Vec::new(), Vec::new());
    round(&clients, Call::Nothing, WARM_UP, &owners).await?;
    round(&clients, Call::Allocate, WARM_UP, &owners).await?;
    for turn in 1..=ROUNDS {
        calls.push(round(&clients, Call::Nothing, ROUND, &owners).await?);
        allocations.push(round(&clients, Call::Allocate, ROUND, &owners).await?);
        let (calls, allocations) = (calls.last().unwrap_or(&0.0), allocations.last().unwrap_or(&0.0));
        progress(&format!(
            "durable_allocations {turn}/{ROUNDS}: {allocations:.0}/s, beside {calls:.0}/s that do nothing"
        ));
    }
    let (ours, reference) = (median(allocations), median(calls));
    let row = Row::relative(
        MEASURE,
        (ours, reference),
        "/s",
        ours / reference,
        Target::AtLeast(0.5),
    )
    .with("clients", CLIENTS)
    .with("fsyncs_per_second", syncs.round())
    .with("allocations_per_fsync", (ours / syncs * 10.0).round() / 10.0);
    Ok(vec![row])
}

/// One pool, larger than any measure needs, and a store on disk.
pub(super) fn config(state: &Path) -> String {
    format!(
        "cluster: bench\npools:\n  - {{name: bench, addresses: [\"10.0.0.0/8\"]}}\nipam:\n  store: {{kind: redb, path: {}}}\n",
        quoted(&state.join("ipam.redb"))
    )
}

/// Tells ipam that the cluster holds nothing: before that it allocates nothing for it.
pub(super) async fn adopt(mut client: Client) -> Result<()> {
    let nothing = AdoptRequest {
        cluster: "bench".to_owned(),
        kinds: vec!["service".to_owned()],
        ..AdoptRequest::default()
    };
    client
        .adopt(nothing)
        .await
        .map(drop)
        .context("tell ipam that nothing is held")
}

/// Every client calls again and again for `span`; gives calls a second.
async fn round(clients: &[Client], call: Call, span: Duration, owners: &Arc<AtomicU64>) -> Result<f64> {
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for client in clients {
        let (mut client, owners) = (client.clone(), Arc::clone(owners));
        tasks.spawn(async move {
            let mut done = 0_u64;
            while begun.elapsed() < span {
                one(&mut client, call, &owners).await?;
                done += 1;
            }
            anyhow::Ok(done)
        });
    }
    let mut done = 0;
    while let Some(ended) = tasks.join_next().await {
        done += ended??;
    }
    Ok(number(done) / begun.elapsed().as_secs_f64())
}

async fn one(client: &mut Client, call: Call, owners: &AtomicU64) -> Result<()> {
    match call {
        Call::Nothing => {
            client.get_store(GetStoreRequest {}).await?;
        }
        Call::Allocate => {
            let name = format!("service-{}", owners.fetch_add(1, Ordering::Relaxed));
            let answer = client.allocate(request(name)).await?.into_inner();
            ensure!(
                answer.allocations.len() == 1,
                "one address was asked for: {answer:?}"
            );
        }
    }
    Ok(())
}

/// An address for a new owner.
pub(super) fn request(name: String) -> AllocateRequest {
    let owner = Owner {
        cluster: "bench".to_owned(),
        kind: "service".to_owned(),
        namespace: "bench".to_owned(),
        name,
        slot: String::new(),
    };
    let wanted = AddressRequest {
        family: Family::Ipv4.into(),
        ..AddressRequest::default()
    };
    AllocateRequest {
        owner: Some(owner),
        requests: vec![wanted],
        ..AllocateRequest::default()
    }
}

/// How often a second this file system makes a small write durable.
fn sync_rate(folder: &Path) -> Result<f64> {
    let mut file = File::create(folder.join("probe")).context("create a file")?;
    let page = [7_u8; PAGE];
    file.write_all(&page)?;
    file.sync_all()?;
    let (begun, mut syncs) = (Instant::now(), 0_u64);
    while begun.elapsed() < SYNCING {
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&page)?;
        file.sync_data().context("flush a file")?;
        syncs += 1;
    }
    Ok(number(syncs) / begun.elapsed().as_secs_f64())
}
