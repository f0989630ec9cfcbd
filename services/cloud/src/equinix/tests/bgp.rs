use std::num::NonZeroU32;

use groundplane_core::Family;
use groundplane_runtime::config::SecretFile;
use groundplane_sandbox::{Action, BgpStatus, ProjectOptions, StatusFault};
use pretty_assertions::assert_eq;
use secrecy::ExposeSecret as _;
use serde_json::json;

use super::{Bench, rule};
use crate::{BgpFabric, CloudErrorKind, NeighborQuery};

const PASSWORD: &str = "Abcdef12345";

fn query(machine: &str) -> NeighborQuery {
    let machine = format!("equinixmetal://{machine}").parse().unwrap();
    NeighborQuery {
        machine,
        node: String::new(),
        labels: std::collections::BTreeMap::new(),
        addresses: vec![],
    }
}

/// E23: never enabled, then once; and never a second time by us. E24: what the project has is what counts.
#[tokio::test]
async fn bgp_is_enabled_once_and_what_the_project_has_counts() {
    let bench = Bench::new().await;
    assert!(bench.driver.project().await.unwrap().is_none());
    assert_eq!(bench.driver.enable().await.unwrap().local_asn, 65_000);
    let asked = bench
        .project
        .journal()
        .calls(0, "POST", "/projects/{pid}/bgp-configs");
    assert_eq!(
        asked.iter().map(|entry| entry.body.clone()).collect::<Vec<_>>(),
        [Some(
            json!({ "asn": 65_000, "deployment_type": "local", "use_case": "kubernetes-load-balancer" })
        )]
    );
    bench.project.set_bgp(65_123, Some(PASSWORD));
    let project = bench.driver.enable().await.unwrap();
    assert_eq!(
        (project.local_asn, project.password.unwrap().expose_secret()),
        (65_123, PASSWORD)
    );
}

#[tokio::test]
async fn a_configured_password_is_sent() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), PASSWORD).unwrap();
    let bench = Bench::with(ProjectOptions::default(), |config| {
        config.bgp.password_file = Some(SecretFile::new(file.path()));
    })
    .await;
    bench.driver.enable().await.unwrap();
    assert_eq!(bench.project.bgp_config().unwrap().md5.as_deref(), Some(PASSWORD));
}

/// E52: the cloud tells how many prefixes a machine may announce.
#[tokio::test]
async fn the_prefix_limit_is_read() {
    let bench = Bench::new().await;
    let told = async || {
        bench
            .driver
            .enable()
            .await
            .unwrap()
            .max_prefixes
            .map(NonZeroU32::get)
    };
    assert_eq!(told().await, Some(10));
    bench.project.set_max_prefix(50);
    assert_eq!(told().await, Some(50));
    bench.project.set_max_prefix(0);
    assert_eq!(told().await, None);
}

/// E25
#[tokio::test]
async fn disabled_bgp_is_as_good_as_none_and_requested_bgp_is_pending() {
    let bench = Bench::new().await;
    bench.driver.enable().await.unwrap();
    bench.project.set_bgp_status(BgpStatus::Disabled);
    assert!(bench.driver.project().await.unwrap().is_none());
    assert!(!bench.driver.enable().await.unwrap().pending);
    bench.project.set_bgp_status(BgpStatus::Requested);
    assert!(bench.driver.project().await.unwrap().unwrap().pending);
}

