//! Machines, the network between them, the cloud, and the one who watches over the rules.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use groundplane_cloud::testing::{EndpointCall, EndpointFault, FakeEndpoint};
use groundplane_cloud::{CloudErrorKind, EndpointAssignment};
use groundplane_core::ProviderId;
use groundplane_gateway::endpoint::{ApiServer, ClusterView, Machine as Told};
use groundplane_health::domain::{Settings, Sign};
use groundplane_runtime::Tasks;
use groundplane_tests::chaos::endpoint::{Action, Api, Plan};
use groundplane_tests::chaos::{Chronicle, Fuse, Tally, WallClock};
use parking_lot::{Mutex, MutexGuard};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::sight::Sight;

/// What no longer takes effect than this after the call.
pub(crate) const LATE: Duration = Duration::from_secs(6);

/// A node, as Kubernetes tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// Its machine.
    pub(crate) machine: usize,
    /// No new work.
    pub(crate) cordoned: bool,
    /// On its way out.
    pub(crate) deleting: bool,
}

#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "switches, each thrown by itself")]
pub(crate) struct Machine {
    pub(crate) on: bool,
    api: Api,
    cordoned: bool,
    deleting: bool,
    listed: bool,
    /// Since when its store has no majority.
    alone: Option<Instant>,
    /// The last candidates, as its agents know them, and keep in their file.
    pub(crate) file: Option<Vec<Node>>,
    /// The agent that runs on it.
    pub(crate) agent: Option<usize>,
    pub(crate) restart: Option<Instant>,
}

/// One life of an agent, from its start until it is killed.
pub(crate) struct Life {
    pub(crate) machine: usize,
    pub(crate) killed: CancellationToken,
    /// What it has seen; `None`: of the endpoint.
    pub(crate) sights: BTreeMap<Option<usize>, Sight>,
    /// The candidates that it knows.
    pub(crate) knows: Vec<Node>,
    /// Those that it ever knew.
    pub(crate) ever: BTreeSet<usize>,
    /// Tells it of the cluster.
    pub(crate) tell: watch::Sender<Option<ClusterView>>,
}

pub(crate) struct State {
    pub(crate) machines: Vec<Machine>,
    pub(crate) lives: Vec<Life>,
    split: u8,
    cut: BTreeSet<(usize, usize)>,
    astray: BTreeSet<usize>,
    cloudless: BTreeSet<usize>,
    random: Rng,
    fuse: Fuse,
    /// Assignments that people made.
    pub(crate) by_hand: BTreeSet<String>,
    /// Machines to which people gave it.
    pub(crate) given: BTreeSet<ProviderId>,
    /// Assignments on which somebody has decided.
    pub(crate) decided_on: BTreeSet<String>,
    pub(crate) wanted: BTreeSet<ProviderId>,
    /// For which machine each life was refused it, in order.
    pub(crate) refusals: Vec<(usize, usize)>,
}

/// The world. Clones are the same world.
#[derive(Clone)]
pub(crate) struct World {
    /// The endpoint, as the cloud has it.
    pub(crate) fake: FakeEndpoint,
    /// How health decides.
    pub(crate) settings: Settings,
    /// What outlives any agent: calls that the cloud has received.
    pub(crate) tasks: Tasks,
    plan: Arc<Plan>,
    /// The clock on every machine's wall.
    pub(crate) clock: Arc<WallClock>,
    folder: Arc<TempDir>,
    chronicle: Arc<Chronicle>,
    state: Arc<Mutex<State>>,
}

/// The endpoint's address and port.
pub(crate) fn endpoint() -> SocketAddr {
    SocketAddr::from(([203, 0, 113, 9], 6443))
}

/// A folder for files of agents; in memory, where that can be: they are written often, and no disk is meant.
fn folder() -> std::io::Result<TempDir> {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        TempDir::new_in(memory)
    } else {
        TempDir::new()
    }
}

/// A machine's own API server.
pub(crate) fn address(machine: usize) -> SocketAddr {
    let last = u8::try_from(machine + 1).expect("few machines");
    SocketAddr::from(([10, 0, 0, last], 6443))
}

/// `a`, `b`, …
pub(crate) fn name(machine: usize) -> String {
    ["a", "b", "c", "d", "e"][machine].to_owned()
}

/// As the cloud calls it.
pub(crate) fn provider_id(machine: usize) -> ProviderId {
    format!("fake://{}", name(machine))
        .parse()
        .expect("a provider id")
}

/// Which machine that is.
pub(crate) fn number(id: &ProviderId) -> Option<usize> {
    (0..5).find(|machine| provider_id(*machine) == *id)
}

