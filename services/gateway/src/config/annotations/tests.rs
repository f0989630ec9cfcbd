use pretty_assertions::assert_eq;

use super::*;

fn names(config: &Config) -> Vec<Vec<String>> {
    let of = |layout: &Layout| layout.names().map(|name| name.0.clone()).collect();
    config.layouts().iter().map(of).collect()
}

fn of(formats: &[AnnotationFormat]) -> Config {
    Config {
        driver: DriverName::Equinix,
        annotation_formats: formats.to_vec(),
        ..Config::default()
    }
}

/// E8, E29: every generation's names, to the letter.
#[test]
fn each_generation_has_its_own_names() {
    use AnnotationFormat::{Indexed, Packet, PacketPlain, Plain, Plural};
    let prefixed = |names: &[&str]| -> Vec<String> {
        let whole = |name: &&str| format!("metal.equinix.com/{name}");
        names.iter().map(whole).collect()
    };
    let indexed = [
        "bgp-peers-{{n}}-node-asn",
        "bgp-peers-{{n}}-peer-asn",
        "bgp-peers-{{n}}-peer-ip",
        "bgp-peers-{{n}}-src-ip",
        "bgp-peers-{{n}}-bgp-pass",
        "network-4-private",
    ];
    let plain = [
        "node-asn",
        "peer-asn",
        "peer-ip",
        "src-ip",
        "bgp-pass",
        "network-4-private",
    ];
    let plural = ["node-asn", "peer-asns", "peer-ips", "src-ip", "network-4-private"];
    let packet = [
        "packet.com/node.asn",
        "packet.com/peer.asns",
        "packet.com/peer.ips",
    ];
    let late = [
        "packet.com/node-asn",
        "packet.com/peer-asn",
        "packet.com/peer-ip",
        "packet.com/src-ip",
    ];
    assert_eq!(
        names(&of(&[Indexed, Plain, Plural, Packet, PacketPlain])),
        [
            prefixed(&indexed),
            prefixed(&plain),
            prefixed(&plural),
            packet.map(str::to_owned).to_vec(),
            late.map(str::to_owned).to_vec(),
        ]
    );
}

/// E8: each name can be changed, and the others stay.
#[test]
fn a_name_of_ones_own_takes_the_place_of_one() {
    let mut config = of(&[AnnotationFormat::Indexed, AnnotationFormat::Packet]);
    config.annotations.peer_ip = "example.com/peer-{{n}}".to_owned();
    config.annotations.multihop = "example.com/far-{{n}}".to_owned();
    config.annotations.network_ipv4_private = "example.com/network".to_owned();
    config.annotations.eip_metro = "example.com/metro".to_owned();
    let layouts = config.layouts();
    let name = |field| layouts[0].name(field).map(Name::as_str);
    assert_eq!(name(Field::PeerIp), Some("example.com/peer-{{n}}"));
    assert_eq!(name(Field::Multihop), Some("example.com/far-{{n}}"));
    assert_eq!(
        name(Field::LocalAsn),
        Some("metal.equinix.com/bgp-peers-{{n}}-node-asn")
    );
    assert_eq!(
        layouts[0].network.as_ref().map(Name::as_str),
        Some("example.com/network")
    );
    assert_eq!(
        layouts[1].name(Field::PeerIp).map(Name::as_str),
        Some("packet.com/peer.ips")
    );
    assert_eq!(config.eip_metro(), "example.com/metro");
    assert_eq!(config.eip_facility(), "metal.equinix.com/eip-facility");
}

/// Peers that are far are told as such, unless the older controller of the cloud did not.
#[test]
fn multihop_is_told_except_on_equinix() {
    let mut config = of(&[AnnotationFormat::Indexed]);
    assert_eq!(config.layouts()[0].name(Field::Multihop), None);
    config.driver = DriverName::Static;
    assert_eq!(
        config.layouts()[0].name(Field::Multihop).map(Name::as_str),
        Some("metal.equinix.com/bgp-peers-{{n}}-peer-multi-hop")
    );
}

#[test]
fn a_key_is_known_by_its_name() {
    let name = Name("a.example/bgp-{{n}}-ip".to_owned());
    for (key, number) in [
        ("a.example/bgp-0-ip", Some(0)),
        ("a.example/bgp-12-ip", Some(12)),
        ("a.example/bgp-012-ip", None),
        ("a.example/bgp-+1-ip", None),
        ("a.example/bgp--ip", None),
        ("a.example/bgp-1-ips", None),
        ("b.example/bgp-1-ip", None),
        ("a.example/bgp-99999999999-ip", None),
    ] {
        assert_eq!(name.number_in(key), number, "{key}");
    }
    assert_eq!(name.of(7), "a.example/bgp-7-ip");
    let whole = Name("a.example/ip".to_owned());
    assert_eq!(
        (whole.number_in("a.example/ip"), whole.number_in("a.example/ip0")),
        (Some(0), None)
    );
}
