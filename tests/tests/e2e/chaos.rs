//! Random faults for real: the plans of the simulation, carried out on a real API server and the sandbox cloud, with real processes that
//! are really killed. A seed fixes the plan and which call to which object fails; when what happens is up to the machine, so the journal
//! of a run that fails is kept.
//!
//! `GROUNDPLANE_SEED` runs one seed; `GROUNDPLANE_SEEDS` says how many are run, `GROUNDPLANE_FIRST` from which on.

#[path = "chaos/act.rs"]
mod act;
#[path = "chaos/judge.rs"]
mod judge;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use groundplane_sandbox::{DeviceId, ProjectOptions};
use groundplane_tests::chaos::Plan;
use groundplane_tests::groundplane::Process;
use groundplane_tests::{Mode, World, WorldOptions};
use tokio::time::{Instant, sleep_until};

/// For how long things go wrong.
const FAULTS: Duration = Duration::from_secs(4);
/// How many runs are enough for every day.
const SEEDS: u64 = 10;
/// Runs at a time: most of a run is waiting.
const AT_A_TIME: usize = 3;

/// A run.
pub(super) struct Run {
    plan: Plan,
    world: World,
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
            list_machine_blocks: false,
            ..ProjectOptions::default()
        };
        // Two gateways need a process for every service; most runs do with one process for all.
        let mode = if plan.seed.is_multiple_of(4) {
            Mode::Services
        } else {
            Mode::One
        };
        let world = WorldOptions::equinix(options)
            .mode(mode)
            .gateway("  writeTimeout: 2s\n  lifecycle: {maxDeleteFraction: 1.0}\n")
            .api_faults([])
            .start(&format!("chaos-{}", plan.seed))
            .await?;
        let second = match mode {
            Mode::Services => Some(world.second_gateway()?),
            Mode::One => None,
        };
        Ok(Self {
            plan,
            world,
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
            sleep_until(began + at.of(FAULTS)).await;
            self.revive().await?;
            self.note(format_args!("{:?}: {action:?}", began.elapsed()));
            self.act(*action).await.with_context(|| format!("{action:?}"))?;
            self.look().await?;
        }
        sleep_until(began + FAULTS).await;
        self.mend().await?;
        self.become_well().await?;
        self.stay_quiet().await
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
        std::fs::write(&path, text)?;
        Ok(path)
    }
}

async fn run(seed: u64) -> Result<()> {
    let mut run = Run::start(Plan::new(seed)).await?;
    let Err(failure) = run.go().await else {
        return Ok(());
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

/// E40, E41, E45: whatever fails, and whoever is killed, a Service keeps its address, no node goes whose machine lives, and what people
/// wrote stays; once nothing fails, each Service has exactly its reservation, nobody else has one, and nothing is written any more.
#[tokio::test]
async fn whatever_fails_everybody_has_what_is_theirs() -> Result<()> {
    let (first, runs) = match env("GROUNDPLANE_SEED")? {
        Some(seed) => (seed, 1),
        None => (
            env("GROUNDPLANE_FIRST")?.unwrap_or_default(),
            env("GROUNDPLANE_SEEDS")?.unwrap_or(SEEDS),
        ),
    };
    let mut runs = futures::stream::iter(first..first + runs)
        .map(run)
        .buffer_unordered(AT_A_TIME);
    while let Some(done) = runs.next().await {
        done?;
    }
    Ok(())
}
