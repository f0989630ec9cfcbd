mod formats;

use groundplane_core::DriverName;
use pretty_assertions::assert_eq;

use super::*;
use crate::config::AnnotationFormat;
use crate::testing::settled_node;

fn node(annotations: &Value) -> NodeObject {
    let mut value = settled_node("n", "True");
    value["metadata"]["uid"] = json!("uid-1");
    value["metadata"]["annotations"] = annotations.clone();
    serde_json::from_value(value).unwrap()
}

fn config(driver: DriverName, formats: &[AnnotationFormat]) -> Config {
    Config {
        driver,
        annotation_formats: formats.to_vec(),
        ..Config::default()
    }
}

/// Those of Equinix' controller today.
fn indexed() -> Formats {
    Formats::of(&config(DriverName::Equinix, &[AnnotationFormat::Indexed]))
}

fn peer(address: &str, password: &str) -> Peer {
    Peer {
        peer_address: address.into(),
        peer_asn: 65530,
        local_asn: 65000,
        source_address: "10.1.40.129".into(),
        password: password.into(),
        multihop: true,
        port: 0,
    }
}

fn answer() -> EnsureMachineResponse {
    EnsureMachineResponse {
        // Not in order, to see that it is put into it.
        peers: vec![peer("169.254.255.2", ""), peer("169.254.255.1", "secret")],
        private_network: "10.1.40.128/25".into(),
        ..EnsureMachineResponse::default()
    }
}

