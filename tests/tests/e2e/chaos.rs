//! Random faults for real: the plans of the simulation, carried out on a real API server and the sandbox cloud, with real processes that
//! are really killed, and whose clocks are set. The seed chooses the cloud and the announcer, MetalLB among them. A seed fixes the plan and which call to which object fails; when what happens is up to the machine, so the journal
//! of a run that fails is kept.
//!
//! `GROUNDPLANE_SEED` runs one seed; `GROUNDPLANE_SEEDS` says how many are run, `GROUNDPLANE_FIRST` from which on.

#[path = "chaos/act.rs"]
mod act;
#[path = "chaos/endpoint.rs"]
mod endpoint;
#[path = "chaos/judge.rs"]
mod judge;
#[path = "chaos/metallb.rs"]
mod metallb;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use groundplane_sandbox::{DeviceId, ProjectOptions};
use groundplane_tests::chaos::{Plan, ShiftedClock, api_fault_name};
use groundplane_tests::groundplane::Process;
use groundplane_tests::{Mode, World, WorldOptions};
use tokio::time::{Instant, sleep_until};

/// For how long things go wrong.
const FAULTS: Duration = Duration::from_secs(4);
/// How many runs are enough for every day.
const SEEDS: u64 = 10;
/// How often the MetalLB of before looks, of which the test itself plays what it would do.
const TICK: Duration = Duration::from_millis(100);
/// Runs at a time: most of a run is waiting.
const AT_A_TIME: usize = 3;

/// So short are pages that lists have several, of which any can fail: of the cloud and of the API server.
const PAGE: u32 = 3;

/// How often what happened.
type Tally = BTreeMap<String, u64>;

/// A run.
pub(super) struct Run {
    plan: Plan,
    world: World,
    /// On the wall of every process but the second gateway.
    clock: ShiftedClock,
    /// By how much it is wrong.
    shifted: i64,
    metallb: Option<metallb::Side>,
    /// Another gateway, where every service is a process of its own.
    second: Option<Process>,
    /// What people want of Services: of type `LoadBalancer` or else `ClusterIP`, and how often they wrote their annotation.
    services: BTreeMap<usize, (bool, u32)>,
    /// Machines that live, and how often people wrote to their nodes.
    machines: BTreeMap<usize, (DeviceId, u32)>,
    /// Services whose address only a reclaim can collect.
    left: BTreeSet<String>,
    /// What each Service showed, by its UID; those that were no load balancer for a while are not among them.
    shown: BTreeMap<String, String>,
    armed: bool,
    log: Vec<String>,
}

impl Run {
    async fn start(plan: Plan) -> Result<Self> {
        let options = ProjectOptions {
            max_per_page: PAGE,
            ..plan.cloud.project_of_reservations()
        };
        let (corner, metallb) = metallb::Side::begin(&plan).await?;
        let clock = ShiftedClock::make().await?;
        let announcer = match &metallb {
            Some(side) => side.section(&corner),
            None => format!("  announcer: {}\n", plan.announcer.name()),
        };
        // Two gateways need a process for every service; most runs do with one process for all.
        let mode = if plan.seed.is_multiple_of(4) {
            Mode::Services
        } else {
            Mode::One
        };
        let options = WorldOptions::on(plan.cloud, options)
            .mode(mode)
            .gateway("  writeTimeout: 2s\n  lifecycle: {maxDeleteFraction: 1.0}\n")
            .gateway(&announcer)
            .api_page(PAGE);
        let shifts = clock.environment().into_iter();
        let options = shifts.fold(options, |options, (name, value)| options.env(&name, &value));
        let world = options.start_in(corner).await?;
        world.ready().await?;
        let second = match mode {
            Mode::Services => Some(world.second_gateway()?),
            Mode::One => None,
        };
        Ok(Self {
            plan,
            world,
            clock,
            shifted: 0,
            metallb,
            second,
            services: BTreeMap::new(),
            machines: BTreeMap::new(),
            left: BTreeSet::new(),
            shown: BTreeMap::new(),
            armed: false,
            log: Vec::new(),
        })
    }

    fn note(&mut self, what: impl std::fmt::Display) {
        self.log.push(what.to_string());
    }

