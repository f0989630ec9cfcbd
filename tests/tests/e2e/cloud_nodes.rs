//! Journey 2 on a cloud, and the same on every cloud: machines, lifecycle, BGP.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use groundplane_core::Family;
use groundplane_core::names::{LABEL_EXCLUDED, TAINT_SHUTDOWN};
use groundplane_sandbox::{Action, DeviceOptions, DeviceState, FaultRule, ProjectOptions};
use groundplane_tests::{CloudApi, Mode, World, WorldOptions, throughout};
use k8s_openapi::api::core::v1::Node;
use pretty_assertions::assert_eq;
use serde_json::json;

use crate::announced::{addresses, annotation, initialised, tainted};
use crate::cloud_machines::{golden, told};
use crate::clouds::on_each_cloud;

async fn world(cloud: CloudApi, mode: Mode, name: &str) -> Result<World> {
    WorldOptions::on(cloud, cloud.project())
        .mode(mode)
        .start(name)
        .await
}

on_each_cloud! {
    a_machine_becomes_a_node_with_its_peers[
        a_machine_becomes_a_node_with_its_peers_in_one_process: One,
        a_machine_becomes_a_node_with_its_peers_with_a_process_a_service: Services
    ],
    nodes_kept_out_of_load_balancers_have_no_peers,
    provider_ids_of_ours_are_known_and_others_left_alone,
    a_node_is_deleted_only_when_it_is_unready_and_its_machine_gone,
    doubt_changes_nothing_and_power_is_followed,
    bgp_is_switched_on_once_and_adopted_where_it_is_on,
    annotations_of_others_survive_and_ours_are_repaired,
}

/// E12, E15, E29, E90: a machine beyond the first page is found by its host name; its node gets provider id, labels and
/// addresses, loses the taint, and carries the exact annotations of its two peers.
async fn a_machine_becomes_a_node_with_its_peers(cloud: CloudApi, mode: Mode) -> Result<()> {
    let options = ProjectOptions {
        max_per_page: 10,
        ..cloud.project()
    };
    let world = WorldOptions::on(cloud, options)
        .mode(mode)
        .start("machine")
        .await?;
    let (corner, project) = (&world.corner, world.project()?);
    project.add_devices(25);
    let device = world.add_machine("a").await?;
    let node = initialised(corner, "a").await?;
    assert_eq!(
        node.spec.clone().context("it is missing")?.provider_id,
        Some(cloud.provider_id(project, device)?)
    );
    let private = project.own_ipv4(device, false).context("it is missing")?;
    let public = project.own_ipv4(device, true).context("it is missing")?;
    let all = addresses(&node);
    ensure!(
        all.contains(&format!("InternalIP={private}")) && all.contains(&format!("ExternalIP={public}")),
        "{all:?}"
    );
    let last = cloud.annotation("bgp-peers-1-peer-ip");
    let peered = corner
        .node_until("a", "has both peers", |node| {
            annotation(node, &last).is_some().then(|| node.clone())
        })
        .await?;
    let asn = project.bgp_config().context("BGP is off")?.asn.to_string();
    let both = match cloud {
        CloudApi::Equinix => ["169.254.255.1", "169.254.255.2"],
        CloudApi::Cherry => ["198.18.1.1", "198.18.1.2"],
    };
    assert_eq!(
        told(cloud, &peered),
        golden(cloud, project, device, &asn, "", &both)?
    );
    // The machine has an IPv6 address, and nobody asked to speak that.
    let rows = project.addresses(device);
    ensure!(rows.iter().any(|row| row.address.is_ipv6()), "{rows:?}");
    if cloud == CloudApi::Equinix {
        let sessions = project.sessions();
        let families: Vec<Family> = sessions.iter().map(|session| session.family).collect();
        assert_eq!(families, [Family::V4]);
    }
    Ok(())
}

