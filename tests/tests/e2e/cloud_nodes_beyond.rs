//! What a cloud's list of machines does not tell: machines of another project, addresses of networks of the user's own, machines that were made
//! anew.

use anyhow::{Context as _, Result, ensure};
use groundplane_core::names::{TAINT_SHUTDOWN, TAINT_UNINITIALIZED};
use groundplane_sandbox::{Choice, DeviceOptions, DeviceState};
use groundplane_tests::{CloudApi, WorldOptions, throughout};
use kube::api::{Patch, PatchParams};
use pretty_assertions::assert_eq;
use serde_json::json;

use crate::announced::{addresses, initialised, tainted};
use crate::clouds::on_each_cloud;

on_each_cloud! {
    a_machine_of_another_project_is_not_gone,
    addresses_that_the_cloud_does_not_know_are_believed,
    a_machine_that_was_made_anew_is_told_of,
}

/// E18, E19, E20, E90: the machine is in another project that the token opens: the list does not have it, the cloud does. Its node is initialised,
/// follows its power, and goes when the cloud says that it is gone, and not before.
async fn a_machine_of_another_project_is_not_gone(cloud: CloudApi) -> Result<()> {
    let world = WorldOptions::on(cloud, cloud.project()).start("beyond").await?;
    let (corner, project) = (&world.corner, world.project()?);
    let other = world.another_project(cloud.project())?;
    let device = other.add_device(DeviceOptions::named("elsewhere"));
    let id = cloud.provider_id(&other, device)?;
    let draft = corner.node_draft("a").uninitialized().provider_id(&id);
    corner.create_node(draft).await?;
    let node = initialised(corner, "a").await?;
    let private = other.own_ipv4(device, false).context("it has no address")?;
    let all = addresses(&node);
    ensure!(all.contains(&format!("InternalIP={private}")), "{all:?}");

    corner.set_ready("a", false).await?;
    // One that is gone for good shows that nodes were looked at meanwhile.
    let dead = world.add_machine("dead").await?;
    initialised(corner, "dead").await?;
    project.remove_device(dead);
    corner.set_ready("dead", false).await?;
    corner.node_gone("dead").await?;
    let node = corner.nodes().get(&corner.node_name("a")).await?;
    ensure!(
        !tainted(&node, TAINT_SHUTDOWN),
        "a machine that is on was tainted as off"
    );

    other.set_state(device, DeviceState::Inactive);
    corner
        .node_until("a", "is tainted as off", |node| {
            tainted(node, TAINT_SHUTDOWN).then_some(())
        })
        .await?;
    other.set_state(device, DeviceState::Active);
    corner.set_ready("a", true).await?;
    corner
        .node_until("a", "is not tainted any more", |node| {
            (!tainted(node, TAINT_SHUTDOWN)).then_some(())
        })
        .await?;
    other.remove_device(device);
    corner.set_ready("a", false).await?;
    corner.node_gone("a").await
}

