//! A restart of groundplane where everything is settled: what it asks of the cloud, what it writes to Kubernetes, and how
//! much memory it takes at that size. Driver `equinix` on the sandbox cloud, BGP on.
//!
//! groundplane settles the cluster itself at first, which is the load under which its memory peaks.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use groundplane_sandbox::{DeviceOptions, Project, ProjectOptions, Sandbox};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::json;
use tokio::time::sleep;

use super::subject::{Cluster, Subject};
use super::{Row, Target, number, progress};
use crate::eventually::eventually_within;
use crate::kube_api::{Mark, User};
use crate::processes::Memory;

/// The measures of one settled cluster.
pub(super) const MEASURES: [&str; 4] = [
    "restart_cloud_calls",
    "restart_kube_writes",
    "memory_peak",
    "memory_settled",
];
/// The memory of a process that has nothing to do.
pub(super) const IDLE: &str = "memory_idle";

/// How large a node is, in bytes of JSON.
const NODE_BYTES: usize = 10_000;
/// Creates under way at a time.
const IN_FLIGHT: usize = 64;
/// A page of the cloud's lists.
const PAGE: u32 = 1_000;
/// Nothing is going on when nothing was asked or written for this long: longer than the resync of the cluster, 30 s.
const QUIET: Duration = Duration::from_secs(35);
/// After this long it counts as settled even where something keeps asking, and that is reported.
const LONGEST_QUIET: Duration = Duration::from_secs(180);
/// No settling takes longer for each object, and this on top.
const PATIENCE: (Duration, Duration) = (Duration::from_millis(60), Duration::from_secs(90));
/// How long an idle process is watched.
const IDLING: Duration = Duration::from_secs(15);
/// A megabyte, as the targets count it.
const MEGABYTE: f64 = 1e6;

/// How many objects there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) services: usize,
    pub(super) nodes: usize,
}

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
pub(super) async fn run(size: Size) -> Result<Vec<Row>> {
    let world = SettledWorld::build(size).await?;
    let mut subject = Subject::start("all", |folder| world.config(folder)).await?;
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
    world.rows([&first, &second], calls, mark).await
}

/// The process when it had settled.
#[derive(Clone, Copy, Debug)]
struct Settled {
    memory: Memory,
    quiet: bool,
}

impl Settled {
    fn text(&self) -> String {
        let noise = if self.quiet { "" } else { ", though not quiet" };
        format!(
            "{:.0} MB, at most {:.0} MB{noise}",
            megabytes(self.memory.resident),
            megabytes(self.memory.peak)
        )
    }
}

/// Nodes, Services and machines, for groundplane to settle.
struct SettledWorld {
    size: Size,
    cluster: Cluster,
    project: Project,
    _sandbox: Arc<Sandbox>,
}

impl SettledWorld {
    /// Creates everything. Nothing settles yet.
    async fn build(size: Size) -> Result<Self> {
        let sandbox = Arc::new(Sandbox::start().await);
        let project = ProjectOptions {
            asn: Some(65_000),
            max_per_page: PAGE,
            ..ProjectOptions::default()
        };
        let project = sandbox.try_project(project)?;
        let cluster = Cluster::start().await?;
        let node = |number: usize| cluster.corner.node_name(&number.to_string());
        project.add_devices_with(size.nodes, |number| DeviceOptions::named(node(number)));
        progress(&format!(
            "restart: creating {} nodes and {} Services",
            size.nodes, size.services
        ));

        let nodes: Api<Node> = cluster.corner.nodes();
        let creating = stream::iter(0..size.nodes).map(|number| {
            let draft = cluster
                .corner
                .node_draft(&number.to_string())
                .uninitialized()
                .padded(NODE_BYTES);
            let nodes = nodes.clone();
            async move {
                nodes
                    .create(&PostParams::default(), &draft.build())
                    .await
                    .map(drop)
            }
        });
        creating
            .buffer_unordered(IN_FLIGHT)
            .try_collect::<()>()
            .await
            .context("create a node")?;

        let services: Api<Service> = cluster.corner.api();
        let creating = stream::iter(0..size.services).map(|number| {
            let draft = cluster.corner.service_draft(&format!("service-{number}"));
            let services = services.clone();
            async move {
                services
                    .create(&PostParams::default(), &draft.build())
                    .await
                    .map(drop)
            }
        });
        creating
            .buffer_unordered(IN_FLIGHT)
            .try_collect::<()>()
            .await
            .context("create a Service")?;
        Ok(Self {
            size,
            cluster,
            project,
            _sandbox: sandbox,
        })
    }

    fn config(&self, state: &Path) -> Result<String> {
        let token = state.join("token");
        std::fs::write(&token, self.project.token())?;
        Ok(format!(
            "cluster: bench
{}{}",
            self.project.config(&token),
            self.cluster.sections(state),
        ))
    }

