//! Two gateways: one acts, the other takes over.

use anyhow::{Result, ensure};
use groundplane_tests::{Mode, WorldOptions, eventually};
use pretty_assertions::assert_eq;

/// E88: the leader is killed in the middle of work; the other finishes it, once for each Service.
#[tokio::test]
async fn another_gateway_takes_over_from_a_killed_leader() -> Result<()> {
    let mut world = WorldOptions::fixed()
        .mode(Mode::Services)
        .start("leaders")
        .await?;
    let second = world.second_gateway()?;
    second.ready().await?;
    let mark = world.corner.mark().await?;
    let names: Vec<String> = (0..20).map(|n| format!("web-{n}")).collect();
    for (n, name) in names.iter().enumerate() {
        world.corner.add_service(name).await?;
        if n == 10 {
            world.process("gateway")?.kill9().await?;
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    for name in &names {
        let address = world.corner.addresses_of(name, 1).await?.remove(0);
        ensure!(seen.insert(address.clone()), "{address} was given twice");
    }
    // One status patch a Service; the one that was under way when the leader died may have been sent twice.
    eventually("the writes are in the audit log", async || {
        let writes = world
            .corner
            .requests_since(mark)
            .await?
            .by_agent("groundplane/")
            .writes();
        let status = writes.only(|request| request.uri.contains("/status")).count();
        ensure!(
            (20..=24).contains(&status),
            "{status} status patches for 20 Services"
        );
        Ok(())
    })
    .await
}

/// While both live, only one writes.
#[tokio::test]
async fn a_follower_writes_nothing() -> Result<()> {
    let world = WorldOptions::fixed()
        .mode(Mode::Services)
        .start("follower")
        .await?;
    let second = world.second_gateway()?;
    second.ready().await?;
    let mark = world.corner.mark().await?;
    for n in 0..10 {
        world.corner.add_service(&format!("web-{n}")).await?;
    }
    for n in 0..10 {
        world.corner.addresses_of(&format!("web-{n}"), 1).await?;
    }
    eventually("each write happened once", async || {
        let writes = world
            .corner
            .requests_since(mark)
            .await?
            .by_agent("groundplane/")
            .writes();
        let count = writes
            .clone()
            .only(|request| request.uri.contains("/status"))
            .count();
        assert_eq!(count, 10, "{:?}", writes.summary());
        Ok(())
    })
    .await
}
