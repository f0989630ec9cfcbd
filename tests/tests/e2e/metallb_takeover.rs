//! What the old controllers told MetalLB is taken over, and nothing moves; and a MetalLB that takes nothing for a while.

use anyhow::{Context as _, Result, ensure};
use groundplane_tests::kube_api::ingress_of;
use groundplane_tests::kube_api::proxy::{Fault, Rule};
use groundplane_tests::metallb::{Metallb, api_of, create, objects, valid};
use groundplane_tests::{Corner, User, WorldOptions, eventually};
use k8s_openapi::api::core::v1::Service;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::announced::refusal;
use crate::metallb::{add_service, corner, ready, section, started};

const ADDRESS: &str = "192.0.2.40";
const PEER: &str = "169.254.255.1";
const SOURCE: &str = "10.0.0.11";

/// What the old controller leaves for one Service on one node.
async fn legacy(corner: &Corner, namespace: &str) -> Result<()> {
    let labels = || json!({ "cloud-provider": "equinix-metal" });
    let ns = corner.namespace();
    let pool = format!("{ns}.web");
    let spec = json!({ "addresses": [format!("{ADDRESS}/32")], "autoAssign": false, "avoidBuggyIPs": false });
    create(corner, namespace, "IPAddressPool", &pool, labels(), spec).await?;
    let spec = json!({ "ipAddressPools": [pool] });
    create(
        corner,
        namespace,
        "BGPAdvertisement",
        "equinix-metal-bgp-adv",
        labels(),
        spec,
    )
    .await?;
    let node = corner.node_name("a");
    let mark = json!({ "nomatch.metal.equinix.com/service-name": "web", "nomatch.metal.equinix.com/service-namespace": ns });
    let spec = json!({
        "myASN": 65_000, "peerASN": 65_530, "peerAddress": PEER, "sourceAddress": SOURCE, "peerPort": 179, "holdTime": "0s",
        "nodeSelectors": [{ "matchLabels": { "kubernetes.io/hostname": node } }, { "matchLabels": mark }],
    });
    create(corner, namespace, "BGPPeer", &format!("{node}-0"), labels(), spec).await
}

async fn names(corner: &Corner, namespace: &str, kind: &str) -> Result<Vec<String>> {
    let objects = objects(corner, namespace, kind).await?;
    Ok(objects.into_iter().map(|(name, _)| name).collect())
}

async fn peer(corner: &Corner, namespace: &str) -> Result<(Option<String>, Value)> {
    let name = format!("{}-0", corner.node_name("a"));
    let peer = api_of(corner, namespace, "v1beta2", "BGPPeer").get(&name).await?;
    Ok((peer.metadata.resource_version, peer.data["spec"].clone()))
}

