//! What MetalLB has against what it is told, by its webhooks and by its own word; and what of the user's stands in our way.

use anyhow::{Context as _, Result, ensure};
use groundplane_sandbox::ProjectOptions;
use groundplane_tests::kube_api::ingress_of;
use groundplane_tests::metallb::{self, Metallb, Webhooks, create, objects, valid};
use groundplane_tests::{Corner, World, WorldOptions, eventually};
use k8s_openapi::api::core::v1::{Event, Node, Secret, Service};
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use pretty_assertions::assert_eq;
use serde_json::json;

use crate::announced::{annotation, condition, refusal};
use crate::metallb::{add_service, corner, ready, section, started};

/// A project whose sessions have a password.
fn with_password() -> ProjectOptions {
    ProjectOptions {
        asn: Some(65_000),
        md5: Some("Secret4711x".to_owned()),
        list_machine_blocks: false,
        ..ProjectOptions::default()
    }
}

/// A machine whose node knows its peers.
async fn add_machine(world: &World, suffix: &str) -> Result<()> {
    world.add_machine(suffix).await?;
    let told = |node: &Node| annotation(node, "metal.equinix.com/bgp-peers-1-peer-ip").map(drop);
    world.corner.node_until(suffix, "knows its peers", told).await
}

async fn peers_of(corner: &Corner, namespace: &str, count: usize) -> Result<()> {
    eventually(format_args!("{count} peers"), async || {
        let peers = objects(corner, namespace, "BGPPeer").await?;
        ensure!(peers.len() == count, "{peers:?}");
        Ok(())
    })
    .await
}

/// An event about an object in MetalLB's namespace.
async fn event(corner: &Corner, namespace: &str, object: &str, reason: &str) -> Result<String> {
    let events: Api<Event> = Api::namespaced(corner.client(), namespace);
    let about = ListParams::default().fields(&format!("involvedObject.name={object}"));
    eventually(format_args!("{object} has an event {reason}"), async || {
        let mut found = events.list(&about).await?.items.into_iter().rev();
        let told = found.find(|event| event.reason.as_deref() == Some(reason));
        told.and_then(|event| event.message).context("not yet")
    })
    .await
}

/// E59, E65: MetalLB's own webhooks accept everything that is written, for every kind of speaker: peers of two nodes with the same
/// neighbours, one each or one in common, their Secrets, pool and advertisement; and that all of it goes again. They are asked: what overlaps
/// is refused.
#[tokio::test]
async fn metallbs_own_webhooks_accept_what_is_written() -> Result<()> {
    for (speaker, peer_mode, count) in [
        ("native", "native", 4),
        ("frr-k8s", "native", 4),
        ("frr-k8s", "frr", 2),
    ] {
        let (corner, namespace) = corner(&format!("hooks-{speaker}-{peer_mode}"), "metallb").await?;
        let webhooks = Webhooks::start(&corner, &namespace, speaker).await?;
        let mode = format!(", peerMode: {peer_mode}");
        let options =
            WorldOptions::equinix(with_password()).gateway(&section(&corner, "metallb", &namespace, &mode));
        let world = started(corner, options).await?;
        let corner = &world.corner;
        for suffix in ["a", "b"] {
            add_machine(&world, suffix).await?;
        }
        add_service(corner, "web").await?;
        let is_ready = corner.service_until("web", "is ready", ready).await;
        is_ready.with_context(|| webhooks.log_tail())?;
        peers_of(corner, &namespace, count).await?;
        valid(corner, &namespace, "controller").await?;
        let address = corner.addresses_of("web", 1).await?.remove(0);
        let overlapping = json!({ "addresses": [format!("{address}/32")] });
        let refused = create(
            corner,
            &namespace,
            "IPAddressPool",
            "theirs",
            json!({}),
            overlapping,
        )
        .await;
        let refused = refused.err().context("MetalLB was not asked")?;
        ensure!(format!("{refused:#}").contains("overlaps"), "{refused:#}");
        corner.delete_service("web").await?;
        corner.service_gone("web").await?;
        peers_of(corner, &namespace, 0).await?;
        ensure!(
            !world.log_text()?.contains("AnnouncerRefused"),
            "something was refused"
        );
        webhooks.forget(corner).await?;
    }
    Ok(())
}

