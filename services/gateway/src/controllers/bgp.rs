//! Tells nodes their BGP peers.
//!
//! Asked for: nodes that are initialised, have a provider id, and are selected; not those that Kubernetes keeps out of load balancers.
//! Written: annotations, in one patch, and only those that differ. What a node says already goes with the question, so that a restart asks the cloud for nothing.
//!
//! Where BGP is turned off, or a node is not selected any more, what was written stays, since speakers live on it. Only where
//! `gateway.bgpCleanup` says so, it is taken back: what we wrote, and nothing else. In the cloud nothing is ever undone: sessions do not say
//! who made them.

mod plan;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use groundplane_core::{ErrorKind, names};
use groundplane_proto::bgp::v1::EnsureMachineRequest;
use groundplane_runtime::Context;
use groundplane_runtime::grpc::RpcError;
use kube::api::Patch;
use parking_lot::Mutex;
use serde_json::Value;
use tracing::{debug, info, warn};

use self::plan::{Formats, Wanted};
use super::node::{FOREIGN, failed};
use super::{Controller, after_write};
use crate::cluster::objects::{AddressType, Key, NodeObject};
use crate::cluster::{Change, Event, Part};
use crate::gateway::Gateway;
use crate::queue::{Outcome, Queue};
use crate::selector::Selector;

/// The reasons where nobody wants BGP: at all, or in a family in which the machine has an address.
const UNWANTED: [&str; 2] = ["BGP_OFF", "NO_FAMILY"];

/// What Kubernetes takes for a `false`.
const FALSE: [&str; 6] = ["0", "f", "F", "false", "False", "FALSE"];

/// Sessions that wait for their cloud are asked for again after this, then after twice as long, and so on.
const PENDING: Duration = Duration::from_secs(10);
/// But never later than this: a machine that will not have peers costs no more.
const LONGEST_PENDING: Duration = Duration::from_secs(300);

/// Starts it, if the configuration asks for it.
pub(crate) fn start(gateway: &Arc<Gateway>, context: &Context) {
    if runs(gateway) {
        super::run(BgpController::new(Arc::clone(gateway)), gateway, &context.tasks);
    }
}

/// Is there anything to do? Turned off, it may still have to clean up.
fn runs(gateway: &Gateway) -> bool {
    gateway.config.controllers.bgp || gateway.config.bgp_cleanup
}

/// A node has changed.
pub(crate) fn changed(gateway: &Gateway, change: &Change<NodeObject>) {
    if !runs(gateway) {
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
            || is_excluded(before) != is_excluded(after)
            || before.annotations != after.annotations
            || before.addresses != after.addresses
    });
    if matters {
        gateway.queues.bgp.wake(change.key.clone());
    }
}

/// Are there nodes that speak BGP with the cloud, or will?
pub(crate) fn is_spoken(gateway: &Gateway) -> bool {
    let config = &gateway.config;
    let selector = Selector::parse(&config.bgp_node_selector).unwrap_or_default();
    let selected = |node: &Arc<NodeObject>| !node.deleting && selects(&selector, node);
    config.controllers.bgp && gateway.cluster.nodes.index.all().iter().any(selected)
}

/// Is the node to speak BGP, by `gateway.bgpNodeSelector` and by what Kubernetes says of it?
pub(crate) fn selects(selector: &Selector, node: &NodeObject) -> bool {
    selector.matches(&node.labels) && !is_excluded(node)
}

/// Does Kubernetes keep it out of load balancers? As its own controllers judge: any value of the label but a `false` does.
fn is_excluded(node: &NodeObject) -> bool {
    let label = node.labels.get(names::LABEL_EXCLUDED);
    label.is_some_and(|value| !FALSE.contains(&value)) || node.taint(names::TAINT_TO_BE_DELETED).is_some()
}

/// Is there a machine behind it that could speak BGP?
fn speaks(node: &NodeObject) -> bool {
    !node.deleting && !node.provider_id.is_empty() && !node.is_uninitialised()
}

struct BgpController {
    gateway: Arc<Gateway>,
    selector: Selector,
    formats: Formats,
    /// Fingerprints of what nodes said when they were last as they should be.
    told: Mutex<HashMap<Key, u64>>,
    /// How often nodes were asked for whose sessions wait for their cloud.
    waiting: Mutex<HashMap<Key, u32>>,
}

impl BgpController {
    fn new(gateway: Arc<Gateway>) -> Self {
        // Validated at the start: one that cannot be read, and so would select every node, never comes here.
        let selector = Selector::parse(&gateway.config.bgp_node_selector).unwrap_or_default();
        let formats = Formats::of(&gateway.config);
        Self {
            gateway,
            selector,
            formats,
            told: Mutex::default(),
            waiting: Mutex::default(),
        }
    }

    fn wanted(&self, node: &NodeObject) -> bool {
        self.gateway.config.controllers.bgp && speaks(node) && selects(&self.selector, node)
    }

