//! Each generation, to the letter, and read as kube-vip reads it.

use pretty_assertions::assert_eq;
use regex::Regex;

use super::*;

fn told_by(driver: DriverName, formats: &[AnnotationFormat], answer: &EnsureMachineResponse) -> Wanted {
    Formats::of(&config(driver, formats)).wanted(answer)
}

fn golden(driver: DriverName, format: AnnotationFormat, expected: &Value) {
    let mut answer = answer();
    // All formats can tell of these, since they have all in common.
    answer.peers[0].password = "secret".into();
    let wanted = told_by(driver, &[format], &answer);
    assert!(wanted.untold.is_empty());
    assert_eq!(json!(wanted.annotations), *expected, "{format:?}");
}

/// E29: the generation of 3.0 to 3.2.2: lists, and no numbers.
#[test]
fn the_plain_generation() {
    golden(
        DriverName::Equinix,
        AnnotationFormat::Plain,
        &json!({
            "metal.equinix.com/node-asn": "65000",
            "metal.equinix.com/peer-asn": "65530",
            "metal.equinix.com/peer-ip": "169.254.255.1,169.254.255.2",
            "metal.equinix.com/src-ip": "10.1.40.129",
            "metal.equinix.com/bgp-pass": "c2VjcmV0",
            "metal.equinix.com/network-4-private": "10.1.40.128/25",
        }),
    );
    golden(
        DriverName::Equinix,
        AnnotationFormat::Plural,
        &json!({
            "metal.equinix.com/node-asn": "65000",
            "metal.equinix.com/peer-asns": "65530",
            "metal.equinix.com/peer-ips": "169.254.255.1,169.254.255.2",
            "metal.equinix.com/src-ip": "10.1.40.129",
            "metal.equinix.com/network-4-private": "10.1.40.128/25",
        }),
    );
}

/// E29: packet-ccm, in its first and its last form.
#[test]
fn the_packet_generations() {
    golden(
        DriverName::Equinix,
        AnnotationFormat::Packet,
        &json!({
            "packet.com/node.asn": "65000",
            "packet.com/peer.asns": "65530",
            "packet.com/peer.ips": "169.254.255.1,169.254.255.2",
        }),
    );
    golden(
        DriverName::Equinix,
        AnnotationFormat::PacketPlain,
        &json!({
            "packet.com/node-asn": "65000",
            "packet.com/peer-asn": "65530",
            "packet.com/peer-ip": "169.254.255.1,169.254.255.2",
            "packet.com/src-ip": "10.1.40.129",
        }),
    );
}

/// E29, E90: Cherry's: no password, no network, but that the peer is far.
#[test]
fn the_generation_of_cherry() {
    let mut expected = json!({});
    for (n, address) in ["169.254.255.1", "169.254.255.2"].into_iter().enumerate() {
        for (field, value) in [
            ("node-asn", "65000"),
            ("peer-asn", "65530"),
            ("peer-ip", address),
            ("src-ip", "10.1.40.129"),
            ("peer-multi-hop", "true"),
        ] {
            expected[format!("cherryservers.com/bgp-peers-{n}-{field}")] = json!(value);
        }
    }
    golden(DriverName::Cherry, AnnotationFormat::Indexed, &expected);
}

/// Several at once, during a takeover, say: each complete.
#[test]
fn several_generations_go_side_by_side() {
    let formats = [AnnotationFormat::Indexed, AnnotationFormat::Packet];
    let wanted = told_by(DriverName::Equinix, &formats, &answer());
    assert_eq!(wanted.annotations.len(), 11 + 3);
}

/// Peers that a list cannot tell of are left out of it and named; numbers tell of all, IPv4 first.
#[test]
fn what_a_format_cannot_say_is_named() {
    let mut answer = answer();
    answer.peers[0].password = "secret".into();
    answer.peers.push(Peer {
        source_address: "2001:db8::2".into(),
        ..peer("100:db8::1", "secret")
    });
    answer.peers.push(Peer {
        peer_asn: 64_512,
        ..peer("192.0.2.9", "secret")
    });
    let lists = told_by(DriverName::Equinix, &[AnnotationFormat::Plain], &answer);
    assert_eq!(
        lists.annotations["metal.equinix.com/peer-ip"],
        "169.254.255.1,169.254.255.2"
    );
    assert_eq!(
        lists.untold.iter().map(String::as_str).collect::<Vec<_>>(),
        ["100:db8::1", "192.0.2.9"]
    );
    // Where AS numbers are a list, they go with the addresses.
    let packet = told_by(DriverName::Equinix, &[AnnotationFormat::Packet], &answer);
    assert_eq!(
        packet.annotations["packet.com/peer.asns"],
        "65530,65530,64512,65530"
    );
    assert_eq!(
        packet.annotations["packet.com/peer.ips"],
        "169.254.255.1,169.254.255.2,192.0.2.9,100:db8::1"
    );
    let numbered = told_by(DriverName::Equinix, &[AnnotationFormat::Indexed], &answer);
    assert!(numbered.untold.is_empty());
    let address = |n| numbered.annotations[&format!("metal.equinix.com/bgp-peers-{n}-peer-ip")].as_str();
    assert_eq!(
        [0, 1, 2, 3].map(address),
        ["169.254.255.1", "169.254.255.2", "192.0.2.9", "100:db8::1"]
    );
}

