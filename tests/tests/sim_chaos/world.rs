//! The world of a run: people and kubelets, the API server, the cloud, and the processes between them.

#[path = "people.rs"]
mod people;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use groundplane_cloud::testing::FakeCloud;
use groundplane_core::ProviderId;
use groundplane_runtime::Tasks;
use groundplane_runtime::grpc::MemoryConnector;
use groundplane_tests::chaos::{self, Action, Chronicle, Fuse, Plan, Tally, WallClock, api_fault_name};
use groundplane_tests::kube_api::proxy::{Call, Fault, Plan as ApiPlan};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::cloud::CloudFault;
use super::objects::{Answer, Manner, Objects, refused};
use super::process::{ROLES, Role};

/// A slow watch tells what it has to tell so much later, and a slow write takes effect later than anybody waits for it.
const SLOW: Duration = Duration::from_secs(3);

/// For how long things go wrong.
pub(crate) const FAULTS: Duration = Duration::from_secs(90);
/// The cluster's id.
pub(crate) const CLUSTER: &str = "chaos";
/// Where Services are.
pub(crate) const NAMESPACE: &str = "default";
/// Annotations that people write begin so.
pub(crate) const PEOPLE: &str = "example.com/";

/// How often things are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Often enough that a run is short.
    Quick,
    /// As the configuration has it by default.
    Default,
}

/// What people want of a Service.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    /// Of type `LoadBalancer`, or else `ClusterIP`.
    pub(crate) balanced: bool,
    /// How often they wrote their annotation.
    pub(crate) touched: u32,
}

/// A machine that lives.
#[derive(Clone, Debug)]
pub(crate) struct Alive {
    pub(crate) ready: bool,
    pub(crate) on: bool,
    pub(crate) marked: u32,
}

/// One life of a process, from its start until it is killed.
struct Life {
    role: Role,
    killed: CancellationToken,
    /// It does not reach the API server until then.
    deaf_until: Option<Instant>,
    /// Its watches are told nothing new until then.
    stale_until: Option<Instant>,
}

/// An address that a Service showed, by the Service's UID.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) address: String,
    /// It was no load balancer for a while since then: it may have another.
    pub(crate) forfeited: bool,
}

pub(crate) struct State {
    lives: Vec<Life>,
    running: BTreeMap<Role, usize>,
    restart: BTreeMap<Role, Instant>,
    /// Where services are served, and by which life.
    ways: BTreeMap<&'static str, (usize, MemoryConnector)>,
    leader: Option<usize>,
    /// Who led last, whether anybody does now or not.
    led: Option<usize>,
    fuse: Fuse,
    /// How often all connections were cut.
    severed: u64,
    api: ApiPlan,
    cloud_rate: u32,
    calls: HashMap<(String, String, String), u64>,
    random: Rng,
    pub(crate) wanted: BTreeMap<usize, Wanted>,
    pub(crate) machines: BTreeMap<usize, Alive>,
    /// How people have their own entries of MetalLB's configuration.
    pub(crate) edit: u32,
    pub(crate) shown: BTreeMap<String, Shown>,
    /// Services for whom only a reclaim can collect what is left.
    pub(crate) left: BTreeSet<String>,
    /// Changes of the cluster, but for leases, and of the cloud.
    pub(crate) writes: u64,
    /// Calls to the cloud, by what they ask.
    asked: Tally,
}

/// The world. Clones are the same world.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) cloud: FakeCloud,
    pub(crate) clock: Arc<WallClock>,
    /// What outlives any process: what was received, and takes effect.
    pub(crate) tasks: Tasks,
    pub(crate) plan: Arc<Plan>,
    pub(crate) pace: Pace,
    chronicle: Arc<Chronicle>,
    objects: Arc<Mutex<Objects>>,
    told: watch::Sender<u64>,
    state: Arc<Mutex<State>>,
}

/// The name of a Service.
pub(crate) fn service_name(number: usize) -> String {
    format!("web-{number}")
}

/// The name of a node, and of its machine.
pub(crate) fn node_name(number: usize) -> String {
    format!("node-{number}")
}

/// As the cloud calls it.
pub(crate) fn provider_id(number: usize) -> ProviderId {
    format!("fake://{}", node_name(number))
        .parse()
        .expect("a provider id")
}

/// What goes wrong with calls to the API server.
fn api_plan(seed: u64, per_mille: u32) -> ApiPlan {
    chaos::api_plan(seed, per_mille, SLOW)
}

