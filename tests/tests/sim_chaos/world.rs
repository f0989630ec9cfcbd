//! The world of a run: people and kubelets, the API server, the cloud, and the processes between them.

#[path = "people.rs"]
mod people;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use groundplane_cloud::CloudErrorKind;
use groundplane_cloud::testing::FakeCloud;
use groundplane_core::{Clock, ProviderId};
use groundplane_runtime::Tasks;
use groundplane_runtime::grpc::MemoryConnector;
use groundplane_tests::chaos::{Action, Plan};
use groundplane_tests::kube_api::proxy::{Call, Fault, Plan as ApiPlan};
use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::cloud::CloudFault;
use super::objects::{Answer, Manner, Objects, refused};
use super::process::{ROLES, Role};

/// For how long things go wrong.
pub(crate) const FAULTS: Duration = Duration::from_secs(90);
/// The cluster's id.
pub(crate) const CLUSTER: &str = "chaos";
/// Where Services are.
pub(crate) const NAMESPACE: &str = "default";
/// Annotations that people write begin so.
pub(crate) const PEOPLE: &str = "example.com/";

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
    kill_at: Option<u32>,
    api: ApiPlan,
    cloud_rate: u32,
    calls: HashMap<(String, String, String), u64>,
    random: Rng,
    pub(crate) wanted: BTreeMap<usize, Wanted>,
    pub(crate) machines: BTreeMap<usize, Alive>,
    pub(crate) shown: BTreeMap<String, Shown>,
    /// Services for whom only a reclaim can collect what is left.
    pub(crate) left: BTreeSet<String>,
    /// Changes of the cluster, but for leases, and of the cloud.
    pub(crate) writes: u64,
    log: Vec<String>,
    broken: Vec<String>,
    pub(crate) tally: BTreeMap<&'static str, u64>,
}

/// The wall clock of a run: simulated time, and jumps.
pub(crate) struct WallClock {
    began: Instant,
    jumped: AtomicI64,
}

impl Clock for WallClock {
    fn now(&self) -> Timestamp {
        let elapsed = i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX);
        let millis = 1_800_000_000_000 + elapsed + self.jumped.load(Ordering::SeqCst);
        Timestamp::from_millisecond(millis).unwrap_or(Timestamp::UNIX_EPOCH)
    }
}

/// The world. Clones are the same world.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) cloud: FakeCloud,
    pub(crate) clock: Arc<WallClock>,
    /// What outlives any process: what was received, and takes effect.
    pub(crate) tasks: Tasks,
    pub(crate) plan: Arc<Plan>,
    began: Instant,
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
    let faults = vec![
        Fault::Status(500),
        Fault::Status(503),
        Fault::Status(409),
        Fault::Status(410),
        Fault::TooMany(1),
        Fault::Hang,
        Fault::Slow(Duration::from_secs(3)),
        Fault::DropBefore,
        Fault::DropAfter,
        Fault::HalfBody,
        Fault::ErrorEvent(410),
        Fault::Cut(1),
    ];
    ApiPlan {
        seed,
        per_mille,
        faults,
    }
}

impl World {
    pub(crate) fn new(plan: Plan) -> Self {
        let began = Instant::now();
        let state = State {
            lives: Vec::new(),
            running: BTreeMap::new(),
            restart: ROLES.into_iter().map(|role| (role, began)).collect(),
            ways: BTreeMap::new(),
            leader: None,
            kill_at: None,
            api: api_plan(plan.seed, 0),
            cloud_rate: 0,
            calls: HashMap::new(),
            random: Rng::with_seed(plan.seed ^ 0x9e37_79b9_7f4a_7c15),
            wanted: BTreeMap::new(),
            machines: BTreeMap::new(),
            shown: BTreeMap::new(),
            left: BTreeSet::new(),
            writes: 0,
            log: Vec::new(),
            broken: Vec::new(),
            tally: BTreeMap::new(),
        };
        let world = Self {
            cloud: FakeCloud::new(),
            clock: Arc::new(WallClock {
                began,
                jumped: AtomicI64::new(0),
            }),
            tasks: Tasks::new(),
            plan: Arc::new(plan),
            began,
            objects: Arc::new(Mutex::new(Objects::default())),
            told: watch::Sender::new(0),
            state: Arc::new(Mutex::new(state)),
        };
        let (machines, first) = (world.plan.machines, world.plan.first);
        let home = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "kube-system" } });
        world.objects().create("namespaces", "", home);
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
        self.began
    }

    /// Writes down what happens, for whoever looks for the reason of a failure.
    pub(crate) fn note(&self, what: impl std::fmt::Display) {
        let at = self.began.elapsed().as_secs_f64();
        self.state().log.push(format!("{at:>8.3} s  {what}"));
    }

    /// A rule is broken.
    pub(crate) fn broken(&self, what: impl std::fmt::Display) {
        let at = self.began.elapsed().as_secs_f64();
        self.note(format_args!("BROKEN: {what}"));
        self.state().broken.push(format!("at {at:.3} s: {what}"));
    }

    pub(crate) fn count(&self, what: &'static str) {
        *self.state().tally.entry(what).or_default() += 1;
    }

    /// What was broken first, with everything that leads there, and how to see it again.
    pub(crate) fn verdict(&self) -> Result<(), String> {
        let state = self.state();
        let Some(first) = state.broken.first() else {
            return Ok(());
        };
        let (plan, log, seed) = (&self.plan, state.log.join("\n"), self.plan.seed);
        Err(format!(
            "{plan}\nwhat happened:\n{log}\n\nbroken first: {first}\nreplay: make chaos SEED={seed} RUNS=1 ONLY=simulation"
        ))
    }

    pub(crate) fn log(&self) -> Vec<String> {
        self.state().log.clone()
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
        let hit = {
            let mut state = self.state();
            let hit = state.kill_at.map(|left| left.saturating_sub(1));
            state.kill_at = hit.filter(|left| *left > 0);
            hit == Some(0)
        };
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
        if fault.is_some() {
            self.count("faults of the API server");
        }
        (fault, Duration::from_millis(1 + draw % 40), nth)
    }

    /// The same of a call to the cloud.
    pub(crate) fn cloud_fault(&self, what: &str, object: &str) -> (Option<CloudFault>, Duration, u64) {
        let nth = self.nth("cloud", what, object);
        let draw = drawn((self.plan.seed, what, object, nth));
        let latency = Duration::from_millis(5 + draw % 300);
        if (draw >> 32) % 1_000 >= u64::from(self.state().cloud_rate) {
            return (None, latency, nth);
        }
        self.count("faults of the cloud");
        let fault = match (draw >> 48) % 7 {
            0 | 1 => CloudFault::Before(CloudErrorKind::Unavailable),
            2 => CloudFault::Before(CloudErrorKind::RateLimited),
            3 => CloudFault::Before(CloudErrorKind::Timeout),
            4 => CloudFault::Hang,
            // What is done long after anybody waits for it is a create: of other calls no client can make anything better.
            5 if what == "create reservation" => CloudFault::Late,
            _ => CloudFault::After,
        };
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
            self.state().leader = holds.then_some(life);
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
