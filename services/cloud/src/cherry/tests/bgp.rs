//! BGP.

use std::collections::BTreeMap;
use std::net::IpAddr;

use groundplane_sandbox::{BgpStatus, Choice, DeviceOptions};
use pretty_assertions::assert_eq;

use super::*;
use crate::{BgpFabric, NeighborQuery};

fn query(machine: &ProviderId) -> NeighborQuery {
    NeighborQuery {
        machine: machine.clone(),
        node: String::new(),
        labels: BTreeMap::new(),
        addresses: vec![],
    }
}

/// E23, E24, E25, E90: off, then on, by one call; on already, it is left alone; the AS number is the cloud's.
#[tokio::test]
async fn bgp_is_switched_on_once() {
    let bench = Bench::new().await;
    assert!(bench.driver.project().await.unwrap().is_none());
    let on = bench.driver.enable().await.unwrap();
    assert!(on.enabled && !on.pending && on.local_asn != 0 && on.password.is_none());
    let again = bench.driver.enable().await.unwrap();
    assert_eq!(again.local_asn, on.local_asn);
    let bodies = bench.bodies("PUT", "/projects/{pid}");
    assert_eq!(bodies.len(), 1, "{bodies:?}");
    assert_eq!(bodies[0]["bgp"], json!(true));
    assert!(
        !bodies[0]["name"].as_str().unwrap().is_empty(),
        "it keeps its name"
    );
    bench.project().set_bgp_status(BgpStatus::Disabled);
    assert!(bench.driver.project().await.unwrap().is_none());
    assert!(bench.driver.enable().await.unwrap().enabled);

    let theirs = ProjectOptions {
        asn: Some(64_999),
        ..ProjectOptions::cherry()
    };
    let theirs = Bench::with(theirs, |_| {}).await;
    assert_eq!(theirs.driver.enable().await.unwrap().local_asn, 64_999);
    assert_eq!(theirs.calls("PUT", "/projects/{pid}"), 0);
}

/// E90: a machine is switched on only where it is off, and its tags stay.
#[tokio::test]
async fn a_machine_keeps_its_tags_when_it_is_switched_on() {
    let bench = Bench::new().await;
    let device = bench.project().add_device(DeviceOptions {
        tags: vec!["role=edge".to_owned(), "rack=r1".to_owned()],
        ..DeviceOptions::named("n1")
    });
    let machine = bench.machine(device);
    let error = bench
        .driver
        .create_session(&machine, Family::V4)
        .await
        .unwrap_err();
    assert_eq!(
        error.kind,
        CloudErrorKind::Refused,
        "BGP of the project is off: {error}"
    );
    bench.driver.enable().await.unwrap();
    for family in [Family::V4, Family::V4, Family::V6] {
        bench.driver.create_session(&machine, family).await.unwrap();
    }
    let body = json!({ "tags": { "role": "edge", "rack": "r1" }, "bgp": true });
    let asked = bench.bodies("PUT", "/servers/{id}");
    assert_eq!(asked, [body.clone(), body], "the refused one, and one more");
    let tags: Vec<_> = bench.project().devices().remove(0).tags;
    assert!(
        tags.contains(&"role=edge".to_owned()) && tags.len() == 2,
        "{tags:?}"
    );
    let absent = ABSENT.parse().unwrap();
    let error = bench
        .driver
        .create_session(&absent, Family::V4)
        .await
        .unwrap_err();
    assert_eq!(error.kind, CloudErrorKind::NotFound, "{error}");
}

/// E27, E90: what speaks BGP is there once a family, on every page.
#[tokio::test]
async fn sessions_are_those_of_machines_that_are_switched_on() {
    let bench = Bench::with(ProjectOptions::cherry(), |config| config.page_size = 2).await;
    let machines = bench.add_machines(5);
    bench.driver.enable().await.unwrap();
    for machine in &machines[1..] {
        bench.driver.create_session(machine, Family::V4).await.unwrap();
    }
    let sessions = bench.driver.sessions().await.unwrap();
    let expected: Vec<_> = machines[1..]
        .iter()
        .flat_map(|machine| [(machine.clone(), Family::V4), (machine.clone(), Family::V6)])
        .collect();
    let found: Vec<_> = sessions
        .iter()
        .map(|session| (session.machine.clone(), session.family))
        .collect();
    assert_eq!(found, expected);
    let ids: std::collections::BTreeSet<_> = sessions.iter().map(|session| &session.id).collect();
    assert_eq!(ids.len(), sessions.len());
}

