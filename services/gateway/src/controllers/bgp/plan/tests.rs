use pretty_assertions::assert_eq;

use super::*;
use crate::testing::settled_node;

const PREFIX: &str = "metal.equinix.com";

fn node(annotations: &Value) -> NodeObject {
    let mut value = settled_node("n", "True");
    value["metadata"]["uid"] = json!("uid-1");
    value["metadata"]["annotations"] = annotations.clone();
    serde_json::from_value(value).unwrap()
}

fn answer() -> EnsureMachineResponse {
    let peer = |address: &str, password: &str| Peer {
        peer_address: address.into(),
        peer_asn: 65530,
        local_asn: 65000,
        source_address: "10.1.40.129".into(),
        password: password.into(),
        multihop: true,
        port: 0,
    };
    EnsureMachineResponse {
        // Not in order, to see that it is put into it.
        peers: vec![peer("169.254.255.2", ""), peer("169.254.255.1", "secret")],
        private_network: "10.1.40.128/25".into(),
        ..EnsureMachineResponse::default()
    }
}

fn told() -> Value {
    json!({
        "metal.equinix.com/bgp-peers-0-node-asn": "65000",
        "metal.equinix.com/bgp-peers-0-peer-asn": "65530",
        "metal.equinix.com/bgp-peers-0-peer-ip": "169.254.255.1",
        "metal.equinix.com/bgp-peers-0-src-ip": "10.1.40.129",
        "metal.equinix.com/bgp-peers-0-bgp-pass": "c2VjcmV0",
        "metal.equinix.com/bgp-peers-1-node-asn": "65000",
        "metal.equinix.com/bgp-peers-1-peer-asn": "65530",
        "metal.equinix.com/bgp-peers-1-peer-ip": "169.254.255.2",
        "metal.equinix.com/bgp-peers-1-src-ip": "10.1.40.129",
        "metal.equinix.com/bgp-peers-1-bgp-pass": "",
        "metal.equinix.com/network-4-private": "10.1.40.128/25",
    })
}

/// E29: exactly these annotations for two peers, counted in the order of their addresses.
#[test]
fn two_peers_become_these_annotations() {
    let patch = patch(&node(&json!({})), PREFIX, &wanted(PREFIX, &answer()), true).unwrap();
    assert_eq!(
        patch,
        json!({ "metadata": { "uid": "uid-1", "annotations": told() } })
    );
}

/// Settled: no patch, so that a restart writes nothing.
#[test]
fn a_node_that_says_so_needs_no_patch() {
    assert_eq!(
        patch(&node(&told()), PREFIX, &wanted(PREFIX, &answer()), true),
        None
    );
}

/// E30: what changed at the cloud is written, and only that.
#[test]
fn only_what_changed_is_written() {
    let mut answer = answer();
    answer.peers[1].password = "other".into();
    let patch = patch(&node(&told()), PREFIX, &wanted(PREFIX, &answer), true).unwrap();
    let expected = json!({ "metal.equinix.com/bgp-peers-0-bgp-pass": "b3RoZXI=" });
    assert_eq!(patch["metadata"]["annotations"], expected);
}

/// E31, E33: keys of peers that are gone go, others' keys stay.
#[test]
fn stale_keys_go_and_others_keys_stay() {
    let mut before = told();
    for (key, value) in [
        ("metal.equinix.com/bgp-peers-1-peer-multi-hop", "true"),
        ("metal.equinix.com/other", "x"),
        ("example.org/bgp-peers-1-peer-ip", "192.0.2.1"),
        ("unrelated", "y"),
    ] {
        before[key] = json!(value);
    }
    let mut answer = answer();
    answer.peers.remove(0);
    answer.private_network = String::new();
    let patch = patch(&node(&before), PREFIX, &wanted(PREFIX, &answer), true).unwrap();
    let gone = |field| (format!("metal.equinix.com/bgp-peers-1-{field}"), Value::Null);
    let mut expected: Map<String, Value> = FIELDS.into_iter().map(gone).collect();
    expected.insert("metal.equinix.com/network-4-private".into(), Value::Null);
    assert_eq!(patch["metadata"]["annotations"], Value::Object(expected));
}

/// E32: an answer that is not complete takes nothing away.
#[test]
fn an_incomplete_answer_takes_nothing_away() {
    let empty = EnsureMachineResponse::default();
    assert_eq!(
        patch(&node(&told()), PREFIX, &wanted(PREFIX, &empty), false),
        None
    );
    assert!(patch(&node(&told()), PREFIX, &wanted(PREFIX, &empty), true).is_some());
}

/// What is written is what is read back, so that a restart spares the cloud.
#[test]
fn annotations_are_read_back() {
    let node = node(&told());
    let mut expected = answer().peers;
    expected.sort_by(|a, b| a.peer_address.cmp(&b.peer_address));
    for peer in &mut expected {
        peer.multihop = false;
    }
    assert_eq!(known_peers(&node.annotations, PREFIX), expected);
    assert_eq!(known_network(&node.annotations, PREFIX), "10.1.40.128/25");
    assert!(known_peers(&node.annotations, "example.org").is_empty());
}

#[test]
fn a_peer_that_is_not_whole_is_not_known() {
    for (key, value) in [("peer-ip", "x"), ("peer-asn", "-1"), ("bgp-pass", "%%%")] {
        let mut broken = told();
        broken[format!("metal.equinix.com/bgp-peers-0-{key}")] = json!(value);
        let known = known_peers(&node(&broken).annotations, PREFIX);
        assert_eq!(known.len(), 1, "{key}");
        assert_eq!(known[0].peer_address, "169.254.255.2");
    }
}
