//! Nodes where the API server or the cloud fails: a node is finished when that ends, and until then keeps its taint; it is deleted
//! when the API server lets us, and not before it is proven gone.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use groundplane_core::names::TAINT_UNINITIALIZED;
use groundplane_sandbox::{Action, DeviceOptions, FaultRule, ProjectOptions};
use groundplane_tests::kube_api::proxy::{Entry, Fault, Rule};
use groundplane_tests::{World, WorldOptions, throughout};
use k8s_openapi::api::core::v1::Node;
use kube::api::PostParams;
use pretty_assertions::assert_eq;

use crate::announced::{addresses, initialised, tainted};

async fn world(name: &str) -> Result<World> {
    WorldOptions::equinix(ProjectOptions::default())
        .gateway("  writeTimeout: 2s\n")
        .api_faults([])
        .start(name)
        .await
}

fn provider_id(node: &Node) -> Option<String> {
    node.spec.as_ref()?.provider_id.clone()
}

fn writes_about(world: &World, suffix: &str) -> Result<usize> {
    let name = world.corner.node_name(suffix);
    let about = |entry: &Entry| entry.call.is_write() && entry.call.name == name;
    Ok(world.api()?.journal().count(about))
}

/// C12: the API server does not delete a node: an event says so, and each look tries once more, until it does. C11: a node that says
/// nothing of being ready is looked at like one that is not.
#[tokio::test]
async fn a_deletion_that_fails_is_tried_again() -> Result<()> {
    let world = world("api-deletion").await?;
    let (corner, project, api) = (&world.corner, world.project()?, world.api()?);
    let device = project.add_device(DeviceOptions::named(corner.node_name("a")));
    let mut silent = corner.node_draft("a").uninitialized().build();
    silent.status.as_mut().context("it is missing")?.conditions = None;
    corner.nodes().create(&PostParams::default(), &silent).await?;
    let node = initialised(corner, "a").await?;
    let failures = [
        Fault::Status(500),
        Fault::DropBefore,
        Fault::Hang,
        Fault::TooMany(1),
    ];
    api.add(failures.map(|fault| Rule::on("delete", "nodes", fault).times(1)));
    project.remove_device(device);
    corner.event(&node, "DeletingNodeFailed").await?;
    corner.node_gone("a").await?;
    corner.event(&node, "DeletingNode").await?;
    let deletions = |entry: &Entry| entry.call.verb == "delete" && entry.call.resource == "nodes";
    assert_eq!(api.journal().count(deletions), failures.len() + 1);
    ensure!(
        world.log_text()?.contains("node cannot be deleted"),
        "the log does not tell of the failure"
    );
    Ok(())
}

/// C12: the deletion happened, and its answer was lost: nobody is deleted twice, nor instead.
#[tokio::test]
async fn a_deletion_whose_answer_is_lost_is_not_made_twice() -> Result<()> {
    let world = world("api-deleted").await?;
    let (corner, project, api) = (&world.corner, world.project()?, world.api()?);
    let device = project.add_device(DeviceOptions::named(corner.node_name("a")));
    project.add_device(DeviceOptions::named(corner.node_name("b")));
    for suffix in ["a", "b"] {
        corner
            .create_node(corner.node_draft(suffix).uninitialized())
            .await?;
        initialised(corner, suffix).await?;
    }
    api.add([
        Rule::on("delete", "nodes", Fault::Status(409)).times(1),
        Rule::on("delete", "nodes", Fault::DropAfter),
    ]);
    project.remove_device(device);
    corner.set_ready("a", false).await?;
    corner.set_ready("b", false).await?;
    corner.node_gone("a").await?;
    // Another machine takes the name: it is another node.
    world.add_machine("a").await?;
    initialised(corner, "a").await?;
    throughout(Duration::from_secs(2), "both stay", async || {
        corner.nodes().get(&corner.node_name("a")).await?;
        corner.nodes().get(&corner.node_name("b")).await?;
        Ok(())
    })
    .await
}

/// N3: what is not tainted is left alone. N7: what kubelet was told is no address: the taint stays, and nothing is written. N12: neither is it for a machine that the cloud does not know. N9: a provider id that is there stays. All of that while
/// the first writes of each kind fail.
#[tokio::test]
async fn what_cannot_be_initialised_keeps_its_taint() -> Result<()> {
    let world = world("api-taints").await?;
    let (corner, project, api) = (&world.corner, world.project()?, world.api()?);
    for suffix in ["plain", "nonsense", "named"] {
        project.add_device(DeviceOptions::named(corner.node_name(suffix)));
    }
    let named = project.add_device(DeviceOptions::named(corner.node_name("elsewhere")));
    let draft = |suffix: &str| corner.node_draft(suffix).uninitialized();
    api.add([
        Rule::on("patch", "nodes*", Fault::Status(409)).times(1),
        Rule::on("patch", "nodes", Fault::DropAfter).times(1),
    ]);
    corner.create_node(corner.node_draft("plain")).await?;
    for (draft, reason) in [
        (draft("nonsense").node_ip("invalid-ip"), "ProvidedNodeIpMismatch"),
        (draft("unknown"), "MachineNotFound"),
    ] {
        let node = corner.create_node(draft).await?;
        corner.event(&node, reason).await?;
    }
    // Another machine than the one of its name.
    let id = format!("equinixmetal://{named}");
    corner.create_node(draft("named").provider_id(&id)).await?;
    let node = initialised(corner, "named").await?;
    assert_eq!(provider_id(&node), Some(id));
    for suffix in ["nonsense", "unknown"] {
        let node = corner.nodes().get(&corner.node_name(suffix)).await?;
        ensure!(tainted(&node, TAINT_UNINITIALIZED), "{suffix} lost its taint");
        assert_eq!(provider_id(&node), None, "{suffix}");
        let hostname = format!("Hostname={}", corner.node_name(suffix));
        assert_eq!(addresses(&node), [hostname]);
        assert_eq!(writes_about(&world, suffix)?, 0, "{suffix}");
    }
    let plain = corner.nodes().get(&corner.node_name("plain")).await?;
    assert_eq!(provider_id(&plain), None);
    assert_eq!(writes_about(&world, "plain")?, 0);
    Ok(())
}

/// N11: the cloud fails, and so does the API server: the taint stays until both work again.
#[tokio::test]
async fn a_node_waits_for_the_cloud_and_the_api_server() -> Result<()> {
    let world = world("api-and-cloud").await?;
    let (corner, project, api) = (&world.corner, world.project()?, world.api()?);
    let device = project.add_device(DeviceOptions::named(corner.node_name("a")));
    project.fault(FaultRule::new(Action::status(500)));
    api.add([Rule::on("patch", "nodes*", Fault::Status(503)).times(2)]);
    let node = corner.create_node(corner.node_draft("a").uninitialized()).await?;
    corner.event(&node, "MachineNotResolved").await?;
    let waiting = corner.nodes().get(&corner.node_name("a")).await?;
    ensure!(tainted(&waiting, TAINT_UNINITIALIZED), "it lost its taint");
    assert_eq!(writes_about(&world, "a")?, 0);
    project.clear_faults();
    let node = initialised(corner, "a").await?;
    assert_eq!(provider_id(&node), Some(format!("equinixmetal://{device}")));
    let failed = |entry: &Entry| entry.fault.is_some();
    assert_eq!(api.journal().count(failed), 2);
    Ok(())
}
