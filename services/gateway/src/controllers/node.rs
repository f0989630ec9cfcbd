//! Nodes: a machine becomes one, keeps its addresses, and goes when it is proven to be gone.
//!
//! - [`initialise`](NodeController): nodes with the uninitialized taint, when they change: two patches, the taint last.
//! - refresh: all others of ours, every five minutes, and only what the cloud says differently; at once where a label and its twin
//!   under today's name differ.
//! - [`lifecycle`]: nodes that are not ready, every five seconds.
//!
//! A node whose machine is gone is told so, once: it may be that the machine was made anew, and its node kept the old id, which never
//! changes. Whether the node goes is the lifecycle's question.

mod addresses;
mod lifecycle;
mod lost;
mod plan;

use std::sync::Arc;

use groundplane_core::ErrorKind;
use groundplane_proto::instances::v1::Machine;
use groundplane_runtime::Context;
use groundplane_runtime::grpc::RpcError;
use kube::api::Patch;
use serde_json::Value;
use tracing::{debug, info, warn};

use super::{Controller, after_write};
use crate::clients::messages;
use crate::cluster::objects::{Key, NodeObject};
use crate::cluster::{Change, Event, Part, WriteError};
use crate::gateway::Gateway;
use crate::queue::{Outcome, Queue};
use addresses::{AddressError, Unlisted};
use lost::Lost;
use plan::PlanError;

/// The reason of a machine that belongs to another cloud.
pub(crate) const FOREIGN: &str = "FOREIGN";

/// Starts what the configuration asks for.
pub(crate) fn start(gateway: &Arc<Gateway>, context: &Context) {
    if gateway.config.controllers.node {
        super::run(NodeController::new(gateway), gateway, &context.tasks);
    }
    if gateway.config.controllers.lifecycle {
        lifecycle::start(gateway, context);
    }
}

/// A node has changed.
pub(crate) fn changed(gateway: &Gateway, change: &Change<NodeObject>) {
    let waits = |node: &Arc<NodeObject>| is_due(node);
    if gateway.config.controllers.node && change.after.as_ref().is_some_and(waits) {
        gateway.queues.nodes.wake(change.key.clone());
    }
}

/// Is there something to do for it, by what it says itself?
fn is_due(node: &NodeObject) -> bool {
    let lacks_twins = || !node.provider_id.is_empty() && plan::twins(node).is_some();
    !node.deleting && (node.is_uninitialised() || lacks_twins())
}

/// Why a node is not as it should be.
#[derive(Debug, thiserror::Error)]
enum NodeError {
    #[error("{0}")]
    Resolve(RpcError),
    #[error("instances answered without a machine")]
    NoMachine,
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl From<RpcError> for NodeError {
    fn from(error: RpcError) -> Self {
        Self::Resolve(error)
    }
}

struct NodeController {
    gateway: Arc<Gateway>,
    unlisted: Unlisted,
    lost: Lost,
}

impl Controller for NodeController {
    const KIND: &'static str = "Node";

    fn queue(&self) -> &Queue {
        &self.gateway.queues.nodes
    }

    async fn reconcile(&self, key: &Key) -> Outcome {
        let Some(node) = self.gateway.cluster.nodes.get(key).filter(|node| !node.deleting) else {
            return Outcome::Done;
        };
        if node.is_uninitialised() {
            match self.initialise(&node).await {
                Ok(()) => Outcome::Done,
                Err(error) => self.not_initialised(&node, &error),
            }
        } else if node.provider_id.is_empty() {
            // Never ours: kubelet runs without a cloud, and keeps the addresses itself.
            Outcome::Done
        } else {
            match self.refresh(&node).await {
                Ok(()) => Outcome::Done,
                Err(error) => self.not_refreshed(&node, &error).await,
            }
        }
    }

    fn due(&self) -> Vec<Key> {
        self.gateway.cluster.nodes.index.keys(is_due)
    }

    fn all(&self) -> Vec<Key> {
        self.gateway
            .cluster
            .nodes
            .index
            .keys(|node| !node.deleting && (node.is_uninitialised() || !node.provider_id.is_empty()))
    }
}

impl NodeController {
    fn new(gateway: &Arc<Gateway>) -> Self {
        Self {
            gateway: Arc::clone(gateway),
            unlisted: Unlisted::by(gateway.config.driver),
            lost: Lost::default(),
        }
    }

    async fn machine(&self, node: &NodeObject) -> Result<Machine, NodeError> {
        let answer = self
            .gateway
            .services
            .instances
            .resolve(messages::question(node, false))
            .await?;
        answer.machine.ok_or(NodeError::NoMachine)
    }

    async fn patch(&self, key: &Key, part: Part, patch: Value) -> Result<Arc<NodeObject>, WriteError> {
        self.gateway
            .cluster
            .nodes
            .patch(key, part, &Patch::Merge(patch))
            .await
    }

