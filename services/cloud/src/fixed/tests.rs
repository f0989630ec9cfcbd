use secrecy::ExposeSecret as _;

use super::*;
use crate::MachineAddressKind;
use crate::testing::{bgp_fabric_contract, machine_source_contract};

fn config(text: &str) -> StaticConfig {
    let config: StaticConfig = groundplane_runtime::config::parse("test.yaml", text).unwrap();
    assert_eq!(config.validate(), []);
    config
}

const TABLES: &str = "
machines:
  - name: m1
    hostname: m1.example
    addresses:
      - {type: InternalIP, address: 10.0.0.1}
      - {type: ExternalIP, address: 2001:db8::1}
    instanceType: big
    zone: z1
    region: r1
    labels: {rack: a}
  - name: m2
    providerId: k3s://m2
bgp:
  localAsn: 65000
  peers:
    - {address: 10.0.0.254, asn: 65100, nodeSelector: {rack: a}}
    - {address: 10.0.0.253, asn: 65100, localAsn: 65001, sourceAddress: 10.9.9.9, multihop: true, port: 1179}
    - {address: 'fd00::1', asn: 65200}
";

fn query(labels: &[(&str, &str)]) -> NeighborQuery {
    NeighborQuery {
        machine: "static://m1".parse().unwrap(),
        node: "m1".to_owned(),
        labels: labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
        addresses: ["10.0.0.1", "2001:db8::1"]
            .map(|text| text.parse().unwrap())
            .to_vec(),
    }
}

#[tokio::test]
async fn the_driver_keeps_the_contracts() {
    let cloud = connect(&config(TABLES));
    let absent = "static://gone".parse().unwrap();
    machine_source_contract(cloud.machines.unwrap().as_ref(), 2, &absent).await;
    let table = config(&TABLES.replace("localAsn: 65001, ", ""));
    bgp_fabric_contract(
        connect(&table).bgp.unwrap().as_ref(),
        &"static://m1".parse().unwrap(),
        &absent,
    )
    .await;
}

/// E22, the driver's part: a table kept by hand proves nothing about what it lacks.
#[tokio::test]
async fn machines_are_as_the_table_says_and_absence_from_it_proves_nothing() {
    let source = connect(&config(TABLES)).machines.unwrap();
    assert!(!source.proves_absence());
    let machine = source.get(&"static://m1".parse().unwrap()).await.unwrap();
    let kinds: Vec<_> = machine.addresses.iter().map(|row| row.kind).collect();
    assert_eq!(
        kinds,
        [MachineAddressKind::InternalIp, MachineAddressKind::ExternalIp]
    );
    assert_eq!(
        (machine.hostname.as_str(), machine.zone.as_str()),
        ("m1.example", "z1")
    );
    assert_eq!(
        machine.labels,
        BTreeMap::from([("rack".to_owned(), "a".to_owned())])
    );
    assert!(source.accepts(&"k3s://m2".parse().unwrap()), "an id of the table");
    assert!(!source.accepts(&"k3s://m3".parse().unwrap()));
}

/// E28: peers by the labels of the node.
#[tokio::test]
async fn peers_are_chosen_by_labels_and_spoken_to_from_their_family() {
    let fabric = connect(&config(TABLES)).bgp.unwrap();
    let peers = fabric.neighbors(&query(&[("rack", "a")])).await.unwrap().peers;
    let shown: Vec<_> = peers
        .iter()
        .map(|p| (p.address.to_string(), p.source.unwrap().to_string(), p.local_asn))
        .collect();
    let expected = [
        ("10.0.0.253", "10.9.9.9", 65_001),
        ("10.0.0.254", "10.0.0.1", 65_000),
        ("fd00::1", "2001:db8::1", 65_000),
    ];
    assert_eq!(
        shown,
        expected.map(|(peer, source, asn)| (peer.to_owned(), source.to_owned(), asn))
    );
    assert_eq!((peers[0].multihop, peers[0].port), (true, Some(1179)));
    let elsewhere = fabric.neighbors(&query(&[("rack", "b")])).await.unwrap().peers;
    assert_eq!(elsewhere.len(), 2);
}

#[tokio::test]
async fn a_password_that_cannot_be_read_yields_no_peers_rather_than_wrong_ones() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "secret-word\n").unwrap();
    let peer = format!(
        "{{address: 10.0.0.254, asn: 65100, passwordFile: {}}}",
        file.path().display()
    );
    let config = config(&format!("bgp:\n  localAsn: 65000\n  peers:\n    - {peer}\n"));
    let cloud = connect(&config);
    assert!(cloud.machines.is_none() && matches!(cloud.addresses, AddressBackend::Ipam));
    let fabric = cloud.bgp.unwrap();
    let neighbors = fabric.neighbors(&query(&[])).await.unwrap();
    assert_eq!(
        neighbors.peers[0].password.as_ref().unwrap().expose_secret(),
        "secret-word"
    );
    assert!(!format!("{neighbors:?} {config:?}").contains("secret-word"));
    drop(file);
    let error = fabric.neighbors(&query(&[])).await.unwrap_err();
    assert!(
        error.is(CloudErrorKind::Unavailable) && error.message.contains("static.bgp.peers[0].passwordFile")
    );
}

#[test]
fn nothing_configured_is_a_cloud_that_only_has_pools() {
    let cloud = connect(&StaticConfig::default());
    assert!(cloud.machines.is_none() && cloud.bgp.is_none());
}
