//! Peers while the cloud fails.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use groundplane_sandbox::{Action, FaultRule, ProjectOptions};
use groundplane_tests::metallb::objects;
use groundplane_tests::{CloudApi, Corner, World, WorldOptions, eventually, eventually_within, throughout};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::announced::annotation;
use crate::cloud_machines::told;
use crate::clouds::on_each_cloud;
use crate::metallb::{add_service, corner, section, started};

on_each_cloud! {
    a_failing_cloud_takes_no_peers_away,
}

/// Peers that could not be asked for are asked for again after a minute.
const AGAIN: Duration = Duration::from_secs(240);

/// The call by which a machine's peers are asked for.
fn neighbours(cloud: CloudApi) -> &'static str {
    match cloud {
        CloudApi::Equinix => "/devices/{id}/bgp/neighbors",
        CloudApi::Cherry => "/servers/{id}",
    }
}

/// What speakers are told: MetalLB's peers, and the annotations of each node.
type Said = (Vec<(String, Value)>, BTreeMap<String, BTreeMap<String, String>>);

async fn said(cloud: CloudApi, corner: &Corner, namespace: &str) -> Result<Said> {
    let peers = objects(corner, namespace, "BGPPeer").await?;
    let mut nodes = BTreeMap::new();
    for suffix in ["a", "b"] {
        let node = corner.nodes().get(&corner.node_name(suffix)).await?;
        nodes.insert(suffix.to_owned(), told(cloud, &node));
    }
    Ok((peers, nodes))
}

/// A change of the node that its peers may depend on, so that they are asked for.
async fn touch(corner: &Corner, suffix: &str, value: &str) -> Result<()> {
    let patch = json!({ "metadata": { "labels": { "example.com/touched": value } } });
    let name = corner.node_name(suffix);
    corner
        .nodes()
        .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    Ok(())
}

/// Touches the nodes until the cloud has refused such calls a few times, and goes on for a moment: nothing changes meanwhile.
async fn stays(
    world: &World,
    said_before: &Said,
    cloud: CloudApi,
    namespace: &str,
    route: Option<&str>,
) -> Result<()> {
    let (corner, project) = (&world.corner, world.project()?);
    let mark = project.journal().mark();
    let round = Cell::new(0);
    eventually_within(AGAIN, "the cloud fails to tell", async || {
        round.set(round.get() + 1);
        for suffix in ["a", "b"] {
            touch(corner, suffix, &format!("{mark}-{}", round.get())).await?;
        }
        let entries = project.journal().since(mark);
        let failed = entries
            .iter()
            .filter(|entry| entry.status == Some(503) && route.is_none_or(|route| entry.route == route));
        ensure!(failed.count() >= 2, "not yet");
        Ok(())
    })
    .await?;
    throughout(Duration::from_secs(3), "peers stay", async || {
        ensure!(
            said(cloud, corner, namespace).await? == *said_before,
            "they changed"
        );
        Ok(())
    })
    .await
}

/// E63, E90: nodes change while the cloud answers 503, first about peers, then about everything, and then to a process that has just begun and
/// knows nothing: no peer goes, from a node or from MetalLB. Once the cloud is back, its changes arrive.
async fn a_failing_cloud_takes_no_peers_away(cloud: CloudApi) -> Result<()> {
    let (corner, namespace) = corner("peers-stay", "metallb").await?;
    let project = ProjectOptions {
        asn: Some(65_000),
        ..cloud.project_of_reservations()
    };
    let options = WorldOptions::on(cloud, project)
        .gateway(&section(&corner, "metallb", &namespace, ""))
        .section("bgp: {refresh: 10s}\n");
    let mut world = started(corner, options).await?;
    let mut devices = Vec::new();
    for suffix in ["a", "b"] {
        devices.push(world.add_machine(suffix).await?);
        let last = cloud.annotation("bgp-peers-1-peer-ip");
        let knows = |node: &Node| annotation(node, &last).map(drop);
        world.corner.node_until(suffix, "knows its peers", knows).await?;
    }
    add_service(&world.corner, "web").await?;
    eventually("MetalLB is told of both", async || {
        let peers = objects(&world.corner, &namespace, "BGPPeer").await?;
        ensure!(peers.len() == 4, "{peers:?}");
        Ok(())
    })
    .await?;
    let before = said(cloud, &world.corner, &namespace).await?;

    let failing = || Action::status(503);
    world
        .project()?
        .fault(FaultRule::on("GET", neighbours(cloud), failing()));
    stays(&world, &before, cloud, &namespace, Some(neighbours(cloud))).await?;
    world.project()?.fault(FaultRule::new(failing()));
    stays(&world, &before, cloud, &namespace, None).await?;
    world.kill_and_restart().await?;
    stays(&world, &before, cloud, &namespace, None).await?;

    let project = world.project()?;
    project.clear_faults();
    let peer: IpAddr = "169.254.255.77".parse()?;
    for device in devices {
        cloud.set_peers(project, device, [peer]);
    }
    let round = Cell::new(0);
    let after = eventually_within(AGAIN, "what changed arrives", async || {
        round.set(round.get() + 1);
        for suffix in ["a", "b"] {
            touch(&world.corner, suffix, &format!("back-{}", round.get())).await?;
        }
        let said = said(cloud, &world.corner, &namespace).await?;
        ensure!(said.0.len() == 2, "{said:?}");
        Ok(said)
    })
    .await?;
    for (_, spec) in &after.0 {
        assert_eq!(spec["peerAddress"], json!(peer));
    }
    let first = after.1.get("a").context("no node a")?;
    assert_eq!(first["bgp-peers-0-peer-ip"], "169.254.255.77");
    Ok(())
}