/// E17, E90: the address that kubelet was given is of a network which the cloud does not know (a VLAN): it is the node's, within the cluster, and
/// the cloud's addresses stay. A machine of which the cloud knows no address at all waits for such a word, and is told so.
async fn addresses_that_the_cloud_does_not_know_are_believed(cloud: CloudApi) -> Result<()> {
    let world = WorldOptions::on(cloud, cloud.project())
        .section("instances: {maxAge: 2s}\n")
        .start("vlan")
        .await?;
    let (corner, project) = (&world.corner, world.project()?);
    let device = project.add_device(DeviceOptions::named(corner.node_name("a")));
    let draft = corner.node_draft("a").uninitialized().node_ip("172.16.0.5");
    corner.create_node(draft).await?;
    let node = initialised(corner, "a").await?;
    let mut expected = vec![
        "InternalIP=172.16.0.5".to_owned(),
        format!("Hostname={}", corner.node_name("a")),
    ];
    let rows = project.addresses(device);
    let public = rows.iter().filter(|row| row.public);
    expected.extend(public.map(|row| format!("ExternalIP={}", row.address)));
    assert_eq!(addresses(&node), expected);

    let hostname = format!("Hostname={}", corner.node_name("layer2"));
    project.add_device(DeviceOptions {
        public_ipv4: Choice::Absent,
        public_ipv6: Choice::Absent,
        private_ipv4: Choice::Absent,
        ..DeviceOptions::named(corner.node_name("layer2"))
    });
    let draft = corner.node_draft("layer2").uninitialized();
    let node = corner.create_node(draft).await?;
    let event = corner.event(&node, "MachineWithoutAddress").await?;
    let message = event.message.unwrap_or_default();
    ensure!(message.contains("--node-ip"), "{message}");
    let node = corner.nodes().get(&corner.node_name("layer2")).await?;
    ensure!(tainted(&node, TAINT_UNINITIALIZED), "it lost its taint");
    let patch = json!({ "metadata": { "annotations": { "alpha.kubernetes.io/provided-node-ip": "172.16.0.6,fd00::6" } } });
    corner
        .nodes()
        .patch(
            &corner.node_name("layer2"),
            &PatchParams::default(),
            &Patch::Merge(&patch),
        )
        .await?;
    let node = initialised(corner, "layer2").await?;
    assert_eq!(
        addresses(&node),
        [
            "InternalIP=172.16.0.6".to_owned(),
            "InternalIP=fd00::6".to_owned(),
            hostname
        ]
    );
    // Looked at again and again, with lists that are new: nothing changes.
    let mark = corner.mark().await?;
    let lists = project.journal().mark();
    let route = match cloud {
        CloudApi::Equinix => "/projects/{pid}/devices",
        CloudApi::Cherry => "/projects/{pid}/servers",
    };
    groundplane_tests::eventually("the cloud is read twice more", async || {
        let calls = project.journal().calls(lists, "GET", route).len();
        ensure!(calls >= 2, "{calls} times");
        Ok(())
    })
    .await?;
    let writes = corner
        .requests_since(mark)
        .await?
        .by_agent("groundplane/")
        .writes();
    let statuses = writes.only(|request| request.resource == "nodes/status");
    assert_eq!(statuses.count(), 0, "{:?}", statuses.summary());
    Ok(())
}

/// E18b, E90: the machine was made anew, and its kubelet goes on with the old node: an event says so, names the machine of today, and the way
/// out, once; the node stays. Deleted and registered anew, it has the id of today.
async fn a_machine_that_was_made_anew_is_told_of(cloud: CloudApi) -> Result<()> {
    let world = WorldOptions::on(cloud, cloud.project())
        .section("instances: {maxAge: 2s}\n")
        .start("anew")
        .await?;
    let (corner, project) = (&world.corner, world.project()?);
    let before = world.add_machine("a").await?;
    corner.set_ready("a", true).await?;
    let node = initialised(corner, "a").await?;
    let old = cloud.provider_id(project, before)?;
    // In this order, so that there is no moment without a machine of that name.
    let after = project.add_device(DeviceOptions::named(corner.node_name("a")));
    project.remove_device(before);
    let new = cloud.provider_id(project, after)?;
    let event = corner.event(&node, "MachineRecreated").await?;
    let message = event.message.unwrap_or_default();
    for part in [old.as_str(), &new, "kubectl delete node", &corner.node_name("a")] {
        ensure!(message.contains(part), "{part} is not in: {message}");
    }
    throughout(
        std::time::Duration::from_secs(5),
        "it is told once, and the node stays",
        async || {
            let events = corner.events_of(&node).await?;
            let told = events
                .iter()
                .filter(|event| event.reason.as_deref() == Some("MachineRecreated"));
            let times: i32 = told.map(|event| event.count.unwrap_or(1)).sum();
            ensure!(times == 1, "it was told {times} times");
            let there = corner.nodes().get(&corner.node_name("a")).await?;
            ensure!(there.metadata.uid == node.metadata.uid, "it is another node");
            Ok(())
        },
    )
    .await?;
    corner.delete_node("a").await?;
    corner.create_node(corner.node_draft("a").uninitialized()).await?;
    let node = initialised(corner, "a").await?;
    assert_eq!(node.spec.context("it is missing")?.provider_id, Some(new));
    Ok(())
}
