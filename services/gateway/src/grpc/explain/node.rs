//! Whether a node knows its machine.

use groundplane_core::names;
use groundplane_proto::gateway::v1::{ExplainObjectResponse, Step};
use groundplane_proto::instances::v1::PowerState;

use super::{find, step, summary};
use crate::clients::messages;
use crate::cluster::objects::{Key, NodeObject};
use crate::gateway::Gateway;
use crate::grpc::{GatewayError, cache_age};

/// From the node to its machine.
pub(super) async fn explain(gateway: &Gateway, key: &Key) -> Result<ExplainObjectResponse, GatewayError> {
    let node = find(&gateway.cluster.nodes.index, "Node", key)?;
    let steps = vec![
        step("exists", true, format!("UID {}", node.uid)),
        machine(gateway, &node).await,
        initialized(&node),
        power(&node),
    ];
    let addresses: Vec<String> = node
        .addresses
        .iter()
        .map(|address| address.address.to_string())
        .collect();
    let summary = summary(&steps, || {
        format!("node {key} is the machine {}", node.provider_id)
    });
    Ok(ExplainObjectResponse {
        summary,
        steps,
        addresses,
        cache_age: cache_age(gateway),
    })
}

async fn machine(gateway: &Gateway, node: &NodeObject) -> Step {
    let question = messages::question(node, false);
    match gateway.services.instances.resolve(question).await {
        Ok(answer) => {
            let machine = answer.machine.unwrap_or_default();
            let power = match machine.power() {
                PowerState::Off => "off",
                PowerState::On => "on",
                PowerState::Unspecified => "in an unknown state",
            };
            step("machine", true, format!("{} is {power}", machine.provider_id))
        }
        Err(error) => step("machine", false, format!("{}: {error}", error.reason)),
    }
}

fn initialized(node: &NodeObject) -> Step {
    let ok = !node.is_uninitialised();
    step(
        "initialized",
        ok,
        if ok {
            "yes"
        } else {
            "it still has the taint of a node that waits for its cloud"
        },
    )
}

fn power(node: &NodeObject) -> Step {
    let ok = node.taint(names::TAINT_SHUTDOWN).is_none();
    step(
        "running",
        ok,
        if ok {
            "it has no shutdown taint"
        } else {
            "it has the taint of a machine that is off"
        },
    )
}
