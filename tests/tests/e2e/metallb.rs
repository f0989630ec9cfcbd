//! MetalLB is told: the real one, by its custom resources, and by the ConfigMap of before.

use anyhow::{Context as _, Result, ensure};
use groundplane_core::names::SERVICE_ANNOUNCED;
use groundplane_sandbox::ProjectOptions;
use groundplane_tests::kube_api::ingress_of;
use groundplane_tests::metallb::{self, Metallb, create, objects, valid};
use groundplane_tests::{Corner, KubeApi, World, WorldOptions, chart, eventually};
use k8s_openapi::api::core::v1::{Secret, Service};
use kube::Api;
use kube::api::ListParams;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::announced::{condition, refusal};

/// A corner with MetalLB's custom resources and a namespace for MetalLB, whose objects the gateway may write as the chart lets it.
async fn corner(name: &str, announcer: &str) -> Result<(Corner, String)> {
    let corner = KubeApi::shared().await?.corner(name).await?;
    if announcer == "metallb" {
        metallb::install(&corner.client()).await?;
    }
    let namespace = corner.another_namespace("metallb").await?;
    chart::grant_metallb(&corner.client(), announcer, &namespace).await?;
    Ok((corner, namespace))
}

fn section(corner: &Corner, announcer: &str, namespace: &str, more: &str) -> String {
    let class = corner.class();
    format!(
        "  announcer: {announcer}\n  loadBalancerClass: {class}\n  claimClassless: false\n  metallb: {{namespace: {namespace}{more}}}\n"
    )
}

async fn add_service(corner: &Corner, name: &str) -> Result<()> {
    let draft = corner.service_draft(name).class(&corner.class());
    corner.create_service(draft).await.map(drop)
}

fn ready(service: &Service) -> Option<String> {
    condition(service)
        .filter(|condition| condition.status == "True")
        .map(|condition| condition.message)
}

async fn started(corner: Corner, options: WorldOptions) -> Result<World> {
    let world = options.start_in(corner).await?;
    world.ready().await?;
    Ok(world)
}

/// E40, E59, E61, E66: the real MetalLB takes what is written for it, and gives each Service the address that we reserved. Services that
/// come at once lose nothing. The last one takes pool and advertisement with it.
#[tokio::test]
async fn the_real_metallb_gives_services_the_addresses_that_we_reserved() -> Result<()> {
    let (corner, namespace) = corner("metallb", "metallb").await?;
    let controller = Metallb::controller(&corner, &namespace).await?;
    let options = WorldOptions::fixed().gateway(&section(&corner, "metallb", &namespace, ""));
    let world = started(corner, options).await?;
    let corner = &world.corner;
    let names: Vec<String> = (0..12).map(|n| format!("web-{n}")).collect();
    for name in &names {
        add_service(corner, name).await?;
    }
    let mut given = Vec::new();
    for name in &names {
        let message = corner
            .service_until(name, "is ready", ready)
            .await
            .with_context(|| controller.log_tail())?;
        let service = corner.api::<Service>().get(name).await?;
        let addresses = ingress_of(&service);
        assert_eq!(addresses.len(), 1, "{addresses:?}");
        ensure!(message.contains(&addresses[0]), "{message}");
        let annotations = service.metadata.annotations.context("no annotations")?;
        assert_eq!(annotations["metallb.io/loadBalancerIPs"], addresses[0]);
        ensure!(
            annotations[SERVICE_ANNOUNCED].contains(&addresses[0]),
            "{annotations:?}"
        );
        assert_eq!(
            annotations["metallb.io/ip-allocated-from-pool"],
            "groundplane-ipv4-0"
        );
        given.push(format!("{}/32", addresses[0]));
    }
    given.sort();
    let pools = objects(corner, &namespace, "IPAddressPool").await?;
    assert_eq!(pools.len(), 1, "{pools:?}");
    let mut written: Vec<String> = serde_json::from_value(pools[0].1["addresses"].clone())?;
    written.sort();
    assert_eq!(written, given);
    let selector = json!([{ "matchLabels": { "app.kubernetes.io/managed-by": "groundplane" } }]);
    assert_eq!(
        objects(corner, &namespace, "BGPAdvertisement").await?,
        [(
            "groundplane".to_owned(),
            json!({ "ipAddressPoolSelectors": selector })
        )]
    );
    valid(corner, &namespace, "controller").await?;
    for name in &names {
        corner.delete_service(name).await?;
    }
    for name in &names {
        corner.service_gone(name).await?;
    }
    eventually("nothing of ours is left", async || {
        for kind in ["IPAddressPool", "BGPAdvertisement", "BGPPeer"] {
            let left = objects(corner, &namespace, kind).await?;
            ensure!(left.is_empty(), "{left:?}");
        }
        Ok(())
    })
    .await
}

