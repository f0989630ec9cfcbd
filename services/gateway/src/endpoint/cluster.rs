//! What is seen of the cluster: by an agent, through the API server on its own machine, never through the endpoint; by a gateway, in the
//! caches that it has.

use std::sync::Arc;

use groundplane_runtime::Context;
use kube::{Api, Client};
use tokio::sync::watch;

use super::candidate::{ClusterView, Machine};
use super::objects::{ControlNode, ServerSlice, all_servers, has_role};
use crate::cluster::objects::{Key, NodeObject};
use crate::cluster::{Change, Index, OnChange, Scope, follow};
use crate::selector::Selector;

impl ClusterView {
    /// By name and address, so that the order in which things were learned is no difference.
    fn new<'a>(
        machines: impl Iterator<Item = Machine>,
        slices: impl IntoIterator<Item = &'a ServerSlice>,
    ) -> Self {
        let mut machines: Vec<Machine> = machines.collect();
        machines.sort_by(|one, other| one.node.cmp(&other.node));
        Self {
            machines,
            servers: all_servers(slices),
        }
    }

    /// What a gateway's caches say, as an agent would see it: of the nodes with these labels, or, where none are named, of those of the
    /// control plane.
    pub(crate) fn of(nodes: &[Arc<NodeObject>], labels: &str, slices: &[Arc<ServerSlice>]) -> Self {
        // It was checked with the configuration.
        let selector = Selector::parse(labels).unwrap_or_default();
        let is_one = |node: &&Arc<NodeObject>| {
            if labels.is_empty() {
                has_role(node)
            } else {
                selector.matches(&node.labels)
            }
        };
        let machines = nodes.iter().filter(is_one).map(|node| Machine::of(node));
        Self::new(machines, slices.iter().map(Arc::as_ref))
    }
}

/// The slices of `default/kubernetes`, and of nothing else.
pub(crate) fn server_slices(client: &Client) -> Scope<ServerSlice> {
    Scope {
        api: Api::namespaced(client.clone(), "default"),
        namespace: "default".into(),
        selector: "kubernetes.io/service-name=kubernetes".to_owned(),
        wanted: |_, key| &*key.namespace == "default",
        prefix: String::new(),
    }
}

/// The nodes that an agent knows.
pub(super) type Nodes = Index<ControlNode>;

/// Follows the cluster; `None` until it has answered.
pub(super) fn watch_cluster(
    client: &Client,
    selector: &str,
    prefix: &str,
    context: &Context,
) -> (Nodes, watch::Receiver<Option<ClusterView>>) {
    let nodes: Nodes = Index::new(1);
    let slices: Index<ServerSlice> = Index::new(1);
    let (publish, seen) = publisher(&nodes, &slices, selector.is_empty());
    let tasks = &context.tasks;
    let told = Arc::clone(&publish);
    let changed: OnChange<ControlNode> = Arc::new(move |_: &Change<ControlNode>| told());
    let scope = Scope {
        api: Api::all(client.clone()),
        namespace: "".into(),
        selector: selector.to_owned(),
        wanted: |prefix: &str, key: &Key| key.name.starts_with(prefix),
        prefix: prefix.to_owned(),
    };
    tasks.spawn("watch", follow(scope, nodes.clone(), changed, tasks.token()));
    let told = Arc::clone(&publish);
    let changed: OnChange<ServerSlice> = Arc::new(move |_: &Change<ServerSlice>| told());
    tasks.spawn(
        "watch",
        follow(server_slices(client), slices.clone(), changed, tasks.token()),
    );
    let (stopping, known) = (tasks.token(), nodes.clone());
    tasks.spawn("cluster", async move {
        let both = async {
            known.synced().await;
            slices.synced().await;
        };
        tokio::select! {
            () = stopping.cancelled() => {}
            () = both => publish(),
        }
    });
    (nodes, seen)
}

type Publish = Arc<dyn Fn() + Send + Sync>;

/// Puts together what both indices say, where that is news.
fn publisher(
    nodes: &Nodes,
    slices: &Index<ServerSlice>,
    by_role: bool,
) -> (Publish, watch::Receiver<Option<ClusterView>>) {
    let (view, seen) = watch::channel(None);
    let (nodes, slices) = (nodes.clone(), slices.clone());
    let publish = move || {
        if !nodes.is_synced() || !slices.is_synced() {
            return;
        }
        let members = nodes.all();
        let members = members.iter().filter(|node| !by_role || node.says.role);
        let slices = slices.all();
        let machines = members.map(|node| node.says.machine.clone());
        let now = Some(ClusterView::new(machines, slices.iter().map(Arc::as_ref)));
        view.send_if_modified(|before| {
            let changed = *before != now;
            *before = now;
            changed
        });
    };
    (Arc::new(publish), seen)
}
