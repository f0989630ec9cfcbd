//! Nodes whose machines are gone, though they are nodes still: told once each, with the way out.
//!
//! The usual reason: the machine was made anew. It has another id then, and the same name, so that its kubelet goes on with the node of the
//! machine before. A node keeps its provider id for good.

use std::collections::BTreeMap;

use groundplane_proto::instances::v1::ResolveRequest;
use parking_lot::Mutex;
use tracing::{debug, warn};

use crate::clients::messages;
use crate::cluster::Event;
use crate::cluster::objects::{Key, NodeObject};
use crate::gateway::Gateway;

/// Whom it was told of, by their UIDs: a node that comes again under its name is another one.
#[derive(Debug, Default)]
pub(super) struct Lost(Mutex<BTreeMap<Key, Box<str>>>);

impl Lost {
    /// The machine of this node is there.
    pub(super) fn found(&self, node: &Key) {
        self.0.lock().remove(node);
    }

    /// The machine of this node is gone: an event says so, and which machine has its name today.
    pub(super) async fn tell(&self, gateway: &Gateway, node: &NodeObject) {
        if !self.is_new(gateway, node) {
            return;
        }
        let id = &*node.provider_id;
        let (reason, message) = match namesake(gateway, node).await {
            Some(other) => (
                "MachineRecreated",
                format!(
                    "The machine {id} does not exist any more, and {other} has its name or address: it seems to have been made anew. {}",
                    way_out(node)
                ),
            ),
            None => (
                "MachineNotFound",
                format!(
                    "The machine {id} does not exist any more. The node stays for as long as it is Ready. {}",
                    way_out(node)
                ),
            ),
        };
        warn!(
            node = node.name(),
            provider_id = id,
            reason,
            "the machine of a node is gone"
        );
        gateway
            .cluster
            .events
            .record(node, Event::warning(reason, message));
    }

    /// Was it not told of yet? It counts as told from now on, and what is known of nodes that are gone goes.
    fn is_new(&self, gateway: &Gateway, node: &NodeObject) -> bool {
        let mut told = self.0.lock();
        if told.get(&node.key) == Some(&node.uid) {
            return false;
        }
        told.retain(|key, _| gateway.cluster.nodes.get(key).is_some());
        told.insert(node.key.clone(), node.uid.clone());
        true
    }
}

/// What a person can do about a provider id that leads nowhere.
pub(super) fn way_out(node: &NodeObject) -> String {
    let name = node.name();
    format!(
        "A node keeps its provider id for good: if the machine was made anew, delete the node (kubectl delete node {name}) and restart its \
         kubelet, which registers it with the id of today"
    )
}

/// The machine that would be the node's if it had no provider id yet.
async fn namesake(gateway: &Gateway, node: &NodeObject) -> Option<String> {
    let question = ResolveRequest {
        provider_id: String::new(),
        ..messages::question(node, false)
    };
    match gateway.services.instances.resolve(question).await {
        Ok(answer) => answer.machine.map(|machine| machine.provider_id),
        Err(error) => {
            debug!(node = node.name(), %error, "nobody has its name");
            None
        }
    }
}