/// E58, E59, E61: each node has its peers, with the password in a Secret. What changes is changed in place; a node that goes takes its
/// peers with it, and the last Service all of them.
#[tokio::test]
async fn peers_follow_their_nodes() -> Result<()> {
    let (corner, namespace) = corner("peers", "metallb").await?;
    let project = ProjectOptions {
        asn: Some(65_000),
        md5: Some("Secret4711x".to_owned()),
        list_machine_blocks: false,
        ..ProjectOptions::default()
    };
    let options = WorldOptions::equinix(project).gateway(&section(&corner, "metallb", &namespace, ""));
    let world = started(corner, options).await?;
    let corner = &world.corner;
    for suffix in ["a", "b"] {
        world.add_machine(suffix).await?;
        corner
            .node_until(suffix, "knows its peers", |node| {
                crate::announced::annotation(node, "metal.equinix.com/bgp-peers-1-peer-ip").map(drop)
            })
            .await?;
    }
    ensure!(
        objects(corner, &namespace, "BGPPeer").await?.is_empty(),
        "there are peers without a Service"
    );
    add_service(corner, "web").await?;
    let peers = peers_of(corner, &namespace, 4).await?;
    let node = corner.node_name("a");
    let (name, spec) = &peers[0];
    assert_eq!(*name, format!("{node}-0"));
    let source = spec["sourceAddress"].clone();
    ensure!(source.is_string(), "{spec}");
    assert_eq!(
        *spec,
        json!({
            "myASN": 65_000, "peerASN": 65_530, "peerAddress": spec["peerAddress"], "peerPort": 179,
            "sourceAddress": source, "holdTime": "30s", "passwordSecret": { "name": name },
            "nodeSelectors": [{ "matchLabels": { "kubernetes.io/hostname": node } }],
            "ebgpMultiHop": false, "disableMP": false, "dualStackAddressFamily": false,
        })
    );
    let secret = secrets(corner, &namespace).get(name).await?;
    assert_eq!(secret.type_.as_deref(), Some("kubernetes.io/basic-auth"));
    assert_eq!(secret.data.context("no data")?["password"].0, b"Secret4711x");
    corner.delete_node("b").await?;
    peers_of(corner, &namespace, 2).await?;
    corner.delete_service("web").await?;
    peers_of(corner, &namespace, 0).await?;
    eventually("no password is left", async || {
        let left = secrets(corner, &namespace)
            .list(&ListParams::default())
            .await?
            .items;
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })
    .await
}

fn secrets(corner: &Corner, namespace: &str) -> Api<Secret> {
    Api::namespaced(corner.client(), namespace)
}

async fn peers_of(corner: &Corner, namespace: &str, count: usize) -> Result<Vec<(String, Value)>> {
    eventually(format_args!("{count} peers"), async || {
        let peers = objects(corner, namespace, "BGPPeer").await?;
        ensure!(peers.len() == count, "{peers:?}");
        Ok(peers)
    })
    .await
}
