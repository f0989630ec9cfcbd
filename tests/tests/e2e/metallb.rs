//! MetalLB is told: the real one, by its custom resources, and by the `ConfigMap` of before.

use anyhow::{Context as _, Result, ensure};
use groundplane_core::names::SERVICE_ANNOUNCED;
use groundplane_sandbox::ProjectOptions;
use groundplane_tests::kube_api::ingress_of;
use groundplane_tests::metallb::{self, Metallb, create, objects, valid};
use groundplane_tests::{CloudApi, Corner, KubeApi, User, World, WorldOptions, chart, eventually};
use k8s_openapi::api::core::v1::{Node, Secret, Service};
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::announced::{annotation, condition, refusal};
use crate::clouds::on_each_cloud;

on_each_cloud! {
    peers_follow_their_nodes,
}

/// A corner with MetalLB's custom resources and a namespace for MetalLB, whose objects the gateway may write as the chart lets it.
pub(crate) async fn corner(name: &str, announcer: &str) -> Result<(Corner, String)> {
    let corner = KubeApi::shared().await?.corner(name).await?;
    if announcer == "metallb" {
        metallb::install(&corner.client()).await?;
    }
    let namespace = corner.another_namespace("metallb").await?;
    chart::grant_metallb(&corner.client(), announcer, &namespace).await?;
    Ok((corner, namespace))
}

pub(crate) fn section(corner: &Corner, announcer: &str, namespace: &str, more: &str) -> String {
    let class = corner.class();
    format!(
        "  announcer: {announcer}\n  loadBalancerClass: {class}\n  claimClassless: false\n  metallb: {{namespace: {namespace}{more}}}\n"
    )
}

pub(crate) async fn add_service(corner: &Corner, name: &str) -> Result<()> {
    let draft = corner.service_draft(name).class(&corner.class());
    corner.create_service(draft).await.map(drop)
}

pub(crate) fn ready(service: &Service) -> Option<String> {
    condition(service)
        .filter(|condition| condition.status == "True")
        .map(|condition| condition.message)
}

