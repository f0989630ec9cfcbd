//! Random faults in simulated time: two gateways as they are, election, watches and all, over an API server in memory, and `eip`, `bgp`
//! and `instances` as they are, over a cloud in memory. People make and delete Services, machines come and go, every call can go
//! wrong in every way, and every process is killed at any step. One process, one thread, paused time; a seed is a run.
//!
//! A seed decides the plan, and which call to which object fails and how; so much holds in every build. As `make chaos` builds it, all else
//! follows from the seed, too.
//!
//! What must never be is told in `rules`, and what MetalLB and people's entries of its configuration are in `metallb`. A seed that fails prints its plan, what happened, what was broken first, and the command that
//! runs it again. `GROUNDPLANE_SEED` runs one seed and tells what happened; `GROUNDPLANE_SEEDS` says how many are run, `GROUNDPLANE_FIRST`
//! from which on.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "nothing but tests: a simulation that cannot go on has failed"
)]
#![allow(unexpected_cfgs, reason = "tokio's own switch, which `make chaos` sets")]

#[path = "simulated/alone.rs"]
mod alone;
#[path = "sim_chaos/api.rs"]
mod api;
#[path = "sim_chaos/cloud.rs"]
mod cloud;
#[path = "sim_chaos/idle.rs"]
mod idle;
#[path = "sim_chaos/metallb.rs"]
mod metallb;
#[path = "sim_chaos/objects.rs"]
mod objects;
#[path = "sim_chaos/pools.rs"]
mod pools;
#[path = "sim_chaos/process.rs"]
mod process;
#[path = "sim_chaos/rules.rs"]
mod rules;
#[path = "sim_chaos/world.rs"]
mod world;

use std::time::Duration;

use groundplane_runtime::args::TelemetryArgs;
use groundplane_runtime::telemetry::Telemetry;
use groundplane_tests::chaos::{API_FAULTS, Action, Plan, Tally, add_up, missing, number_from, run_seeds};
use groundplane_tests::kube_api::proxy::Call;
use tokio::time::{Instant, sleep_until};

use alone::alone;
use cloud::CloudFault;
use world::{FAULTS, Pace, World};

/// Until all is well again, once faults have ended: the longest pause of a backoff is a part of it.
const CALM: Duration = Duration::from_secs(900);
/// What was begun may end.
const SETTLE: Duration = Duration::from_secs(75);
/// Then nothing is written for as long.
const QUIET: Duration = Duration::from_secs(45);
/// How often people and kubelets look, and processes are started again.
const TICK: Duration = Duration::from_secs(1);
/// How many runs are enough for every day.
const SEEDS: u64 = 200;

/// Everything that happened in a run.
#[derive(PartialEq, Eq, Debug)]
struct Ran {
    log: Vec<String>,
    tally: Tally,
}

fn run_of(seed: u64) -> Result<Ran, String> {
    alone(seed, run(Plan::new(seed)))
}

/// Starts what is to be started.
async fn start_due(world: &World) {
    while let Some(role) = world.due() {
        if let Err(error) = process::start(world, role).await {
            return world.broken(format_args!("{role:?} does not start: {error}"));
        }
    }
}

/// Lets time go on until then.
async fn until(world: &World, then: Instant) {
    while Instant::now() < then {
        start_due(world).await;
        world.live();
        sleep_until(then.min(Instant::now() + TICK)).await;
    }
    start_due(world).await;
    world.live();
}

/// One run: a plan, the end of all faults, and peace.
async fn run(plan: Plan) -> Result<Ran, String> {
    let world = World::new(plan.clone(), Pace::Quick);
    for (at, action) in &plan.events {
        until(&world, world.began() + at.of(FAULTS)).await;
        world.act(*action);
    }
    until(&world, world.began() + FAULTS).await;
    world.mend();
    world.note("faults end");
    let end = Instant::now() + CALM;
    while let Some(unwell) = world.unwell() {
        if Instant::now() >= end {
            world.broken(format_args!("{CALM:?} after all faults have ended: {unwell}"));
            break;
        }
        until(&world, Instant::now() + Duration::from_secs(1)).await;
    }
    world.note("well");
    until(&world, Instant::now() + SETTLE).await;
    let before = world.state().writes;
    until(&world, Instant::now() + QUIET).await;
    let writes = world.state().writes - before;
    if writes > 0 {
        world.broken(format_args!("{writes} writes though all was well"));
    }
    if let Some(unwell) = world.unwell() {
        world.broken(format_args!("it was well, and is no more: {unwell}"));
    }
    for _ in 0..world.left_behind() {
        world.count("left for a reclaim");
    }
    world.verdict()?;
    Ok(Ran {
        log: world.log(),
        tally: world.tally(),
    })
}