/// E28, E90: nodes that Kubernetes keeps out of load balancers, as kubeadm does with those of the control plane, have no session and are told
/// no peers, until somebody says otherwise.
async fn nodes_kept_out_of_load_balancers_have_no_peers(cloud: CloudApi) -> Result<()> {
    let world = world(cloud, Mode::One, "kept-out").await?;
    let (corner, project) = (&world.corner, world.project()?);
    let device = project.add_device(DeviceOptions::named(corner.node_name("plane")));
    let draft = corner.node_draft("plane").uninitialized();
    corner.create_node(draft.label(LABEL_EXCLUDED, "")).await?;
    initialised(corner, "plane").await?;
    world.add_machine("worker").await?;
    let peer = cloud.annotation("bgp-peers-0-peer-ip");
    let peered = |node: &Node| annotation(node, &peer).map(drop);
    corner.node_until("worker", "has a peer", peered).await?;
    let plane = corner.nodes().get(&corner.node_name("plane")).await?;
    assert_eq!(told(cloud, &plane).len(), 0, "it was told peers");
    ensure!(
        project.sessions().iter().all(|session| session.device != device),
        "it has a session"
    );
    let patch = json!({ "metadata": { "labels": { LABEL_EXCLUDED: "false" } } });
    let (patch, params) = (kube::api::Patch::Merge(&patch), kube::api::PatchParams::default());
    corner
        .nodes()
        .patch(&corner.node_name("plane"), &params, &patch)
        .await?;
    corner.node_until("plane", "has a peer", peered).await
}

/// IPv6 where it is asked for: a session in each family, and the IPv6 peers behind the others, from the machine's IPv6 address. The peers of
/// IPv4 are what they would be without.
#[tokio::test]
async fn peers_of_both_families_are_told_where_both_are_asked_for() -> Result<()> {
    let cloud = CloudApi::Equinix;
    let world = WorldOptions::on(cloud, cloud.project())
        .section("bgp: {families: [IPv4, IPv6]}\n")
        .start("both-families")
        .await?;
    let (corner, project) = (&world.corner, world.project()?);
    let device = project.add_device(DeviceOptions::named(corner.node_name("a")));
    let peer = |text: &str| text.parse::<std::net::IpAddr>();
    let all = [
        peer("fd00::2")?,
        peer("169.254.255.2")?,
        peer("fd00::1")?,
        peer("169.254.255.1")?,
    ];
    project.set_peers(device, all);
    corner.create_node(corner.node_draft("a").uninitialized()).await?;
    let last = cloud.annotation("bgp-peers-3-peer-ip");
    let node = corner
        .node_until("a", "has four peers", |node| {
            annotation(node, &last).is_some().then(|| node.clone())
        })
        .await?;
    let asn = project.bgp_config().context("BGP is off")?.asn.to_string();
    let v4 = ["169.254.255.1", "169.254.255.2"];
    let mut expected = golden(cloud, project, device, &asn, "", &v4)?;
    let rows = project.addresses(device);
    let own = rows.iter().find(|row| row.address.is_ipv6());
    let source = own.context("no IPv6 address")?.address.to_string();
    for (n, peer) in [(2, "fd00::1"), (3, "fd00::2")] {
        for (field, value) in [
            ("node-asn", asn.as_str()),
            ("peer-asn", "65530"),
            ("peer-ip", peer),
            ("src-ip", &source),
            ("bgp-pass", ""),
        ] {
            expected.insert(format!("bgp-peers-{n}-{field}"), value.to_owned());
        }
    }
    assert_eq!(told(cloud, &node), expected);
    Ok(())
}

