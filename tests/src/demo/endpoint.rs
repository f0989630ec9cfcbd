//! Chapter three: the machine that holds the API endpoint dies, and the endpoint moves.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::demo::story::Story;
use crate::eventually;
use crate::groundplane::program;
use crate::world::endpoint::{EndpointOptions, EndpointWorld};

/// Tells it, and returns what is left behind.
pub(super) async fn tell(story: &mut Story) -> Option<EndpointWorld> {
    let mut started = None;
    story
        .step("three API servers on one etcd, three agents", async || {
            started = Some(EndpointOptions::default().start("demo").await?);
            Ok("every agent sees all three, and the endpoint")
        })
        .await?;
    let world = started?;
    let mut moved = None;
    story
        .step(
            "the machine that holds the endpoint dies: the endpoint moves",
            async || {
                let died = Instant::now();
                world.die(0).await?;
                let next = world.leaves(&[0]).await?;
                let given = world.history().pop().context("nothing was assigned")?;
                let took = given.at.saturating_duration_since(died).as_secs_f64();
                moved = Some(next);
                Ok(format!("to machine {next}, {took:.2} s after the death"))
            },
        )
        .await?;
    let next = moved?;
    story
        .step("the API answers at the endpoint again", async || {
            world.answers().await?;
            Ok(world.endpoint())
        })
        .await;
    story
        .step("`groundplane ctl endpoint` says how long it took", async || {
            let times = eventually("an agent tells of the move", async || last_move(&world, 0).await).await?;
            Ok(times)
        })
        .await;
    story
        .step(
            "the machine comes back: nothing moves, there is one assignment",
            async || {
                world.revive(0)?;
                for number in 0..3 {
                    world.settled(number).await?;
                }
                world.one_at_a_time()?;
                ensure!(world.holders() == [next], "it is at {:?}", world.holders());
                Ok("and there never were two")
            },
        )
        .await;
    Some(world)
}

/// Detection and move, as the agent that moved it tells them. The agent of the `dead` machine is not asked.
async fn last_move(world: &EndpointWorld, dead: usize) -> Result<String> {
    for number in (0..3).filter(|number| *number != dead) {
        let output = tokio::process::Command::new(program()?)
            .args([
                "ctl",
                "--gateway",
                &world.target(number),
                "-o",
                "json",
                "endpoint",
            ])
            .output()
            .await
            .context("run groundplane ctl")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "groundplane ctl endpoint: {said}");
        let status: Value = serde_json::from_slice(&output.stdout)?;
        let moves = status["moves"].as_array().into_iter().flatten();
        for one in moves.filter(|one| one["outcome"] == "moved") {
            let seconds = |key: &str| one[key].as_f64();
            if let (Some(detection), Some(took)) = (seconds("detectionSeconds"), seconds("moveSeconds")) {
                return Ok(format!(
                    "detected after {detection:.2} s, moved after another {took:.2} s, by agent {number}"
                ));
            }
        }
    }
    anyhow::bail!("no agent has moved it")
}
