//! The writes to a Service, as strategic merge patches: pure.
//!
//! Each names the UID, so that it can never reach another Service of the same name. Lists that others write to as well
//! (finalizers, conditions) are merged by the API server.

use std::net::IpAddr;

use groundplane_core::names;
use jiff::Timestamp;
use kube::api::Patch;
use serde_json::{Map, Value, json};

use crate::announcers::{Change, Changes};
use crate::cluster::objects::ServiceObject;
use crate::domain::service::Condition;

/// Adds our finalizer.
pub(crate) fn finalizer(service: &ServiceObject) -> Patch<Value> {
    Patch::Strategic(json!({
        "metadata": { "uid": service.uid, "finalizers": [names::SERVICE_FINALIZER] },
    }))
}

/// Tells the announcer, or takes back what it was told.
pub(crate) fn announce(service: &ServiceObject, changes: &Changes) -> Patch<Value> {
    let mut patch = json!({ "metadata": { "uid": service.uid } });
    if !changes.annotations.is_empty() {
        patch["metadata"]["annotations"] = json!(changes.annotations);
    }
    match &changes.load_balancer_ip {
        Change::Keep => {}
        Change::Set(ip) => patch["spec"] = json!({ "loadBalancerIP": ip }),
        Change::Clear => patch["spec"] = json!({ "loadBalancerIP": null }),
    }
    Patch::Strategic(patch)
}

/// Says the condition, and `ingress` where it is to change. Refused by the API server if the Service has changed since it was read:
/// somebody else may have given it an address.
pub(crate) fn status(
    service: &ServiceObject,
    ingress: Option<&[IpAddr]>,
    condition: &Condition,
    now: Timestamp,
) -> Patch<Value> {
    let mut status = Map::new();
    if let Some(addresses) = ingress {
        let entries: Vec<Value> = addresses
            .iter()
            .map(|address| json!({ "ip": address, "ipMode": "VIP" }))
            .collect();
        status.insert("loadBalancer".to_owned(), json!({ "ingress": entries }));
    }
    let told = service
        .condition
        .as_ref()
        .filter(|told| &*told.status == condition.status());
    let since = told.and_then(|told| told.last_transition_time.as_deref());
    // To the second, as the API server keeps it.
    let now = now.round(jiff::Unit::Second).unwrap_or(now).to_string();
    let entry = json!({
        "type": names::CONDITION_ADDRESS,
        "status": condition.status(),
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": since.unwrap_or(&now),
    });
    status.insert("conditions".to_owned(), json!([entry]));
    Patch::Strategic(json!({
        "metadata": { "uid": service.uid, "resourceVersion": service.version },
        "status": status,
    }))
}

/// Empties `status.loadBalancer`. Refused by the API server if the Service has changed since it was read: a write that comes through late
/// must not meet one that is ours again.
pub(crate) fn empty_status(service: &ServiceObject) -> Patch<Value> {
    Patch::Strategic(json!({
        "metadata": { "uid": service.uid, "resourceVersion": service.version },
        "status": { "loadBalancer": { "ingress": null } },
    }))
}

/// Takes our last traces off the Service: the condition, and the finalizer where it is ours. One write, because after it nothing
/// tells that the Service was ever ours. Refused by the API server if the Service has changed since it was read, as in [`empty_status`].
pub(crate) fn farewell(service: &ServiceObject, finalizer: bool) -> Patch<Value> {
    let mut patch = json!({ "metadata": { "uid": service.uid, "resourceVersion": service.version } });
    if finalizer {
        patch["metadata"]["$deleteFromPrimitiveList/finalizers"] = json!([names::SERVICE_FINALIZER]);
    }
    if service.condition.is_some() {
        let entry = json!({ "type": names::CONDITION_ADDRESS, "$patch": "delete" });
        patch["status"] = json!({ "conditions": [entry] });
    }
    Patch::Strategic(patch)
}
