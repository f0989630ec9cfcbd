//! The real speaker of MetalLB peers with a real BGP daemon by what we wrote.

use std::net::{IpAddr, Ipv4Addr, TcpListener};

use anyhow::{Context as _, Result, ensure};
use groundplane_tests::bgp_daemon::{Bird, Router};
use groundplane_tests::metallb::{Metallb, objects, valid};
use groundplane_tests::{Corner, WorldOptions, eventually};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::PostParams;
use pretty_assertions::assert_eq;
use serde_json::json;

use crate::metallb::{add_service, corner, ready, section, started};

/// MetalLB speaks from an address that an interface has, and of loopback's that is this one.
const MACHINE: Ipv4Addr = Ipv4Addr::LOCALHOST;
const ROUTER: Ipv4Addr = Ipv4Addr::new(127, 79, 1, 21);

/// MetalLB takes no higher port for a peer.
const HIGHEST_PORT: u16 = 16_384;

/// A free port that MetalLB takes. Those that the system hands out are higher.
fn port() -> Result<u16> {
    for port in (10_000..HIGHEST_PORT).skip(usize::from(fastrand::u16(..6_000))) {
        if TcpListener::bind((IpAddr::V4(ROUTER), port)).is_ok() {
            return Ok(port);
        }
    }
    anyhow::bail!("no port is free")
}

/// A Pod of the Service that is ready, as its endpoint: MetalLB announces no Service without.
async fn add_endpoint(corner: &Corner, service: &str) -> Result<()> {
    let slice: EndpointSlice = serde_json::from_value(json!({
        "metadata": { "name": service, "labels": { "kubernetes.io/service-name": service } },
        "addressType": "IPv4",
        "endpoints": [{ "addresses": ["10.1.0.1"], "conditions": { "ready": true } }],
        "ports": [{ "name": "http", "port": 80, "protocol": "TCP" }],
    }))?;
    let created = corner
        .api::<EndpointSlice>()
        .create(&PostParams::default(), &slice)
        .await;
    created.map(drop).context("create an EndpointSlice")
}

async fn knows(router: &Bird, prefixes: &[String], speaker: &Metallb) -> Result<()> {
    eventually(format!("the router knows {prefixes:?}"), async || {
        let learnt: Vec<String> = router.learnt().await?.into_iter().collect();
        ensure!(learnt == prefixes, "it knows {learnt:?}");
        Ok(())
    })
    .await
    .with_context(|| speaker.log_tail())
}

/// E40, E58, E59: MetalLB's own controller and speaker (native mode) take what is written. The speaker peers with the node's router, and the
/// route of a Service's address arrives there and leaves; the session outlives both, and a second Service.
#[tokio::test]
async fn the_real_speaker_announces_what_a_service_has() -> Result<()> {
    let (corner, namespace) = corner("speaker", "metallb").await?;
    let port = port()?;
    let router = Router {
        address: ROUTER,
        asn: 65_530,
        machine: MACHINE,
        machine_asn: 65_000,
        password: None,
        port,
    };
    let router = Bird::start("router", &router.config()).await?;
    let bgp = format!(
        "static:\n  bgp:\n    localAsn: 65000\n    peers:\n      - {{address: {ROUTER}, asn: 65530, port: {port}, multihop: true}}\n"
    );
    let options = WorldOptions::fixed()
        .gateway(&section(&corner, "metallb", &namespace, ""))
        .section(&bgp);
    let world = started(corner, options).await?;
    let corner = &world.corner;
    let node = corner
        .node_draft("a")
        .uninitialized()
        .address("InternalIP", &MACHINE.to_string());
    corner.create_node(node).await?;
    let controller = Metallb::controller(corner, &namespace).await?;
    let speaker = Metallb::speaker(corner, &namespace, "a").await?;
    for name in ["web", "other"] {
        add_service(corner, name).await?;
        add_endpoint(corner, name).await?;
    }
    let mut prefixes = Vec::new();
    for name in ["web", "other"] {
        corner
            .service_until(name, "is ready", ready)
            .await
            .with_context(|| controller.log_tail())?;
        prefixes.push(format!("{}/32", corner.addresses_of(name, 1).await?[0]));
    }
    let peers = objects(corner, &namespace, "BGPPeer").await?;
    assert_eq!(peers.len(), 1, "{peers:?}");
    assert_eq!(peers[0].1["peerPort"], port);
    assert_eq!(peers[0].1["sourceAddress"], MACHINE.to_string());
    router
        .established(Router::SESSION)
        .await
        .with_context(|| speaker.log_tail())?;
    let mut both = prefixes.clone();
    both.sort();
    knows(&router, &both, &speaker).await?;
    for state in [
        "controller".to_owned(),
        format!("speaker-{}", corner.node_name("a")),
    ] {
        valid(corner, &namespace, &state).await?;
    }
    corner.delete_service("other").await?;
    corner.service_gone("other").await?;
    knows(&router, &prefixes[..1], &speaker).await?;
    router.established(Router::SESSION).await
}