pub(crate) async fn started(corner: Corner, options: WorldOptions) -> Result<World> {
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
    let filled_in =
        json!({ "ipAddressPoolSelectors": selector, "aggregationLength": 32, "aggregationLengthV6": 128 });
    assert_eq!(
        objects(corner, &namespace, "BGPAdvertisement").await?,
        [("groundplane".to_owned(), filled_in)]
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

/// E58, E59, E61, E90: each node has its peers, with the password in a Secret where there is one. What changes is changed in place; a node
/// that goes takes its peers with it, and the last Service all of them.
async fn peers_follow_their_nodes(cloud: CloudApi) -> Result<()> {
    let (corner, namespace) = corner("peers", "metallb").await?;
    let project = ProjectOptions {
        asn: Some(65_000),
        md5: Some("Secret4711x".to_owned()),
        ..cloud.project_of_reservations()
    };
    let options = WorldOptions::on(cloud, project).gateway(&section(&corner, "metallb", &namespace, ""));
    let world = started(corner, options).await?;
    let corner = &world.corner;
    let last = cloud.annotation("bgp-peers-1-peer-ip");
    let mut devices = Vec::new();
    for suffix in ["a", "b"] {
        devices.push(world.add_machine(suffix).await?);
        let knows = |node: &Node| annotation(node, &last).map(drop);
        corner.node_until(suffix, "knows its peers", knows).await?;
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
    let source = world
        .project()?
        .own_ipv4(devices[0], cloud == CloudApi::Cherry)
        .context("it has no address")?;
    let mut expected = json!({
        "myASN": 65_000, "peerASN": 65_530, "peerAddress": spec["peerAddress"], "peerPort": 179,
        "sourceAddress": source, "holdTime": "30s",
        "nodeSelectors": [{ "matchLabels": { "kubernetes.io/hostname": node } }],
        "ebgpMultiHop": true, "disableMP": false, "dualStackAddressFamily": false,
    });
    if cloud == CloudApi::Equinix {
        expected["passwordSecret"] = json!({ "name": name });
        let secret = secrets(corner, &namespace).get(name).await?;
        assert_eq!(secret.type_.as_deref(), Some("kubernetes.io/basic-auth"));
        assert_eq!(secret.data.context("no data")?["password"].0, b"Secret4711x");
    }
    assert_eq!(*spec, expected);
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

/// E56, E60, E63: what the user has is kept as it is, and stands in for ours; a restart writes nothing, and takes nothing away.
#[tokio::test]
async fn the_users_objects_are_kept_and_a_restart_writes_nothing() -> Result<()> {
    let (corner, namespace) = corner("users", "metallb").await?;
    let everywhere = json!({ "localPref": 100 });
    let pool = json!({ "addresses": ["198.51.100.0/28"], "autoAssign": false, "avoidBuggyIPs": false });
    for (kind, spec) in [("BGPAdvertisement", &everywhere), ("IPAddressPool", &pool)] {
        create(&corner, &namespace, kind, "theirs", json!({}), spec.clone()).await?;
    }
    let controller = Metallb::controller(&corner, &namespace).await?;
    let options = WorldOptions::fixed().gateway(&section(&corner, "metallb", &namespace, ""));
    let mut world = started(corner, options).await?;
    add_service(&world.corner, "web").await?;
    world
        .corner
        .service_until("web", "is ready", ready)
        .await
        .with_context(|| controller.log_tail())?;
    let before = everything(&world.corner, &namespace).await?;
    let names: Vec<&str> = before.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["groundplane-ipv4-0", "theirs", "theirs"]);
    assert_eq!(before[1].1["addresses"], pool["addresses"]);
    assert_eq!(before[2].1["localPref"], everywhere["localPref"]);
    let mark = world.corner.mark().await?;
    world.kill_and_restart().await?;
    // Each round looks; the third after the restart knows all that the first could not.
    let corner = &world.corner;
    eventually("three rounds", async || {
        let requests = corner.requests_since(mark).await?.by_user(User::Gateway);
        let lists = requests
            .in_namespace(&namespace)
            .only(|request| request.verb == "list" && request.resource == "ipaddresspools");
        ensure!(lists.count() >= 3, "{} lists", lists.count());
        Ok(())
    })
    .await?;
    let writes = corner
        .requests_since(mark)
        .await?
        .by_user(User::Gateway)
        .in_namespace(&namespace)
        .writes();
    assert_eq!(writes.count(), 0, "{:?}", writes.summary());
    assert_eq!(everything(corner, &namespace).await?, before);
    Ok(())
}

async fn everything(corner: &Corner, namespace: &str) -> Result<Vec<(String, Value)>> {
    let mut all = objects(corner, namespace, "IPAddressPool").await?;
    all.extend(objects(corner, namespace, "BGPAdvertisement").await?);
    Ok(all)
}

/// E66: a MetalLB that gives a Service another address than the one that it was told is contradicted by the condition, and not fought.
#[tokio::test]
async fn a_status_that_says_something_else_is_told() -> Result<()> {
    let (corner, namespace) = corner("differs", "metallb").await?;
    let options = WorldOptions::fixed().gateway(&section(&corner, "metallb", &namespace, ""));
    let world = started(corner, options).await?;
    let corner = &world.corner;
    add_service(corner, "web").await?;
    let waits = |service: &Service| refusal(service).filter(|reason| reason == "Announcing");
    corner.service_until("web", "waits for MetalLB", waits).await?;
    let say = async |ip: &str| {
        let status = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": ip }] } } });
        corner.edit_service_status("web", &status).await
    };
    let service = say("198.51.100.9").await?;
    let told = service.metadata.annotations.context("no annotations")?["metallb.io/loadBalancerIPs"].clone();
    let differs = |service: &Service| refusal(service).filter(|reason| reason == "StatusDiffers");
    corner.service_until("web", "says what differs", differs).await?;
    assert_eq!(
        ingress_of(&corner.api::<Service>().get("web").await?),
        ["198.51.100.9"]
    );
    say(&told).await?;
    corner.service_until("web", "is ready", ready).await?;
    corner.delete_service("web").await?;
    corner.service_gone("web").await
}

/// E62: the peers of the first Service say whose they are from their first write on. They outlive it as long as there is another, without a
/// change that would end their sessions, and go with the last.
#[tokio::test]
async fn the_first_services_peers_are_ours_and_outlive_it() -> Result<()> {
    let (corner, namespace) = corner("first", "metallb").await?;
    let bgp = "static:\n  bgp:\n    localAsn: 65000\n    peers: [{address: 10.0.0.254, asn: 65530}]\n";
    let options = WorldOptions::fixed()
        .gateway(&section(&corner, "metallb", &namespace, ""))
        .section(bgp);
    let world = started(corner, options).await?;
    let corner = &world.corner;
    let node = corner.node_draft("a").uninitialized();
    corner.create_node(node.address("InternalIP", "10.0.0.1")).await?;
    let told = async |name: &str| {
        add_service(corner, name).await?;
        let waits = |service: &Service| refusal(service).filter(|reason| reason == "Announcing");
        corner.service_until(name, "is told to MetalLB", waits).await
    };
    told("one").await?;
    let name = peers_of(corner, &namespace, 1).await?.remove(0).0;
    let peers = metallb::api_of(corner, &namespace, "v1beta2", "BGPPeer");
    let first = peers.get(&name).await?;
    let labels = first.metadata.labels.clone().unwrap_or_default();
    assert_eq!(labels["app.kubernetes.io/managed-by"], "groundplane");
    told("two").await?;
    corner.delete_service("one").await?;
    corner.service_gone("one").await?;
    let left = peers.get(&name).await?;
    assert_eq!(left.metadata.uid, first.metadata.uid);
    assert_eq!(left.metadata.generation, first.metadata.generation);
    corner.delete_service("two").await?;
    peers_of(corner, &namespace, 0).await?;
    corner.service_gone("two").await
}

/// A configuration that was narrowed to some namespaces leaves the Services of the others where they are: MetalLB would take their addresses
/// with the pool's entries. What no Service names any more goes.
#[tokio::test]
async fn services_of_other_namespaces_keep_their_addresses() -> Result<()> {
    const THEIRS: &str = "192.0.2.60";
    let (corner, namespace) = corner("narrowed", "metallb").await?;
    let elsewhere = corner.another_namespace("elsewhere").await?;
    let labels = json!({ "app.kubernetes.io/managed-by": "groundplane" });
    let pool = json!({ "addresses": [format!("{THEIRS}/32")], "autoAssign": false, "avoidBuggyIPs": false });
    create(
        &corner,
        &namespace,
        "IPAddressPool",
        "groundplane-ipv4-0",
        labels,
        pool,
    )
    .await?;
    let others: Api<Service> = Api::namespaced(corner.client(), &elsewhere);
    let other: Service = serde_json::from_value(json!({
        "metadata": { "name": "other", "annotations": { "metallb.io/loadBalancerIPs": THEIRS } },
        "spec": { "type": "LoadBalancer", "loadBalancerClass": corner.class(), "ports": [{ "port": 80 }] },
    }))?;
    others.create(&PostParams::default(), &other).await?;
    let controller = Metallb::controller(&corner, &namespace).await?;
    let keeps = async || {
        let shown = ingress_of(&others.get("other").await?);
        ensure!(shown == [THEIRS], "{shown:?}: {}", controller.log_tail());
        Ok(())
    };
    eventually("MetalLB gives it its address", &keeps).await?;
    let options = WorldOptions::fixed().gateway(&section(&corner, "metallb", &namespace, ""));
    let world = started(corner, options).await?;
    let corner = &world.corner;
    add_service(corner, "web").await?;
    corner.service_until("web", "is ready", ready).await?;
    corner.delete_service("web").await?;
    corner.service_gone("web").await?;
    let pools = objects(corner, &namespace, "IPAddressPool").await?;
    assert_eq!(pools[0].1["addresses"], json!([format!("{THEIRS}/32")]));
    keeps().await?;
    others.delete("other", &DeleteParams::default()).await?;
    eventually("nothing of ours is left", async || {
        let left = objects(corner, &namespace, "IPAddressPool").await?;
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })
    .await
}