/// E13, E22, E90: each form of our provider ids is ours; a node of another cloud is left alone, taint and all.
async fn provider_ids_of_ours_are_known_and_others_left_alone(cloud: CloudApi) -> Result<()> {
    let world = world(cloud, Mode::One, "forms").await?;
    let (corner, project) = (&world.corner, world.project()?);
    for suffix in ["new", "old", "bare"] {
        let device = project.add_device(DeviceOptions::named(format!("{suffix}-of-another-name")));
        let bare = cloud.bare_id(project, device)?;
        let id = match (suffix, cloud) {
            ("new", _) => cloud.provider_id(project, device)?,
            ("old", CloudApi::Equinix) => format!("packet://{bare}"),
            _ => bare,
        };
        let draft = corner.node_draft(suffix).uninitialized().provider_id(&id);
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

/// E18, C1, C4, E90: not ready and proven gone: deleted. E18b, C5: gone, but Ready: kept. C3: not ready, but there and on: kept, and
/// not tainted.
async fn a_node_is_deleted_only_when_it_is_unready_and_its_machine_gone(cloud: CloudApi) -> Result<()> {
    let world = world(cloud, Mode::One, "gone").await?;
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

/// C2, E20, E90: the cloud errs: the node is neither deleted nor tainted. C6, E19: off: tainted; on and Ready: not any more.
async fn doubt_changes_nothing_and_power_is_followed(cloud: CloudApi) -> Result<()> {
    let world = world(cloud, Mode::One, "power").await?;
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

/// E23, E24, E90: BGP is switched on once, and what is on already is adopted with its AS number and password.
async fn bgp_is_switched_on_once_and_adopted_where_it_is_on(cloud: CloudApi) -> Result<()> {
    let off = world(cloud, Mode::One, "bgp-off").await?;
    for suffix in ["a", "b", "c"] {
        off.add_machine(suffix).await?;
    }
    let first = cloud.annotation("bgp-peers-0-peer-ip");
    for suffix in ["a", "b", "c"] {
        let peered = |node: &Node| annotation(node, &first).map(drop);
        off.corner.node_until(suffix, "has a peer", peered).await?;
    }
    let calls = cloud.switched_on(off.project()?);
    assert_eq!(calls.len(), 1, "{calls:?}");

    let password = (cloud == CloudApi::Equinix).then(|| "Secret4711x".to_owned());
    let options = ProjectOptions {
        asn: Some(64_999),
        md5: password.clone(),
        ..cloud.project()
    };
    let on = WorldOptions::on(cloud, options).start("bgp-on").await?;
    on.add_machine("a").await?;
    let node = on
        .corner
        .node_until("a", "has a peer", |node| {
            annotation(node, &first).map(|_| node.clone())
        })
        .await?;
    let of = |name: &str| annotation(&node, &cloud.annotation(name)).map(str::to_owned);
    assert_eq!(of("bgp-peers-0-node-asn").as_deref(), Some("64999"));
    let expected = password.as_ref().map(|_| "U2VjcmV0NDcxMXg=".to_owned());
    assert_eq!(of("bgp-peers-0-bgp-pass"), expected);
    assert_eq!(cloud.switched_on(on.project()?).len(), 0);
    ensure!(
        !on.log_text()?.contains("Secret4711x"),
        "the log holds a password"
    );
    Ok(())
}

/// E33, E90: annotations of others survive, and ours come back when somebody takes one away.
async fn annotations_of_others_survive_and_ours_are_repaired(cloud: CloudApi) -> Result<()> {
    let world = world(cloud, Mode::One, "annotations").await?;
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
    let (ours, stale) = (
        cloud.annotation("bgp-peers-1-peer-ip"),
        cloud.annotation("bgp-peers-7-peer-ip"),
    );
    let peered = |node: &Node| annotation(node, &ours).is_some().then(|| node.clone());
    corner.node_until("a", "has both peers", peered).await?;
    let patch = json!({ "metadata": { "annotations": { &ours: null, &stale: "192.0.2.1" } } });
    let patch = kube::api::Patch::Merge(&patch);
    corner
        .nodes()
        .patch(&corner.node_name("a"), &kube::api::PatchParams::default(), &patch)
        .await?;
    let repaired = |node: &Node| {
        let is_back = annotation(node, &ours).is_some() && annotation(node, &stale).is_none();
        is_back.then(|| node.clone())
    };
    let node = corner.node_until("a", "is repaired", repaired).await?;
    assert_eq!(annotation(&node, "example.com/mine"), Some("yes"));
    Ok(())
}
