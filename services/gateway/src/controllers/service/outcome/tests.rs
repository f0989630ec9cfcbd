use std::net::IpAddr;

use groundplane_core::ErrorKind;
use groundplane_proto::core::v1 as core;
use groundplane_proto::eip::v1::{Address, MissingAddress};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::*;
use crate::config::Config;
use crate::domain::service::{Plan, Scope, plan, status_says};
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

fn wish(service: &ServiceObject) -> Wish {
    match plan(service, &Scope::of(&Config::default())) {
        Plan::Hold(wish) => wish,
        other => panic!("{other:?}"),
    }
}

fn answer(prefixes: &[&str]) -> EnsureAddressResponse {
    let address = |prefix: &&str| Address {
        prefix: (*prefix).to_owned(),
        origin: "file:a".to_owned(),
        state: State::Ready.into(),
        user_provided: false,
    };
    EnsureAddressResponse {
        addresses: prefixes.iter().map(address).collect(),
        missing: Vec::new(),
    }
}

#[test]
fn addresses_come_in_the_order_of_the_families() {
    let service = service(json!({}));
    let answer = answer(&["2001:db8::7/128", "192.0.2.7/32"]);
    let desired = desired(&service, &wish(&service), &answer).unwrap();
    assert_eq!(condition::list(&desired.addresses), "192.0.2.7, 2001:db8::7");
    assert_eq!(desired.condition.message, "Holds 192.0.2.7, 2001:db8::7.");
    assert_eq!(desired.condition.reason, "Assigned");
    assert!(!desired.incomplete);
}

#[test]
fn a_family_that_is_missing_is_said() {
    let service = service(json!({}));
    let mut answer = answer(&["192.0.2.7/32"]);
    answer.missing.push(MissingAddress {
        family: core::Family::Ipv6.into(),
        reason: "POOL_EXHAUSTED".to_owned(),
        message: "no pool has IPv6".to_owned(),
    });
    let desired = desired(&service, &wish(&service), &answer).unwrap();
    assert_eq!(
        desired.condition.message,
        "Holds 192.0.2.7. It does without IPv6: no pool has IPv6."
    );
    assert!(desired.incomplete && desired.condition.ready);
}

#[test]
fn an_answer_that_breaks_the_contract_is_not_believed() {
    let service = service(json!({}));
    for prefixes in [vec![], vec!["2001:db8::7/128"], vec!["192.0.2.0/24"], vec!["x"]] {
        let refused = desired(&service, &wish(&service), &answer(&prefixes)).unwrap_err();
        assert_eq!(refused.reason, "UnusableAnswer", "{prefixes:?}");
    }
    let mut pending = answer(&["192.0.2.7/32"]);
    pending.addresses[0].state = State::Pending.into();
    assert_eq!(
        desired(&service, &wish(&service), &pending).unwrap_err().reason,
        "Pending"
    );
}

/// S8: only addresses, host names and modes make a difference.
#[test]
fn what_makes_a_status_different() {
    let held: Vec<IpAddr> = vec!["192.0.2.7".parse().unwrap(), "2001:db8::7".parse().unwrap()];
    let says = |ingress: Value| {
        status_says(
            &service(json!({ "loadBalancer": { "ingress": ingress } })),
            &held,
            false,
        )
    };
    let (v4, v6) = (
        json!({ "ip": "192.0.2.7", "ipMode": "VIP" }),
        json!({ "ip": "2001:db8::7", "ipMode": "VIP" }),
    );
    assert!(says(json!([v4, v6])));
    assert!(says(json!([v6, v4])), "order is left to whoever else writes it");
    assert!(
        says(json!([{ "ip": "192.0.2.7", "ports": [{ "port": 80, "protocol": "TCP" }] }, v6])),
        "ports"
    );
    assert!(
        says(json!([v4, { "ip": "2001:DB8:0::7" }])),
        "the same address in other words"
    );
    assert!(!says(json!([v4])));
    assert!(!says(json!([])));
    assert!(!says(json!([v4, v6, { "ip": "192.0.2.8" }])));
    assert!(!says(json!([v4, v4])));
    assert!(!says(json!([v4, { "ip": "2001:db8::7", "ipMode": "Proxy" }])));
    assert!(!says(
        json!([v4, { "ip": "2001:db8::7", "hostname": "a.example" }])
    ));
    let proxy = service(json!({ "loadBalancer": { "ingress": [{ "ip": "192.0.2.7", "ipMode": "Proxy" }] } }));
    assert!(
        status_says(&proxy, &held[..1], true),
        "the mode of an adopted address is its giver's"
    );
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
