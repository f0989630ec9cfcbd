//! What groundplane writes on a node makes a real BGP daemon peer with the node's routers, and announce what Services have.
//!
//! groundplane only configures. The speaker of the node is bird, told by the node's annotations as kube-vip reads them, and so are the two
//! routers, which know from the cloud whom to expect, and nothing of groundplane.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context as _, Result, ensure};
use groundplane_sandbox::{Choice, DeviceOptions, ProjectOptions};
use groundplane_tests::bgp_daemon::{Bird, Peering, Router, can_sign, free_port};
use groundplane_tests::kube_api::ingress_of;
use groundplane_tests::{Corner, World, WorldOptions, eventually};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::api::ListParams;
use pretty_assertions::assert_eq;

use crate::announced::annotation;

const PREFIX: &str = "metal.equinix.com";
const MACHINE: Ipv4Addr = Ipv4Addr::new(127, 79, 0, 11);
const ROUTERS: [Ipv4Addr; 2] = [Ipv4Addr::new(127, 79, 0, 21), Ipv4Addr::new(127, 79, 0, 22)];
const ASN: u32 = 64_999;
const PASSWORD: &str = "Secret4711x";

/// A machine whose routers are on loopback, as a node that knows its peers.
async fn peered(password: Option<&str>) -> Result<(World, Peering)> {
    let options = ProjectOptions {
        asn: Some(ASN),
        md5: password.map(str::to_owned),
        list_machine_blocks: false,
        ..ProjectOptions::default()
    };
    let multihop = format!("  annotations: {{multihop: '{PREFIX}/bgp-peers-{{{{n}}}}-peer-multi-hop'}}\n");
    let world = WorldOptions::equinix(options)
        .gateway(&multihop)
        .start("daemon")
        .await?;
    let (corner, project) = (&world.corner, world.project()?);
    let device = project.add_device(DeviceOptions {
        private_ipv4: Choice::Given(MACHINE),
        ..DeviceOptions::named(corner.node_name("a"))
    });
    project.set_peers(device, ROUTERS.map(IpAddr::V4));
    corner.create_node(corner.node_draft("a").uninitialized()).await?;
    let told = |node: &Node| annotation(node, "metal.equinix.com/bgp-peers-1-peer-ip").map(|_| node.clone());
    let node = corner.node_until("a", "knows both peers", told).await?;
    let annotations = node.metadata.annotations.unwrap_or_default();
    let peering = Peering::read(PREFIX, &annotations)?;
    Ok((world, peering))
}

/// The addresses that Services have by their status: what a speaker announces.
async fn announced(corner: &Corner) -> Result<Vec<IpAddr>> {
    let services = corner
        .api::<Service>()
        .list(&ListParams::default())
        .await
        .context("list Services")?;
    let texts = services.items.iter().flat_map(ingress_of);
    texts
        .map(|text| text.parse().with_context(|| format!("`{text}` in a status")))
        .collect()
}

/// Waits until the router has learnt exactly these prefixes.
async fn has(router: &Bird, prefixes: &[String]) -> Result<()> {
    eventually(format!("the router knows {prefixes:?}"), async || {
        let learnt: Vec<String> = router.learnt().await?.into_iter().collect();
        ensure!(learnt == prefixes, "it knows {learnt:?}");
        Ok(())
    })
    .await
}

/// E29: by its annotations a node peers with two routers, signed where the kernel can, and the route of a Service's elastic IP arrives
/// at both and leaves both.
#[tokio::test]
async fn a_node_peers_by_its_annotations_and_announces_a_service() -> Result<()> {
    let password = can_sign().await?.then_some(PASSWORD);
    if password.is_none() {
        eprintln!("this kernel cannot sign TCP (MD5), so the sessions have no password");
    }
    let (world, peering) = peered(password).await?;
    let corner = &world.corner;
    assert_eq!((peering.local_asn, peering.peer_asn), (ASN, 65_530));
    assert_eq!(peering.source, IpAddr::V4(MACHINE));
    assert_eq!(peering.password.as_deref(), password);
    assert!(peering.multihop);

    // What a static route to a peer takes.
    let told = world.ctl(&["peers"]).await?;
    let rows = told.as_array().context("no list")?;
    assert_eq!(rows.len(), 2, "{told}");
    for (row, router) in rows.iter().zip(ROUTERS) {
        assert_eq!(row["peerAddress"], router.to_string(), "{told}");
        assert_eq!(row["sourceAddress"], MACHINE.to_string());
        let gateway: IpAddr = row["gateway"].as_str().context("no gateway")?.parse()?;
        ensure!(gateway != IpAddr::V4(MACHINE), "{told}");
    }

    let port = free_port(&[MACHINE, ROUTERS[0], ROUTERS[1]])?;
    let mut routers = Vec::new();
    for address in ROUTERS {
        let router = Router {
            address,
            asn: 65_530,
            machine: MACHINE,
            machine_asn: ASN,
            password: password.map(str::to_owned),
            port,
        };
        routers.push(Bird::start("router", &router.config()).await?);
    }
    let speaker = Bird::start("speaker", &peering.config(port, &announced(corner).await?)).await?;
    for router in &routers {
        router.established(Router::SESSION).await?;
        has(router, &[]).await?;
    }

    corner.add_service("web").await?;
    let address = corner.addresses_of("web", 1).await?.remove(0);
    speaker
        .configure(&peering.config(port, &announced(corner).await?))
        .await?;
    for router in &routers {
        has(router, &[format!("{address}/32")]).await?;
    }
    let reserved = world.project()?.reservations();
    ensure!(
        format!("{reserved:?}").contains(&address),
        "{address} is not the cloud's: {reserved:?}"
    );

    corner.delete_service("web").await?;
    corner.service_gone("web").await?;
    speaker
        .configure(&peering.config(port, &announced(corner).await?))
        .await?;
    for router in &routers {
        has(router, &[]).await?;
        router.established(Router::SESSION).await?;
    }
    ensure!(!world.log_text()?.contains(PASSWORD), "the log holds a password");
    Ok(())
}
