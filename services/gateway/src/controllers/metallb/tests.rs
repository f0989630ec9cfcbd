use std::net::IpAddr;

use futures::FutureExt as _;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::backend::BGP_PORT;
use super::*;
use crate::announcers::metallb::HOSTNAME;
use crate::announcers::metallb::resources::{Change, Kind, Read};
use crate::announcers::metallb::world::{Peer, Peers};
use crate::announcers::{Backend as _, Seat};
use crate::config::{Announcer, Config};
use crate::testing::World;

const ALPHA: &str = "/apis/metallb.io/v1beta1/namespaces/metallb-system";
const BETA: &str = "/apis/metallb.io/v1beta2/namespaces/metallb-system";
const CORE: &str = "/api/v1/namespaces/metallb-system";
const OLD: &str = "192.0.2.7";
const NEW: &str = "192.0.2.8";
const GOES: &str = "192.0.2.9";
const POOL: &str = "groundplane-ipv4-0";

/// What MetalLB's namespace has.
const KINDS: [(&str, &str); 6] = [
    (BETA, "bgppeers"),
    (ALPHA, "ipaddresspools"),
    (ALPHA, "bgpadvertisements"),
    (ALPHA, "l2advertisements"),
    (ALPHA, "configurationstates"),
    (CORE, "secrets"),
];

/// MetalLB announces `old` and `goes`; `new` comes, and `goes` is deleted. No peer is there yet.
struct Setup {
    world: World,
    metallb: Arc<Metallb>,
    controller: MetallbController,
    old: Key,
    new: Key,
    goes: Key,
}

impl Setup {
    fn new(nodes: &[&str], password: &str) -> Self {
        Self::with(Config::default(), nodes, password)
    }

    fn with(config: Config, nodes: &[&str], password: &str) -> Self {
        let config = Config {
            announcer: Announcer::Metallb,
            ..config
        };
        let metallb = Arc::new(Metallb::new(&config));
        let world = World::with(config, Arc::clone(&metallb) as _);
        let resource = json!({
            "name": "bgppeers", "singularName": "bgppeer", "namespaced": true, "kind": "BGPPeer", "verbs": ["list"],
        });
        let group = json!({
            "metadata": { "name": "v1beta2" }, "kind": "APIResourceList", "apiVersion": "v1",
            "groupVersion": "metallb.io/v1beta2", "resources": [resource],
        });
        world.api.put("/apis/metallb.io", group);
        let old = world.service(service("old", &[OLD]));
        let new = world.service(service("new", &[]));
        let mut leaving = service("goes", &[GOES]);
        leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let goes = world.service(leaving);
        let controller = MetallbController::new(Arc::clone(&world.gateway), Arc::clone(&metallb));
        let setup = Self {
            world,
            metallb,
            controller,
            old,
            new,
            goes,
        };
        for (api, kind) in KINDS {
            setup.world.api.serve(&format!("{api}/{kind}"));
        }
        let pool = json!({ "addresses": [entry(OLD), entry(GOES)], "autoAssign": false });
        setup.put(ALPHA, "ipaddresspools", &ours(POOL, &pool));
        for node in nodes {
            setup.world.node(json!({
                "metadata": { "name": node, "labels": { HOSTNAME: node } },
            }));
            setup.learn(node, password);
        }
        setup
    }

    fn learn(&self, node: &str, password: &str) {
        let peers = Peers::Exactly(vec![peer_with(password)]);
        let node = Key::cluster_wide(node);
        self.metallb.board.learn(&node, peers, self.term());
    }

    /// The process is another one: what it knew is gone, and what it wrote is there.
    fn restart(&mut self) {
        let gateway = &self.world.gateway;
        self.metallb = Arc::new(Metallb::new(&gateway.config));
        self.controller = MetallbController::new(Arc::clone(gateway), Arc::clone(&self.metallb));
        self.next_term();
    }

