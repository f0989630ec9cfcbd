use pretty_assertions::assert_eq;
use serde_json::json;

use super::*;

/// S11: a key with two slashes is no key.
#[test]
fn keys_are_names_with_or_without_a_namespace() {
    assert_eq!("a/b".parse(), Ok(Key::namespaced("a", "b")));
    assert_eq!("b".parse(), Ok(Key::cluster_wide("b")));
    for text in ["a/b/c", "", "a/", "/b"] {
        assert_eq!(text.parse::<Key>(), Err(ParseKeyError(text.to_owned())));
    }
    assert_eq!(Key::namespaced("a", "b").to_string(), "a/b");
    assert_eq!(Key::cluster_wide("b").to_string(), "b");
}

#[test]
fn a_node_keeps_what_is_read_and_nothing_else() {
    let text = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": "n", "uid": "u", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": { "b": "2", "a": "1" },
            "annotations": {
                "alpha.kubernetes.io/provided-node-ip": "10.0.0.1",
                "metal.equinix.com/bgp-peers-0-peer-ip": "169.254.255.1",
                "cherryservers.com/bgp-peers-0-peer-ip": "169.254.255.1",
                "huge": "x".repeat(10_000),
            },
            "managedFields": [{ "manager": "kubelet", "fieldsV1": { "f:status": { "f:conditions": {} } } }],
        },
        "spec": {
            "providerID": "equinixmetal://m", "podCIDR": "10.244.0.0/24",
            "taints": [{ "key": "k", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z" }],
        },
        "status": {
            "addresses": [{ "type": "InternalIP", "address": "10.0.0.1" }, { "type": "Odd", "address": "x" }],
            "conditions": [
                { "type": "MemoryPressure", "status": "False" }, { "type": "Ready", "status": "True" },
            ],
            "images": [{ "names": ["x"], "sizeBytes": 1 }],
        },
    })
    .to_string();
    let node = serde_json::from_str::<Seen<NodeObject>>(&text).unwrap();
    assert_eq!(node.meta().resource_version.as_deref(), Some("7"));
    let node = node.object;
    assert_eq!(node.annotations.iter().count(), 3);
    assert_eq!(node.labels.iter().collect::<Vec<_>>(), [("a", "1"), ("b", "2")]);
    assert_eq!(node.labels.get("b"), Some("2"));
    assert_eq!(node.ready, Ready::Yes);
    assert_eq!(
        json!(node.taints),
        json!([{ "key": "k", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z" }])
    );
    assert_eq!(json!(node.addresses)[1], json!({ "type": "Odd", "address": "x" }));
}

/// Null where there might be a list or a map, and nothing at all.
#[test]
fn what_is_null_or_missing_is_empty() {
    let node: NodeObject = serde_json::from_value(json!({
        "metadata": { "name": "n", "labels": null, "annotations": null, "finalizers": null },
        "spec": { "taints": null },
        "status": { "addresses": null, "conditions": null },
    }))
    .unwrap();
    assert_eq!(
        (node.taints.len(), node.addresses.len(), node.ready),
        (0, 0, Ready::Unknown)
    );
    let bare: NodeObject = serde_json::from_value(json!({ "metadata": { "name": "n" } })).unwrap();
    assert!(bare.says_the_same(&node));
    let service: ServiceObject = serde_json::from_value(
        json!({ "metadata": { "name": "s", "namespace": "a" }, "spec": { "ipFamilies": null } }),
    )
    .unwrap();
    assert_eq!((service.kind, service.families.len()), (ServiceType::Other, 0));
}

#[test]
fn a_service_keeps_what_is_read() {
    let service: ServiceObject = serde_json::from_value(json!({
        "metadata": {
            "name": "s", "namespace": "a", "uid": "u", "resourceVersion": "9",
            "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["f"],
            "annotations": { "groundplane.dev/pool": "p", "kube-vip.io/loadbalancerIPs": "192.0.2.1", "other": "x" },
        },
        "spec": {
            "type": "LoadBalancer", "loadBalancerClass": "groundplane.dev/eip", "loadBalancerIP": "192.0.2.1",
            "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack", "externalTrafficPolicy": "Local",
            "ports": [{ "port": 80 }],
        },
        "status": {
            "loadBalancer": { "ingress": [{ "ip": "192.0.2.1", "ipMode": "VIP" }, { "hostname": "h" }] },
            "conditions": [
                { "type": "Other", "status": "True" },
                { "type": "groundplane.dev/AddressReady", "status": "True", "reason": "R", "message": "M" },
            ],
        },
    }))
    .unwrap();
    assert_eq!(service.kind, ServiceType::LoadBalancer);
    assert!(service.deleting);
    assert_eq!(service.annotations.iter().count(), 2);
    assert_eq!(service.families.len(), 2);
    assert_eq!(&*service.ingress[0].ip_mode, "VIP");
    assert_eq!(&*service.ingress[1].hostname, "h");
    assert_eq!(&*service.condition.unwrap().reason, "R");
}

/// Names of annotations may be configured to be any; those are read all the same.
#[test]
fn annotations_with_configured_names_are_kept() {
    read_also(|key| key == "example.org/eip-metro" || key.starts_with("example.org/eip-f"));
    let service: ServiceObject = serde_json::from_value(json!({
        "metadata": {
            "name": "s", "namespace": "a",
            "annotations": { "example.org/eip-metro": "sv", "example.org/eip-facility": "sv15", "example.org/other": "x" },
        },
    }))
    .unwrap();
    assert_eq!(service.annotations.get("example.org/eip-metro"), Some("sv"));
    assert_eq!(service.annotations.get("example.org/eip-facility"), Some("sv15"));
    assert_eq!(service.annotations.get("example.org/other"), None);
}

/// A password in an annotation never reaches a log.
#[test]
fn values_of_annotations_are_not_printed() {
    let pairs: Pairs = [("metal.equinix.com/bgp-peers-0-bgp-pass", "c2VjcmV0")]
        .into_iter()
        .collect();
    assert!(!format!("{pairs:?}").contains("c2VjcmV0"));
}
