//! Journey 2 on a cloud: machines, lifecycle, BGP.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use groundplane_core::names::{TAINT_SHUTDOWN, TAINT_UNINITIALIZED};
use groundplane_sandbox::{Action, DeviceOptions, DeviceState, FaultRule, ProjectOptions};
use groundplane_tests::{Corner, Mode, World, WorldOptions, throughout};
use k8s_openapi::api::core::v1::Node;
use pretty_assertions::assert_eq;
use serde_json::json;

use crate::announced::{addresses, annotation, tainted};

async fn initialised(corner: &Corner, suffix: &str) -> Result<Node> {
    let done = |node: &Node| (!tainted(node, TAINT_UNINITIALIZED)).then(|| node.clone());
    corner.node_until(suffix, "is initialised", done).await
}

async fn world(mode: Mode, name: &str) -> Result<World> {
    WorldOptions::equinix(ProjectOptions::default())
        .mode(mode)
        .start(name)
        .await
}

/// E12, E15, E29: a machine beyond the first page is found by its host name; its node gets provider id, labels and
/// addresses, loses the taint, and carries the exact annotations of its two peers.
async fn a_machine_becomes_a_node_with_its_peers(mode: Mode) -> Result<()> {
    let world = world(mode, "machine").await?;
    let (corner, project) = (&world.corner, world.project()?);
    project.add_devices(25);
    let device = world.add_machine("a").await?;
    let node = initialised(corner, "a").await?;
    assert_eq!(
        node.spec.clone().context("it is missing")?.provider_id,
        Some(format!("equinixmetal://{device}"))
    );
    let private = project.own_ipv4(device, false).context("it is missing")?;
    let public = project.own_ipv4(device, true).context("it is missing")?;
    let all = addresses(&node);
    ensure!(
        all.contains(&format!("InternalIP={private}")) && all.contains(&format!("ExternalIP={public}")),
        "{all:?}"
    );
    let peered = corner
        .node_until("a", "has both peers", |node| {
            annotation(node, "metal.equinix.com/bgp-peers-1-peer-ip")
                .is_some()
                .then(|| node.clone())
        })
        .await?;
    for (key, value) in [
        ("bgp-peers-0-node-asn", "65000"),
        ("bgp-peers-0-peer-asn", "65530"),
        ("bgp-peers-0-peer-ip", "169.254.255.1"),
        ("bgp-peers-0-src-ip", &private.to_string()),
        ("bgp-peers-1-node-asn", "65000"),
        ("bgp-peers-1-peer-asn", "65530"),
        ("bgp-peers-1-peer-ip", "169.254.255.2"),
        ("bgp-peers-1-src-ip", &private.to_string()),
    ] {
        assert_eq!(
            annotation(&peered, &format!("metal.equinix.com/{key}")),
            Some(value),
            "{key}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_machine_becomes_a_node_with_its_peers_in_one_process() -> Result<()> {
    a_machine_becomes_a_node_with_its_peers(Mode::One).await
}

#[tokio::test]
async fn a_machine_becomes_a_node_with_its_peers_with_a_process_a_service() -> Result<()> {
    a_machine_becomes_a_node_with_its_peers(Mode::Services).await
}

/// E13, E22: each form of our provider ids is ours; a node of another cloud is left alone, taint and all.
#[tokio::test]
async fn provider_ids_of_ours_are_known_and_others_left_alone() -> Result<()> {
    let world = world(Mode::One, "forms").await?;
    let (corner, project) = (&world.corner, world.project()?);
    for (suffix, form) in [("new", "equinixmetal://"), ("old", "packet://"), ("bare", "")] {
        let device = project.add_device(DeviceOptions::named(format!("{suffix}-of-another-name")));
        let draft = corner
            .node_draft(suffix)
            .uninitialized()
            .provider_id(&format!("{form}{device}"));
        corner.create_node(draft).await?;
        initialised(corner, suffix).await?;
    }
    corner
        .create_node(
            corner
                .node_draft("foreign")
                .uninitialized()
                .provider_id("aws://eu/i-1"),
        )
        .await?;
    let mark = corner.mark().await?;
    throughout(
        Duration::from_secs(3),
        "the foreign node is left alone",
        async || {
            let writes = corner
                .requests_since(mark)
                .await?
                .by_agent("groundplane/")
                .writes();
            let foreign =
                writes.only(|request| request.resource == "nodes" && request.name.ends_with("foreign"));
            ensure!(foreign.count() == 0, "{:?}", foreign.summary());
            Ok(())
        },
    )
    .await
}

/// E18, C1, C4: not ready and proven gone: deleted. E18b, C5: gone, but Ready: kept. C3: not ready, but there and on: kept, and
/// not tainted.
#[tokio::test]
async fn a_node_is_deleted_only_when_it_is_unready_and_its_machine_gone() -> Result<()> {
    let world = world(Mode::One, "gone").await?;
    let (corner, project) = (&world.corner, world.project()?);
    let mut devices = Vec::new();
    for suffix in ["dead", "alive", "third"] {
        devices.push(world.add_machine(suffix).await?);
        corner.set_ready(suffix, true).await?;
        initialised(corner, suffix).await?;
    }
    let dead = corner.nodes().get(&corner.node_name("dead")).await?;
    project.remove_device(devices[0]);
    project.remove_device(devices[1]);
    corner.set_ready("third", false).await?;
    corner.set_ready("dead", false).await?;
    corner.node_gone("dead").await?;
    corner.event(&dead, "DeletingNode").await?;
    let third = corner.nodes().get(&corner.node_name("third")).await?;
    ensure!(
        !tainted(&third, TAINT_SHUTDOWN),
        "a machine that is on was tainted as off"
    );
    corner.nodes().get(&corner.node_name("alive")).await?;
    Ok(())
}

/// C2, E20: the cloud errs: the node is neither deleted nor tainted. C6, E19: off: tainted; on and Ready: not any more.
#[tokio::test]
async fn doubt_changes_nothing_and_power_is_followed() -> Result<()> {
    let world = world(Mode::One, "power").await?;
    let (corner, project) = (&world.corner, world.project()?);
    let device = world.add_machine("a").await?;
    corner.set_ready("a", true).await?;
    initialised(corner, "a").await?;

    project.fault(FaultRule::new(Action::status(500)));
    project.remove_device(device);
    corner.set_ready("a", false).await?;
    throughout(Duration::from_secs(4), "doubt deletes nothing", async || {
        let node = corner.nodes().get(&corner.node_name("a")).await?;
        ensure!(!tainted(&node, TAINT_SHUTDOWN), "doubt tainted it");
        Ok(())
    })
    .await?;
    // The machine comes back under another id: the node still names the old one, which is gone for good.
    project.clear_faults();
    corner.node_gone("a").await?;

    let device = world.add_machine("b").await?;
    initialised(corner, "b").await?;
    project.set_state(device, DeviceState::Inactive);
    corner.set_ready("b", false).await?;
    corner
        .node_until("b", "is tainted as off", |node| {
            tainted(node, TAINT_SHUTDOWN).then_some(())
        })
        .await?;
    project.set_state(device, DeviceState::Active);
    corner.set_ready("b", true).await?;
    corner
        .node_until("b", "is not tainted any more", |node| {
            (!tainted(node, TAINT_SHUTDOWN)).then_some(())
        })
        .await
}

/// E23, E24: BGP is switched on once, and what is on already is adopted with its AS number and password.
#[tokio::test]
async fn bgp_is_switched_on_once_and_adopted_where_it_is_on() -> Result<()> {
    let off = world(Mode::One, "bgp-off").await?;
    for suffix in ["a", "b", "c"] {
        off.add_machine(suffix).await?;
    }
    for suffix in ["a", "b", "c"] {
        let peered = |node: &Node| annotation(node, "metal.equinix.com/bgp-peers-0-peer-ip").map(drop);
        off.corner.node_until(suffix, "has a peer", peered).await?;
    }
    let posts = off
        .project()?
        .journal()
        .calls(0, "POST", "/projects/{pid}/bgp-configs");
    assert_eq!(posts.len(), 1, "{posts:?}");

    let options = ProjectOptions {
        asn: Some(64_999),
        md5: Some("Secret4711x".to_owned()),
        ..ProjectOptions::default()
    };
    let on = WorldOptions::equinix(options).start("bgp-on").await?;
    on.add_machine("a").await?;
    let node = on
        .corner
        .node_until("a", "has a peer", |node| {
            annotation(node, "metal.equinix.com/bgp-peers-0-bgp-pass").map(|_| node.clone())
        })
        .await?;
    assert_eq!(
        annotation(&node, "metal.equinix.com/bgp-peers-0-node-asn"),
        Some("64999")
    );
    assert_eq!(
        annotation(&node, "metal.equinix.com/bgp-peers-0-bgp-pass"),
        Some("U2VjcmV0NDcxMXg=")
    );
    assert_eq!(
        on.project()?
            .journal()
            .calls(0, "POST", "/projects/{pid}/bgp-configs")
            .len(),
        0
    );
    ensure!(
        !on.log_text()?.contains("Secret4711x"),
        "the log holds a password"
    );
    Ok(())
}

/// E33: annotations of others survive, and ours come back when somebody takes one away.
#[tokio::test]
async fn annotations_of_others_survive_and_ours_are_repaired() -> Result<()> {
    let world = world(Mode::One, "annotations").await?;
    let (corner, project) = (&world.corner, world.project()?);
    project.add_device(DeviceOptions::named(corner.node_name("a")));
    corner
        .create_node(
            corner
                .node_draft("a")
                .uninitialized()
                .annotation("example.com/mine", "yes"),
        )
        .await?;
    let peered = |node: &Node| {
        annotation(node, "metal.equinix.com/bgp-peers-1-peer-ip")
            .is_some()
            .then(|| node.clone())
    };
    corner.node_until("a", "has both peers", peered).await?;
    let patch = json!({ "metadata": { "annotations": {
        "metal.equinix.com/bgp-peers-1-peer-ip": null, "metal.equinix.com/bgp-peers-7-peer-ip": "192.0.2.1" } } });
    let patch = kube::api::Patch::Merge(&patch);
    corner
        .nodes()
        .patch(&corner.node_name("a"), &kube::api::PatchParams::default(), &patch)
        .await?;
    let repaired = |node: &Node| {
        let stale = annotation(node, "metal.equinix.com/bgp-peers-7-peer-ip").is_some();
        (annotation(node, "metal.equinix.com/bgp-peers-1-peer-ip").is_some() && !stale).then(|| node.clone())
    };
    let node = corner.node_until("a", "is repaired", repaired).await?;
    assert_eq!(annotation(&node, "example.com/mine"), Some("yes"));
    Ok(())
}
