//! The API endpoint in simulated time: agents with the real `health`, `eip` and endpoint controller, on machines that die, over a network
//! that breaks, in front of a cloud that fails in every way. One process, one thread, paused time; a seed is a run.
//!
//! What must never be is told in `rules`. A seed that fails prints its plan, what happened, what was broken first, and the command that
//! runs it again. `GROUNDPLANE_SEED` runs one alone; `GROUNDPLANE_SEEDS` says how many are run, `GROUNDPLANE_FIRST` from which on.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "nothing but tests: a simulation that cannot go on has failed"
)]
#![allow(unexpected_cfgs, reason = "tokio's own switch, which `make chaos` sets")]

#[path = "sim_endpoint/agent.rs"]
mod agent;
#[path = "simulated/alone.rs"]
mod alone;
#[path = "sim_endpoint/rules.rs"]
mod rules;
#[path = "sim_endpoint/sight.rs"]
mod sight;
#[path = "sim_endpoint/world.rs"]
mod world;

use std::time::Duration;

use groundplane_cloud::testing::EndpointChange;
use groundplane_tests::chaos::endpoint::{Action, FAULTS, Plan};
use groundplane_tests::chaos::{Tally, add_up, missing, number_from, run_seeds};
use tokio::time::{Instant, sleep_until};

use alone::alone;
use world::{CLOUD_FAULTS, LATE, World, number};

/// Until all is well again, once faults have ended: `doubt`, `dwell`, and what a cloud that refused a target is spared.
const CALM: Duration = Duration::from_secs(60);
/// Then nothing moves for as long.
const QUIET: Duration = Duration::from_secs(12);
/// How many runs are enough for every day.
const SEEDS: u64 = 300;
/// The same, of those in which little else than the holder fails.
const CRASHES: u64 = 60;
/// The same, of those that take minutes of their own time.
const REFUSALS: u64 = 20;
/// For probes and calls on their way.
const ON_THE_WAY: Duration = Duration::from_millis(50);

/// Everything that happened in a run, and who held the endpoint when, from its beginning.
#[derive(PartialEq, Eq, Debug)]
struct Ran {
    log: Vec<String>,
    changes: Vec<(Duration, Vec<String>)>,
    tally: Tally,
}

fn run_of(plan: Plan) -> Result<Ran, String> {
    alone(plan.seed, run(plan))
}

fn crash_of(seed: u64) -> Result<Duration, String> {
    alone(seed, crash(Plan::crash(seed)))
}

/// Starts the agents of machines that have power and none.
async fn start_agents(world: &World) {
    let now = Instant::now();
    let due = |world: &World| {
        let state = world.state();
        let is_due =
            |one: &world::Machine| one.on && one.agent.is_none() && one.restart.is_some_and(|at| at <= now);
        state.machines.iter().position(is_due)
    };
    while let Some(machine) = due(world) {
        if let Err(error) = agent::start(world, machine).await {
            return world.broken(format_args!("an agent does not start: {error}"));
        }
    }
}

/// Lets time go on until then.
async fn until(world: &World, then: Instant) {
    while Instant::now() < then {
        start_agents(world).await;
        world.tell_agents();
        sleep_until(then.min(Instant::now() + Duration::from_millis(250))).await;
    }
    start_agents(world).await;
    world.tell_agents();
}

async fn begin(plan: &Plan) -> World {
    let world = World::new(plan.clone());
    for machine in 0..plan.machines {
        world.act(Action::On(machine));
    }
    start_agents(&world).await;
    world
}

/// Exactly one machine holds it, and that one is ready.
fn is_well(world: &World) -> bool {
    let held = world.fake.assignments();
    matches!(&held[..], [one] if number(&one.machine).is_some_and(|machine| world.is_ready(machine)))
}