    /// Addresses first, and the taint goes last: nothing is scheduled to a node that is half done.
    async fn initialise(&self, node: &Arc<NodeObject>) -> Result<(), NodeError> {
        let machine = self.machine(node).await?;
        // Refused before anything is written, not between the two patches.
        plan::initialisation(node, &machine)?;
        for (key, value) in plan::unusable(&machine) {
            warn!(
                node = node.name(),
                key, value, "is no valid label, and is left out"
            );
        }
        let mut node = Arc::clone(node);
        if let Some(patch) = plan::addresses(&node, &machine, self.unlisted).map_err(PlanError::from)? {
            node = self.patch(&node.key, Part::Status, patch).await?;
        }
        if !node.is_uninitialised() {
            return Ok(());
        }
        let patch = plan::initialisation(&node, &machine)?;
        let node = self.patch(&node.key, Part::Main, patch).await?;
        info!(
            node = node.name(),
            provider_id = &*node.provider_id,
            "node initialised"
        );
        self.gateway
            .cluster
            .events
            .record(&*node, Event::normal("Synced", "Node synced successfully"));
        Ok(())
    }

    /// Follows what the cloud says of a node that is initialised.
    async fn refresh(&self, node: &Arc<NodeObject>) -> Result<(), NodeError> {
        let machine = self.machine(node).await?;
        self.lost.found(&node.key);
        match plan::addresses(node, &machine, self.unlisted) {
            Ok(Some(patch)) => {
                self.patch(&node.key, Part::Status, patch).await?;
                info!(node = node.name(), "addresses follow the cloud");
            }
            Ok(None) => {}
            // The addresses that the node has are better than none.
            Err(error @ AddressError::NoIp(_)) => debug!(node = node.name(), %error, "addresses stay"),
            Err(error) => return Err(PlanError::from(error).into()),
        }
        if self.gateway.config.refresh_labels
            && let Some(patch) = plan::refreshed_labels(node, &machine)
        {
            self.patch(&node.key, Part::Main, patch).await?;
            info!(node = node.name(), "labels follow the cloud");
        } else if let Some(patch) = plan::twins(node) {
            self.patch(&node.key, Part::Main, patch).await?;
            info!(node = node.name(), "labels have their twins under today's names");
        }
        Ok(())
    }

    fn not_initialised(&self, node: &NodeObject, error: &NodeError) -> Outcome {
        let (reason, outcome) = match error {
            NodeError::Write(error) => {
                debug!(node = node.name(), %error, "not written");
                return after_write(error);
            }
            NodeError::Resolve(rpc) if rpc.reason == FOREIGN => {
                debug!(node = node.name(), "belongs to another cloud");
                return Outcome::After(self.gateway.config.cloud_resync.0);
            }
            NodeError::Resolve(rpc) if rpc.kind == ErrorKind::NotFound => ("MachineNotFound", failed(rpc)),
            NodeError::Resolve(rpc) => ("MachineNotResolved", failed(rpc)),
            NodeError::NoMachine => ("MachineNotResolved", Outcome::Failed(std::time::Duration::ZERO)),
            NodeError::Plan(PlanError::NoProviderId) => {
                ("ProviderIdMissing", Outcome::Failed(std::time::Duration::ZERO))
            }
            NodeError::Plan(PlanError::Addresses(AddressError::NoIp(_))) => (
                "MachineWithoutAddress",
                Outcome::Failed(std::time::Duration::ZERO),
            ),
            NodeError::Plan(PlanError::Addresses(_)) => (
                "ProvidedNodeIpMismatch",
                Outcome::Failed(std::time::Duration::ZERO),
            ),
        };
        warn!(node = node.name(), reason, %error, "node is not initialised");
        let way_out = match error {
            NodeError::Resolve(rpc) if rpc.kind == ErrorKind::NotFound && !node.provider_id.is_empty() => {
                format!(". {}", lost::way_out(node))
            }
            _ => String::new(),
        };
        let message = format!("Node is not initialised: {error}{way_out}");
        self.gateway
            .cluster
            .events
            .record(node, Event::warning(reason, message));
        outcome
    }

    async fn not_refreshed(&self, node: &NodeObject, error: &NodeError) -> Outcome {
        match error {
            NodeError::Write(error) => after_write(error),
            NodeError::Resolve(rpc) if rpc.reason == FOREIGN => {
                debug!(node = node.name(), %error, "no machine to follow");
                Outcome::Done
            }
            // Whether it is gone for good is the lifecycle's question, and asked only of nodes that are not ready.
            NodeError::Resolve(rpc) if rpc.kind == ErrorKind::NotFound => {
                debug!(node = node.name(), %error, "no machine to follow");
                self.lost.tell(&self.gateway, node).await;
                Outcome::Done
            }
            NodeError::Resolve(rpc) => {
                debug!(node = node.name(), %error, "machine cannot be followed now");
                failed(rpc)
            }
            NodeError::NoMachine | NodeError::Plan(_) => {
                warn!(node = node.name(), %error, "addresses cannot follow the cloud");
                // Asked again with the next look at the cloud.
                Outcome::Done
            }
        }
    }
}

/// It failed, and the service may have said how long to wait.
pub(crate) fn failed(error: &RpcError) -> Outcome {
    Outcome::Failed(error.retry_after.unwrap_or_default())
}

#[cfg(test)]
mod tests;