/// While MetalLB's controller is away, and its webhooks with it, nothing can be written: Services say so, nothing is given up, and all goes on
/// when it is back.
#[tokio::test]
async fn metallbs_own_webhooks_are_waited_for() -> Result<()> {
    let (corner, namespace) = corner("away", "metallb").await?;
    let webhooks = Webhooks::start(&corner, &namespace, "native").await?;
    let options = WorldOptions::fixed().gateway(&section(&corner, "metallb", &namespace, ""));
    let world = started(corner, options).await?;
    let corner = &world.corner;
    add_service(corner, "web").await?;
    corner.service_until("web", "is ready", ready).await?;
    let before = corner.addresses_of("web", 1).await?;
    drop(webhooks);
    add_service(corner, "more").await?;
    let away = |service: &Service| refusal(service).filter(|reason| reason == "AnnouncerUnavailable");
    corner.service_until("more", "says what is away", away).await?;
    let told = corner.service_until("more", "says it", condition).await?;
    ensure!(told.message.contains("webhook"), "{}", told.message);
    let webhooks = Webhooks::start(corner, &namespace, "native").await?;
    let is_ready = corner.service_until("more", "is ready", ready).await;
    is_ready.with_context(|| webhooks.log_tail())?;
    assert_eq!(corner.addresses_of("web", 1).await?, before);
    webhooks.forget(corner).await
}

/// A configuration that MetalLB does not take, for what somebody else wrote: it goes on with its last one, so that what is new is not
/// announced. New Services have it in MetalLB's own words, and so has an event; when it is mended, they come.
#[tokio::test]
async fn what_metallb_refuses_is_told_in_its_own_words() -> Result<()> {
    let (corner, namespace) = corner("invalid", "metallb").await?;
    let controller = Metallb::controller(&corner, &namespace).await?;
    let options = WorldOptions::fixed().gateway(&section(&corner, "metallb", &namespace, ""));
    let world = started(corner, options).await?;
    let corner = &world.corner;
    add_service(corner, "web").await?;
    corner.service_until("web", "is ready", ready).await?;
    // Without its webhooks, nobody keeps a user from this.
    for (name, range) in [("one", "198.51.100.0/28"), ("two", "198.51.100.8/29")] {
        let spec = json!({ "addresses": [range], "autoAssign": false });
        create(corner, &namespace, "IPAddressPool", name, json!({}), spec).await?;
    }
    eventually("MetalLB does not like it", async || {
        let (result, why) = metallb::configuration(corner, &namespace, "controller").await?;
        ensure!(result == "Invalid", "{result}: {why}");
        Ok(())
    })
    .await?;
    add_service(corner, "more").await?;
    let invalid =
        |service: &Service| condition(service).filter(|condition| condition.reason == "AnnouncerInvalid");
    let told = corner
        .service_until("more", "says what MetalLB says", invalid)
        .await?;
    ensure!(told.message.contains("overlaps"), "{}", told.message);
    let said = event(corner, &namespace, "controller", "MetalLBConfigurationInvalid").await?;
    ensure!(said.contains("overlaps"), "{said}");
    let web = corner.api::<Service>().get("web").await?;
    ensure!(ready(&web).is_some() && ingress_of(&web).len() == 1, "{web:?}");
    metallb::api_of(corner, &namespace, "v1beta1", "IPAddressPool")
        .delete("two", &DeleteParams::default())
        .await?;
    let is_ready = corner.service_until("more", "is ready", ready).await;
    is_ready.map(drop).with_context(|| controller.log_tail())
}

/// A Secret of the user's where the password of a peer should stand is not touched, and its peer not written; the others are. An event on the
/// Secret says what helps, and it helps.
#[tokio::test]
async fn a_secret_of_the_user_is_left_alone() -> Result<()> {
    let (corner, namespace) = corner("secret", "metallb").await?;
    let secrets: Api<Secret> = Api::namespaced(corner.client(), &namespace);
    let name = format!("{}-0", corner.node_name("a"));
    let theirs: Secret = serde_json::from_value(json!({
        "metadata": { "name": name }, "type": "kubernetes.io/basic-auth",
        "stringData": { "username": "me", "password": "mine" },
    }))?;
    let theirs = secrets.create(&PostParams::default(), &theirs).await?;
    let options =
        WorldOptions::equinix(with_password()).gateway(&section(&corner, "metallb", &namespace, ""));
    let world = started(corner, options).await?;
    let corner = &world.corner;
    add_machine(&world, "a").await?;
    add_service(corner, "web").await?;
    let said = event(corner, &namespace, &name, "AnnouncerRefused").await?;
    ensure!(said.contains("not groundplane's"), "{said}");
    peers_of(corner, &namespace, 1).await?;
    let found = secrets.get(&name).await?;
    assert_eq!(found.metadata.resource_version, theirs.metadata.resource_version);
    secrets.delete(&name, &DeleteParams::default()).await?;
    peers_of(corner, &namespace, 2).await?;
    corner.delete_service("web").await?;
    corner.service_gone("web").await?;
    peers_of(corner, &namespace, 0).await?;
    eventually("no password is left", async || {
        let left = secrets.list(&ListParams::default()).await?.items;
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })
    .await?;
    ensure!(
        !world.log_text()?.contains("Secret4711x"),
        "the log holds a password"
    );
    Ok(())
}