    /// What is there, without versions.
    fn everything(&self) -> Vec<(String, Value)> {
        let kinds = KINDS.into_iter();
        let all = kinds.flat_map(|(api, kind)| self.world.api.all(&format!("{api}/{kind}")));
        all.map(|object| {
            let name = object["metadata"]["name"].as_str().unwrap().to_owned();
            (
                name,
                json!([object["metadata"]["labels"], object["spec"], object["data"]]),
            )
        })
        .collect()
    }

    fn term(&self) -> i64 {
        self.world.gateway.cluster.leader.term()
    }

    fn put(&self, api: &str, kind: &str, object: &Value) {
        self.world.api.put(&format!("{api}/{kind}"), object.clone());
    }

    fn get(&self, api: &str, kind: &str, name: &str) -> Option<Value> {
        self.world.api.get(&format!("{api}/{kind}/{name}"))
    }

    /// The next creation of the object is refused.
    fn refuse(&self, object: &str, code: u16) {
        self.world.api.fail(&format!("POST {object}"), code, 1);
    }

    /// Another replica led, and now we do again.
    fn next_term(&self) {
        let until = tokio::time::Instant::now() + Duration::from_secs(43_200);
        self.world.leads.send_replace(Some(until));
    }

    /// What parts of MetalLB say of their configuration.
    fn state(&self, name: &str, result: &str, summary: &str) {
        let status = json!({ "result": result, "errorSummary": summary });
        let object = json!({ "metadata": { "name": name }, "status": status });
        self.put(ALPHA, "configurationstates", &object);
    }

    fn place(&self, key: &Key, address: &str) -> Seat {
        let address: IpAddr = address.parse().unwrap();
        let service = self.world.gateway.cluster.services.get(key).unwrap();
        self.metallb.place(&service, &[address], self.term())
    }

    fn withdraw(&self) -> bool {
        let service = self.world.gateway.cluster.services.get(&self.goes).unwrap();
        self.metallb.withdrawn(&service, self.term())
    }

    /// Everybody says what it wants, and a round follows.
    async fn round(&self) -> Outcome {
        self.place(&self.old, OLD);
        self.place(&self.new, NEW);
        self.withdraw();
        self.world.api.calls();
        self.controller.reconcile(&key()).await
    }

    /// What was written, without where.
    fn writes(&self) -> Vec<String> {
        let calls = self.world.api.calls().into_iter();
        let writes = calls.filter(|call| !call.starts_with("GET"));
        writes
            .map(|call| call.rsplit('/').next().unwrap().to_owned())
            .collect()
    }

    fn pool(&self) -> Value {
        self.get(ALPHA, "ipaddresspools", POOL).unwrap()["spec"]["addresses"].clone()
    }
}

/// An object of ours.
fn ours(name: &str, spec: &Value) -> Value {
    let (label, value) = crate::announcers::metallb::MANAGED_BY;
    json!({ "metadata": { "name": name, "labels": { label: value } }, "spec": spec })
}

fn entry(address: &str) -> String {
    format!("{address}/32")
}

fn service(name: &str, addresses: &[&str]) -> Value {
    let ingress: Vec<Value> = addresses.iter().map(|ip| json!({ "ip": ip })).collect();
    json!({
        "metadata": { "name": name, "namespace": "default", "uid": name },
        "spec": { "type": "LoadBalancer" },
        "status": { "loadBalancer": { "ingress": ingress } },
    })
}

fn peer_with(password: &str) -> Peer {
    Peer {
        address: "169.254.255.1".parse().unwrap(),
        port: BGP_PORT,
        peer_asn: 65_530,
        my_asn: 65_000,
        source: None,
        password: password.to_owned(),
        multihop: true,
    }
}

/// A webhook that refuses the peer of one node stops neither the other node, nor a new Service, nor one that goes; it is asked again.
#[tokio::test]
async fn a_refused_peer_stops_nobody_else() {
    for code in [400, 403, 422] {
        let setup = Setup::new(&["a", "b"], "");
        setup.refuse(&format!("{BETA}/bgppeers/a-0"), code);
        assert!(matches!(setup.round().await, Outcome::After(_)), "{code}");
        assert_eq!(setup.writes(), ["a-0", "b-0", POOL, POOL, "groundplane"]);
        assert_eq!(setup.pool(), json!([entry(OLD), entry(NEW)]));
        assert_eq!(setup.place(&setup.new, NEW), Seat::Placed);
        assert_eq!(setup.place(&setup.old, OLD), Seat::Placed);
        assert!(setup.withdraw(), "{code}: it is released");
        assert_eq!(setup.round().await, Outcome::Done);
        assert!(setup.writes().contains(&"a-0".to_owned()), "it is tried again");
    }
}

