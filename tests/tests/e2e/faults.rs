//! What goes away, and comes back: nothing lost, nothing given twice, recovery without a restart.

use anyhow::{Result, ensure};
use groundplane_tests::{KubeApi, Mode, WorldOptions};
use pretty_assertions::assert_eq;

/// A killed service process: the others stay, and the work goes on when it is back.
#[tokio::test]
async fn a_killed_service_is_waited_for() -> Result<()> {
    for role in ["ipam", "eip"] {
        let mut world = WorldOptions::fixed()
            .mode(Mode::Services)
            .start(&format!("killed-{role}"))
            .await?;
        world.corner.add_service("before").await?;
        let before = world.corner.addresses_of("before", 1).await?;
        world.process(role)?.kill9().await?;
        world.corner.add_service("after").await?;
        world.process(role)?.restart().await?;
        let after = world.corner.addresses_of("after", 1).await?;
        ensure!(before != after, "{before:?} was given twice");
        assert_eq!(world.corner.addresses_of("before", 1).await?, before);
    }
    Ok(())
}

/// The API server hangs, then goes away, then comes back.
#[tokio::test]
async fn an_api_server_that_hangs_and_goes_is_waited_for() -> Result<()> {
    let mut api = KubeApi::start().await?;
    let world = WorldOptions::fixed()
        .start_in(api.corner("api-away").await?)
        .await?;
    world.ready().await?;
    world.corner.add_service("one").await?;
    let one = world.corner.addresses_of("one", 1).await?;
    api.pause().await?;
    let pools = world.ctl(&["pools"]).await?;
    assert_eq!(pools[0]["used"], 1, "answered while the API hangs");
    api.resume()?;
    world.corner.add_service("two").await?;
    let two = world.corner.addresses_of("two", 1).await?;
    api.stop_api().await?;
    let explained = world
        .ctl(&["explain", "service", &format!("{}/one", world.corner.namespace())])
        .await?;
    ensure!(
        explained["addresses"][0]
            .as_str()
            .unwrap_or_default()
            .contains(&one[0]),
        "{explained}"
    );
    api.start_api().await?;
    world.corner.add_service("three").await?;
    let three = world.corner.addresses_of("three", 1).await?;
    ensure!(
        one != two && two != three && one != three,
        "an address was given twice"
    );
    Ok(())
}
