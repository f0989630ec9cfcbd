use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::*;
use crate::announcers::{Change, Changes, apply, remove};

#[allow(clippy::needless_pass_by_value, reason = "called with json! in place")]
fn service(annotations: Value, load_balancer_ip: &str) -> ServiceObject {
    serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "u1", "annotations": annotations},
        "spec": {"type": "LoadBalancer", "ipFamilies": ["IPv4"], "loadBalancerIP": load_balancer_ip},
    }))
    .unwrap()
}

fn addresses(text: &[&str]) -> Vec<IpAddr> {
    text.iter().map(|text| text.parse().unwrap()).collect()
}

const RECORD: &str = "groundplane.dev/announced";

/// E59: the annotation pins the address, and is recorded as ours.
#[test]
fn metallb_is_told_by_its_annotation() {
    let changes = apply(
        &Metallb,
        &service(json!({}), ""),
        &addresses(&["192.0.2.7", "2001:db8::7"]),
    )
    .unwrap();
    let text = "192.0.2.7,2001:db8::7";
    assert_eq!(changes.annotations[ADDRESSES].as_deref(), Some(text));
    assert_eq!(
        changes.annotations[RECORD].as_deref(),
        Some("metallb.io/loadBalancerIPs=192.0.2.7,2001:db8::7")
    );
    assert_eq!(changes.load_balancer_ip, Change::Keep);
    let told = service(
        json!({ ADDRESSES: text, RECORD: format!("{ADDRESSES}={text}") }),
        "",
    );
    let again = apply(&Metallb, &told, &addresses(&["192.0.2.7", "2001:db8::7"])).unwrap();
    assert_eq!(again, Changes::default());
    assert_eq!(remove(&told).annotations[ADDRESSES], None);
}

/// MetalLB refuses a Service that asks in both places: where the user asks in one, by whatever name, that is left as it is.
#[test]
fn a_service_never_asks_in_two_places() {
    let seven = addresses(&["192.0.2.7"]);
    for asking in [
        service(json!({}), "192.0.2.7"),
        service(json!({ ADDRESSES: " 192.0.2.7" }), ""),
        service(json!({ OLD_ADDRESSES: "192.0.2.7" }), ""),
    ] {
        assert_eq!(apply(&Metallb, &asking, &seven).unwrap(), Changes::default());
        assert_eq!(remove(&asking), Changes::default());
    }
    assert!(apply(&Metallb, &service(json!({}), "192.0.2.8"), &seven).is_err());
    assert!(apply(&Metallb, &service(json!({ ADDRESSES: "192.0.2.8" }), ""), &seven).is_err());
    // What we wrote there for another announcer goes in the same write.
    let record = "kube-vip.io/loadbalancerIPs=192.0.2.7 spec.loadBalancerIP=192.0.2.7";
    let before = service(
        json!({ "kube-vip.io/loadbalancerIPs": "192.0.2.7", RECORD: record }),
        "192.0.2.7",
    );
    let changes = apply(&Metallb, &before, &seven).unwrap();
    assert_eq!(changes.load_balancer_ip, Change::Clear);
    assert_eq!(changes.annotations[ADDRESSES].as_deref(), Some("192.0.2.7"));
}

/// E53: before its custom resources, MetalLB took the address from `spec.loadBalancerIP`.
#[test]
fn an_old_metallb_is_told_by_the_spec() {
    let seven = addresses(&["192.0.2.7"]);
    let changes = apply(&MetallbConfigMap, &service(json!({}), ""), &seven).unwrap();
    assert_eq!(changes.load_balancer_ip, Change::Set("192.0.2.7".to_owned()));
    assert!(!changes.annotations.contains_key(ADDRESSES));
    let theirs = apply(&MetallbConfigMap, &service(json!({}), "192.0.2.7"), &seven).unwrap();
    assert_eq!(theirs, Changes::default());
    assert!(apply(&MetallbConfigMap, &service(json!({}), "192.0.2.8"), &seven).is_err());
}
