//! Tells nodes their BGP peers.
//!
//! Asked for: nodes that are initialised, have a provider id, and are selected. Written: annotations, in one patch, and only
//! those that differ. What a node says already goes with the question, so that a restart asks the cloud for nothing.

mod plan;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use groundplane_core::ErrorKind;
use groundplane_proto::bgp::v1::EnsureMachineRequest;
use groundplane_runtime::Context;
use groundplane_runtime::grpc::RpcError;
use kube::api::Patch;
use parking_lot::Mutex;
use tracing::{debug, info, warn};

use super::node::{FOREIGN, failed};
use super::{Controller, after_write};
use crate::cluster::objects::{AddressType, Key, NodeObject};
use crate::cluster::{Change, Event, Part};
use crate::gateway::Gateway;
use crate::queue::{Outcome, Queue};
use crate::selector::Selector;

/// The reason where nobody wants BGP.
const BGP_OFF: &str = "BGP_OFF";

/// Sessions that wait for their cloud are asked for again after this.
const PENDING: Duration = Duration::from_secs(10);

/// Starts it, if the configuration asks for it.
pub(crate) fn start(gateway: &Arc<Gateway>, context: &Context) {
    if gateway.config.controllers.bgp {
        super::run(BgpController::new(Arc::clone(gateway)), gateway, &context.tasks);
    }
}

/// A node has changed.
pub(crate) fn changed(gateway: &Gateway, change: &Change<NodeObject>) {
    if !gateway.config.controllers.bgp {
        return;
    }
    let Some(after) = change.after.as_ref().filter(|node| speaks(node)) else {
        if change.before.as_ref().is_some_and(|node| speaks(node)) {
            // What is remembered of it can go.
            gateway.queues.bgp.wake(change.key.clone());
        }
        return;
    };
    let matters = change.before.as_ref().is_none_or(|before| {
        !speaks(before)
            || before.uid != after.uid
            || before.provider_id != after.provider_id
            || before.labels != after.labels
            || before.annotations != after.annotations
            || before.addresses != after.addresses
    });
    if matters {
        gateway.queues.bgp.wake(change.key.clone());
    }
}

/// Is there a machine behind it that could speak BGP?
fn speaks(node: &NodeObject) -> bool {
    !node.deleting && !node.provider_id.is_empty() && !node.is_uninitialised()
}

struct BgpController {
    gateway: Arc<Gateway>,
    selector: Selector,
    /// Fingerprints of what nodes said when they were last as they should be.
    told: Mutex<HashMap<Key, u64>>,
}

impl BgpController {
    fn new(gateway: Arc<Gateway>) -> Self {
        // Validated at the start: one that cannot be read, and so would select every node, never comes here.
        let selector = Selector::parse(&gateway.config.bgp_node_selector).unwrap_or_default();
        Self {
            gateway,
            selector,
            told: Mutex::default(),
        }
    }

    fn wanted(&self, node: &NodeObject) -> bool {
        speaks(node) && self.selector.matches(&node.labels)
    }

    fn prefix(&self) -> &str {
        self.gateway.config.annotation_prefix()
    }

    fn question(&self, node: &NodeObject) -> EnsureMachineRequest {
        let ip = |kind: &AddressType| matches!(kind, AddressType::InternalIp | AddressType::ExternalIp);
        EnsureMachineRequest {
            provider_id: node.provider_id.to_string(),
            node: node.name().to_owned(),
            labels: node
                .labels
                .iter()
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
            addresses: node
                .addresses
                .iter()
                .filter(|address| ip(&address.kind))
                .map(|address| address.address.to_string())
                .collect(),
            known_peers: plan::known_peers(&node.annotations, self.prefix()),
            known_private_network: plan::known_network(&node.annotations, self.prefix()),
            fresh: false,
        }
    }

    async fn ensure(&self, node: &Arc<NodeObject>) -> Outcome {
        let answer = match self
            .gateway
            .services
            .bgp
            .ensure_machine(self.question(node))
            .await
        {
            Ok(answer) => answer,
            Err(error) => return self.refused(node, &error),
        };
        let wanted = plan::wanted(self.prefix(), &answer);
        let complete = !answer.pending && !answer.unverified;
        let mut node = Arc::clone(node);
        if let Some(patch) = plan::patch(&node, self.prefix(), &wanted, complete) {
            match self
                .gateway
                .cluster
                .nodes
                .patch(&node.key, Part::Main, &Patch::Merge(patch))
                .await
            {
                Ok(patched) => node = patched,
                Err(error) => {
                    debug!(node = node.name(), %error, "peers not written");
                    return after_write(&error);
                }
            }
            info!(
                node = node.name(),
                peers = answer.peers.len(),
                "node knows its BGP peers"
            );
        }
        if answer.pending {
            self.told.lock().remove(&node.key);
            return Outcome::After(PENDING);
        }
        self.remember(&node);
        Outcome::Done
    }

    /// The node says what it should.
    fn remember(&self, node: &NodeObject) {
        let says = plan::fingerprint(plan::ours(&node.annotations, self.prefix()));
        self.told.lock().insert(node.key.clone(), says);
    }

    fn refused(&self, node: &NodeObject, error: &RpcError) -> Outcome {
        if error.reason == BGP_OFF || error.reason == FOREIGN || error.kind == ErrorKind::NotFound {
            // Nothing to say, and nothing to take back on doubt. Asked again with the next look at the cloud.
            debug!(node = node.name(), reason = error.reason, "no BGP");
            self.remember(node);
            return Outcome::Done;
        }
        warn!(node = node.name(), reason = error.reason, %error, "BGP peers are not known");
        if !error.kind.is_retryable() {
            let message = format!("BGP sessions cannot be set up: {error}");
            self.gateway
                .cluster
                .events
                .record(node, Event::warning("BgpFailed", message));
        }
        failed(error)
    }
}

impl Controller for BgpController {
    const KIND: &'static str = "Node";

    fn queue(&self) -> &Queue {
        &self.gateway.queues.bgp
    }

    async fn reconcile(&self, key: &Key) -> Outcome {
        match self.gateway.cluster.nodes.get(key) {
            Some(node) if self.wanted(&node) => self.ensure(&node).await,
            _ => {
                self.told.lock().remove(key);
                Outcome::Done
            }
        }
    }

    /// Nodes that were never asked for, or say something else than they were told.
    fn due(&self) -> Vec<Key> {
        let told = self.told.lock();
        self.gateway.cluster.nodes.index.keys(|node| {
            let says = || plan::fingerprint(plan::ours(&node.annotations, self.prefix()));
            self.wanted(node) && told.get(&node.key).is_none_or(|told| *told != says())
        })
    }

    fn all(&self) -> Vec<Key> {
        self.gateway.cluster.nodes.index.keys(|node| self.wanted(node))
    }
}

#[cfg(test)]
mod tests;
