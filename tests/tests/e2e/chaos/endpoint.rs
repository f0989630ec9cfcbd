//! Random faults around the API endpoint for real: agents, API servers and machines that fail as the plans of the simulation say, in front of
//! the sandbox cloud. What only a simulation can see, such as whether an agent had a reason for each move, is judged there.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use groundplane_sandbox::{Action as CloudAction, FaultRule, RandomPlan, most_holders};
use groundplane_tests::chaos::ShiftedClock;
use groundplane_tests::chaos::endpoint::{Action, Api, Plan};
use groundplane_tests::kube_api::MEMBERS;
use groundplane_tests::world::endpoint::{EndpointOptions, EndpointWorld, PATIENT};
use groundplane_tests::{CloudApi, throughout};
use tokio::time::{Instant, sleep_until};

use super::act::cloud_faults;
use super::{Tally, asked_for};

/// So much faster than in the simulation do things go wrong.
const FASTER: u32 = 2;
/// How many runs are enough for every day: they run one after the other.
const SEEDS: u64 = 3;
/// Longer than `doubt`, and than what agents wait for each other.
const QUIET: Duration = Duration::from_secs(6);

struct Run {
    plan: Plan,
    world: EndpointWorld,
    clock: ShiftedClock,
    shifted: i64,
    api: [Api; MEMBERS],
    on: [bool; MEMBERS],
    log: Vec<String>,
}

impl Run {
    async fn start(seed: u64) -> Result<Self> {
        let plan = Plan::of_machines(seed, MEMBERS);
        // One of the clouds moves an address in one step, the other one in two.
        let cloud = if plan.atomic {
            CloudApi::Cherry
        } else {
            CloudApi::Equinix
        };
        let clock = ShiftedClock::make().await?;
        let options = EndpointOptions::on(cloud)
            .health(PATIENT)
            .environment(clock.environment());
        let world = options.start(&format!("chaos-{seed}")).await?;
        Ok(Self {
            plan,
            world,
            clock,
            shifted: 0,
            api: [Api::Well; MEMBERS],
            on: [true; MEMBERS],
            log: Vec::new(),
        })
    }

    /// The plan, the end of all faults, and peace.
    async fn go(&mut self) -> Result<()> {
        let plan = self.plan.clone();
        let began = Instant::now();
        for (at, action) in &plan.events {
            sleep_until(began + *at / FASTER).await;
            self.log.push(format!("{:?}: {action:?}", began.elapsed()));
            self.act(*action).await.with_context(|| format!("{action:?}"))?;
        }
        self.mend().await?;
        self.log.push(format!("{:?}: faults end", began.elapsed()));
        self.world.leaves(&plan.lost).await?;
        let before = self.world.history().len();
        throughout(QUIET, "the endpoint stays where it is", async || {
            let history = self.world.history();
            ensure!(
                history.len() == before,
                "it moved though all was well: {history:#?}"
            );
            Ok(())
        })
        .await?;
        let history = self.world.history();
        ensure!(most_holders(&history) == 1, "two at once: {history:#?}");
        self.world.answers().await
    }

    /// Does what the plan says, as far as it can be done to real machines.
    async fn act(&mut self, action: Action) -> Result<()> {
        match action {
            Action::Api(one, api) => self.set_api(one, api).await?,
            Action::Holder(api) => {
                for holder in self.world.holders() {
                    self.set_api(holder, api).await?;
                }
            }
            Action::Off(one) if std::mem::replace(&mut self.on[one], false) => self.world.die(one).await?,
            Action::On(one) if !std::mem::replace(&mut self.on[one], true) => self.world.revive(one)?,
            Action::Kill(one) if self.on[one] => self.world.agent(one)?.restart().await?,
            Action::KillAt(_) => {
                for one in (0..MEMBERS).filter(|one| self.on[*one]) {
                    self.world.agent(one)?.restart().await?;
                }
            }
            Action::Split(halves) => {
                for one in (0..MEMBERS).filter(|one| self.on[*one]) {
                    if halves >> one & 1 == 1 {
                        self.world.fabric.cut(one);
                    } else {
                        self.world.fabric.join(one);
                    }
                }
            }
            Action::Cloud(chance) => {
                self.world.project().clear_faults();
                self.world.project().fault_plan(RandomPlan {
                    seed: self.plan.seed,
                    per_mille: u32::from(chance) * 10,
                    actions: cloud_faults(),
                    project: None,
                    method: None,
                    route: None,
                    at_most: None,
                });
            }
            Action::CloudHangs => self.hang(&["GET", "POST", "PUT", "DELETE"]),
            Action::WritesHang => self.hang(&["POST", "PUT", "DELETE"]),
            Action::TakenByHand => {
                let project = self.world.project();
                for held in project.holders(self.world.address()) {
                    project.unassign(held.id);
                }
            }
            Action::Cordon(one, cordoned) => self.cordon(one, cordoned).await?,
            Action::Clock(seconds) => {
                self.shifted += i64::from(seconds);
                self.clock.set(self.shifted)?;
            }
            // What is done already, and what is a simulation's alone.
            _ => {}
        }
        Ok(())
    }