/// E8: names of one's own, numbered or not.
#[test]
fn own_names_are_written() {
    let mut config = config(DriverName::Equinix, &[AnnotationFormat::Indexed]);
    config.annotations.local_asn = "example.com/asn".into();
    config.annotations.peer_ip = "example.com/peer-{{n}}".into();
    config.annotations.multihop = "example.com/far-{{n}}".into();
    let wanted = Formats::of(&config).wanted(&answer()).annotations;
    for (key, value) in [
        ("example.com/asn", "65000"),
        ("example.com/peer-0", "169.254.255.1"),
        ("example.com/peer-1", "169.254.255.2"),
        ("example.com/far-1", "true"),
        ("metal.equinix.com/bgp-peers-1-src-ip", "10.1.40.129"),
    ] {
        assert_eq!(wanted.get(key).map(String::as_str), Some(value), "{key}");
    }
    assert!(!wanted.contains_key("metal.equinix.com/bgp-peers-0-peer-ip"));
}

/// What kube-vip makes of annotations: its expressions, with the prefix quoted.
#[derive(Debug, Default, PartialEq, Eq)]
struct Vip {
    node_asn: Vec<String>,
    peer_asn: Vec<String>,
    source: Vec<String>,
    peers: BTreeSet<String>,
    passwords: Vec<String>,
    multihop: Vec<String>,
}

fn read_by_kube_vip(prefix: &str, annotations: &Annotations) -> Vip {
    let quoted = regex::escape(prefix);
    let all = |index: &str, field: &str| -> Vec<String> {
        let pattern = Regex::new(&format!("^{quoted}/({index})?{field}$")).unwrap();
        let found = annotations.iter().filter(|(key, _)| pattern.is_match(key));
        found.map(|(_, value)| value.clone()).collect()
    };
    let first = |field| all("bgp-peers-0-", field);
    let addresses = all("bgp-peers-[0-9]+-", "peer-ip");
    let count = addresses.iter().flat_map(|list| list.split(',')).count();
    let peers: BTreeSet<String> = addresses
        .iter()
        .flat_map(|list| list.split(','))
        .map(|address| address.parse::<IpAddr>().unwrap().to_string())
        .collect();
    assert_eq!(count, peers.len(), "kube-vip takes a peer twice");
    let decoded = |text: String| String::from_utf8(BASE64.decode(text).unwrap()).unwrap();
    Vip {
        node_asn: first("node-asn"),
        peer_asn: first("peer-asn"),
        source: first("src-ip"),
        peers,
        passwords: first("bgp-pass").into_iter().map(decoded).collect(),
        multihop: first("peer-multi-hop"),
    }
}

/// E29, E90: kube-vip finds in every generation that it reads exactly one of each thing, and every peer once.
#[test]
fn kube_vip_reads_what_we_write() {
    use AnnotationFormat::{Indexed, Packet, PacketPlain, Plain, Plural};
    let mut answer = answer();
    answer.peers[0].password = "secret".into();
    let text = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>();
    let expected = |passwords: &[&str], multihop: &[&str]| Vip {
        node_asn: text(&["65000"]),
        peer_asn: text(&["65530"]),
        source: text(&["10.1.40.129"]),
        peers: text(&["169.254.255.1", "169.254.255.2"]).into_iter().collect(),
        passwords: text(passwords),
        multihop: text(multihop),
    };
    for (driver, prefix, formats, read) in [
        (
            DriverName::Equinix,
            "metal.equinix.com",
            &[Indexed][..],
            expected(&["secret"], &[]),
        ),
        (
            DriverName::Equinix,
            "metal.equinix.com",
            &[Plain],
            expected(&["secret"], &[]),
        ),
        (
            DriverName::Equinix,
            "metal.equinix.com",
            &[Indexed, Packet, PacketPlain],
            expected(&["secret"], &[]),
        ),
        (
            DriverName::Equinix,
            "metal.equinix.com",
            &[Plain, Packet],
            expected(&["secret"], &[]),
        ),
        (
            DriverName::Equinix,
            "packet.com",
            &[PacketPlain],
            expected(&[], &[]),
        ),
        (
            DriverName::Equinix,
            "packet.com",
            &[PacketPlain, Packet],
            expected(&[], &[]),
        ),
        (
            DriverName::Cherry,
            "cherryservers.com",
            &[Indexed],
            expected(&[], &["true"]),
        ),
        (
            DriverName::Static,
            "metal.equinix.com",
            &[Indexed],
            expected(&["secret"], &["true"]),
        ),
        // Together with `plain`: the AS number and the source twice, but the same.
        (
            DriverName::Equinix,
            "metal.equinix.com",
            &[Plain, Plural],
            expected(&["secret"], &[]),
        ),
    ] {
        let wanted = told_by(driver, formats, &answer);
        assert_eq!(
            read_by_kube_vip(prefix, &wanted.annotations),
            read,
            "{driver} {formats:?}"
        );
    }
}

/// A node that is not told completely is not read at all: kube-vip waits until it finds these four, and reads them once.
#[test]
fn nothing_is_written_before_kube_vip_could_use_it() {
    let empty = EnsureMachineResponse {
        private_network: "10.1.40.128/25".into(),
        ..EnsureMachineResponse::default()
    };
    for format in [AnnotationFormat::Indexed, AnnotationFormat::Plain] {
        assert_eq!(told_by(DriverName::Equinix, &[format], &empty), Wanted::default());
    }
}
