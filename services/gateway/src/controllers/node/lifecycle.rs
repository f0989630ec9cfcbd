//! What becomes of nodes that are not ready.
//!
//! | node says ready | the cloud says | we |
//! |---|---|---|
//! | yes | is not asked | take the shutdown taint away |
//! | no, unknown, nothing | the machine does not exist (fresh, complete) | delete the node |
//! | | it is off | add the shutdown taint |
//! | | it is on | nothing |
//! | | anything else: an error, a timeout, another cloud's | nothing |
//!
//! Only nodes that have a provider id and are initialised are asked for: of others it is not proven that they were ever ours. If
//! more of the nodes would go at once than the configuration allows, none goes: rather the answer is wrong.

use std::sync::Arc;

use futures::StreamExt as _;
use groundplane_core::ErrorKind;
use groundplane_proto::instances::v1::{PowerState, ResolveResponse};
use groundplane_runtime::Context;
use groundplane_runtime::grpc::RpcError;
use kube::api::Patch;
use serde_json::Value;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{debug, info, warn};

use super::plan;
use crate::clients::messages;
use crate::cluster::objects::{NodeObject, Ready};
use crate::cluster::{Event, Part, WriteError};
use crate::gateway::Gateway;

/// So few nodes may always go at once.
const ALWAYS: usize = 2;

/// Questions that are asked at a time; they share one answer of the cloud.
const QUESTIONS: usize = 256;

/// Looks after nodes until the process stops.
pub(super) fn start(gateway: &Arc<Gateway>, context: &Context) {
    let monitor = Monitor {
        gateway: Arc::clone(gateway),
    };
    context
        .tasks
        .spawn("lifecycle", async move { monitor.run().await });
}

/// What the cloud says of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finding {
    /// It does not exist.
    Gone,
    /// It is off.
    Off,
    /// It is on.
    On,
    /// Nothing that we could rely on.
    Doubt,
}

/// Only a complete answer is proof.
fn finding(answer: Result<ResolveResponse, RpcError>) -> Finding {
    match answer {
        Ok(ResolveResponse {
            machine: Some(machine),
            ..
        }) => match machine.power() {
            PowerState::Off => Finding::Off,
            PowerState::On | PowerState::Unspecified => Finding::On,
        },
        Err(error) if error.kind == ErrorKind::NotFound && error.reason == "MACHINE_NOT_FOUND" => {
            Finding::Gone
        }
        Ok(_) => Finding::Doubt,
        Err(error) => {
            debug!(%error, reason = error.reason, "the cloud does not say whether the machine exists");
            Finding::Doubt
        }
    }
}

/// Is it to be asked for?
fn is_in_question(node: &NodeObject) -> bool {
    node.ready != Ready::Yes && !node.deleting && !node.provider_id.is_empty() && !node.is_uninitialised()
}

/// May so many of all nodes go at once?
fn may_go(gone: usize, all: usize, fraction: f64) -> bool {
    #[allow(clippy::cast_precision_loss, reason = "numbers of nodes")]
    let share = gone as f64 / all.max(1) as f64;
    gone <= ALWAYS || share <= fraction
}

pub(super) struct Monitor {
    pub(super) gateway: Arc<Gateway>,
}

impl Monitor {
    async fn run(&self) {
        let gateway = &self.gateway;
        let mut period = interval(gateway.config.node_monitor_period.0);
        period.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let rounds = async {
            gateway.cluster.nodes.index.synced().await;
            loop {
                gateway.cluster.leader.acquired().await;
                period.tick().await;
                self.round().await;
            }
        };
        tokio::select! {
            () = gateway.stopping.cancelled() => {}
            () = rounds => {}
        }
    }

    /// Looks at every node once.
    pub(super) async fn round(&self) {
        let nodes = self.gateway.cluster.nodes.index.all();
        for node in nodes
            .iter()
            .filter(|node| node.ready == Ready::Yes && !node.deleting)
        {
            if let Some(patch) = plan::up_again(node) {
                self.taint(node, patch, "machine is up again").await;
            }
        }
        let known = nodes.iter().filter(|node| !node.provider_id.is_empty()).count();
        let mut gone = Vec::new();
        for (node, finding) in self
            .ask(nodes.into_iter().filter(|node| is_in_question(node)).collect())
            .await
        {
            match finding {
                Finding::Gone => gone.push(node),
                Finding::Off => {
                    if let Some(patch) = plan::shut_down(&node) {
                        self.taint(&node, patch, "machine is off").await;
                    }
                }
                Finding::On | Finding::Doubt => {}
            }
        }
        let allowed = may_go(
            gone.len(),
            known,
            self.gateway.config.lifecycle.max_delete_fraction,
        );
        if !allowed {
            warn!(
                gone = gone.len(),
                known, "too many nodes would be deleted at once; none is"
            );
        }
        for node in &gone {
            if allowed {
                self.delete(node).await;
            } else {
                let message = format!(
                    "The cloud says that the machines of {} of {known} nodes do not exist. That is more than \
                     lifecycle.maxDeleteFraction allows at once, so no node is deleted.",
                    gone.len()
                );
                self.gateway
                    .cluster
                    .events
                    .record(&**node, Event::warning("DeletionRefused", message));
            }
        }
    }

    async fn ask(&self, nodes: Vec<Arc<NodeObject>>) -> Vec<(Arc<NodeObject>, Finding)> {
        let instances = &self.gateway.services.instances;
        futures::stream::iter(nodes)
            .map(|node| async move {
                let answer = instances.resolve(messages::question(&node, true)).await;
                (node, finding(answer))
            })
            .buffer_unordered(QUESTIONS)
            .collect()
            .await
    }

    async fn taint(&self, node: &NodeObject, patch: Value, why: &str) {
        let result = self
            .gateway
            .cluster
            .nodes
            .patch(&node.key, Part::Main, &Patch::Merge(patch))
            .await;
        match result {
            Ok(_) => info!(node = node.name(), why, "taint written"),
            Err(error) => debug!(node = node.name(), %error, why, "taint not written; tried again"),
        }
    }

    /// Deletes exactly the node that was judged; if it has changed since, the next round judges again.
    async fn delete(&self, node: &NodeObject) {
        let events = &self.gateway.cluster.events;
        let name = node.name();
        let message = format!("Deleting node {name} because it does not exist in the cloud provider");
        events.record(node, Event::normal("DeletingNode", message));
        match self.gateway.cluster.nodes.delete(node).await {
            Ok(()) => info!(
                node = name,
                provider_id = &*node.provider_id,
                "machine is gone; node deleted"
            ),
            Err(error @ (WriteError::Gone(_) | WriteError::Conflict(_) | WriteError::NotLeader)) => {
                debug!(node = name, %error, "node not deleted; looked at again");
            }
            Err(error) => {
                warn!(node = name, %error, "node cannot be deleted");
                events.record(
                    node,
                    Event::warning("DeletingNodeFailed", format!("Node cannot be deleted: {error}")),
                );
            }
        }
    }
}

#[cfg(test)]
mod tests;