    fn hang(&self, methods: &[&str]) {
        for method in methods {
            let rule = FaultRule {
                method: Some((*method).to_owned()),
                ..FaultRule::new(CloudAction::Hang)
            };
            self.world.project().fault(rule);
        }
    }

    async fn set_api(&mut self, one: usize, api: Api) -> Result<()> {
        let plane = &mut self.world.plane;
        match std::mem::replace(&mut self.api[one], api) {
            before if before == api => return Ok(()),
            Api::Well => {}
            Api::Unready => plane.cure(one)?,
            Api::Hung => plane.resume(one)?,
            Api::Stopped => plane.start_api(one).await?,
        }
        match api {
            Api::Well => Ok(()),
            Api::Unready => plane.sicken(one),
            Api::Hung => plane.pause(one).await,
            Api::Stopped => plane.stop_api(one).await,
        }
    }

    /// By an API server that works; where none does, nobody can.
    async fn cordon(&self, one: usize, cordoned: bool) -> Result<()> {
        let works = self.api.iter().position(|api| *api == Api::Well);
        match works {
            Some(via) => self.world.cordon(via, one, cordoned).await,
            None => Ok(()),
        }
    }

    /// Nothing goes wrong any more, but for the machines that are lost.
    async fn mend(&mut self) -> Result<()> {
        self.world.project().clear_faults();
        self.clock.set(0)?;
        for one in 0..MEMBERS {
            self.set_api(one, Api::Well).await?;
        }
        for one in 0..MEMBERS {
            self.cordon(one, false).await?;
            self.world.fabric.join(one);
            let lost = self.plan.lost.contains(&one);
            let was_on = std::mem::replace(&mut self.on[one], !lost);
            if lost && was_on {
                self.world.die(one).await?;
            } else if lost {
                self.world.fabric.cut(one);
            } else if !was_on {
                self.world.revive(one)?;
            }
        }
        Ok(())
    }

    /// How often what happened.
    fn tally(&self) -> Tally {
        let changes = self
            .plan
            .events
            .iter()
            .map(|(_, action)| action.kind().to_owned());
        let cloud = self.world.project().journal().since(0).into_iter();
        let cloud = cloud.filter_map(|entry| Some(format!("cloud: {}", entry.fault?)));
        let moves = self
            .world
            .history()
            .into_iter()
            .map(|_| "endpoint given or taken".to_owned());
        let mut tally = Tally::new();
        for what in changes.chain(cloud).chain(moves) {
            *tally.entry(what).or_default() += 1;
        }
        tally
    }

    /// Everything that is known of a run that failed, in a file.
    fn keep(&mut self, failure: &anyhow::Error) -> Result<PathBuf> {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let path = path.join(format!("chaos-endpoint-{}.txt", self.plan.seed));
        let mut text = format!("{}\n{failure:?}\n\nwhat was done:\n", self.plan);
        text.push_str(&self.log.join("\n"));
        write!(
            text,
            "\n\nwho held it:\n{:#?}\n\nthe cloud's journal:\n",
            self.world.history()
        )?;
        for entry in self.world.project().journal().since(0) {
            text.push_str(&serde_json::to_string(&entry)?);
            text.push('\n');
        }
        for number in 0..MEMBERS {
            write!(text, "\nthe log of agent {number}:\n")?;
            text.push_str(&self.world.agent(number)?.log_text()?);
        }
        std::fs::write(&path, text)?;
        Ok(path)
    }
}

async fn run(seed: u64) -> Result<Tally> {
    let mut run = Run::start(seed).await?;
    let Err(failure) = run.go().await else {
        return Ok(run.tally());
    };
    let kept = run.keep(&failure).context("keep the journal")?;
    Err(failure.context(format!(
        "{}\nthe journal is kept in {}\nreplay: make chaos SEED={seed} RUNS=1 ONLY=real",
        run.plan,
        kept.display()
    )))
}

/// E67, E69: whatever fails, one machine at most holds the endpoint; once nothing fails, one holds it that is alive, and keeps it.
#[tokio::test]
async fn one_holds_the_endpoint_whatever_fails() -> Result<()> {
    let seeds = asked_for(SEEDS)?;
    let mut tally = Tally::new();
    let runs = seeds.clone().count();
    for seed in seeds {
        for (what, count) in run(seed).await? {
            *tally.entry(what).or_default() += count;
        }
    }
    println!("{runs} runs of the endpoint: {tally:?}");
    Ok(())
}