    /// Is it to be freed of what we wrote?
    fn unwanted(&self, node: &NodeObject) -> bool {
        self.gateway.config.bgp_cleanup && !node.deleting && !self.wanted(node) && plan::is_told(node)
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
            known_peers: self.formats.known_peers(&node.annotations),
            known_private_network: self.formats.known_network(&node.annotations),
            fresh: false,
        }
    }

    async fn ensure(&self, node: &Arc<NodeObject>) -> Outcome {
        // As it was before the call: an answer that comes in another term counts for this one.
        let term = self.gateway.cluster.leader.term();
        let answer = match self
            .gateway
            .services
            .bgp
            .ensure_machine(self.question(node))
            .await
        {
            Ok(answer) => answer,
            Err(error) => return self.refused(node, &error).await,
        };
        self.gateway.backend.learn(node, Some(&answer), term);
        if answer.peers.is_empty() {
            self.gateway.peerless.is(&node.key, "the cloud tells none");
        } else {
            self.gateway.peerless.is_not(&node.key);
        }
        let wanted = self.formats.wanted(&answer);
        let complete = !answer.pending && !answer.unverified;
        let mut node = Arc::clone(node);
        if let Some(patch) = self.formats.patch(&node, &wanted, complete) {
            node = match self.write(&node, patch).await {
                Ok(patched) => patched,
                Err(outcome) => return outcome,
            };
            info!(
                node = node.name(),
                peers = answer.peers.len(),
                "node knows its BGP peers"
            );
            self.leave_out(&node, &wanted);
        }
        self.remember(&node);
        if answer.pending {
            let mut waiting = self.waiting.lock();
            let times = waiting.entry(node.key.clone()).or_default();
            let pause = PENDING.saturating_mul(2_u32.saturating_pow(*times));
            *times = times.saturating_add(1);
            return Outcome::After(pause.min(LONGEST_PENDING));
        }
        self.waiting.lock().remove(&node.key);
        Outcome::Done
    }

    async fn write(&self, node: &NodeObject, patch: Value) -> Result<Arc<NodeObject>, Outcome> {
        let nodes = &self.gateway.cluster.nodes;
        nodes
            .patch(&node.key, Part::Main, &Patch::Merge(patch))
            .await
            .map_err(|error| {
                debug!(node = node.name(), %error, "peers not written");
                after_write(&error)
            })
    }

    /// Takes back what we wrote.
    async fn clean(&self, node: &NodeObject) -> Outcome {
        let term = self.gateway.cluster.leader.term();
        self.gateway.backend.learn(node, None, term);
        let Some(patch) = plan::taken_back(node) else {
            self.remember(node);
            return Outcome::Done;
        };
        match self.write(node, patch).await {
            Ok(node) => {
                info!(node = node.name(), "node is not told BGP peers any more");
                self.remember(&node);
                Outcome::Done
            }
            Err(outcome) => outcome,
        }
    }

    /// Tells which peers a format could not say.
    fn leave_out(&self, node: &NodeObject, wanted: &Wanted) {
        if wanted.untold.is_empty() {
            return;
        }
        let peers: Vec<&str> = wanted.untold.iter().map(String::as_str).collect();
        let message = format!(
            "Not every format of gateway.annotationFormats can tell of BGP peers {}, which differ from the first peer. \
             Use `indexed`.",
            peers.join(", ")
        );
        let event = Event::warning("BgpPeersLeftOut", message);
        self.gateway.cluster.events.record(node, event);
    }

    /// The node says what it should.
    fn remember(&self, node: &NodeObject) {
        let says = plan::fingerprint(self.formats.ours(&node.annotations));
        self.told.lock().insert(node.key.clone(), says);
    }

    async fn refused(&self, node: &NodeObject, error: &RpcError) -> Outcome {
        let unwanted = UNWANTED.contains(&error.reason.as_str());
        if unwanted && self.gateway.config.bgp_cleanup {
            return self.clean(node).await;
        }
        if unwanted || error.reason == FOREIGN || error.kind == ErrorKind::NotFound {
            // Nothing to say, and nothing to take back on doubt. Asked again with the next look at the cloud.
            debug!(node = node.name(), reason = error.reason, "no BGP");
            self.gateway.peerless.is(&node.key, error.to_string());
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
            Some(node) if self.unwanted(&node) => self.clean(&node).await,
            _ => {
                self.told.lock().remove(key);
                self.waiting.lock().remove(key);
                self.gateway.peerless.is_not(key);
                Outcome::Done
            }
        }
    }

    /// Nodes that were never asked for, say something else than they were told, or should not say it any more.
    fn due(&self) -> Vec<Key> {
        let told = self.told.lock();
        self.gateway.cluster.nodes.index.keys(|node| {
            let says = || plan::fingerprint(self.formats.ours(&node.annotations));
            let differs = || told.get(&node.key).is_none_or(|told| *told != says());
            (self.wanted(node) && differs()) || self.unwanted(node)
        })
    }

    fn all(&self) -> Vec<Key> {
        self.gateway.cluster.nodes.index.keys(|node| self.wanted(node))
    }
}

#[cfg(test)]
mod tests;