/// Where no peer is left that could announce it, a new Service is told so, in every round, and comes in once the peer does. Those that were
/// announced stay, and one that goes is released.
#[tokio::test]
async fn a_service_that_no_peer_announces_is_told() {
    let setup = Setup::new(&["a"], "");
    for failures in 1..3 {
        setup.refuse(&format!("{BETA}/bgppeers/a-0"), 422);
        assert!(matches!(setup.round().await, Outcome::After(_)));
        assert_eq!(setup.controller.failures.load(Ordering::Relaxed), failures);
        assert_eq!(setup.pool(), json!([entry(OLD), entry(NEW)]));
        let Seat::Trouble(trouble) = setup.place(&setup.new, NEW) else {
            panic!("it is not told");
        };
        assert_eq!(trouble.reason, "AnnouncerRefused");
        assert!(trouble.message.contains("bgppeers a-0"), "{}", trouble.message);
        assert!(trouble.message.contains("scripted 422"), "{}", trouble.message);
        assert_eq!(setup.place(&setup.old, OLD), Seat::Placed);
        assert!(setup.withdraw());
    }
    assert_eq!(setup.round().await, Outcome::Done);
    assert_eq!(setup.place(&setup.new, NEW), Seat::Placed);
    assert_eq!(setup.controller.failures.load(Ordering::Relaxed), 0);
}

/// A peer without its Secret would have MetalLB stop reading its configuration; and the old peer of that neighbour stays meanwhile.
#[tokio::test]
async fn a_peer_waits_for_its_secret_and_its_forerunner_with_it() {
    let setup = Setup::new(&["a", "b"], "secret");
    let selector = json!([{ "matchExpressions": [{ "key": HOSTNAME, "operator": "In", "values": ["a"] }] }]);
    let group = json!({
        "myASN": 65_000, "peerASN": 65_530, "peerAddress": "169.254.255.1", "nodeSelectors": selector,
    });
    setup.put(BETA, "bgppeers", &ours("group", &group));
    setup.refuse(&format!("{CORE}/secrets/a-0"), 403);
    assert!(matches!(setup.round().await, Outcome::After(_)));
    assert_eq!(setup.writes(), ["a-0", "b-0", "b-0", POOL, POOL, "groundplane"]);
    assert_eq!(setup.place(&setup.new, NEW), Seat::Placed);
}

/// What concerns more than one object ends the round, and so does a refused pool.
#[tokio::test]
async fn other_failures_end_the_round() {
    for (object, code) in [
        (format!("{BETA}/bgppeers/a-0"), 409),
        (format!("{BETA}/bgppeers/a-0"), 503),
        (format!("{ALPHA}/ipaddresspools/{POOL}"), 422),
    ] {
        let setup = Setup::new(&["a"], "");
        setup.refuse(&object, code);
        setup.world.api.fail(&format!("PATCH {object}"), code, 1);
        assert_ne!(setup.round().await, Outcome::Done);
        let last = object.rsplit('/').next().unwrap();
        assert_eq!(setup.writes().last().map(String::as_str), Some(last), "{code}");
        assert_ne!(setup.place(&setup.new, NEW), Seat::Placed);
        assert!(!setup.withdraw());
    }
}