/// E40, E41, E45, E56 in simulated time: whatever fails, and whoever dies at whatever step, a Service never loses its address nor shares it,
/// no node goes whose machine lives, and what people wrote stays; once nothing fails, each Service has exactly its reservation, nobody
/// else has one, and nothing is written any more.
#[test]
fn whatever_fails_everybody_has_what_is_theirs() {
    if let Some(seed) = number_from("GROUNDPLANE_SEED") {
        // With GROUNDPLANE_LOG, what the processes say of themselves, too.
        let telemetry = std::env::var("GROUNDPLANE_LOG").ok().map(|log| {
            let telemetry = TelemetryArgs {
                log,
                ..TelemetryArgs::default()
            };
            Telemetry::init("chaos", &telemetry).expect("a filter")
        });
        match run_of(seed) {
            Ok(ran) => println!("{}\n{}\n{:?}", Plan::new(seed), ran.log.join("\n"), ran.tally),
            Err(failure) => {
                println!("{failure}");
                panic!("seed {seed} breaks a rule");
            }
        }
        drop(telemetry);
        return;
    }
    let seeds = number_from("GROUNDPLANE_SEEDS").unwrap_or(SEEDS);
    let tally = add_up(run_seeds(seeds, run_of).into_iter().map(|ran| ran.tally));
    println!("{seeds} runs: {tally:?}");
    // A simulation in which it never comes to these proves nothing.
    let outcomes = [
        "leader changed",
        "killed at a step",
        "addresses shown",
        "reservations deleted",
        "nodes deleted",
        "MetalLB told",
    ];
    let kinds = Action::KINDS
        .into_iter()
        .chain(API_FAULTS)
        .chain(CloudFault::NAMES);
    let never = missing(&tally, kinds.chain(outcomes));
    assert!(never.is_empty() || seeds < SEEDS, "it never came to {never:?}");
}

/// A seed that failed once fails again, exactly.
#[cfg(tokio_unstable)]
#[test]
fn a_seed_is_a_run() {
    for seed in 0..10 {
        let [one, other] = [(); 2].map(|()| run_of(seed));
        assert_eq!(one, other);
    }
}

/// Whatever the order of calls: the n-th call of one kind to one object fails in the same way in each run of a seed.
#[test]
fn the_same_call_meets_the_same_fault() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let faults = |seed: u64, backwards: bool| {
        let _inside = runtime.enter();
        let world = World::new(Plan::new(seed), Pace::Quick);
        world.act(Action::Api(500));
        world.act(Action::Cloud(500));
        let mut objects: Vec<usize> = (0..20).flat_map(|_| 0..5).collect();
        if backwards {
            objects.sort_unstable();
            objects.reverse();
        }
        let mut met = vec![Vec::new(); 5];
        for object in objects {
            let name = format!("web-{object}");
            let uri = format!("/api/v1/namespaces/default/services/{name}")
                .parse()
                .expect("a path");
            let call = Call::of(&http::Method::PATCH, &uri);
            let (api, slow, _) = world.api_fault(&call);
            let (cloud, slower, _) = world.cloud_fault("create reservation", &name);
            met[object].push((api, slow, cloud, slower));
        }
        met
    };
    assert_eq!(faults(1, false), faults(1, true));
    assert_ne!(faults(1, false), faults(2, false));
    let some = faults(1, false).concat();
    assert!(
        some.iter()
            .any(|(api, _, cloud, _)| api.is_some() && cloud.is_some())
    );
    assert!(
        some.iter()
            .any(|(api, _, cloud, _)| api.is_none() && cloud.is_none())
    );
}
