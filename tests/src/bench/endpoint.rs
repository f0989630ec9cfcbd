//! How long the API endpoint stays with a machine whose packets are dropped, and what an agent costs when nothing happens.
//!
//! Three API servers and three agents. In each run the machine that holds the endpoint dies with its agent; the clock runs from
//! then until the cloud gives the address to another one. The sandbox cloud answers at once, so what is measured is ours: detection,
//! the wait by rank, and the calls' own way. The agent of the machine that died last was held up while the endpoint moved, and takes part in
//! the next run with what it knew before, as it would.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use groundplane_sandbox::HolderChange;
use tokio::time::sleep;

use super::{Plan, Report, Row, Target, median, on, progress};
use crate::kube_api::MEMBERS;
use crate::world::CloudApi;
use crate::world::endpoint::{EndpointOptions, EndpointWorld};

const DEFAULT: &str = "endpoint_move";
const TUNED: &str = "endpoint_move_tuned";
const COST: &str = "agent_cost";

/// Deaths for each of the two.
const RUNS: usize = 20;
/// For how long agents are watched at rest, after they had time to come to it.
const WARM_UP: Duration = Duration::from_secs(10);
const REST: Duration = Duration::from_secs(30);

/// For a network without hiccups.
const TUNED_HEALTH: &str = "  period: 100ms\n  timeout: 200ms\n  misses: 3\n";
const TUNED_ENDPOINT: &str = "  rankStep: 100ms\n";
const TUNED_WORDS: &str = "period 100ms, timeout 200ms, misses 3, rankStep 100ms";

/// Runs those that are wanted.
pub(super) async fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    for cloud in plan.clouds_of(&[DEFAULT]) {
        let measure = on(DEFAULT, cloud);
        report.take(&measure, moves(&measure, options(cloud), 3.0, "default").await)?;
    }
    for cloud in plan.clouds_of(&[TUNED]) {
        let measure = on(TUNED, cloud);
        let tuned = options(cloud).map(|options| options.health(TUNED_HEALTH).endpoint(TUNED_ENDPOINT));
        report.take(&measure, moves(&measure, tuned, 1.0, TUNED_WORDS).await)?;
    }
    if plan.wants_any(&["agent_cost_cpu", "agent_cost_memory"]) {
        let rows = cost().await;
        let wanted = rows.map(|rows| rows.into_iter().filter(|row| plan.wants(row.measure())).collect());
        report.take(COST, wanted)?;
    }
    Ok(())
}

/// Agents as they are shipped.
fn options(cloud: CloudApi) -> Result<EndpointOptions> {
    Ok(EndpointOptions::on(cloud).environment(super::image::environment()?))
}

async fn moves(
    measure: &str,
    options: Result<EndpointOptions>,
    target: f64,
    settings: &str,
) -> Result<Vec<Row>> {
    let world = options?.start("bench").await?;
    let (mut times, mut gaps) = (Vec::new(), Vec::new());
    let (mut holder, mut revived) = (0, None);
    for turn in 1..=RUNS {
        settled(&world, holder, revived).await?;
        let before = world.history().len();
        let died = Instant::now();
        world.die(holder).await?;
        let next = world.leaves(&[holder]).await?;
        let history = world.history();
        let [taken, given] = history.get(before..).unwrap_or_default() else {
            anyhow::bail!("it did not go from {holder} to {next} directly: {history:#?}");
        };
        let (took, gap) = spans(died, taken, given)?;
        progress(&format!(
            "{measure} {turn}/{RUNS}: {took:.2} s from machine {holder} to machine {next}"
        ));
        times.push(took);
        gaps.push(gap);
        world.revive(holder)?;
        revived = Some(holder);
        holder = next;
    }
    world.one_at_a_time()?;
    let worst = times.iter().copied().fold(0.0, f64::max);
    let row = Row::absolute(measure, worst, "s worst", Target::AtMost(target))
        .with("p50", median(times))
        .with("gap_worst", gaps.into_iter().fold(0.0, f64::max))
        .with("runs", RUNS)
        .with("settings", settings);
    Ok(vec![row])
}

/// From the death to the end of the move, and how long nobody held the endpoint; both in seconds.
fn spans(died: Instant, taken: &HolderChange, given: &HolderChange) -> Result<(f64, f64)> {
    ensure!(!taken.given && given.given, "{taken:?}, then {given:?}");
    let took = given.at.checked_duration_since(died);
    let took = took.context("it moved before its holder died")?;
    let gap = given.at.saturating_duration_since(taken.at);
    Ok((took.as_secs_f64(), gap.as_secs_f64()))
}

/// Waits until every agent sees all ready, and who holds the endpoint, but for the one that was held up when it moved.
async fn settled(world: &EndpointWorld, holder: usize, held_up: Option<usize>) -> Result<()> {
    let node = world.node_name(holder);
    for number in 0..MEMBERS {
        world.settled(number).await?;
        if Some(number) == held_up {
            continue;
        }
        world
            .says(number, "who holds it", |status| status.holder == node)
            .await?;
    }
    Ok(())
}

/// CPU and memory of the agent that takes most of it.
async fn cost() -> Result<Vec<Row>> {
    let mut world = options(CloudApi::Equinix)?.start("bench").await?;
    settled(&world, 0, None).await?;
    sleep(WARM_UP).await;
    let (begun, mut before) = (Instant::now(), Vec::new());
    for number in 0..MEMBERS {
        before.push(world.agent(number)?.child()?.cpu_time()?);
    }
    sleep(REST).await;
    let span = begun.elapsed().as_secs_f64();
    let (mut percent, mut megabytes) = (0.0_f64, 0.0_f64);
    for (number, before) in before.into_iter().enumerate() {
        let child = world.agent(number)?.child()?;
        let used = child.cpu_time()?.saturating_sub(before).as_secs_f64();
        percent = percent.max(used / span * 100.0);
        megabytes = megabytes.max(super::number(child.memory()?.resident) / 1e6);
    }
    ensure!(world.history().len() == 1, "the endpoint moved: that is no rest");
    let row = |name: &str, value, unit, most| {
        Row::absolute(format!("{COST}_{name}"), value, unit, Target::AtMost(most))
            .with("probes_a_second", 2 * (MEMBERS + 1))
            .with("seconds", REST.as_secs())
    };
    Ok(vec![
        row("cpu", percent, "% of a core", 1.0),
        row("memory", megabytes, "MB", 25.0),
    ])
}