/// A Secret of the user's that stands where ours should is not touched: not when it is to be written, and not when everything goes. Its peer
/// is not written, since it would speak with another password; an event on the Secret says what helps, and what helps, helps.
#[tokio::test]
async fn a_secret_of_the_user_is_never_taken() {
    let mut setup = Setup::new(&["a", "b"], "secret");
    let theirs = json!({
        "metadata": { "name": "a-0", "uid": "theirs" }, "type": "kubernetes.io/basic-auth", "data": { "password": "dGhlaXJz" },
    });
    // It is in no list: only those with our label are asked for.
    setup.put(CORE, "secrets", &theirs);
    assert!(matches!(setup.round().await, Outcome::After(_)));
    assert_eq!(setup.writes(), ["a-0", "b-0", "b-0", POOL, POOL, "groundplane"]);
    assert_eq!(setup.get(CORE, "secrets", "a-0").unwrap()["data"], theirs["data"]);
    assert_eq!(setup.get(BETA, "bgppeers", "a-0"), None);
    assert!(setup.get(BETA, "bgppeers", "b-0").is_some());
    assert_eq!(setup.place(&setup.new, NEW), Seat::Placed);
    let told = setup.world.events.take();
    assert_eq!(told, [("metallb-system/a-0".to_owned(), "AnnouncerRefused")]);
    setup.world.api.remove(&format!("{CORE}/secrets/a-0"));
    assert_eq!(setup.round().await, Outcome::Done);
    assert!(setup.get(BETA, "bgppeers", "a-0").is_some());
    assert_eq!(
        setup.get(CORE, "secrets", "a-0").unwrap()["data"]["password"],
        "c2VjcmV0"
    );
}

/// A process that died between a peer and its Secret, or a leader that did, leaves no password behind: the next one finds it, though no peer
/// names it and nobody has a password any more. What another object names stays.
#[tokio::test]
async fn a_password_does_not_outlive_its_peer() {
    let setup = Setup::new(&["a"], "");
    let secret = |name: &str| {
        let mut secret = ours(name, &Value::Null);
        secret["data"] = json!({ "password": "c2VjcmV0" });
        secret
    };
    setup.put(CORE, "secrets", &secret("gone-0"));
    setup.put(CORE, "secrets", &secret("named"));
    let theirs = json!({ "peerAddress": "10.0.0.1", "passwordSecret": { "name": "named" } });
    let theirs = json!({ "metadata": { "name": "theirs" }, "spec": theirs });
    setup.put(BETA, "bgppeers", &theirs);
    assert_eq!(setup.round().await, Outcome::Done);
    assert_eq!(setup.get(CORE, "secrets", "gone-0"), None);
    assert!(setup.get(CORE, "secrets", "named").is_some());
    setup.world.api.remove(&format!("{BETA}/bgppeers/theirs"));
    assert_eq!(setup.round().await, Outcome::Done);
    assert_eq!(setup.get(CORE, "secrets", "named"), None);
    let asks = || {
        let calls = setup.world.api.calls();
        calls.iter().any(|call| call.ends_with("/secrets"))
    };
    setup.round().await;
    assert!(asks(), "none was left by a list of its own");
    setup.round().await;
    assert!(!asks(), "they were listed though none is left");
    setup.next_term();
    setup.round().await;
    assert!(asks(), "another leader may have left one");
}

/// A peer without a password any more is changed, and its Secret goes in the round after that.
#[tokio::test]
async fn a_password_that_is_taken_back_goes() {
    let setup = Setup::new(&["a"], "secret");
    assert_eq!(setup.round().await, Outcome::Done);
    assert_eq!(
        setup.get(BETA, "bgppeers", "a-0").unwrap()["spec"]["passwordSecret"]["name"],
        "a-0"
    );
    setup.learn("a", "");
    for _ in 0..2 {
        assert_eq!(setup.round().await, Outcome::Done);
    }
    let peer = setup.get(BETA, "bgppeers", "a-0").unwrap();
    assert_eq!(peer["spec"]["passwordSecret"], Value::Null);
    assert_eq!(setup.get(CORE, "secrets", "a-0"), None);
}

