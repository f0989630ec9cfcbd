use std::net::IpAddr;

use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::*;
use crate::announcers::metallb::Seat;
use crate::testing::World;

const ALPHA: &str = "/apis/metallb.io/v1beta1/namespaces/metallb-system";
const BETA: &str = "/apis/metallb.io/v1beta2/namespaces/metallb-system";
const CORE: &str = "/api/v1/namespaces/metallb-system";
const OLD: &str = "192.0.2.7";
const NEW: &str = "192.0.2.8";
const GOES: &str = "192.0.2.9";
const POOL: &str = "groundplane-ipv4-0";

/// MetalLB announces `old` and `goes`; `new` comes, and `goes` is deleted. No peer is there yet.
struct Setup {
    world: World,
    controller: MetallbController,
    old: Key,
    new: Key,
    goes: Key,
}

impl Setup {
    fn new(nodes: &[&str], password: &str) -> Self {
        let world = World::new(Config {
            announcer: Announcer::Metallb,
            ..Config::default()
        });
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
        let controller = MetallbController::new(Arc::clone(&world.gateway));
        let setup = Self {
            world,
            controller,
            old,
            new,
            goes,
        };
        setup.lists(BETA, "bgppeers", &[]);
        setup.lists(ALPHA, "bgpadvertisements", &[]);
        setup.lists(ALPHA, "l2advertisements", &[]);
        setup.lists(CORE, "secrets", &[]);
        let pool = setup.object(ALPHA, "ipaddresspools", POOL, &json!([entry(OLD), entry(GOES)]));
        setup.lists(ALPHA, "ipaddresspools", &[pool]);
        setup.object(ALPHA, "bgpadvertisements", "groundplane", &json!([]));
        for node in nodes {
            let key = setup.world.node(json!({
                "metadata": { "name": node, "labels": { HOSTNAME: node } },
            }));
            let peers = Peers::Exactly(vec![peer_with(password)]);
            setup.world.gateway.metallb.learn(&key, peers, setup.term());
            for (collection, kind) in [(BETA, "bgppeers"), (CORE, "secrets")] {
                setup.object(collection, kind, &format!("{node}-0"), &json!([]));
            }
        }
        setup
    }

    fn term(&self) -> i64 {
        self.world.gateway.cluster.leader.term()
    }

    /// What the lists of a kind say.
    fn lists(&self, api: &str, kind: &str, items: &[Value]) {
        let list = json!({ "metadata": { "name": kind }, "items": items });
        self.world.api.put(api, list);
    }

    /// An object that a patch finds.
    fn object(&self, api: &str, kind: &str, name: &str, addresses: &Value) -> Value {
        let (label, value) = crate::announcers::metallb::MANAGED_BY;
        let object = json!({
            "metadata": { "name": name, "labels": { label: value } },
            "spec": { "addresses": addresses, "autoAssign": false },
        });
        self.world.api.put(&format!("{api}/{kind}"), object)
    }

    fn refuse(&self, object: &str, code: u16) {
        self.world.api.fail(&format!("PATCH {object}"), code, 1);
    }

    fn place(&self, key: &Key, address: &str) -> Seat {
        let address: IpAddr = address.parse().unwrap();
        let board = &self.world.gateway.metallb;
        board.place(key, &key.name, &[address], self.term()).0
    }

    fn withdraw(&self) -> bool {
        self.world
            .gateway
            .metallb
            .withdraw(&self.goes, &self.goes.name, self.term())
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
        let pool = self.world.api.get(&format!("{ALPHA}/ipaddresspools/{POOL}"));
        pool.unwrap()["spec"]["addresses"].clone()
    }
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
        // As the next list has it.
        let pool = setup.world.api.get(&format!("{ALPHA}/ipaddresspools/{POOL}"));
        setup.lists(ALPHA, "ipaddresspools", &[pool.unwrap()]);
    }
    assert_eq!(setup.round().await, Outcome::Done);
    assert_eq!(setup.place(&setup.new, NEW), Seat::Placed);
    assert_eq!(setup.controller.failures.load(Ordering::Relaxed), 0);
}

/// A peer without its Secret would have MetalLB stop reading its configuration; and the old peer of that neighbour stays meanwhile.
#[tokio::test]
async fn a_peer_waits_for_its_secret_and_its_forerunner_with_it() {
    let setup = Setup::new(&["a", "b"], "secret");
    let group = json!({
        "metadata": {
            "name": "group", "uid": "u", "resourceVersion": "1",
            "labels": { "app.kubernetes.io/managed-by": "groundplane" },
        },
        "spec": {
            "myASN": 65_000, "peerASN": 65_530, "peerAddress": "169.254.255.1",
            "nodeSelectors": [{ "matchExpressions": [{ "key": HOSTNAME, "operator": "In", "values": ["a"] }] }],
        },
    });
    setup.lists(BETA, "bgppeers", &[group]);
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
        assert_ne!(setup.round().await, Outcome::Done);
        let last = object.rsplit('/').next().unwrap();
        assert_eq!(setup.writes().last().map(String::as_str), Some(last), "{code}");
        assert_ne!(setup.place(&setup.new, NEW), Seat::Placed);
        assert!(!setup.withdraw());
    }
}