    /// Waits until groundplane leads, every object has what it asks for, and nothing has been going on for a while.
    async fn settle(&self, subject: &Subject) -> Result<Settled> {
        let objects = u32::try_from(self.size.services + self.size.nodes)?;
        let patience = PATIENCE.0 * objects + PATIENCE.1;
        let told = Cell::new(Instant::now());
        eventually_within(patience, "everything is settled", async || {
            subject.process.child()?.ensure_running()?;
            sleep(Duration::from_secs(1)).await;
            let now = subject.overview().await?;
            let (services, nodes) = (now.services_with_address, now.nodes_initialized);
            if told.get().elapsed() > Duration::from_secs(10) {
                told.set(Instant::now());
                progress(&format!(
                    "restart: {services} Services, {nodes} nodes, {} in queues",
                    now.queue_length
                ));
            }
            ensure!(now.leader, "the leader is {:?}", now.leader_identity);
            ensure!(
                services as usize >= self.size.services,
                "{services} Services have an address"
            );
            ensure!(nodes as usize >= self.size.nodes, "{nodes} nodes are initialised");
            ensure!(now.queue_length == 0, "{} wait in queues", now.queue_length);
            Ok(())
        })
        .await?;
        let quiet = self.quiet().await?;
        self.ensure_peers().await?;
        Ok(Settled {
            memory: subject.process.child()?.memory()?,
            quiet,
        })
    }

    /// Waits until neither the cloud was asked nor Kubernetes written for a while; false where that never came.
    async fn quiet(&self) -> Result<bool> {
        let (begun, mut changed) = (Instant::now(), Instant::now());
        let mark = self.cluster.api.mark().await?;
        let mut last = (0, 0);
        while changed.elapsed() < QUIET {
            if begun.elapsed() > LONGEST_QUIET {
                return Ok(false);
            }
            sleep(Duration::from_secs(2)).await;
            let now = (
                self.project.journal().mark(),
                self.writes_since(mark).await?.len(),
            );
            if now != last {
                (last, changed) = (now, Instant::now());
            }
        }
        Ok(true)
    }

    /// The writes of groundplane, other than leases, as `verb resource`.
    async fn writes_since(&self, mark: Mark) -> Result<Vec<String>> {
        let audit = self
            .cluster
            .api
            .requests_since(mark)
            .await?
            .by_user(User::Gateway)
            .writes();
        Ok(audit
            .requests()
            .iter()
            .map(|request| format!("{} {}", request.verb, request.resource))
            .collect())
    }

    /// BGP is on: every node must have been told its peers, or the measure would flatter.
    async fn ensure_peers(&self) -> Result<()> {
        let nodes = self
            .cluster
            .corner
            .nodes()
            .list_metadata(&ListParams::default())
            .await
            .context("list nodes")?;
        let told = nodes.iter().filter(|node| {
            node.metadata
                .annotations
                .iter()
                .flatten()
                .any(|(key, _)| key.contains("/bgp-peers-") && key.ends_with("peer-ip"))
        });
        let told = told.count();
        ensure!(
            told >= self.size.nodes,
            "only {told} of {} nodes were told their BGP peers",
            self.size.nodes
        );
        Ok(())
    }

    async fn rows(&self, settled: [&Settled; 2], calls: u64, mark: Mark) -> Result<Vec<Row>> {
        let journal = self.project.journal();
        let (total, routes) = (journal.total(calls), journal.counts(calls));
        let writes = self.writes_since(mark).await?;
        let mut kinds = std::collections::BTreeMap::new();
        for write in &writes {
            *kinds.entry(write.as_str()).or_insert(0_usize) += 1;
        }
        let quiet = settled[1].quiet;
        let of = |value: fn(&Memory) -> u64| settled.map(|settled| megabytes(value(&settled.memory)));
        let (peaks, residents) = (of(|memory| memory.peak), of(|memory| memory.resident));
        let [calls, kube, peak, resident] = MEASURES;
        let sized = |row: Row| {
            row.with("services", self.size.services)
                .with("nodes", self.size.nodes)
        };
        let memory = |measure: &str, [load, restart]: [f64; 2]| {
            let worse = load.max(restart);
            Row::absolute(measure, worse, "MB", Target::AtMost(120.0))
                .with("load", load.round())
                .with("restart", restart.round())
        };
        let rows = [
            Row::absolute(calls, number(total), "calls", Target::AtMost(100.0))
                .with("routes", json!(routes))
                .with("quiet", quiet),
            Row::absolute(kube, number(writes.len()), "writes", Target::AtMost(0.0))
                .with("writes", json!(kinds)),
            memory(peak, peaks),
            memory(resident, residents),
        ];
        Ok(rows.into_iter().map(sized).collect())
    }
}

fn megabytes(bytes: u64) -> f64 {
    number(bytes) / MEGABYTE
}