/// E58, E59, E61: a Service that the old controller served keeps its address while groundplane takes over: MetalLB never takes it away, the
/// pool stays, the peer is not touched, and the old advertisement goes when ours is there. With the Service all of it goes.
#[tokio::test]
async fn what_the_old_controller_wrote_is_taken_over_and_nothing_moves() -> Result<()> {
    let (corner, namespace) = corner("takeover", "metallb").await?;
    legacy(&corner, &namespace).await?;
    let controller = Metallb::controller(&corner, &namespace).await?;
    let draft = corner.service_draft("web").class(&corner.class());
    corner.create_service(draft.load_balancer_ip(ADDRESS)).await?;
    assert_eq!(corner.addresses_of("web", 1).await?, [ADDRESS]);
    let before = peer(&corner, &namespace).await?;
    let bgp = format!(
        "static:\n  bgp:\n    localAsn: 65000\n    peers:\n      - {{address: {PEER}, asn: 65530, multihop: true}}\n"
    );
    let options = WorldOptions::fixed()
        .gateway(&section(&corner, "metallb", &namespace, ""))
        .section(&bgp);
    // Before groundplane, which takes the peer of a node that is not there for one that has gone.
    let node = corner
        .node_draft("a")
        .uninitialized()
        .address("InternalIP", SOURCE);
    corner.create_node(node).await?;
    let world = started(corner, options).await?;
    let corner = &world.corner;
    corner
        .service_until("web", "is ready", ready)
        .await
        .with_context(|| controller.log_tail())?;
    eventually("our advertisement is there alone", async || {
        let names = names(corner, &namespace, "BGPAdvertisement").await?;
        ensure!(names == ["groundplane"], "{names:?}");
        Ok(())
    })
    .await?;
    corner
        .node_until("a", "knows its peers", |node| {
            crate::announced::annotation(node, "metal.equinix.com/bgp-peers-0-peer-ip").map(drop)
        })
        .await?;
    let mark = corner.mark().await?;
    eventually("three rounds", async || {
        let requests = corner.requests_since(mark).await?.by_user(User::Gateway);
        let lists = requests.in_namespace(&namespace);
        let lists = lists.only(|request| request.verb == "list" && request.resource == "bgppeers");
        ensure!(lists.count() >= 3, "{} lists", lists.count());
        Ok(())
    })
    .await?;
    assert_eq!(peer(corner, &namespace).await?, before, "its session would end");
    let pool = format!("{}.web", corner.namespace());
    assert_eq!(names(corner, &namespace, "IPAddressPool").await?, [pool]);
    let service = corner.api::<Service>().get("web").await?;
    assert_eq!(ingress_of(&service), [ADDRESS]);
    let annotations = service.metadata.annotations.unwrap_or_default();
    ensure!(
        !annotations.contains_key("metallb.io/loadBalancerIPs"),
        "it asks twice"
    );
    valid(corner, &namespace, "controller").await?;
    ensure!(
        !controller.log()?.contains("current IP not allowed by config"),
        "MetalLB took it away"
    );
    corner.delete_service("web").await?;
    corner.service_gone("web").await?;
    eventually("nothing is left", async || {
        for kind in ["IPAddressPool", "BGPPeer", "BGPAdvertisement"] {
            let names = names(corner, &namespace, kind).await?;
            ensure!(names.is_empty(), "{names:?}");
        }
        Ok(())
    })
    .await
}

/// E63: while MetalLB's webhook is away, nothing can be written: the Service is told, keeps what it holds, and is served when it is back. One
/// that goes meanwhile waits, so that nobody else gets an address that is still announced.
#[tokio::test]
async fn a_webhook_that_is_away_is_waited_for() -> Result<()> {
    let (corner, namespace) = corner("webhook", "metallb").await?;
    let controller = Metallb::controller(&corner, &namespace).await?;
    let options = WorldOptions::fixed()
        .gateway(&section(&corner, "metallb", &namespace, ""))
        .api_faults([Rule::on("create", "ipaddresspools", Fault::Status(500))]);
    let world = started(corner, options).await?;
    let corner = &world.corner;
    add_service(corner, "web").await?;
    let told = |service: &Service| refusal(service).filter(|reason| reason == "AnnouncerUnavailable");
    corner.service_until("web", "is told", told).await?;
    world.api()?.clear();
    corner
        .service_until("web", "is ready", ready)
        .await
        .with_context(|| controller.log_tail())?;
    let address = corner.addresses_of("web", 1).await?.remove(0);
    world
        .api()?
        .add([Rule::on("delete", "ipaddresspools", Fault::Status(500))]);
    let tries = || {
        let journal = world
            .api()
            .map(groundplane_tests::kube_api::proxy::ApiProxy::journal);
        journal.map(|journal| {
            journal.count(|entry| entry.call.verb == "delete" && entry.call.resource == "ipaddresspools")
        })
    };
    corner.delete_service("web").await?;
    eventually("two tries to remove its address", async || {
        let tries = tries()?;
        ensure!(tries >= 2, "{tries}");
        Ok(())
    })
    .await?;
    let held = corner.api::<Service>().get("web").await?;
    ensure!(held.metadata.deletion_timestamp.is_some(), "it is not going");
    assert_eq!(ingress_of(&held), [address]);
    world.api()?.clear();
    corner.service_gone("web").await
}
