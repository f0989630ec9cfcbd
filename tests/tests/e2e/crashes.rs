//! `kill -9` between each pair of steps of journey 1: no leak, no duplicate, the same address.

use std::time::Duration;

use anyhow::{Result, ensure};
use groundplane_tests::kube_api::ingress_of;
use groundplane_tests::{CloudApi, World, WorldOptions, eventually, throughout};
use k8s_openapi::api::core::v1::Node;
use pretty_assertions::assert_eq;
use serde_json::json;

use crate::announced::annotation;
use crate::clouds::on_each_cloud;

on_each_cloud! {
    a_crash_never_orders_a_second_elastic_ip,
    a_restart_on_a_cloud_costs_pages_and_writes_nothing,
}

/// The gaps between the steps that give an address.
const GIVING: [&str; 4] = [
    "service.after-finalizer",
    "service.after-ensure",
    "service.after-announce",
    "service.after-status",
];
/// The gaps between the steps that take it back.
const TAKING: [&str; 3] = [
    "release.after-announce",
    "release.after-release",
    "release.after-status",
];

/// How long a process may take until it reaches its fail point.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the world must look like when everything is settled: one address, held once, by the Service that shows it.
async fn one_address(world: &World) -> Result<String> {
    let address = world.corner.addresses_of("web", 1).await?.remove(0);
    let held = world.ctl(&["addresses"]).await?;
    let held: Vec<&str> = held
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|row| row["address"].as_str())
        .collect();
    assert_eq!(held, [format!("{address}/32")], "a leak or a duplicate");
    Ok(address)
}

/// E41: giving, for the driver `static`.
#[tokio::test]
async fn a_crash_while_an_address_is_given_leaks_nothing() -> Result<()> {
    for point in GIVING {
        let name = point.replace('.', "-");
        let mut world = WorldOptions::fixed().fail_point(point).start(&name).await?;
        world.corner.add_service("web").await?;
        let role = world.gateway_role();
        world.process(role)?.wait(PATIENCE).await?;
        let before = world
            .corner
            .service_until("web", "is there", |service| Some(ingress_of(service)))
            .await?;
        world.kill_and_restart().await?;
        world.ready().await?;
        let address = one_address(&world).await?;
        ensure!(
            before.is_empty() || before == [address.clone()],
            "{point}: {before:?} became {address}"
        );
        assert_eq!(
            address, "192.0.2.1",
            "{point}: the first address of the pool, given once"
        );
    }
    Ok(())
}

/// E41: taking back, for the driver `static`.
#[tokio::test]
async fn a_crash_while_an_address_is_taken_back_leaks_nothing() -> Result<()> {
    for point in TAKING {
        let name = point.replace('.', "-");
        let mut world = WorldOptions::fixed().fail_point(point).start(&name).await?;
        world.corner.add_service("web").await?;
        world.corner.addresses_of("web", 1).await?;
        let flip = json!({ "spec": { "type": "ClusterIP", "allocateLoadBalancerNodePorts": null } });
        world.corner.edit_service("web", &flip).await?;
        let role = world.gateway_role();
        world.process(role)?.wait(PATIENCE).await?;
        world.kill_and_restart().await?;
        world.ready().await?;
        let free = |service: &k8s_openapi::api::core::v1::Service| {
            (!crate::announced::finalized(service)).then_some(())
        };
        world
            .corner
            .service_until("web", "has no finalizer", free)
            .await?;
        assert_eq!(world.ctl(&["addresses"]).await?, json!([]), "{point}");
    }
    Ok(())
}

/// E41, E90: giving and taking back, for a cloud whose tags are the truth.
async fn a_crash_never_orders_a_second_elastic_ip(cloud: CloudApi) -> Result<()> {
    for point in GIVING {
        let name = format!("cloud-{}", point.replace('.', "-"));
        let options = WorldOptions::on(cloud, cloud.project_of_reservations());
        let mut world = options.fail_point(point).start(&name).await?;
        world.corner.add_service("web").await?;
        let role = world.gateway_role();
        world.process(role)?.wait(PATIENCE).await?;
        world.kill_and_restart().await?;
        world.ready().await?;
        let address = world.corner.addresses_of("web", 1).await?.remove(0);
        let reserved = world.project()?.reservations();
        assert_eq!(reserved.len(), 1, "{point}: {reserved:?}");
        ensure!(
            format!("{reserved:?}").contains(&address),
            "{point}: {address} is not {reserved:?}"
        );
        world.corner.delete_service("web").await?;
        world.corner.service_gone("web").await?;
        assert_eq!(
            world.project()?.reservations().len(),
            0,
            "{point}: an elastic IP leaked"
        );
    }
    Ok(())
}

