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
//! more of the nodes would go within a window of time than the configuration allows ([`Brake`]), none goes: rather the answer is wrong.

use std::sync::Arc;

use futures::StreamExt as _;
use groundplane_core::ErrorKind;
use groundplane_proto::instances::v1::{PowerState, ResolveResponse};
use groundplane_runtime::Context;
use groundplane_runtime::grpc::RpcError;
use kube::api::Patch;
use serde_json::Value;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::{debug, info, warn};

use super::plan;
use crate::clients::messages;
use crate::cluster::objects::{NodeObject, Ready};
use crate::cluster::{Event, Part, WriteError};
use crate::controllers::brake::{Brake, Verdict};
use crate::gateway::Gateway;

/// Questions that are asked at a time; they share one answer of the cloud.
const QUESTIONS: usize = 256;

/// Looks after nodes until the process stops.
pub(super) fn start(gateway: &Arc<Gateway>, context: &Context) {
    context.tasks.spawn("lifecycle", Monitor::new(gateway).run());
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

struct Monitor {
    gateway: Arc<Gateway>,
    brake: Brake,
}

impl Monitor {
    fn new(gateway: &Arc<Gateway>) -> Self {
        let lifecycle = &gateway.config.lifecycle;
        Self {
            gateway: Arc::clone(gateway),
            brake: Brake::new(lifecycle.max_delete_fraction, lifecycle.delete_window.0),
        }
    }

    async fn run(mut self) {
        let gateway = Arc::clone(&self.gateway);
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
    async fn round(&mut self) {
        let nodes = self.gateway.cluster.nodes.index.all();
        let up = nodes
            .iter()
            .filter(|node| node.ready == Ready::Yes && !node.deleting);
        for node in up {
            if let Some(patch) = plan::up_again(node) {
                self.taint(node, patch, "machine is up again").await;
            }
        }
        let in_question = nodes.iter().filter(|node| is_in_question(node)).cloned();
        let mut gone = Vec::new();
        for (node, finding) in self.ask(in_question.collect()).await {
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
        let known = nodes.iter().filter(|node| !node.provider_id.is_empty());
        let verdict = self.brake.judge(
            gone.iter().map(|node| &*node.uid),
            known.map(|node| &*node.uid),
            Instant::now(),
        );
        if verdict.allowed {
            for node in &gone {
                self.delete(node).await;
            }
        } else {
            self.refuse(&gone, verdict);
        }
    }

    /// Says why nodes stay whose machines are said to be gone.
    fn refuse(&self, gone: &[Arc<NodeObject>], Verdict { gone: count, all, .. }: Verdict) {
        let window = self.gateway.config.lifecycle.delete_window;
        warn!(gone = count, all, %window, "too many nodes would be deleted within the window; none is");
        for node in gone {
            let message = format!(
                "The cloud says that the machine does not exist. With it, {count} of {all} nodes would go within {window}, \
                 which is more than lifecycle.maxDeleteFraction allows, so no node is deleted."
            );
            let event = Event::warning("DeletionRefused", message);
            self.gateway.cluster.events.record(&**node, event);
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
    async fn delete(&mut self, node: &NodeObject) {
        let events = self.gateway.cluster.events.clone();
        let name = node.name();
        let message = format!("Deleting node {name} because it does not exist in the cloud provider");
        events.record(node, Event::normal("DeletingNode", message));
        let deleted = self.gateway.cluster.nodes.delete(node).await;
        if may_have_gone(&deleted) {
            self.brake.went(&node.uid, Instant::now());
        }
        match deleted {
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

/// Is the node gone, or could it be? One that another gateway deleted is not ours to count, save that the answer may have been lost
/// on the way, and this be the second try.
fn may_have_gone(deleted: &Result<(), WriteError>) -> bool {
    match deleted {
        Ok(()) | Err(WriteError::Gone(_) | WriteError::Timeout | WriteError::Unavailable(_)) => true,
        Err(
            WriteError::NotLeader | WriteError::Conflict(_) | WriteError::Denied(_) | WriteError::Refused(_),
        ) => false,
    }
}

#[cfg(test)]
mod tests;