impl World {
    pub(crate) fn new(plan: Plan, pace: Pace) -> Self {
        let began = Instant::now();
        let state = State {
            lives: Vec::new(),
            running: BTreeMap::new(),
            restart: ROLES.into_iter().map(|role| (role, began)).collect(),
            ways: BTreeMap::new(),
            leader: None,
            led: None,
            fuse: Fuse::default(),
            severed: 0,
            api: api_plan(plan.seed, 0),
            cloud_rate: 0,
            calls: HashMap::new(),
            random: Rng::with_seed(plan.seed ^ 0x9e37_79b9_7f4a_7c15),
            wanted: BTreeMap::new(),
            machines: BTreeMap::new(),
            edit: 0,
            shown: BTreeMap::new(),
            left: BTreeSet::new(),
            writes: 0,
            asked: Tally::new(),
        };
        let world = Self {
            cloud: FakeCloud::new(),
            clock: Arc::new(WallClock::start()),
            tasks: Tasks::new(),
            plan: Arc::new(plan),
            pace,
            chronicle: Arc::new(Chronicle::begin()),
            objects: Arc::new(Mutex::new(Objects::default())),
            told: watch::Sender::new(0),
            state: Arc::new(Mutex::new(state)),
        };
        let (machines, first) = (world.plan.machines, world.plan.first);
        let home = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "kube-system" } });
        world.objects().create("namespaces", "", home);
        world.begin_metallb();
        (0..machines).for_each(|machine| world.act(Action::Join(machine)));
        (0..first).for_each(|service| world.act(Action::Create(service)));
        world
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(crate) fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock()
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.told.subscribe()
    }

    /// Cuts every watch.
    fn sever(&self) {
        self.state().severed += 1;
        self.told.send_modify(|_| {});
    }

    /// How often they were cut.
    pub(crate) fn severed(&self) -> u64 {
        self.state().severed
    }

    fn tell(&self) {
        let version = self.objects().version();
        self.told
            .send_if_modified(|told| std::mem::replace(told, version) != version);
    }

    /// Do gateways give back what no Service has any more?
    pub(crate) fn reclaims(&self) -> bool {
        self.plan.seed.is_multiple_of(2)
    }

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

    pub(crate) fn count(&self, what: &'static str) {
        self.chronicle.count(what);
    }

    /// How often what happened.
    pub(crate) fn tally(&self) -> Tally {
        self.chronicle.tally()
    }

    /// What the cloud was asked so far, and how often.
    pub(crate) fn asked(&self) -> Tally {
        self.state().asked.clone()
    }

    /// What was broken first, with everything that leads there, and how to see it again.
    pub(crate) fn verdict(&self) -> Result<(), String> {
        let replay = format!("make chaos SEED={} RUNS=1 ONLY=simulation", self.plan.seed);
        self.chronicle.verdict(&self.plan, &replay)
    }

    pub(crate) fn log(&self) -> Vec<String> {
        self.chronicle.log()
    }
}

/// Processes.
impl World {
    /// A new life of a process.
    pub(crate) fn begin(&self, role: Role, killed: CancellationToken) -> usize {
        let mut state = self.state();
        let life = state.lives.len();
        state.lives.push(Life {
            role,
            killed,
            deaf_until: None,
            stale_until: None,
        });
        state.running.insert(role, life);
        drop(state);
        self.note(format_args!("{role:?} starts: life {life}"));
        life
    }

    /// Processes that are to be started now.
    pub(crate) fn due(&self) -> Option<Role> {
        let now = Instant::now();
        let mut state = self.state();
        let role = state
            .restart
            .iter()
            .find(|(_, at)| **at <= now)
            .map(|(role, _)| *role)?;
        state.restart.remove(&role);
        Some(role)
    }

    pub(crate) fn is_dead(&self, life: usize) -> bool {
        self.state().lives[life].killed.is_cancelled()
    }

    /// Does it hear nothing of the API server?
    pub(crate) fn is_deaf(&self, life: usize) -> bool {
        let mut state = self.state();
        let one = &mut state.lives[life];
        one.killed.is_cancelled() || one.deaf_until.is_some_and(|until| Instant::now() < until)
    }

    /// Are its watches told nothing new?
    pub(crate) fn is_stale(&self, life: usize) -> bool {
        let stale = self.state().lives[life].stale_until;
        stale.is_some_and(|until| Instant::now() < until)
    }

    pub(crate) fn killed(&self, life: usize) -> CancellationToken {
        self.state().lives[life].killed.clone()
    }

    /// This life serves the service here.
    pub(crate) fn serves(&self, life: usize, name: &'static str, connector: MemoryConnector) {
        self.state().ways.insert(name, (life, connector));
    }

    /// Who serves a service, and how it is reached.
    pub(crate) fn served(&self, name: &str) -> Option<(usize, MemoryConnector)> {
        let state = self.state();
        let (life, connector) = state.ways.get(name)?;
        (!state.lives[*life].killed.is_cancelled()).then(|| (*life, connector.clone()))
    }

    /// A step of a write. True: whoever takes it is dead from now on.
    pub(crate) fn step(&self, life: usize) -> bool {
        let hit = self.state().fuse.step();
        if hit {
            self.count("killed at a step");
            self.kill(life);
        }
        self.is_dead(life)
    }

