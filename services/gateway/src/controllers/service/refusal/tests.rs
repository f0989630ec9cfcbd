use groundplane_core::ErrorKind;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::*;
use crate::cluster::objects::ServiceObject;
use crate::testing::rpc_error;

#[allow(clippy::needless_pass_by_value, reason = "called with json! in place")]
fn service(status: Value) -> ServiceObject {
    serde_json::from_value(json!({
        "metadata": { "name": "web", "namespace": "default", "uid": "u1" },
        "spec": { "type": "LoadBalancer", "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "PreferDualStack" },
        "status": status,
    }))
    .unwrap()
}

#[test]
fn refusals_say_what_would_help_and_whose_address_it_is() {
    let mut taken = rpc_error(ErrorKind::AlreadyExists, "ADDRESS_TAKEN");
    taken.message = "192.0.2.7 is taken".to_owned();
    taken
        .metadata
        .insert("holder".to_owned(), "service default/other".to_owned());
    let refusal = Refusal::from_error(&taken);
    assert_eq!(refusal.reason, "AddressTaken");
    assert_eq!(
        refusal.message,
        "192.0.2.7 is taken (held by service default/other). Ask for another address, or have its holder give it up."
    );
    let ingress = json!({ "ingress": [{ "ip": "192.0.2.9" }] });
    let reason = |status: Value| refusal.condition(&service(status)).reason;
    let told = |reason: &str| json!([{ "type": "groundplane.dev/AddressReady", "status": "True", "reason": reason }]);
    assert_eq!(reason(json!({})), "AddressTaken");
    assert_eq!(reason(json!({ "loadBalancer": ingress })), "Foreign");
    assert_eq!(
        reason(json!({ "loadBalancer": ingress, "conditions": told("Assigned") })),
        "Kept"
    );
    assert_eq!(
        reason(json!({ "loadBalancer": ingress, "conditions": told("Adopted") })),
        "KeptAdopted"
    );
    assert_eq!(
        reason(json!({ "loadBalancer": ingress, "conditions": told("PoolExhausted") })),
        "Foreign"
    );
}

#[test]
fn each_try_of_an_outage_is_told_in_the_same_words() {
    let mut one = rpc_error(ErrorKind::Unavailable, "UNAVAILABLE");
    let mut other = rpc_error(ErrorKind::Timeout, "DEADLINE_EXCEEDED");
    (one.message, other.message) = (
        "connection refused by port 4711".to_owned(),
        "no answer within 10 s".to_owned(),
    );
    assert_eq!(Refusal::from_error(&one), Refusal::from_error(&other));
}
