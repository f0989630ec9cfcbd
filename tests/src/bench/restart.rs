//! A restart of groundplane where everything is settled: what it asks of the cloud, what it writes to Kubernetes, and how
//! much memory it takes at that size. On the sandbox cloud, BGP on.
//!
//! groundplane settles the cluster itself at first, which is the load under which its memory peaks.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;
use tokio::time::sleep;

use super::settled::{Families, Settled, SettledWorld, Size, megabytes};
use super::subject::{Cluster, Subject};
use super::{Row, Target, number, on, progress};
use crate::kube_api::Mark;
use crate::processes::Memory;
use crate::world::CloudApi;

/// The measures of one settled cluster.
pub(super) const MEASURES: [&str; 4] = [
    "restart_cloud_calls",
    "restart_kube_writes",
    "memory_peak",
    "memory_settled",
];
/// The memory of a process that has nothing to do.
pub(super) const IDLE: &str = "memory_idle";

/// How long an idle process is watched.
const IDLING: Duration = Duration::from_secs(15);

/// The memory of `groundplane all` on a cluster with nothing in it.
pub(super) async fn idle() -> Result<Vec<Row>> {
    let cluster = Cluster::start().await?;
    let subject = Subject::start("all", |folder| Ok(cluster.fixed(folder))).await?;
    subject.leads().await?;
    sleep(IDLING).await;
    let memory = subject.process.child()?.memory()?;
    let row = Row::absolute(IDLE, megabytes(memory.resident), "MB", Target::AtMost(25.0));
    Ok(vec![row.with("peak", megabytes(memory.peak).round())])
}

/// Runs the measures.
pub(super) async fn run(cloud: CloudApi, size: Size) -> Result<Vec<Row>> {
    let world = SettledWorld::start(cloud, Families::Both, size).await?;
    world.fill().await?;
    let mut subject = Subject::start("all", |_| Ok(world.config("", ""))).await?;
    let begun = Instant::now();
    let first = world.settle(&subject).await?;
    let settling = begun.elapsed();
    progress(&format!(
        "restart: settled after {:.0} s, {}",
        settling.as_secs_f64(),
        first.text()
    ));

    let (calls, mark) = (world.project.journal().mark(), world.cluster.api.mark().await?);
    let begun = Instant::now();
    subject.process.restart().await?;
    subject.process.ready().await?;
    let second = world.settle(&subject).await?;
    progress(&format!(
        "restart: settled again after {:.0} s, {}",
        begun.elapsed().as_secs_f64(),
        second.text()
    ));
    rows(&world, [&first, &second], calls, mark).await
}

async fn rows(world: &SettledWorld, settled: [&Settled; 2], calls: u64, mark: Mark) -> Result<Vec<Row>> {
    let journal = world.project.journal();
    let (total, routes) = (journal.total(calls), journal.counts(calls));
    let writes = world.writes_since(mark).await?;
    let quiet = settled[1].quiet;
    let of = |value: fn(&Memory) -> u64| settled.map(|settled| megabytes(value(&settled.memory)));
    let (peaks, residents) = (of(|memory| memory.peak), of(|memory| memory.resident));
    let [calls, kube, peak, resident] = MEASURES.map(|measure| on(measure, world.cloud));
    let sized = |row: Row| {
        row.with("services", world.size.services)
            .with("nodes", world.size.nodes)
    };
    let memory = |measure: String, [load, restart]: [f64; 2]| {
        let worse = load.max(restart);
        Row::absolute(measure, worse, "MB", Target::AtMost(120.0))
            .with("load", load.round())
            .with("restart", restart.round())
    };
    let rows = [
        Row::absolute(calls, number(total), "calls", Target::AtMost(100.0))
            .with("routes", json!(routes))
            .with("quiet", quiet),
        Row::absolute(
            kube,
            number(writes.values().sum::<usize>()),
            "writes",
            Target::AtMost(0.0),
        )
        .with("writes", json!(writes)),
        memory(peak, peaks),
        memory(resident, residents),
    ];
    Ok(rows.into_iter().map(sized).collect())
}