/// As the older controller wrote it.
fn written() -> Value {
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

/// With the record of having written it.
fn recorded_as_ours(mut annotations: Value) -> Value {
    let mut keys: Vec<String> = annotations.as_object().unwrap().keys().cloned().collect();
    keys.sort();
    annotations[NODE_ANNOTATED] = json!(keys.join(","));
    annotations
}

/// As we write it.
fn told() -> Value {
    recorded_as_ours(written())
}

/// The annotations of the patch for this node.
fn changes(
    formats: &Formats,
    before: &Value,
    answer: &EnsureMachineResponse,
    complete: bool,
) -> Option<Value> {
    let patch = formats.patch(&node(before), &formats.wanted(answer), complete)?;
    assert_eq!(patch["metadata"]["uid"], "uid-1");
    Some(patch["metadata"]["annotations"].clone())
}

/// E29: exactly these annotations for two peers, counted in the order of their addresses, all in one patch.
#[test]
fn two_peers_become_these_annotations() {
    let patch = indexed().patch(&node(&json!({})), &indexed().wanted(&answer()), true);
    assert_eq!(
        patch,
        Some(json!({ "metadata": { "uid": "uid-1", "annotations": told() } }))
    );
}

/// Settled: no patch, so that a restart writes nothing.
#[test]
fn a_node_that_says_so_needs_no_patch() {
    assert_eq!(changes(&indexed(), &told(), &answer(), true), None);
}

/// What the older controller wrote is taken over as it is; only that it is ours is noted.
#[test]
fn what_another_controller_wrote_is_taken_over() {
    let changes = changes(&indexed(), &written(), &answer(), true).unwrap();
    assert_eq!(changes, json!({ NODE_ANNOTATED: told()[NODE_ANNOTATED] }));
}

/// E30: what changed at the cloud is written, and only that.
#[test]
fn only_what_changed_is_written() {
    for (change, key, value) in [
        (
            (|peer: &mut Peer| peer.password = "other".into()) as fn(&mut Peer),
            "bgp-pass",
            "b3RoZXI=",
        ),
        (|peer| peer.peer_asn = 64_512, "peer-asn", "64512"),
        (|peer| peer.local_asn = 4_200_000_000, "node-asn", "4200000000"),
        (
            |peer| peer.source_address = "10.9.9.9".into(),
            "src-ip",
            "10.9.9.9",
        ),
        (
            |peer| peer.peer_address = "169.254.254.9".into(),
            "peer-ip",
            "169.254.254.9",
        ),
    ] {
        let mut answer = answer();
        change(&mut answer.peers[1]);
        let changes = changes(&indexed(), &told(), &answer, true).unwrap();
        let expected = json!({ format!("metal.equinix.com/bgp-peers-0-{key}"): value });
        assert_eq!(changes, expected);
    }
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
    // An older controller's, of a third peer that is long gone.
    before["metal.equinix.com/bgp-peers-2-peer-ip"] = json!("169.254.255.3");
    let mut answer = answer();
    answer.peers.remove(0);
    answer.private_network = String::new();
    let changes = changes(&indexed(), &before, &answer, true).unwrap();
    let mut expected = json!({
        "metal.equinix.com/network-4-private": null,
        "metal.equinix.com/bgp-peers-2-peer-ip": null,
    });
    for field in ["node-asn", "peer-asn", "peer-ip", "src-ip", "bgp-pass"] {
        expected[format!("metal.equinix.com/bgp-peers-1-{field}")] = Value::Null;
    }
    expected[NODE_ANNOTATED] = json!(
        "metal.equinix.com/bgp-peers-0-bgp-pass,metal.equinix.com/bgp-peers-0-node-asn,\
         metal.equinix.com/bgp-peers-0-peer-asn,metal.equinix.com/bgp-peers-0-peer-ip,metal.equinix.com/bgp-peers-0-src-ip"
    );
    assert_eq!(changes, expected);
}

/// E31: what we wrote under names that are not configured any more goes, and what others wrote there stays.
#[test]
fn other_formats_go_where_they_were_ours() {
    let both = config(
        DriverName::Equinix,
        &[AnnotationFormat::Indexed, AnnotationFormat::Packet],
    );
    let mut before = changes(&Formats::of(&both), &json!({}), &answer(), true).unwrap();
    before["packet.com/other"] = json!("x");
    let changes_now = changes(&indexed(), &before, &answer(), true).unwrap();
    let expected = json!({
        "packet.com/node.asn": null,
        "packet.com/peer.asns": null,
        "packet.com/peer.ips": null,
        NODE_ANNOTATED: told()[NODE_ANNOTATED],
    });
    assert_eq!(changes_now, expected);
    // Without the record they are somebody else's.
    before[NODE_ANNOTATED] = told()[NODE_ANNOTATED].clone();
    assert_eq!(changes(&indexed(), &before, &answer(), true), None);
}

/// E32: an answer that is not complete takes nothing away, and one without peers says nothing, not even the network.
#[test]
fn an_incomplete_answer_takes_nothing_away() {
    let empty = EnsureMachineResponse {
        private_network: "10.1.40.128/25".into(),
        ..EnsureMachineResponse::default()
    };
    assert_eq!(changes(&indexed(), &told(), &empty, false), None);
    assert_eq!(changes(&indexed(), &json!({}), &empty, false), None);
    let all = changes(&indexed(), &told(), &empty, true).unwrap();
    assert!(all.as_object().unwrap().values().all(Value::is_null));
    assert_eq!(all.as_object().unwrap().len(), 12);
    // Half an answer: what it says is written, and what was written before is still known to be ours.
    let mut one = answer();
    one.peers.remove(1);
    one.peers[0].peer_address = "169.254.255.1".into();
    one.peers[0].password = "secret".into();
    assert_eq!(changes(&indexed(), &told(), &one, false), None);
}

/// What is written is what is read back, so that a restart spares the cloud.
#[test]
fn annotations_are_read_back() {
    let told = node(&told());
    let mut expected = answer().peers;
    expected.sort_by(|a, b| a.peer_address.cmp(&b.peer_address));
    assert_eq!(indexed().known_peers(&told.annotations), expected);
    assert_eq!(indexed().known_network(&told.annotations), "10.1.40.128/25");
    // On Cherry, too, where there are no passwords, and distance is told.
    let cherry = Formats::of(&config(DriverName::Cherry, &[AnnotationFormat::Indexed]));
    for peer in &mut expected {
        peer.password = String::new();
    }
    let answer = EnsureMachineResponse {
        peers: expected.clone(),
        ..EnsureMachineResponse::default()
    };
    let told = node(&changes(&cherry, &json!({}), &answer, true).unwrap());
    assert_eq!(cherry.known_peers(&told.annotations), expected);
}

/// Only what we wrote, and wrote completely, stands for an answer of the cloud.
#[test]
fn what_is_not_whole_or_not_ours_is_not_known() {
    assert!(indexed().known_peers(&node(&written()).annotations).is_empty());
    for (key, value) in [
        ("peer-ip", json!("x")),
        ("peer-asn", json!("-1")),
        ("bgp-pass", json!("%%%")),
    ] {
        let mut broken = told();
        broken[format!("metal.equinix.com/bgp-peers-0-{key}")] = value;
        assert!(
            indexed().known_peers(&node(&broken).annotations).is_empty(),
            "{key}"
        );
    }
    for key in ["peer-ip", "bgp-pass"] {
        let mut lacking = told();
        let key = format!("metal.equinix.com/bgp-peers-1-{key}");
        lacking.as_object_mut().unwrap().remove(&key);
        assert!(
            indexed().known_peers(&node(&lacking).annotations).is_empty(),
            "{key}"
        );
    }
    let lists = Formats::of(&config(DriverName::Equinix, &[AnnotationFormat::Plain]));
    let told = changes(&lists, &json!({}), &answer(), true).unwrap();
    assert!(
        lists.known_peers(&node(&told).annotations).is_empty(),
        "a list may lack peers"
    );
}

/// Told to clean up, we take back all that we wrote, and nothing else.
#[test]
fn all_that_is_ours_can_be_taken_back() {
    let mut before = told();
    before["metal.equinix.com/bgp-peers-7-peer-ip"] = json!("of somebody else");
    before["example.org/mine"] = json!("x");
    let patch = taken_back(&node(&before)).unwrap();
    let mut expected: Map<String, Value> = told().as_object().unwrap().clone();
    expected.values_mut().for_each(|value| *value = Value::Null);
    assert_eq!(patch["metadata"]["annotations"], Value::Object(expected));
    assert_eq!(taken_back(&node(&written())), None, "nothing of it is ours");
}

/// A record that somebody has spoilt does not make the API server refuse the patch.
#[test]
fn a_spoilt_record_does_no_harm() {
    let spoilt = node(&json!({ NODE_ANNOTATED: " a b,, metal.equinix.com/x ,groundplane.dev/annotated,é" }));
    let patch = taken_back(&spoilt).unwrap();
    assert_eq!(
        patch["metadata"]["annotations"],
        json!({ "metal.equinix.com/x": null, NODE_ANNOTATED: null })
    );
}