impl World {
    /// All is well.
    pub(crate) fn new(plan: Plan) -> Self {
        let fake = FakeEndpoint::new(endpoint().ip(), plan.atomic);
        let machine = |number| {
            fake.add_machine(&provider_id(number));
            Machine {
                on: true,
                api: Api::Well,
                cordoned: false,
                deleting: false,
                listed: true,
                alone: None,
                file: None,
                agent: None,
                restart: None,
            }
        };
        let mut state = State {
            machines: (0..plan.machines).map(machine).collect(),
            lives: Vec::new(),
            split: 0,
            cut: BTreeSet::new(),
            astray: BTreeSet::new(),
            cloudless: BTreeSet::new(),
            random: Rng::with_seed(plan.seed ^ 0x9e37_79b9_7f4a_7c15),
            fuse: Fuse::default(),
            by_hand: BTreeSet::new(),
            given: BTreeSet::new(),
            decided_on: BTreeSet::new(),
            wanted: BTreeSet::new(),
            refusals: Vec::new(),
        };
        if let Some(holder) = plan.holder {
            state.gave(fake.assign_by_hand(&provider_id(holder)));
        }
        Self {
            fake,
            settings: Settings::default(),
            tasks: Tasks::new(),
            plan: Arc::new(plan),
            clock: Arc::new(WallClock::start()),
            folder: Arc::new(folder().expect("a folder")),
            chronicle: Arc::new(Chronicle::begin()),
            state: Arc::new(Mutex::new(state)),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Is the endpoint's own address not probed?
    pub(crate) fn own_addresses_only(&self) -> bool {
        self.plan.own_addresses_only
    }

    /// Does the cloud refuse it for this machine, now that this life asks?
    pub(crate) fn refuses(&self, life: usize, machine: &ProviderId) -> bool {
        let Some(machine) = number(machine).filter(|machine| self.plan.refused.contains(machine)) else {
            return false;
        };
        self.state().refusals.push((life, machine));
        true
    }

    /// When the run began.
    pub(crate) fn began(&self) -> Instant {
        self.chronicle.began()
    }

    /// Writes down what happens, for whoever looks for the reason of a failure.
    pub(crate) fn note(&self, what: impl std::fmt::Display) {
        self.chronicle.note(what);
    }

    /// A rule is broken.
    pub(crate) fn broken(&self, what: impl std::fmt::Display) {
        self.chronicle.broken(what);
    }

    /// What was broken first, with everything that leads there, and how to see it again.
    pub(crate) fn verdict(&self) -> Result<(), String> {
        let replay = format!("make chaos SEED={} RUNS=1 ONLY=endpoint", self.plan.seed);
        self.chronicle.verdict(&*self.plan, &replay)
    }

    /// What happened, line by line.
    pub(crate) fn log(&self) -> Vec<String> {
        self.chronicle.log()
    }

    /// Counts what happened.
    pub(crate) fn count(&self, what: &'static str) {
        self.chronicle.count(what);
    }

    /// How often what happened.
    pub(crate) fn tally(&self) -> Tally {
        self.chronicle.tally()
    }

    /// Does what the plan says.
    pub(crate) fn act(&self, action: Action) {
        self.note(format_args!("{action:?}"));
        self.count(action.kind());
        let now = Instant::now();
        let mut guard = self.state();
        let state = &mut *guard;
        match action {
            Action::Api(one, api) => state.machines[one].api = api,
            Action::Off(one) => {
                state.machines[one].on = false;
                state.kill(one, None);
            }
            Action::On(one) => {
                let machine = &mut state.machines[one];
                machine.on = true;
                if machine.agent.is_none() {
                    machine.restart.get_or_insert(now);
                }
            }
            Action::Kill(one) => {
                let again = now + Duration::from_millis(state.random.u64(50..5_000));
                state.kill(one, Some(again));
            }
            Action::KillAt(step) => state.fuse.light(step),
            Action::Clock(seconds) => self.clock.jump(seconds),
            Action::Holder(api) => {
                for holder in self
                    .fake
                    .assignments()
                    .iter()
                    .filter_map(|one| number(&one.machine))
                {
                    state.machines[holder].api = api;
                }
            }
            Action::LoseFile(one) => {
                state.machines[one].file = None;
                // It may not be there yet.
                std::fs::remove_file(self.file(one)).ok();
            }
            Action::Split(halves) => state.split = halves,
            Action::Cut(one, other, true) => {
                state.cut.insert((one.min(other), one.max(other)));
            }
            Action::Cut(one, other, false) => {
                state.cut.remove(&(one.min(other), one.max(other)));
            }
            Action::Astray(one, yes) => set(&mut state.astray, one, yes),
            Action::Cloudless(one, yes) => set(&mut state.cloudless, one, yes),
            Action::Cloud(chance) => self.faults(chance, state.random.fork()),
            Action::CloudHangs => self.fake.choose_faults(Some(|_| Some(EndpointFault::hang()))),
            Action::WritesHang => {
                let hang = |call| (call != EndpointCall::Read).then(EndpointFault::hang);
                self.fake.choose_faults(Some(hang));
            }
            Action::ByHand(one) => {
                state.gave(self.fake.assign_by_hand(&provider_id(one)));
            }
            Action::TakenByHand => {
                let old = self.fake.assignments().into_iter().map(|one| one.id);
                state.decided_on.extend(old);
                self.fake.unassign_by_hand();
            }
            Action::Cordon(one, yes) => state.machines[one].cordoned = yes,
            Action::Deleting(one, yes) => state.machines[one].deleting = yes,
            Action::Listed(one, yes) => state.machines[one].listed = yes,
        }
        state.look_at_stores(now);
    }

    /// Nothing goes wrong any more, but for the machines that are lost.
    pub(crate) fn mend(&self, lost: &[usize]) {
        let machines = self.plan.machines;
        for one in 0..machines {
            if lost.contains(&one) {
                self.act(Action::Off(one));
            } else {
                self.act(Action::On(one));
            }
            self.act(Action::Api(one, Api::Well));
            self.act(Action::Cordon(one, false));
            self.act(Action::Deleting(one, false));
            self.act(Action::Listed(one, true));
            self.act(Action::Astray(one, false));
            self.act(Action::Cloudless(one, false));
        }
        self.act(Action::Split(0));
        self.act(Action::Cloud(0));
        let mut state = self.state();
        state.fuse.put_out();
        state.cut.clear();
        state.look_at_stores(Instant::now());
    }

    /// From now on so many of a hundred calls go wrong.
    fn faults(&self, chance: u8, mut random: Rng) {
        let chronicle = Arc::clone(&self.chronicle);
        let choose = move |_| {
            let (name, fault) = (random.u8(..100) < chance).then(|| fault(&mut random))?;
            chronicle.count(name);
            Some(fault)
        };
        self.fake.choose_faults((chance > 0).then_some(choose));
    }

    /// What a probe from a machine finds, and how long it takes.
    pub(crate) fn look(&self, from: usize, to: SocketAddr) -> (Duration, Sign) {
        let holders = self.fake.assignments();
        let mut state = self.state();
        let lost = (self.settings.timeout, Sign::Silent);
        let works =
            |state: &State, one: usize| state.hears(from, one) && state.is_ready(one, self.plan.grace);
        let target = if to != endpoint() {
            (0..self.plan.machines).find(|one| address(*one) == to)
        } else if self.plan.proxied {
            let turn = (0..self.plan.machines).map(|one| (from + one) % self.plan.machines);
            turn.clone().find(|one| works(&state, *one)).or(Some(from))
        } else if state.astray.contains(&from) || holders.is_empty() {
            None
        } else {
            number(&holders[state.random.usize(..holders.len())].machine)
        };
        let Some(target) = target.filter(|target| state.hears(from, *target)) else {
            return lost;
        };
        let soon = Duration::from_millis(state.random.u64(1..15));
        let is_lost = state.random.u8(..5) == 0;
        match state.machines[target].api {
            Api::Hung if is_lost => lost,
            Api::Hung => (self.settings.timeout, Sign::Alive),
            Api::Well if works(&state, target) => (soon, Sign::Ready),
            Api::Well | Api::Unready | Api::Stopped => (soon, Sign::Alive),
        }
    }

    /// Is its API server ready, in truth?
    pub(crate) fn is_ready(&self, machine: usize) -> bool {
        self.state().is_ready(machine, self.plan.grace)
    }

    /// Where the agent on that machine keeps the candidates.
    pub(crate) fn file(&self, machine: usize) -> PathBuf {
        self.folder.path().join(name(machine))
    }

    /// Tells each agent of the cluster, if the API server on its machine does.
    pub(crate) fn tell_agents(&self) {
        let mut guard = self.state();
        let state = &mut *guard;
        let nodes = state.machines.iter().enumerate().filter(|(_, one)| one.listed);
        let node = |(machine, one): (usize, &Machine)| Node {
            machine,
            cordoned: one.cordoned,
            deleting: one.deleting,
        };
        let nodes: Vec<_> = nodes.map(node).collect();
        if nodes.is_empty() {
            return;
        }
        let ready = |one: &usize| state.is_ready(*one, self.plan.grace);
        let servers: Vec<_> = (0..state.machines.len()).filter(ready).collect();
        let view = ClusterView {
            machines: nodes.iter().map(told).collect(),
            servers: servers.iter().map(|one| server(*one)).collect(),
        };
        for machine in servers {
            let Some(life) = state.machines[machine].agent else {
                continue;
            };
            state.machines[machine].file = Some(nodes.clone());
            let life = &mut state.lives[life];
            life.knows.clone_from(&nodes);
            life.ever.extend(nodes.iter().map(|node| node.machine));
            life.tell.send_if_modified(|known| {
                let new = known.as_ref() != Some(&view);
                if new {
                    *known = Some(view.clone());
                }
                new
            });
        }
    }

    /// Does a call from that machine find the cloud?
    pub(crate) fn finds_cloud(&self, machine: usize) -> bool {
        !self.state().cloudless.contains(&machine)
    }

    /// Was it killed?
    pub(crate) fn is_dead(&self, life: usize) -> bool {
        self.state().lives[life].killed.is_cancelled()
    }

    /// One step of a move: is this the one at which the agent is killed? Its life is over then.
    pub(crate) fn step(&self, life: usize) -> bool {
        let mut state = self.state();
        if state.lives[life].killed.is_cancelled() {
            return true;
        }
        let machine = state.lives[life].machine;
        if !state.fuse.step() {
            return false;
        }
        let again = Instant::now() + Duration::from_millis(state.random.u64(50..5_000));
        state.kill(machine, Some(again));
        drop(state);
        self.count("killed in a move");
        self.note(format_args!(
            "agent {life} on {machine} is killed at a step of its move"
        ));
        true
    }
}

fn told(node: &Node) -> Told {
    Told {
        node: name(node.machine),
        provider_id: provider_id(node.machine).to_string(),
        addresses: vec![address(node.machine).ip()],
        cordoned: node.cordoned,
        deleting: node.deleting,
    }
}

fn server(machine: usize) -> ApiServer {
    ApiServer {
        address: address(machine).ip(),
        port: address(machine).port(),
    }
}

fn set(of: &mut BTreeSet<usize>, one: usize, yes: bool) {
    if yes {
        of.insert(one);
    } else {
        of.remove(&one);
    }
}

/// Something that goes wrong with a call to the cloud, and what it is called where it is counted.
fn fault(random: &mut Rng) -> (&'static str, EndpointFault) {
    use CloudErrorKind::{Denied, RateLimited, Timeout, Unauthenticated, Unavailable};
    let (refused, kind) = [
        ("cloud: timeout", Timeout),
        ("cloud: 5xx", Unavailable),
        ("cloud: 429", RateLimited),
    ][random.usize(..3)];
    let late = u64::try_from(LATE.as_millis()).expect("short");
    let short = |random: &mut Rng, most| Duration::from_millis(random.u64(..most));
    match random.u8(..16) {
        0..3 => (refused, EndpointFault::before(kind)),
        3..6 => ("cloud: answer lost", EndpointFault::after(kind)),
        6 => ("cloud: hang", EndpointFault::hang()),
        7 => ("cloud: done, and hang", EndpointFault::hang_after()),
        8..11 => (
            "cloud: done too late",
            EndpointFault::late(kind, short(random, late)),
        ),
        11..14 => ("cloud: slow", EndpointFault::slow(short(random, 3_000))),
        14 => ("cloud: token refused", EndpointFault::before(Unauthenticated)),
        _ => ("cloud: denied", EndpointFault::before(Denied)),
    }
}

/// All of these names.
pub(crate) const CLOUD_FAULTS: [&str; 10] = [
    "cloud: timeout",
    "cloud: 5xx",
    "cloud: 429",
    "cloud: answer lost",
    "cloud: hang",
    "cloud: done, and hang",
    "cloud: done too late",
    "cloud: slow",
    "cloud: token refused",
    "cloud: denied",
];

impl State {
    fn gave(&mut self, made: EndpointAssignment) {
        self.by_hand.insert(made.id);
        self.given.insert(made.machine);
    }

    fn kill(&mut self, machine: usize, again: Option<Instant>) {
        let machine = &mut self.machines[machine];
        if let Some(life) = machine.agent.take() {
            self.lives[life].killed.cancel();
            machine.restart = again;
        }
    }

    /// Do packets from one reach the other?
    fn hears(&self, one: usize, other: usize) -> bool {
        let side = |machine: usize| self.split >> machine & 1;
        self.machines[one].on
            && self.machines[other].on
            && (one == other
                || side(one) == side(other) && !self.cut.contains(&(one.min(other), one.max(other))))
    }

    fn is_ready(&self, machine: usize, grace: Duration) -> bool {
        let one = &self.machines[machine];
        one.on && one.api == Api::Well && one.alone.is_none_or(|since| since.elapsed() < grace)
    }

    /// Whose store has a majority?
    fn look_at_stores(&mut self, now: Instant) {
        for one in 0..self.machines.len() {
            let heard = (0..self.machines.len())
                .filter(|other| self.hears(one, *other))
                .count();
            let alone = heard * 2 <= self.machines.len();
            let machine = &mut self.machines[one];
            machine.alone = alone.then(|| machine.alone.unwrap_or(now));
        }
    }
}