    fn kill(&self, life: usize) {
        let mut state = self.state();
        if state.lives[life].killed.is_cancelled() {
            return;
        }
        let role = state.lives[life].role;
        let pause = Duration::from_millis(state.random.u64(100..8_000));
        state.restart.insert(role, Instant::now() + pause);
        state.running.remove(&role);
        let killed = state.lives[life].killed.clone();
        drop(state);
        self.note(format_args!("{role:?} is killed: life {life}"));
        killed.cancel();
    }
}

/// A number for these words, the same in every run of the seed.
fn drawn(words: impl std::hash::Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    words.hash(&mut hasher);
    Rng::with_seed(hasher.finish()).u64(..)
}

/// Calls.
impl World {
    /// What is drawn next by whoever made this call, such as the length of a pause, follows from the call, and not from what others drew
    /// before: tokio wakes those who wait for the same in no order.
    pub(crate) fn answered(&self, what: &str, object: &str, nth: u64) {
        fastrand::seed(drawn((self.plan.seed, "answered", what, object, nth)));
    }

    fn nth(&self, kind: &str, what: &str, object: &str) -> u64 {
        let mut state = self.state();
        let key = (kind.to_owned(), what.to_owned(), object.to_owned());
        let nth = state.calls.entry(key).or_default();
        *nth += 1;
        *nth
    }

    /// What goes wrong with a call to the API server, and how long each way takes.
    pub(crate) fn api_fault(&self, call: &Call) -> (Option<Fault>, Duration, u64) {
        let nth = self.nth(call.verb, &call.resource, &call.name);
        let draw = drawn((self.plan.seed, call.verb, &call.resource, &call.name, nth));
        let fault = self.state().api.decide(call, nth);
        if let Some(fault) = fault {
            self.count(api_fault_name(fault, call));
        }
        (fault, Duration::from_millis(1 + draw % 40), nth)
    }

    /// The same of a call to the cloud.
    pub(crate) fn cloud_fault(
        &self,
        what: &'static str,
        object: &str,
    ) -> (Option<CloudFault>, Duration, u64) {
        *self.state().asked.entry(what).or_default() += 1;
        let nth = self.nth("cloud", what, object);
        let draw = drawn((self.plan.seed, what, object, nth));
        let latency = Duration::from_millis(5 + draw % 300);
        if (draw >> 32) % 1_000 >= u64::from(self.state().cloud_rate) {
            return (None, latency, nth);
        }
        let fault = CloudFault::drawn(draw >> 48, what);
        self.count(fault.name(what));
        (Some(fault), latency, nth)
    }

    /// The cloud was changed, or refused to be.
    pub(crate) fn wrote(&self, what: &str, object: &str, done: bool) {
        self.note(format_args!(
            "cloud: {what} {object}: {}",
            if done { "done" } else { "refused" }
        ));
        if done {
            self.state().writes += 1;
        }
    }

    /// Does what is asked of the API server.
    pub(crate) fn work(&self, life: usize, call: &Call, manner: Manner, body: &Value) -> Answer {
        let answer = {
            let mut objects = self.objects();
            match call.verb {
                "list" if call.resource.starts_with("/apis/") => self.discovered(&call.resource),
                "list" => {
                    let items: Vec<&Value> = objects
                        .list(&call.resource, &call.namespace)
                        .map(|(_, object)| object)
                        .collect();
                    let body = json!({
                        "kind": "List", "apiVersion": "v1",
                        "metadata": { "resourceVersion": objects.version().to_string() }, "items": items,
                    });
                    Answer {
                        code: 200,
                        body,
                        done: None,
                    }
                }
                "get" => match objects.get(&call.resource, &call.namespace, &call.name) {
                    None => refused(404, "NotFound"),
                    Some(object) => Answer {
                        code: 200,
                        body: object.clone(),
                        done: None,
                    },
                },
                "create" => objects.create(&call.resource, &call.namespace, body.clone()),
                "patch" if manner == Manner::Apply => objects.apply(call, body),
                "patch" => objects.patch(call, manner, body),
                "delete" => objects.delete(call, &body["preconditions"]),
                _ => refused(405, "MethodNotAllowed"),
            }
        };
        let Some(done) = &answer.done else {
            return answer;
        };
        if done.path.0 == "leases" {
            let holds = done
                .after
                .as_ref()
                .is_some_and(|lease| lease["spec"]["holderIdentity"] != "");
            let mut state = self.state();
            state.leader = holds.then_some(life);
            let changed = holds && state.led.replace(life) != Some(life);
            drop(state);
            if changed {
                self.count("leader changed");
            }
        } else {
            if done.path.0 == "events" {
                let event = done.after.as_ref().unwrap_or(&answer.body);
                let about = &event["involvedObject"]["name"];
                let (reason, count) = (&event["reason"], &event["count"]);
                self.note(format_args!("api {life}: {call}: {about} {reason} {count}"));
            } else {
                self.note(format_args!("api {life}: {call} {}: {body}", call.name));
            }
            self.state().writes += 1;
            self.judge(done);
        }
        self.tell();
        answer
    }
}
