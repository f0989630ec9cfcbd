//! A cluster and a project of the sandbox cloud, for groundplane to settle: nodes with their machines, Services, BGP on. What counts
//! is seen from outside: the cloud's journal, the API server's audit log.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use groundplane_sandbox::{Choice, DeviceOptions, Project, ProjectOptions, Sandbox};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::Api;
use kube::api::{ListParams, PostParams};
use tokio::time::sleep;

use super::subject::{Cluster, Subject};
use super::{number, progress};
use crate::eventually::eventually_within;
use crate::kube_api::{Mark, User};
use crate::processes::Memory;
use crate::scratch::Scratch;
use crate::world::CloudApi;

/// How large a node is, in bytes of JSON.
const NODE_BYTES: usize = 10_000;
/// Creates under way at a time.
const IN_FLIGHT: usize = 64;
/// A page of the cloud's lists.
pub(super) const PAGE: u32 = 1_000;
/// Nothing is going on when nothing was asked or written for this long: longer than the resync of the cluster, 30 s.
const QUIET: Duration = Duration::from_secs(35);
/// After this long it counts as settled even where something keeps asking, and that is reported.
const LONGEST_QUIET: Duration = Duration::from_secs(180);
/// No settling takes longer for each object, and this on top.
const PATIENCE: (Duration, Duration) = (Duration::from_millis(60), Duration::from_secs(90));
/// A megabyte, as the targets count it.
const MEGABYTE: f64 = 1e6;

/// How many objects there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) services: usize,
    pub(super) nodes: usize,
}

/// In which families machines have addresses, and so sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Families {
    Both,
    Ipv4,
}

/// The process when it had settled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settled {
    pub(super) memory: Memory,
    /// Nothing was going on any more.
    pub(super) quiet: bool,
}

impl Settled {
    pub(super) fn text(&self) -> String {
        let noise = if self.quiet { "" } else { ", though not quiet" };
        format!(
            "{:.0} MB, at most {:.0} MB{noise}",
            megabytes(self.memory.resident),
            megabytes(self.memory.peak)
        )
    }
}

/// Nodes, Services and machines, for groundplane to settle.
pub(super) struct SettledWorld {
    pub(super) size: Size,
    pub(super) cluster: Cluster,
    pub(super) project: Project,
    pub(super) cloud: CloudApi,
    families: Families,
    state: Scratch,
    _sandbox: Arc<Sandbox>,
}

impl SettledWorld {
    /// Machines, and a cluster without nodes and Services.
    pub(super) async fn start(cloud: CloudApi, families: Families, size: Size) -> Result<Self> {
        let sandbox = Arc::new(Sandbox::start().await);
        let project = ProjectOptions {
            asn: Some(65_000),
            max_per_page: PAGE,
            // What one session carries is no matter here.
            max_prefix: u32::MAX,
            ..cloud.project()
        };
        let world = Self {
            size,
            project: sandbox.try_project(project)?,
            cluster: Cluster::start().await?,
            cloud,
            families,
            state: Scratch::new("settled")?,
            _sandbox: sandbox,
        };
        world
            .project
            .add_devices_with(size.nodes, |number| world.machine(number));
        world.state.write("token", world.project.token())?;
        Ok(world)
    }

    fn machine(&self, number: usize) -> DeviceOptions {
        DeviceOptions {
            public_ipv6: match self.families {
                Families::Both => Choice::Auto,
                Families::Ipv4 => Choice::Absent,
            },
            ..DeviceOptions::named(self.cluster.corner.node_name(&number.to_string()))
        }
    }

    /// Creates nodes and Services.
    pub(super) async fn fill(&self) -> Result<()> {
        let Size { services, nodes } = self.size;
        progress(&format!("creating {nodes} nodes and {services} Services"));
        let creating = stream::iter(0..nodes).map(|number| self.create_node(number));
        creating.buffer_unordered(IN_FLIGHT).try_collect::<()>().await?;
        let api: Api<Service> = self.cluster.corner.api();
        let creating = stream::iter(0..services).map(|number| {
            let draft = self.cluster.corner.service_draft(&format!("service-{number}"));
            let api = api.clone();
            async move { api.create(&PostParams::default(), &draft.build()).await.map(drop) }
        });
        creating
            .buffer_unordered(IN_FLIGHT)
            .try_collect::<()>()
            .await
            .context("create a Service")
    }

    async fn create_node(&self, number: usize) -> Result<()> {
        let nodes: Api<Node> = self.cluster.corner.nodes();
        let draft = self
            .cluster
            .corner
            .node_draft(&number.to_string())
            .uninitialized()
            .padded(NODE_BYTES);
        nodes
            .create(&PostParams::default(), &draft.build())
            .await
            .map(drop)
            .context("create a node")
    }

    /// One node more, with its machine.
    pub(super) async fn add_node(&mut self) -> Result<()> {
        let number = self.size.nodes;
        self.project.add_device(self.machine(number));
        self.size.nodes += 1;
        self.create_node(number).await
    }

    /// The configuration, with these further keys of the section `gateway`, indented by two blanks, and these further sections.
    pub(super) fn config(&self, gateway: &str, sections: &str) -> String {
        let token = self.state.join("token");
        let driver = match self.cloud {
            CloudApi::Equinix => self.project.config(&token),
            CloudApi::Cherry => self.project.cherry_config(&token),
        };
        let own = self.cluster.sections(self.state.path());
        format!("cluster: bench\n{driver}{own}{gateway}{sections}")
    }

    /// Waits until groundplane leads, every object has what it asks for, and nothing has been going on for a while.
    pub(super) async fn settle(&self, subject: &Subject) -> Result<Settled> {
        self.complete(subject).await?;
        let quiet = self.quiet().await?;
        self.ensure_peers().await?;
        Ok(Settled {
            memory: subject.process.child()?.memory()?,
            quiet,
        })
    }

    /// Waits until groundplane leads, and every object has what it asks for; says when that was.
    pub(super) async fn complete(&self, subject: &Subject) -> Result<Instant> {
        let objects = u32::try_from(self.size.services + self.size.nodes)?;
        let patience = PATIENCE.0 * objects + PATIENCE.1;
        let told = Cell::new(Instant::now());
        eventually_within(patience, "everything is settled", async || {
            subject.process.child()?.ensure_running()?;
            sleep(Duration::from_millis(500)).await;
            let now = subject.overview().await?;
            let (services, nodes) = (now.services_with_address, now.nodes_initialized);
            if told.get().elapsed() > Duration::from_secs(10) {
                told.set(Instant::now());
                progress(&format!(
                    "{services} Services, {nodes} nodes, {} in queues",
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
            Ok(Instant::now())
        })
        .await
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
            let writes = self.writes_since(mark).await?.values().sum::<usize>();
            let now = (self.project.journal().mark(), writes);
            if now != last {
                (last, changed) = (now, Instant::now());
            }
        }
        Ok(true)
    }

    /// The writes of groundplane, other than leases: how many of each `verb resource`.
    pub(super) async fn writes_since(&self, mark: Mark) -> Result<BTreeMap<String, usize>> {
        let requests = self.cluster.api.requests_since(mark).await?;
        Ok(requests.by_user(User::Gateway).writes().summary())
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
}

pub(super) fn megabytes(bytes: u64) -> f64 {
    number(bytes) / MEGABYTE
}