    /// The plan, the end of all faults, and peace.
    async fn go(&mut self) -> Result<()> {
        let plan = self.plan.clone();
        for machine in 0..plan.machines {
            self.join(machine).await?;
        }
        for service in 0..plan.first {
            self.create(service).await?;
        }
        let began = Instant::now();
        for (at, action) in &plan.events {
            self.until(began + at.of(FAULTS)).await?;
            self.revive().await?;
            self.note(format_args!("{:?}: {action:?}", began.elapsed()));
            self.act(*action).await.with_context(|| format!("{action:?}"))?;
            self.look().await?;
        }
        self.until(began + FAULTS).await?;
        self.mend().await?;
        self.become_well().await?;
        self.stay_quiet().await
    }

    /// Lets time go on until then, with MetalLB at work.
    async fn until(&self, then: Instant) -> Result<()> {
        while Instant::now() < then {
            self.play().await?;
            sleep_until(then.min(Instant::now() + TICK)).await;
        }
        Ok(())
    }

    /// What is there of MetalLB does its work.
    async fn play(&self) -> Result<()> {
        match &self.metallb {
            Some(side) => side.play(&self.world.corner).await,
            None => Ok(()),
        }
    }

    /// How often what happened in this run.
    fn tally(&self) -> Result<Tally> {
        let mut tally = Tally::new();
        let changes = self
            .plan
            .events
            .iter()
            .map(|(_, action)| action.kind().to_owned());
        let api = self.world.api()?.journal().since(0).into_iter();
        let api = api.filter_map(|entry| Some(api_fault_name(entry.fault?, &entry.call).to_owned()));
        let cloud = self.world.project()?.journal().since(0).into_iter();
        let cloud = cloud.filter_map(|entry| Some(format!("cloud: {}", entry.fault?)));
        for what in changes.chain(api).chain(cloud) {
            *tally.entry(what).or_default() += 1;
        }
        Ok(tally)
    }

    /// Everything that is known of a run that failed, in a file.
    fn keep(&self, failure: &anyhow::Error) -> Result<PathBuf> {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("chaos-{}.txt", self.plan.seed));
        let mut text = format!(
            "{}\n{failure:?}\n\nwhat was done:\n{}\n",
            self.plan,
            self.log.join("\n")
        );
        text.push_str("\nthe cloud's journal:\n");
        for entry in self.world.project()?.journal().since(0) {
            text.push_str(&serde_json::to_string(&entry)?);
            text.push('\n');
        }
        text.push_str("\nthe API server's journal:\n");
        for entry in self.world.api()?.journal().since(0) {
            writeln!(text, "{entry:?}")?;
        }
        text.push_str("\nthe logs:\n");
        text.push_str(&self.world.log_text()?);
        if let Some(second) = &self.second {
            text.push_str(&second.log_text()?);
        }
        if let Some(side) = &self.metallb {
            text.push_str(&side.log()?);
        }
        std::fs::write(&path, text)?;
        Ok(path)
    }
}

async fn run(seed: u64) -> Result<Tally> {
    let mut run = Run::start(Plan::new(seed)).await?;
    let Err(failure) = run.go().await else {
        return run.tally();
    };
    let kept = run.keep(&failure).context("keep the journal")?;
    Err(failure.context(format!(
        "{}\nthe journal is kept in {}\nreplay: make chaos SEED={seed} RUNS=1 ONLY=real",
        run.plan,
        kept.display()
    )))
}

fn env(name: &str) -> Result<Option<u64>> {
    let text = std::env::var(name).ok();
    text.map(|text| text.parse().with_context(|| format!("{name} is no number")))
        .transpose()
}

/// The seeds that are to be run: those that were asked for, else so many.
fn asked_for(every_day: u64) -> Result<Range<u64>> {
    let (first, runs) = match env("GROUNDPLANE_SEED")? {
        Some(seed) => (seed, 1),
        None => (
            env("GROUNDPLANE_FIRST")?.unwrap_or_default(),
            env("GROUNDPLANE_SEEDS")?.unwrap_or(every_day),
        ),
    };
    Ok(first..first + runs)
}

/// E40, E41, E45, E56, E90: whatever fails, and whoever is killed, a Service keeps its address, no node goes whose machine lives, and what people
/// wrote stays; once nothing fails, each Service has exactly its reservation, nobody else has one, and nothing is written any more.
#[tokio::test]
async fn whatever_fails_everybody_has_what_is_theirs() -> Result<()> {
    let seeds = asked_for(SEEDS)?;
    let runs = seeds.clone().count();
    let mut going = futures::stream::iter(seeds).map(run).buffer_unordered(AT_A_TIME);
    let mut tally = Tally::new();
    while let Some(done) = going.next().await {
        for (what, count) in done? {
            *tally.entry(what).or_default() += count;
        }
    }
    println!("{runs} runs: {tally:?}");
    Ok(())
}
