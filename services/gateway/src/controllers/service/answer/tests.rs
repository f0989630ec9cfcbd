use groundplane_proto::core::v1 as core;
use groundplane_proto::eip::v1::{Address, MissingAddress};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::*;
use crate::config::Config;
use crate::domain::service::{Plan, Scope, plan};

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