/// A restart changes no address and writes nothing but its lease.
#[tokio::test]
async fn a_restart_keeps_every_address_and_writes_nothing() -> Result<()> {
    let mut world = WorldOptions::fixed().start("restart").await?;
    for n in 0..10 {
        world
            .corner
            .create_service(world.corner.service_draft(&format!("web-{n}")).dual_stack())
            .await?;
    }
    let mut before = Vec::new();
    for n in 0..10 {
        before.push(world.corner.addresses_of(&format!("web-{n}"), 2).await?);
    }
    // The last condition and event are written when nothing more is.
    let mark = settled(&world).await?;
    world.kill_and_restart().await?;
    world.ready().await?;
    throughout(Duration::from_secs(5), "a restart writes nothing", async || {
        let writes = world
            .corner
            .requests_since(mark)
            .await?
            .by_agent("groundplane/")
            .writes();
        ensure!(writes.count() == 0, "{:?}", writes.summary());
        Ok(())
    })
    .await?;
    for (n, addresses) in before.iter().enumerate() {
        assert_eq!(
            &world.corner.addresses_of(&format!("web-{n}"), 2).await?,
            addresses
        );
    }
    Ok(())
}

/// E85, E90: a restart on a cloud asks for pages, not for objects: the same few calls for any number of Services and nodes, and
/// nothing is written, to the cloud or to the cluster.
async fn a_restart_on_a_cloud_costs_pages_and_writes_nothing(cloud: CloudApi) -> Result<()> {
    let options = WorldOptions::on(cloud, cloud.project()).gateway("  bgpNodeSelector: \"\"\n");
    let mut world = options.start("pages").await?;
    for n in 0..10 {
        let suffix = format!("n{n}");
        world.add_machine(&suffix).await?;
    }
    for n in 0..20 {
        world.corner.add_service(&format!("web-{n}")).await?;
    }
    for n in 0..20 {
        world.corner.addresses_of(&format!("web-{n}"), 1).await?;
    }
    for n in 0..10 {
        let last = cloud.annotation("bgp-peers-1-peer-ip");
        let peered = |node: &Node| annotation(node, &last).map(drop);
        world
            .corner
            .node_until(&format!("n{n}"), "has both peers", peered)
            .await?;
    }
    let mark = settled(&world).await?;
    world.process("gateway")?.terminate().await?;
    let calls = world.project()?.journal().mark();
    world.kill_and_restart().await?;
    world.ready().await?;
    let known = async || {
        let overview = world.ctl(&["overview"]).await?;
        ensure!(
            overview["servicesWithAddress"] == 20 && overview["queueLength"] == 0,
            "{overview}"
        );
        Ok(())
    };
    eventually("everything is looked at", known).await?;
    let journal = world.project()?.journal();
    let counts = journal.counts(calls);
    assert_eq!(journal.writes(calls).len(), 0, "{counts:?}");
    ensure!(
        journal.total(calls) <= 12,
        "{counts:?} for 20 Services and 10 nodes"
    );
    let writes = world
        .corner
        .requests_since(mark)
        .await?
        .by_agent("groundplane/")
        .writes();
    assert_eq!(writes.count(), 0, "{:?}", writes.summary());
    Ok(())
}

/// The point in the audit log from which on a whole second passed without a write of ours.
async fn settled(world: &World) -> Result<groundplane_tests::kube_api::Mark> {
    loop {
        let mark = world.corner.mark().await?;
        let quiet = throughout(Duration::from_secs(1), "it is quiet", async || {
            let writes = world
                .corner
                .requests_since(mark)
                .await?
                .by_agent("groundplane/")
                .writes();
            ensure!(writes.count() == 0, "still writing");
            Ok(())
        });
        if quiet.await.is_ok() {
            return Ok(mark);
        }
    }
}
