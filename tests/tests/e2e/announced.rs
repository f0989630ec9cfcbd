//! What scenarios look for in objects.

use anyhow::Result;
use groundplane_core::names::{CONDITION_ADDRESS, SERVICE_FINALIZER, TAINT_UNINITIALIZED};
use groundplane_tests::Corner;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// The condition that says whether a Service has its addresses.
pub(crate) fn condition(service: &Service) -> Option<Condition> {
    let conditions = service.status.as_ref()?.conditions.as_ref()?;
    conditions
        .iter()
        .find(|condition| condition.type_ == CONDITION_ADDRESS)
        .cloned()
}

/// The condition's reason, where the Service lacks its addresses.
pub(crate) fn refusal(service: &Service) -> Option<String> {
    condition(service)
        .filter(|condition| condition.status == "False")
        .map(|condition| condition.reason)
}

/// Does it carry our finalizer?
pub(crate) fn finalized(service: &Service) -> bool {
    let finalizers = service.metadata.finalizers.as_deref().unwrap_or_default();
    finalizers.iter().any(|finalizer| finalizer == SERVICE_FINALIZER)
}

/// Does the node carry this taint?
pub(crate) fn tainted(node: &Node, key: &str) -> bool {
    let taints = node
        .spec
        .as_ref()
        .and_then(|spec| spec.taints.as_deref())
        .unwrap_or_default();
    taints.iter().any(|taint| taint.key == key)
}

/// Waits until the node with this suffix is initialised.
pub(crate) async fn initialised(corner: &Corner, suffix: &str) -> Result<Node> {
    let done = |node: &Node| (!tainted(node, TAINT_UNINITIALIZED)).then(|| node.clone());
    corner.node_until(suffix, "is initialised", done).await
}

/// The node's addresses as `Type=address`, in their order.
pub(crate) fn addresses(node: &Node) -> Vec<String> {
    let addresses = node
        .status
        .as_ref()
        .and_then(|status| status.addresses.as_deref())
        .unwrap_or_default();
    addresses
        .iter()
        .map(|address| format!("{}={}", address.type_, address.address))
        .collect()
}

/// An annotation of the node.
pub(crate) fn annotation<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}