/// One run: a plan, the end of all faults, and peace.
async fn run(plan: Plan) -> Result<Ran, String> {
    let world = begin(&plan).await;
    for (at, action) in &plan.events {
        until(&world, world.began() + *at).await;
        world.act(*action);
    }
    until(&world, world.began() + FAULTS).await;
    world.mend(&plan.lost);
    world.note("faults end");
    if world.fake.assignments().len() > 1 {
        world.act(Action::TakenByHand);
    }
    until(&world, Instant::now() + LATE).await;
    let end = Instant::now() + CALM;
    while !is_well(&world) {
        if Instant::now() >= end {
            let held = world.fake.assignments();
            world.broken(format_args!(
                "not well {CALM:?} after all faults have ended: {held:?}"
            ));
            break;
        }
        until(&world, Instant::now() + Duration::from_millis(500)).await;
    }
    world.note("well");
    let before = world.fake.history().len();
    until(&world, Instant::now() + QUIET).await;
    if world.fake.history().len() != before {
        world.broken("it moved though all was well");
    }
    finish(&world, &plan)
}

fn finish(world: &World, plan: &Plan) -> Result<Ran, String> {
    world.judge_history(plan.atomic);
    world.verdict()?;
    let history = world.fake.history();
    let change = |change: &EndpointChange| {
        let held = change
            .assignments
            .iter()
            .map(|one| format!("{} {}", one.id, one.machine));
        (change.at - world.began(), held.collect())
    };
    Ok(Ran {
        log: world.log(),
        changes: history.iter().map(change).collect(),
        tally: world.tally(),
    })
}

/// A run in which the holder fails, and nothing else: how long until another machine has it?
async fn crash(plan: Plan) -> Result<Duration, String> {
    let world = begin(&plan).await;
    for (at, action) in &plan.events {
        until(&world, world.began() + *at).await;
        world.act(*action);
    }
    let failed = Instant::now();
    let before = world.fake.history().len();
    until(&world, failed + CALM).await;
    let history = world.fake.history();
    let moved = history[before..]
        .iter()
        .find(|change| !change.assignments.is_empty());
    let Some(moved) = moved else {
        world.broken("nobody took it");
        return world.verdict().map(|()| CALM);
    };
    let took = moved.at - failed;
    let (detection, ranks) = (
        world.settings.detection(),
        u32::try_from(plan.events.len() - 1).expect("few"),
    );
    // Where one agent of two dies with the holder's, its turn passes by.
    if took > detection + agent::STEP * ranks + ON_THE_WAY {
        world.broken(format_args!("it took {took:?} until another machine had it"));
    }
    if history.last() != Some(moved) {
        world.broken("it moved on");
    }
    finish(&world, &plan)?;
    Ok(took)
}

/// Almost as long as a machine that was refused is passed over.
const PASSED_OVER: Duration = Duration::from_secs(5 * 60 - 20);

/// A run in which the holder is to go, and the cloud refuses the endpoint to some of the others, or to all.
async fn refusal(plan: Plan) -> Result<Ran, String> {
    let world = begin(&plan).await;
    for (at, action) in &plan.events {
        until(&world, world.began() + *at).await;
        world.act(*action);
    }
    until(&world, Instant::now() + PASSED_OVER).await;
    let held = world.fake.assignments();
    let held: Vec<_> = held.iter().map(|one| number(&one.machine)).collect();
    let is_fit = |one: usize| Some(one) != plan.holder && !plan.refused.contains(&one);
    let some = (0..plan.machines).any(is_fit);
    let is_right = match held[..] {
        [Some(one)] if some => is_fit(one),
        [one] => one == plan.holder,
        _ => false,
    };
    if !is_right {
        world.broken(format_args!("{held:?} have it"));
    }
    let mut refusals = world.state().refusals.clone();
    let tries = refusals.len();
    refusals.sort_unstable();
    refusals.dedup();
    // Each try takes it from one that works.
    if refusals.len() < tries {
        world.broken("an agent has tried a machine again for which it had been refused");
    }
    world.count(if some { "left" } else { "stayed" });
    if tries > 0 {
        world.count("refused");
    }
    finish(&world, &plan)
}

fn seeds(every_day: u64) -> u64 {
    number_from("GROUNDPLANE_SEEDS").unwrap_or(every_day)
}

