//! A wrong, empty, restored or damaged store never hands out live addresses.

use std::time::Duration;

use anyhow::{Result, ensure};
use groundplane_tests::{WorldOptions, eventually};
use k8s_openapi::api::core::v1::Service;
use pretty_assertions::assert_eq;

use crate::announced::{condition, refusal};

/// An empty store in place of the known one: refused and named; accepted by hand, it learns who holds what.
#[tokio::test]
async fn an_unknown_store_is_refused_until_it_is_accepted() -> Result<()> {
    let mut world = WorldOptions::fixed().start("unknown-store").await?;
    world.corner.add_service("old").await?;
    let old = world.corner.addresses_of("old", 1).await?;
    recorded(&world).await?;
    world.process("ipam")?.kill9().await?;
    std::fs::remove_file(world.store())?;
    world.kill_and_restart().await?;
    world.corner.add_service("new").await?;
    let why = world
        .corner
        .service_until("new", "says why it waits", refusal)
        .await?;
    assert_eq!(why, "UnknownStore");
    let named = |service: &Service| {
        let message = condition(service)?.message;
        let (_, id) = message.split_once("store accept ")?;
        Some(
            id.split(|c: char| !c.is_ascii_hexdigit() && c != '-')
                .next()?
                .to_owned(),
        )
    };
    let id = world
        .corner
        .service_until("new", "names the store", named)
        .await?;
    accept(&world, &id).await?;
    let new = world.corner.addresses_of("new", 1).await?;
    ensure!(old != new, "a live address was given again");
    assert_eq!(world.corner.addresses_of("old", 1).await?, old);
    Ok(())
}

/// A store restored from an old backup: what live objects hold is adopted before anything is given.
#[tokio::test]
async fn a_restored_backup_learns_what_was_given_since() -> Result<()> {
    let mut world = WorldOptions::fixed().start("backup").await?;
    world.corner.add_service("one").await?;
    world.corner.addresses_of("one", 1).await?;
    recorded(&world).await?;
    world.process("ipam")?.terminate().await?;
    let backup = std::fs::read(world.store())?;
    world.kill_and_restart().await?;
    world.corner.add_service("two").await?;
    let two = world.corner.addresses_of("two", 1).await?;
    world.process("ipam")?.terminate().await?;
    std::fs::write(world.store(), backup)?;
    world.kill_and_restart().await?;
    world.corner.add_service("three").await?;
    let three = world.corner.addresses_of("three", 1).await?;
    ensure!(two != three, "a live address was given again");
    let held = world.ctl(&["addresses"]).await?;
    assert_eq!(held.as_array().map(Vec::len), Some(3), "{held}");
    Ok(())
}

/// A damaged store: not serving, said clearly, the file kept.
#[tokio::test]
async fn a_damaged_store_is_kept_and_not_served() -> Result<()> {
    let mut world = WorldOptions::fixed().start("damaged").await?;
    world.corner.add_service("one").await?;
    world.corner.addresses_of("one", 1).await?;
    world.process("ipam")?.terminate().await?;
    let damaged = b"this is no store".repeat(64);
    std::fs::write(world.store(), &damaged)?;
    world.process("ipam")?.restart().await?;
    let status = world.process("ipam")?.wait(Duration::from_secs(30)).await?;
    ensure!(!status.success(), "it serves a damaged store");
    assert_eq!(std::fs::read(world.store())?, damaged, "the file was touched");
    let log = world.log_text()?;
    ensure!(
        log.contains("rebuild"),
        "the log does not name the way out: {log}"
    );
    Ok(())
}

/// Waits until the lease says which store the cluster trusts.
async fn recorded(world: &groundplane_tests::World) -> Result<()> {
    use groundplane_core::names::{LEASE, LEASE_STORE_ID};
    use k8s_openapi::api::coordination::v1::Lease;
    eventually("the lease records the store", async || {
        let lease = world.corner.api::<Lease>().get(LEASE).await?;
        ensure!(
            lease
                .metadata
                .annotations
                .is_some_and(|all| all.contains_key(LEASE_STORE_ID))
        );
        Ok(())
    })
    .await
}

async fn accept(world: &groundplane_tests::World, id: &str) -> Result<()> {
    let output = tokio::process::Command::new(groundplane_tests::groundplane::program()?)
        .args(["ctl", "--gateway", &world.gateway(), "store", "accept", id])
        .output()
        .await?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
