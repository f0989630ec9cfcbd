//! Elastic IPs that no Service has any more: a word, or the way back to the cloud.

use anyhow::{Context as _, Result, ensure};
use groundplane_sandbox::{Action, FaultRule, Project, ReservationOptions};
use groundplane_tests::{CloudApi, World, WorldOptions, eventually};
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;

use crate::clouds::on_each_cloud;

on_each_cloud! {
    an_orphan_goes_back_and_nothing_else,
    a_dry_run_tells_of_an_orphan,
    a_create_that_lands_late_is_collected,
}

const DELETE: (&str, &str) = ("DELETE", "/ips/{id}");

/// A world that looks for orphans every two seconds, and lets any share of them go.
async fn world(cloud: CloudApi, name: &str, mode: &str) -> Result<World> {
    let reclaim = format!("  reclaim: {{mode: {mode}, grace: 2s, maxFraction: 1}}\n");
    WorldOptions::on(cloud, cloud.project_of_reservations())
        .gateway(&reclaim)
        .section("eip: {maxAge: 1s}\n")
        .start(name)
        .await
}

/// The tags of the Service's reservation.
fn tags(project: &Project) -> Result<Vec<String>> {
    let reservations = project.reservations();
    let one = reservations.first().context("there is no reservation")?;
    Ok(one.tags.clone())
}

/// Gives the tag that begins so another value.
fn replace(tags: &mut [String], key: &str, value: &str) -> Result<()> {
    let tag = tags.iter_mut().find(|tag| tag.starts_with(key));
    *tag.with_context(|| format!("no tag {key}"))? = format!("{key}{value}");
    Ok(())
}

/// Waits for the event that speaks of this address.
async fn told(world: &World, reason: &str, address: &str) -> Result<()> {
    let events: Api<Event> = Api::namespaced(world.corner.client(), "default");
    let only = ListParams::default().fields(&format!("reason={reason}"));
    eventually(format!("{reason} of {address}"), async || {
        let told = events.list(&only).await?;
        let speaks = |event: &Event| {
            let message = event.message.as_deref().unwrap_or_default();
            event.involved_object.name.as_deref() == Some("kube-system") && message.contains(address)
        };
        ensure!(told.items.iter().any(speaks), "nobody says so");
        Ok(())
    })
    .await
}

/// E37, E51, E90: what a Service leaves behind whose finalizer is taken by force while nobody looks goes back, with an event; what other
/// clusters, live Services and users have stays.
async fn an_orphan_goes_back_and_nothing_else(cloud: CloudApi) -> Result<()> {
    let mut world = world(cloud, "reclaim", "on").await?;
    for name in ["web", "gone"] {
        world.corner.add_service(name).await?;
        world.corner.addresses_of(name, 1).await?;
    }
    let address = world.corner.addresses_of("gone", 1).await?.remove(0);
    let mut theirs = tags(world.project()?)?;
    replace(&mut theirs, "cluster=", "another")?;
    world
        .project()?
        .add_reservation(ReservationOptions::tagged(theirs));
    world
        .project()?
        .add_reservation(ReservationOptions::tagged(["mine"]));
    // Nobody is there to see it go.
    world.process("gateway")?.child()?.kill9().await?;
    world.corner.delete_service("gone").await?;
    world.corner.strip_finalizers("gone").await?;
    world.corner.service_gone("gone").await?;
    world.kill_and_restart().await?;
    let left = |project: &Project| project.reservations().len();
    eventually("the orphan is gone", async || {
        ensure!(left(world.project()?) == 3, "{} are left", left(world.project()?));
        Ok(())
    })
    .await?;
    told(&world, "ReclaimedElasticIP", &address).await?;
    let deleted = world.project()?.journal().calls(0, DELETE.0, DELETE.1);
    ensure!(deleted.len() == 1, "{deleted:?}");
    world.corner.addresses_of("web", 1).await?;
    Ok(())
}

/// E51, E90: by default it is told of, and left alone.
async fn a_dry_run_tells_of_an_orphan(cloud: CloudApi) -> Result<()> {
    let world = world(cloud, "rehearse", "dry-run").await?;
    world.corner.add_service("web").await?;
    world.corner.addresses_of("web", 1).await?;
    let project = world.project()?;
    let mut late = tags(project)?;
    replace(
        &mut late,
        "service=",
        "6AI0U19lNyQbe/RvRL4GrM/Dp5nGlASBBv3CX4QJmSo=",
    )?;
    let orphan = project.add_reservation(ReservationOptions::tagged(late));
    told(
        &world,
        "OrphanedElasticIP",
        &orphan.address.context("no address")?.to_string(),
    )
    .await?;
    ensure!(project.journal().calls(0, DELETE.0, DELETE.1).is_empty());
    Ok(())
}

/// E41, E51, E90: a create that no answer came to, and that lands after its Service was deleted, is collected; while the cloud's list fails
/// half-way, nothing is.
async fn a_create_that_lands_late_is_collected(cloud: CloudApi) -> Result<()> {
    let world = world(cloud, "late", "on").await?;
    let (corner, project) = (&world.corner, world.project()?);
    corner.add_service("web").await?;
    corner.addresses_of("web", 1).await?;
    let late = tags(project)?;
    corner.delete_service("web").await?;
    corner.service_gone("web").await?;
    project.fault(FaultRule::on("GET", "/projects/{pid}/ips", Action::HalfBody));
    let mark = project.journal().mark();
    project.add_reservation(ReservationOptions::tagged(late));
    eventually("it was looked for", async || {
        let looks = project.journal().calls(mark, "GET", "/projects/{pid}/ips").len();
        ensure!(looks >= 4, "{looks} times");
        Ok(())
    })
    .await?;
    ensure!(project.reservations().len() == 1, "nothing is deleted on doubt");
    project.clear_faults();
    eventually("it is collected", async || {
        ensure!(project.reservations().is_empty(), "it is there");
        Ok(())
    })
    .await
}