/// E27: a session that is there is success; other refusals are not.
#[tokio::test]
async fn a_session_that_is_there_already_is_success() {
    let bench = Bench::with(
        ProjectOptions {
            max_per_page: 2,
            ..ProjectOptions::default()
        },
        |_| {},
    )
    .await;
    let devices = bench.project.add_devices(5);
    let machine = |index: usize| format!("equinixmetal://{}", devices[index]).parse().unwrap();
    let error = bench
        .driver
        .create_session(&machine(0), Family::V4)
        .await
        .unwrap_err();
    assert_eq!(error.kind, CloudErrorKind::Refused, "BGP is not enabled");
    bench.driver.enable().await.unwrap();
    for index in [0, 1, 2, 3, 4, 0] {
        bench
            .driver
            .create_session(&machine(index), Family::V4)
            .await
            .unwrap();
    }
    bench
        .driver
        .create_session(&machine(0), Family::V6)
        .await
        .unwrap();
    let sessions = bench.driver.sessions().await.unwrap();
    assert_eq!(sessions.len(), 6, "on three pages");
    let own: Vec<_> = sessions
        .iter()
        .filter(|row| row.machine == machine(0))
        .map(|row| row.family)
        .collect();
    assert_eq!(own, [Family::V4, Family::V6]);
}

#[tokio::test]
async fn neighbors_come_with_everything_that_peering_takes() {
    let bench = Bench::with(
        ProjectOptions {
            asn: Some(65_001),
            md5: Some(PASSWORD.to_owned()),
            ..ProjectOptions::default()
        },
        |_| {},
    )
    .await;
    let device = bench.project.add_devices(1)[0];
    let peers = ["169.254.255.2", "fd00::1", "169.254.255.1"].map(|text| text.parse().unwrap());
    bench.project.set_peers(device, peers);
    let id = format!("equinixmetal://{device}").parse().unwrap();
    for family in [Family::V6, Family::V4] {
        bench.driver.create_session(&id, family).await.unwrap();
    }
    let neighbors = bench.driver.neighbors(&query(&device.to_string())).await.unwrap();
    let addresses: Vec<_> = neighbors
        .peers
        .iter()
        .map(|peer| peer.address.to_string())
        .collect();
    assert_eq!(addresses, ["169.254.255.1", "169.254.255.2", "fd00::1"]);
    let first = &neighbors.peers[0];
    assert_eq!(
        (first.asn, first.local_asn, first.multihop, first.port),
        (65_530, 65_001, true, None)
    );
    assert_eq!(first.source, bench.project.own_ipv4(device, false));
    assert_eq!(first.password.as_ref().unwrap().expose_secret(), PASSWORD);
    assert!(neighbors.peers[2].source.unwrap().is_ipv6());
    let network: ipnet::IpNet = neighbors.private_network.unwrap().parse().unwrap();
    assert!(network.contains(&first.source.unwrap()), "{network}");
    assert!(!format!("{:?}", bench.driver.neighbors(&query(&device.to_string())).await).contains(PASSWORD));
}

/// E29: of several rows of a family the first that has peers counts, as the cloud's own controller reads it; a family more is a family more.
#[tokio::test]
async fn the_first_row_of_a_family_counts() {
    let bench = Bench::with(
        ProjectOptions {
            asn: Some(65_001),
            ..ProjectOptions::default()
        },
        |_| {},
    )
    .await;
    let device = bench.project.add_devices(1)[0];
    let row = |family: u8, peers: &[&str]| json!({ "address_family": family, "customer_as": 65_000, "peer_as": 65_530, "peer_ips": peers });
    let rows = [
        row(4, &[]),
        row(4, &["169.254.255.2", "169.254.255.1"]),
        row(6, &["fd00::1"]),
        row(4, &["169.254.255.9"]),
        row(6, &["fd00::9"]),
    ];
    let answer = StatusFault {
        body: Some(json!({ "bgp_neighbors": rows })),
        ..StatusFault::new(200)
    };
    let answer = rule("GET", "/devices/{id}/bgp/neighbors", Action::Status(answer));
    bench.project.fault(answer);
    let neighbors = bench.driver.neighbors(&query(&device.to_string())).await.unwrap();
    let addresses: Vec<_> = neighbors
        .peers
        .iter()
        .map(|peer| peer.address.to_string())
        .collect();
    assert_eq!(addresses, ["169.254.255.1", "169.254.255.2", "fd00::1"]);
}