/// Every write insists on the version that was read: what somebody changes between the look and the write is looked at again, and kept, if it
/// is not ours any more.
#[tokio::test]
async fn a_write_that_comes_late_undoes_nothing() {
    let setup = Setup::new(&["a"], "");
    assert_eq!(setup.round().await, Outcome::Done);
    assert_eq!(setup.pool(), json!([entry(OLD), entry(NEW)]));
    let stale = setup.get(ALPHA, "ipaddresspools", POOL).unwrap();
    // The user takes the pool for their own, and who led before does not know yet.
    let mut theirs = stale.clone();
    theirs["metadata"]["labels"] = json!({});
    theirs["spec"]["addresses"] = json!([entry(OLD), entry(NEW), "198.51.100.0/24"]);
    setup.put(ALPHA, "ipaddresspools", &theirs);
    let change = Change::Apply {
        kind: Kind::Pool,
        name: POOL.to_owned(),
        read: Some(Read {
            uid: stale["metadata"]["uid"].as_str().unwrap().to_owned(),
            version: stale["metadata"]["resourceVersion"].as_str().unwrap().to_owned(),
        }),
        spec: json!({ "addresses": [entry(OLD)] }),
    };
    let present = setup.controller.api.read(false, setup.term()).await.unwrap();
    let written = setup
        .controller
        .write_all(std::slice::from_ref(&change), &present)
        .await;
    assert!(matches!(written, Err(Stop::Again)));
    assert_eq!(setup.pool(), theirs["spec"]["addresses"]);
    // And the next round knows whose it is: their pool covers what is wanted.
    setup.world.api.calls();
    assert_eq!(setup.round().await, Outcome::Done);
    assert_eq!(setup.pool(), theirs["spec"]["addresses"]);
    assert_eq!(setup.place(&setup.new, NEW), Seat::Placed);
}

/// An object that somebody else makes under a name of ours, between the look and the write, is theirs.
#[tokio::test]
async fn what_somebody_else_makes_first_is_theirs() {
    let setup = Setup::new(&["a"], "");
    setup.refuse(&format!("{ALPHA}/bgpadvertisements/groundplane"), 409);
    assert_eq!(setup.round().await, Outcome::Conflict);
    let theirs = json!({ "metadata": { "name": "groundplane" }, "spec": { "ipAddressPools": ["other"] } });
    setup.put(ALPHA, "bgpadvertisements", &theirs);
    assert_eq!(setup.round().await, Outcome::Done);
    let kept = setup.get(ALPHA, "bgpadvertisements", "groundplane").unwrap();
    assert_eq!(kept["spec"], theirs["spec"]);
    let writes = setup.writes();
    assert!(
        writes.iter().any(|name| name.starts_with("groundplane-")),
        "{writes:?}"
    );
}

/// What MetalLB has against its configuration is told where people look: once by an event on what says so, and to Services that wait.
#[tokio::test]
async fn what_metallb_has_against_its_configuration_is_told() {
    let mut setup = Setup::new(&["a"], "");
    setup.state("controller", "Valid", "");
    setup.state("speaker-b", "Unknown", "");
    setup.round().await;
    assert_eq!(setup.metallb.complaint(), None);
    assert!(setup.world.events.take().is_empty());
    setup.state("controller", "Invalid", "pools overlap\n");
    setup.state("speaker-b", "Invalid", "other");
    for _ in 0..2 {
        assert_eq!(setup.round().await, Outcome::Done, "what we write is written");
    }
    let complaint = setup.metallb.complaint().unwrap();
    assert_eq!(complaint.reason, "AnnouncerInvalid");
    assert!(
        complaint
            .message
            .contains("controller (and 1 more) says: pools overlap."),
        "{}",
        complaint.message
    );
    let told = setup.world.events.take();
    let names: Vec<&str> = told.iter().map(|(object, _)| &**object).collect();
    assert_eq!(names, ["metallb-system/controller", "metallb-system/speaker-b"]);
    assert_eq!(told[0].1, "MetalLBConfigurationInvalid");
    setup.state("controller", "Valid", "");
    setup.state("speaker-b", "Valid", "");
    setup.round().await;
    assert_eq!(setup.metallb.complaint(), None);
}