/// E67, E69, E78 in simulated time: whatever fails, and whoever dies at whatever step, one machine at most holds the endpoint, it moves
/// only from one that is dead, to one that is ready, and once nothing fails, one holds it that is ready, and keeps it.
#[test]
fn one_holds_it_whatever_fails() {
    if let Some(seed) = number_from("GROUNDPLANE_SEED") {
        let plan = Plan::new(seed);
        let ran = run_of(plan.clone()).unwrap_or_else(|failure| panic!("{failure}"));
        println!("{plan}\n{}", ran.log.join("\n"));
        return;
    }
    let runs = seeds(SEEDS);
    let tally = add_up(
        run_seeds(runs, |seed| run_of(Plan::new(seed)))
            .into_iter()
            .map(|ran| {
                let gaps = ran.changes.iter().filter(|(_, held)| held.is_empty()).count();
                let gaps = Tally::from([("gaps", u64::try_from(gaps).expect("few"))]);
                add_up([ran.tally, gaps])
            }),
    );
    println!("{runs} runs: {tally:?}");
    // A simulation in which it never comes to these proves nothing.
    let outcomes = ["moves asked for", "killed in a move", "gaps"];
    let kinds = Action::KINDS.into_iter().chain(CLOUD_FAULTS).chain(outcomes);
    let never = missing(&tally, kinds);
    assert!(never.is_empty() || runs < SEEDS, "it never came to {never:?}");
}

/// E69 in simulated time: however the holder fails, another machine has the endpoint as soon as the settings promise, and keeps it.
#[test]
fn a_dead_holder_is_followed_within_the_bound() {
    let one = number_from("GROUNDPLANE_SEED");
    let took = match one {
        Some(seed) => vec![crash_of(seed).unwrap_or_else(|failure| panic!("{failure}"))],
        None => run_seeds(seeds(CRASHES), crash_of),
    };
    println!("longest of {}: {:?}", took.len(), took.iter().max());
    assert!(
        took.iter().all(|took| *took > Duration::from_millis(800)),
        "a miss is no failure: {took:?}"
    );
}

/// Runs the plans of a kind, and tells how often what happened in them.
fn tally_of(every_day: u64, plan: fn(u64) -> Plan) -> Tally {
    let one = number_from("GROUNDPLANE_SEED");
    let run = |seed| run_of(plan(seed));
    let all = match one {
        Some(seed) => vec![run(seed).unwrap_or_else(|failure| panic!("{failure}"))],
        None => run_seeds(seeds(every_day), run),
    };
    add_up(all.into_iter().map(|ran| ran.tally))
}

/// E69 in simulated time: where the holder changes under an agent, the misses of the one before it count for nothing.
#[test]
fn a_new_holder_is_judged_by_its_own_probes() {
    println!("{:?}", tally_of(CRASHES, Plan::handover));
}

/// E69 in simulated time: a holder that is well again while a move of it hangs keeps the endpoint: what is withdrawn is not done.
#[test]
fn a_holder_that_recovers_while_the_cloud_hangs_keeps_the_endpoint() {
    let tally = tally_of(CRASHES, Plan::relapse);
    println!("{tally:?}");
    assert!(tally.contains_key("moves asked for"), "{tally:?}");
}

/// E69, E71 in simulated time: a holder that works is left only for a machine that gets the endpoint; to one that the cloud refuses, no
/// agent tries to give it twice, since each try leaves nobody with it for a moment.
#[test]
fn a_machine_that_is_refused_is_not_tried_again() {
    let run = |seed| alone(seed, refusal(Plan::refusal(seed)));
    let all = match number_from("GROUNDPLANE_SEED") {
        Some(seed) => vec![run(seed).unwrap_or_else(|failure| panic!("{failure}"))],
        None => run_seeds(seeds(REFUSALS), run),
    };
    let runs = u64::try_from(all.len()).expect("few");
    let tally = add_up(all.into_iter().map(|ran| ran.tally));
    println!("{runs} runs: {tally:?}");
    let never = missing(&tally, ["left", "stayed", "refused"]);
    assert!(never.is_empty() || runs < REFUSALS, "it never came to {never:?}");
}

/// A seed that failed once fails again.
#[test]
fn a_seed_is_a_run() {
    for seed in 0..3 {
        let [one, other] = [(); 2].map(|()| run_of(Plan::new(seed)));
        assert_eq!(one, other);
    }
}