/// E29, E90: peers are the routers of the machine's region, with the AS numbers of the region and the project.
#[tokio::test]
async fn peers_are_the_routers_of_the_machines_region() {
    let bench = Bench::new().await;
    let asn = bench.driver.enable().await.unwrap().local_asn;
    let hosts: [IpAddr; 4] =
        ["198.51.100.9", "2001:db8::9", "198.51.100.1", "198.51.100.9"].map(|text| text.parse().unwrap());
    bench.project().set_region_bgp("eu_west_1", hosts, 64_777);
    let here = bench.project().add_device(DeviceOptions::named("here"));
    let there = bench.project().add_device(DeviceOptions {
        metro: Some("eu_west_1".to_owned()),
        ..DeviceOptions::named("there")
    });
    let private = bench.project().add_device(DeviceOptions {
        public_ipv4: Choice::Absent,
        ..DeviceOptions::named("private")
    });
    let neighbors = |device| {
        let machine = bench.machine(device);
        let driver = &bench.driver;
        async move { driver.neighbors(&query(&machine)).await.unwrap() }
    };
    assert!(neighbors(there).await.peers.is_empty(), "it is not switched on");
    for device in [here, there, private] {
        bench
            .driver
            .create_session(&bench.machine(device), Family::V4)
            .await
            .unwrap();
    }
    let found = neighbors(there).await;
    assert_eq!(found.private_network, None);
    let addresses: Vec<_> = found.peers.iter().map(|peer| peer.address.to_string()).collect();
    assert_eq!(addresses, ["198.51.100.1", "198.51.100.9", "2001:db8::9"]);
    for peer in &found.peers {
        assert_eq!(
            (peer.asn, peer.local_asn, peer.multihop, peer.port),
            (64_777, asn, true, None)
        );
        assert!(peer.password.is_none());
    }
    assert_eq!(found.peers[0].source, bench.project().own_ipv4(there, true));
    assert!(found.peers[2].source.unwrap().is_ipv6());
    assert!(neighbors(here).await.peers.iter().all(|peer| peer.asn != 64_777));
    assert!(
        neighbors(private)
            .await
            .peers
            .iter()
            .all(|peer| peer.source.is_none())
    );
}

/// E32, E90: no routers yet is an answer; routers without their AS number, or BGP without ours, is none.
#[tokio::test]
async fn half_of_what_peering_takes_is_no_answer() {
    let bench = Bench::new().await;
    let machine = bench.add_machines(1).remove(0);
    bench.driver.enable().await.unwrap();
    bench.driver.create_session(&machine, Family::V4).await.unwrap();
    bench.project().set_region_bgp("eu_nord_1", [], 0);
    assert!(
        bench
            .driver
            .neighbors(&query(&machine))
            .await
            .unwrap()
            .peers
            .is_empty()
    );
    bench
        .project()
        .set_region_bgp("eu_nord_1", ["192.0.2.1".parse().unwrap()], 0);
    let error = bench.driver.neighbors(&query(&machine)).await.unwrap_err();
    assert_eq!(error.kind, CloudErrorKind::Unavailable, "{error}");
    let body = json!({ "id": 1, "name": "p", "bgp": { "enabled": true, "local_asn": null } });
    bench
        .project()
        .fault(rule("GET", "/projects/{pid}", answer(200, body)));
    for error in [
        bench.driver.project().await.unwrap_err(),
        bench.driver.enable().await.unwrap_err(),
    ] {
        assert_eq!(error.kind, CloudErrorKind::Unavailable, "{error}");
    }
}