/// Services outside of `gateway.namespaces` may have been ours before: what they name stays in our pools. Those of a foreign class, or without
/// the address, keep nothing. If nobody can say which there are, nothing is written at all.
#[tokio::test]
async fn services_out_of_sight_keep_their_addresses() {
    let config = Config {
        namespaces: vec!["default".to_owned()],
        ..Config::default()
    };
    let setup = Setup::with(config, &["a"], "");
    let hidden = |class: &str, address: &str| {
        let mut hidden = service("hidden", &[address]);
        hidden["metadata"]["namespace"] = json!("elsewhere");
        hidden["spec"]["loadBalancerClass"] = json!(class);
        json!({ "metadata": { "resourceVersion": "9" }, "items": [hidden] }).to_string()
    };
    setup.world.api.stream(500, "{}");
    assert!(matches!(setup.round().await, Outcome::After(_)));
    assert_eq!(setup.writes(), [""; 0]);
    assert!(!setup.withdraw());
    setup.world.api.stream(200, hidden("groundplane.dev/eip", GOES));
    assert_eq!(setup.round().await, Outcome::Done);
    assert_eq!(setup.pool(), json!([entry(OLD), entry(GOES), entry(NEW)]));
    setup.world.api.stream(200, hidden("example.com/other", GOES));
    assert_eq!(setup.round().await, Outcome::Done);
    assert_eq!(setup.pool(), json!([entry(OLD), entry(NEW)]));
}

/// A leader that comes back does not act on what Services wanted when it led before: the one that was leaving then is in again, and keeps its
/// address in the pool.
#[tokio::test]
async fn a_leader_that_comes_back_knows_nothing() {
    let setup = Setup::new(&["a"], "");
    assert_eq!(setup.round().await, Outcome::Done);
    assert!(setup.withdraw());
    // Another leader let it in again.
    let stays = setup.world.service(service("goes", &[GOES]));
    let pool = json!({ "addresses": [entry(OLD), entry(NEW), entry(GOES)], "autoAssign": false });
    setup.put(ALPHA, "ipaddresspools", &ours(POOL, &pool));
    setup.next_term();
    let queue = &setup.world.gateway.queues.services;
    while let Some(key) = queue.next().now_or_never() {
        queue.done(&key, Outcome::Done);
    }
    assert_eq!(setup.controller.reconcile(&key()).await, Outcome::Done);
    assert!(setup.pool().as_array().unwrap().contains(&json!(entry(GOES))));
    assert_eq!(queue.depth().ready, 3, "each has to say it again");
    assert_eq!(setup.place(&stays, GOES), Seat::Placed);
}

/// `kill -9` between any two writes of a round: the process after it does the rest, and comes to the same end.
#[tokio::test]
async fn a_round_that_is_cut_short_anywhere_is_finished() {
    let begin = || {
        let setup = Setup::new(&["a", "b"], "secret");
        let selector =
            json!([{ "matchExpressions": [{ "key": HOSTNAME, "operator": "In", "values": ["a", "b"] }] }]);
        let group = json!({
            "myASN": 65_000, "peerASN": 65_530, "peerAddress": "169.254.255.1", "nodeSelectors": selector,
            "passwordSecret": { "name": "group" },
        });
        setup.put(BETA, "bgppeers", &ours("group", &group));
        let mut secret = ours("group", &Value::Null);
        secret["data"] = json!({ "password": "b2xk" });
        setup.put(CORE, "secrets", &secret);
        setup
    };
    let whole = begin();
    assert_eq!(whole.round().await, Outcome::Done);
    let calls = whole.world.api.calls().into_iter();
    let writes: Vec<String> = calls.filter(|call| !call.starts_with("GET")).collect();
    assert_eq!(writes.len(), 9, "{writes:?}");
    for (at, cut) in writes.iter().enumerate() {
        let mut setup = begin();
        // Some are made twice.
        let before = writes[..at].iter().filter(|write| *write == cut).count();
        setup.world.api.fail_after(cut, before, 503, 1);
        assert_ne!(setup.round().await, Outcome::Done, "{cut}");
        setup.restart();
        for node in ["a", "b"] {
            setup.learn(node, "secret");
        }
        assert_eq!(setup.round().await, Outcome::Done, "{cut}");
        assert_eq!(setup.everything(), whole.everything(), "{cut}");
    }
}
