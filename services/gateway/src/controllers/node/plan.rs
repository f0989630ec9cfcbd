//! What a node lacks of what its machine says. Pure.

use std::collections::BTreeMap;

use groundplane_core::names::{PROVIDED_NODE_IP, TAINT_SHUTDOWN, TAINT_UNINITIALIZED};
use groundplane_proto::instances::v1::{self as proto, AddressType as ProtoType};
use serde_json::{Map, Value, json};

use super::addresses::{self, AddressError, Unlisted};
use crate::cluster::objects::{AddressType, NodeAddress, NodeObject, Pairs, Taint};

/// Effect of the taint of a node whose machine is off.
const NO_SCHEDULE: &str = "NoSchedule";

/// Why a node cannot be initialised.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PlanError {
    /// Neither the node nor its cloud has one.
    #[error("neither the node nor its cloud says a provider id")]
    NoProviderId,
    /// The addresses do not fit.
    #[error(transparent)]
    Addresses(#[from] AddressError),
}

/// The patch of the status that gives the node its addresses; `None`: it has them.
pub(crate) fn addresses(
    node: &NodeObject,
    machine: &proto::Machine,
    unlisted: Unlisted,
) -> Result<Option<Value>, AddressError> {
    let machine: Vec<NodeAddress> = machine.addresses.iter().map(address).collect();
    let provided = node.annotations.get(PROVIDED_NODE_IP);
    let wanted = addresses::wanted(&node.addresses, provided, &machine, unlisted)?;
    let wanted = wanted.filter(|wanted| **wanted != *node.addresses);
    // A list that is declared to be merged by type, though types repeat: only a JSON merge patch replaces it.
    Ok(wanted.map(|wanted| json!({ "metadata": { "uid": node.uid }, "status": { "addresses": wanted } })))
}

/// The patch that initialises the node, apart from its addresses: provider id, labels, and the taint gone.
pub(crate) fn initialisation(node: &NodeObject, machine: &proto::Machine) -> Result<Value, PlanError> {
    if node.provider_id.is_empty() && machine.provider_id.is_empty() {
        return Err(PlanError::NoProviderId);
    }
    let taints = node
        .taints
        .iter()
        .filter(|taint| &*taint.key != TAINT_UNINITIALIZED);
    let taints: Vec<Taint> = taints.cloned().collect();
    let mut patch = with_taints(node, &taints);
    if node.provider_id.is_empty() {
        patch["spec"]["providerID"] = json!(machine.provider_id);
    }
    let mut labels = cloud_labels(machine);
    labels.extend(more_labels(node, machine));
    let labels = missing(&node.labels, labels);
    if !labels.is_empty() {
        patch["metadata"]["labels"] = Value::Object(labels);
    }
    Ok(patch)
}

/// The patch that makes type, zone and region what the cloud says; `None`: they are.
pub(crate) fn refreshed_labels(node: &NodeObject, machine: &proto::Machine) -> Option<Value> {
    let labels = missing(&node.labels, cloud_labels(machine));
    (!labels.is_empty()).then(|| json!({ "metadata": { "uid": node.uid, "labels": labels } }))
}

/// Labels that were renamed: yesterday's name, today's.
const RENAMED: [(&str, &str); 3] = [
    (
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "topology.kubernetes.io/zone",
    ),
    (
        "failure-domain.beta.kubernetes.io/region",
        "topology.kubernetes.io/region",
    ),
];

/// The patch that gives labels under yesterday's names, which somebody may still write, their twins under today's; `None`: they have
/// them. Where only today's is there, nothing is missing: nobody reads the other but those who write it.
pub(crate) fn twins(node: &NodeObject) -> Option<Value> {
    let differing: Map<String, Value> = RENAMED
        .into_iter()
        .filter_map(|(old, new)| {
            let value = node.labels.get(old)?;
            (node.labels.get(new) != Some(value)).then(|| (new.to_owned(), json!(value)))
        })
        .collect();
    (!differing.is_empty()).then(|| json!({ "metadata": { "uid": node.uid, "labels": differing } }))
}

/// The patch that says that the machine is off; `None`: the node says so already.
pub(crate) fn shut_down(node: &NodeObject) -> Option<Value> {
    if node.taints.iter().any(is_shutdown) {
        return None;
    }
    let taint = Taint {
        key: TAINT_SHUTDOWN.into(),
        value: None,
        effect: NO_SCHEDULE.into(),
        time_added: None,
    };
    let taints: Vec<Taint> = node.taints.iter().cloned().chain([taint]).collect();
    Some(with_taints(node, &taints))
}

/// The patch that takes that back; `None`: there is nothing to take back.
pub(crate) fn up_again(node: &NodeObject) -> Option<Value> {
    let rest: Vec<Taint> = node
        .taints
        .iter()
        .filter(|taint| !is_shutdown(taint))
        .cloned()
        .collect();
    (rest.len() < node.taints.len()).then(|| with_taints(node, &rest))
}

fn is_shutdown(taint: &Taint) -> bool {
    &*taint.key == TAINT_SHUTDOWN && &*taint.effect == NO_SCHEDULE
}

/// Taints can only be written all at once, so the patch must meet the node as it was read.
fn with_taints(node: &NodeObject, taints: &[Taint]) -> Value {
    let taints = if taints.is_empty() {
        Value::Null
    } else {
        json!(taints)
    };
    json!({ "metadata": { "resourceVersion": node.version }, "spec": { "taints": taints } })
}

/// Each under the name that is used today, and under the one that some still read.
fn told_labels(machine: &proto::Machine) -> [(&'static str, &str); 6] {
    [
        ("node.kubernetes.io/instance-type", &machine.instance_type),
        ("beta.kubernetes.io/instance-type", &machine.instance_type),
        ("topology.kubernetes.io/zone", &machine.zone),
        ("failure-domain.beta.kubernetes.io/zone", &machine.zone),
        ("topology.kubernetes.io/region", &machine.region),
        ("failure-domain.beta.kubernetes.io/region", &machine.region),
    ]
}

fn cloud_labels(machine: &proto::Machine) -> BTreeMap<String, String> {
    told_labels(machine)
        .into_iter()
        .filter(|(key, value)| !value.is_empty() && usable(key, value))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// Labels of the cloud's own. They never overwrite, and are not Kubernetes' own.
fn more_labels<'a>(
    node: &'a NodeObject,
    machine: &'a proto::Machine,
) -> impl Iterator<Item = (String, String)> + 'a {
    machine
        .labels
        .iter()
        .filter(|(key, value)| {
            let prefix = key.split_once('/').map_or("", |(prefix, _)| prefix);
            let reserved = |own: &str| prefix == own || prefix.ends_with(&format!(".{own}"));
            node.labels.get(key).is_none()
                && !reserved("kubernetes.io")
                && !reserved("k8s.io")
                && usable(key, value)
        })
        .map(|(key, value)| (key.clone(), value.clone()))
}

/// Labels that the cloud has for the node, and that are left out because they cannot be labels.
pub(crate) fn unusable(machine: &proto::Machine) -> impl Iterator<Item = (&str, &str)> {
    let own = machine.labels.iter().map(|(key, value)| (&**key, &**value));
    let all = told_labels(machine)
        .into_iter()
        .filter(|(_, value)| !value.is_empty());
    all.chain(own).filter(|(key, value)| !usable(key, value))
}

/// Would the API server take it? One label that it refuses would keep the whole node from being initialised.
fn usable(key: &str, value: &str) -> bool {
    is_label(value)
        && key
            .rsplit('/')
            .next()
            .is_some_and(|name| !name.is_empty() && is_label(name))
}

fn is_label(text: &str) -> bool {
    let ends = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && ends(bytes.first())
        && ends(bytes.last())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

fn missing(labels: &Pairs, wanted: BTreeMap<String, String>) -> Map<String, Value> {
    let missing = wanted
        .into_iter()
        .filter(|(key, value)| labels.get(key) != Some(value));
    missing.map(|(key, value)| (key, Value::String(value))).collect()
}

fn address(address: &proto::MachineAddress) -> NodeAddress {
    let kind = match address.r#type() {
        ProtoType::Hostname => AddressType::Hostname,
        ProtoType::InternalIp | ProtoType::Unspecified => AddressType::InternalIp,
        ProtoType::ExternalIp => AddressType::ExternalIp,
        ProtoType::InternalDns => AddressType::InternalDns,
        ProtoType::ExternalDns => AddressType::ExternalDns,
    };
    NodeAddress {
        kind,
        address: address.address.as_str().into(),
    }
}

#[cfg(test)]
mod tests;
