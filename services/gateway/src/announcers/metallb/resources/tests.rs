use std::time::Duration;

use pretty_assertions::assert_eq;
use proptest::prelude::*;
use serde_json::json;

use super::super::coverage::single;
use super::super::pools::LIMIT;
use super::super::world::{Node, Peer, Peers};
use super::*;
use crate::cluster::objects::Key;
use crate::config::{Advertisement, PeerMode};

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn settings() -> Settings {
    Settings {
        peer_mode: PeerMode::Native,
        advertisement: Advertisement::Bgp,
        hold_time: Duration::from_secs(30),
    }
}

pub(crate) fn world(services: &[(&str, &[&str])]) -> World {
    let services = services.iter().map(|(name, addresses)| {
        let addresses = addresses.iter().map(|address| ip(address)).collect();
        (Key::namespaced("default", name), addresses)
    });
    World {
        services: services.collect(),
        complete: true,
        ..World::default()
    }
}

pub(crate) fn peer(address: &str, source: &str) -> Peer {
    Peer {
        address: ip(address),
        port: 179,
        peer_asn: 65_530,
        my_asn: 65_000,
        source: Some(ip(source)),
        password: String::new(),
        multihop: false,
    }
}

pub(crate) fn node(name: &str, peers: Peers) -> (String, Node) {
    let node = Node {
        hostname: name.to_owned(),
        labels: [("kubernetes.io/hostname".to_owned(), name.to_owned())].into(),
        peers,
    };
    (name.to_owned(), node)
}

fn nothing() -> Present {
    Present {
        pools: Vec::new(),
        peers: Vec::new(),
        bgp_advertisements: Vec::new(),
        l2_advertisements: Vec::new(),
        secrets: Vec::new(),
        peer_version: PeerVersion::V1Beta2,
    }
}

fn object(name: &str, labels: &[(&str, &str)], spec: Value) -> Object {
    Object {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        version: "1".to_owned(),
        labels: labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
        spec,
    }
}

impl Present {
    fn of(&mut self, kind: Kind) -> &mut Vec<Object> {
        match kind {
            Kind::Pool => &mut self.pools,
            Kind::Peer => &mut self.peers,
            Kind::BgpAdvertisement => &mut self.bgp_advertisements,
            Kind::L2Advertisement => &mut self.l2_advertisements,
            Kind::Secret => &mut self.secrets,
        }
    }

    /// What the API server would have after the change. Panics on one that it would refuse.
    fn write(&mut self, change: &Change) {
        let (kind, name) = change.object();
        let all = self.of(kind);
        let at = all.iter().position(|object| object.name == name);
        match change {
            Change::Apply { spec, read, .. } => {
                let written = object(name, &[MANAGED_BY], spec.clone());
                assert_eq!(read.is_some(), at.is_some(), "{name}");
                match at {
                    Some(at) => {
                        assert_ne!(all[at].owner(), Owner::User, "{name} is the user's");
                        assert_eq!(read.as_ref().map(|read| &*read.uid), Some(&*all[at].uid));
                        all[at] = written;
                    }
                    None => all.push(written),
                }
            }
            Change::Patch { read, patch, .. } => {
                let present = &mut all[at.unwrap()];
                assert_eq!(*read, present.read());
                for (key, value) in patch["metadata"]["labels"].as_object().into_iter().flatten() {
                    let value = value.as_str().unwrap().to_owned();
                    present.labels.insert(key.clone(), value);
                }
                for (key, value) in patch["spec"].as_object().into_iter().flatten() {
                    present.spec[key] = value.clone();
                }
                present.version += "1";
            }
            Change::Delete { read, .. } => {
                let present = all.remove(at.unwrap());
                assert_eq!(*read, present.read());
                assert_ne!(present.owner(), Owner::User, "{name} is the user's");
            }
        }
        self.assert_accepted();
    }

    /// MetalLB refuses pools that overlap, and lists without an entry.
    fn assert_accepted(&self) {
        let mut seen = BTreeSet::new();
        for pool in &self.pools {
            let entries = pool.spec["addresses"].as_array().unwrap();
            assert!(!entries.is_empty() && entries.len() <= LIMIT, "{}", pool.name);
            for entry in entries {
                assert!(seen.insert(entry.as_str().unwrap()), "{entry} twice");
            }
        }
    }
}

/// Writes what has to be written, and asserts that nothing is left to do then.
fn settle(world: &World, present: &mut Present, settings: &Settings) -> Vec<String> {
    let mut written = Vec::new();
    // Secrets that a peer ceases to name go with the next round.
    for _ in 0..2 {
        for change in plan(world, present, settings).changes {
            written.push(format!("{change:?}"));
            present.write(&change);
        }
    }
    let left = plan(world, present, settings).changes;
    assert!(left.is_empty(), "{left:?}");
    written
}

fn specs(objects: &[Object]) -> Vec<(&str, &Value)> {
    let mut specs: Vec<_> = objects
        .iter()
        .map(|object| (object.name.as_str(), &object.spec))
        .collect();
    specs.sort_by_key(|(name, _)| *name);
    specs
}

/// E59: the objects for one Service on one node with two peers.
#[test]
fn one_service_and_one_node() {
    let mut world = world(&[("web", &["203.0.113.7"])]);
    let secret = Peer {
        password: "pw".to_owned(),
        multihop: true,
        ..peer("169.254.255.1", "10.1.2.3")
    };
    let peers = Peers::Exactly(vec![peer("169.254.255.2", "10.1.2.3"), secret]);
    world.nodes = [node("n1", peers)].into();
    let mut present = nothing();
    let written = settle(&world, &mut present, &settings());
    assert_eq!(
        written,
        [
            "apply Secret n1-0",
            "apply Peer n1-0",
            "apply Peer n1-1",
            "apply Pool groundplane-ipv4-0",
            "apply BgpAdvertisement groundplane",
        ]
    );
    let spec = json!({ "addresses": ["203.0.113.7/32"], "autoAssign": false, "avoidBuggyIPs": false });
    assert_eq!(specs(&present.pools), [("groundplane-ipv4-0", &spec)]);
    let spec = json!({ "ipAddressPoolSelectors": [{ "matchLabels": { "app.kubernetes.io/managed-by": "groundplane" } }] });
    assert_eq!(specs(&present.bgp_advertisements), [("groundplane", &spec)]);
    let selectors = json!([{ "matchLabels": { "kubernetes.io/hostname": "n1" } }]);
    let first = json!({
        "myASN": 65_000, "peerASN": 65_530, "peerAddress": "169.254.255.1", "peerPort": 179, "sourceAddress": "10.1.2.3",
        "holdTime": "30s", "ebgpMultiHop": true, "passwordSecret": { "name": "n1-0" }, "nodeSelectors": selectors,
    });
    let second = json!({
        "myASN": 65_000, "peerASN": 65_530, "peerAddress": "169.254.255.2", "peerPort": 179, "sourceAddress": "10.1.2.3",
        "holdTime": "30s", "nodeSelectors": selectors,
    });
    assert_eq!(specs(&present.peers), [("n1-0", &first), ("n1-1", &second)]);
    assert_eq!(
        specs(&present.secrets),
        [("n1-0", &json!({ "password": "cHc=" }))]
    );
}

/// E58: a changed address, AS number or password changes the peer where it is; the other peer is not touched.
#[test]
fn what_changes_of_a_peer_is_changed_in_place() {
    let mut world = world(&[("web", &["203.0.113.7"])]);
    let old = peer("169.254.255.1", "10.0.0.1");
    let other = peer("169.254.255.2", "10.0.0.1");
    for new in [
        peer("169.254.255.1", "10.0.0.9"),
        Peer {
            my_asn: 64_999,
            ..old.clone()
        },
        Peer {
            password: "new".to_owned(),
            ..old.clone()
        },
        Peer {
            multihop: true,
            ..old.clone()
        },
    ] {
        let mut present = nothing();
        world.nodes = [node("n", Peers::Exactly(vec![old.clone(), other.clone()]))].into();
        settle(&world, &mut present, &settings());
        world.nodes = [node("n", Peers::Exactly(vec![new.clone(), other.clone()]))].into();
        let mut written = settle(&world, &mut present, &settings());
        written.retain(|change| change != "apply Secret n-0");
        assert_eq!(written, ["apply Peer n-0"], "{new:?}");
        // And back: the password goes, too.
        world.nodes = [node("n", Peers::Exactly(vec![old.clone(), other.clone()]))].into();
        settle(&world, &mut present, &settings());
        assert!(present.secrets.is_empty());
        assert_eq!(present.peers[0].spec["passwordSecret"], Value::Null);
    }
}

/// E58: a new node costs the writes of its peers and no others, at any number of Services; one that goes takes them with it.
#[test]
fn a_node_costs_its_peers() {
    let names: Vec<(String, String)> = (0..1000)
        .map(|n| (format!("s{n}"), format!("198.18.{}.{}", n / 250, n % 250)))
        .collect();
    let mut world = world(&[]);
    for (name, address) in &names {
        world
            .services
            .insert(Key::namespaced("default", name), [ip(address)].into());
    }
    let peers =
        |source: &str| Peers::Exactly(vec![peer("169.254.255.1", source), peer("169.254.255.2", source)]);
    world.nodes = [node("a", peers("10.0.0.1"))].into();
    let mut present = nothing();
    assert_eq!(settle(&world, &mut present, &settings()).len(), 4);
    world.nodes.extend([node("b", peers("10.0.0.2"))]);
    assert_eq!(
        settle(&world, &mut present, &settings()),
        ["apply Peer b-0", "apply Peer b-1"]
    );
    world
        .services
        .insert(Key::namespaced("default", "one-more"), [ip("203.0.113.1")].into());
    assert_eq!(
        settle(&world, &mut present, &settings()),
        ["apply Pool groundplane-ipv4-0"]
    );
    world.nodes.remove("a");
    assert_eq!(
        settle(&world, &mut present, &settings()),
        ["delete Peer a-0", "delete Peer a-1"]
    );
}

/// E63: a cloud that does not say, or a watch that is behind, removes no peer and no address.
#[test]
fn what_is_not_known_removes_nothing() {
    let mut full = world(&[("web", &["203.0.113.7"]), ("other", &["203.0.113.8"])]);
    let peers = Peers::Exactly(vec![peer("169.254.255.1", "10.0.0.1")]);
    full.nodes = [node("a", peers.clone()), node("b", peers.clone())].into();
    let mut present = nothing();
    settle(&full, &mut present, &settings());
    let silent = World {
        nodes: [node("a", Peers::Unknown), node("b", Peers::AtLeast(Vec::new()))].into(),
        ..full.clone()
    };
    let behind = World {
        services: BTreeMap::new(),
        nodes: BTreeMap::new(),
        complete: false,
        ..full.clone()
    };
    for world in [silent, behind] {
        assert_eq!(plan(&world, &present, &settings()).changes, []);
    }
    // Services that nobody has looked at yet name their addresses.
    let restarted = World {
        services: BTreeMap::new(),
        mentioned: [
            (ip("203.0.113.7"), [Key::namespaced("default", "web")].into()),
            (ip("203.0.113.8"), [Key::namespaced("default", "other")].into()),
        ]
        .into(),
        ..full.clone()
    };
    assert_eq!(plan(&restarted, &present, &settings()).changes, []);
    // An answer is one: it says that there are none.
    let answered = World {
        nodes: [node("a", Peers::Exactly(Vec::new())), node("b", peers)].into(),
        ..full
    };
    let changes = plan(&answered, &present, &settings()).changes;
    assert_eq!(format!("{changes:?}"), "[delete Peer a-0]");
}

/// Where the user's own pool covers every address, none of ours says after a restart that somebody is announced: peers and advertisement
/// stay until the Services have said what they want.
#[test]
fn a_restart_ends_no_session_where_the_users_pools_cover_all() {
    let mut full = world(&[("web", &["203.0.113.7"])]);
    full.nodes = [node("a", Peers::Exactly(vec![peer("169.254.255.1", "10.0.0.1")]))].into();
    let mut present = nothing();
    let users = json!({ "addresses": ["203.0.113.0/24"], "autoAssign": false });
    present.pools.push(object("wan", &[], users));
    settle(&full, &mut present, &settings());
    assert_eq!((present.pools.len(), present.peers.len()), (1, 1));
    let restarted = World {
        services: BTreeMap::new(),
        mentioned: [(ip("203.0.113.7"), [Key::namespaced("default", "web")].into())].into(),
        nodes: [node("a", Peers::Unknown)].into(),
        awaited: true,
        ..full
    };
    assert_eq!(plan(&restarted, &present, &settings()).changes, []);
    let over = World {
        awaited: false,
        ..restarted
    };
    assert_eq!(
        settle(&over, &mut present, &settings()),
        ["delete BgpAdvertisement groundplane", "delete Peer a-0"]
    );
}

/// E61: the last Service takes everything with it, the pool first and the peers last.
#[test]
fn the_last_service_takes_everything_with_it() {
    let mut world = world(&[("web", &["203.0.113.7"])]);
    let peer = Peer {
        password: "pw".to_owned(),
        ..peer("169.254.255.1", "10.0.0.1")
    };
    world.nodes = [node("n", Peers::Exactly(vec![peer]))].into();
    let mut present = nothing();
    settle(&world, &mut present, &settings());
    world.services.clear();
    assert_eq!(
        settle(&world, &mut present, &settings()),
        [
            "delete Pool groundplane-ipv4-0",
            "delete BgpAdvertisement groundplane",
            "delete Peer n-0",
            "delete Secret n-0",
        ]
    );
}

/// E60: an advertisement of the user that announces our pools stands in for ours. One of other pools, or of some nodes, does not.
#[test]
fn an_advertisement_of_the_user_stands_in_for_ours() {
    let world = world(&[("web", &["203.0.113.7"])]);
    let all = json!({});
    let selected = json!({ "ipAddressPoolSelectors": [{ "matchLabels": { "app.kubernetes.io/managed-by": "groundplane" } }], "localPref": 100 });
    let others = json!({ "ipAddressPools": ["theirs"] });
    let some = json!({ "nodeSelectors": [{ "matchLabels": { "rack": "a" } }] });
    for (labels, spec, ours) in [
        (&[LEGACY_LABEL][..], some.clone(), false),
        (&[], all, false),
        (&[], selected, false),
        (&[], others, true),
        (&[], some, true),
    ] {
        let mut present = nothing();
        present.bgp_advertisements = vec![object("theirs", labels, spec.clone())];
        settle(&world, &mut present, &settings());
        let names: Vec<&str> = specs(&present.bgp_advertisements)
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        let expected: &[&str] = if ours {
            &["groundplane", "theirs"]
        } else {
            &["theirs"]
        };
        assert_eq!(names, expected, "{spec}");
    }
    let mut present = nothing();
    let none = Settings {
        advertisement: Advertisement::None,
        ..settings()
    };
    settle(&world, &mut present, &none);
    assert!(present.bgp_advertisements.is_empty());
    let l2 = Settings {
        advertisement: Advertisement::L2,
        ..settings()
    };
    settle(&world, &mut present, &l2);
    assert_eq!(present.l2_advertisements.len(), 1);
}

/// E60: one that a person labelled as the older controller's names the pools that it is for, as that controller had it: it stays as it is,
/// nothing is made beside it, and who is new is told that nobody announces it, with the way out. Nothing is wrong once it names ours.
#[test]
fn an_advertisement_that_names_its_pools_leaves_the_new_ones_to_be_told() {
    let world = world(&[("web", &["203.0.113.7"])]);
    let mut present = nothing();
    let spec = json!({ "ipAddressPools": ["theirs"], "localPref": 100 });
    present.bgp_advertisements = vec![object("theirs", &[LEGACY_LABEL], spec)];
    let before = present.bgp_advertisements.clone();
    settle(&world, &mut present, &settings());
    assert_eq!(present.bgp_advertisements, before);
    let told = plan(&world, &present, &settings()).unannounced.unwrap();
    for word in [
        "theirs",
        "ipAddressPoolSelectors",
        "app.kubernetes.io/managed-by: groundplane",
    ] {
        assert!(told.contains(word), "{told}");
    }
    present.bgp_advertisements[0].spec["ipAddressPools"] = json!(["theirs", "groundplane-ipv4-0"]);
    assert_eq!(plan(&world, &present, &settings()).unannounced, None);
}

/// E58, E60: what a person added to the older controller's own advertisement goes on for what is new: communities and peers, and pools of
/// theirs that it names. So does one of theirs that selects whatever has that controller's label. A leader that dies in between leaves
/// nothing half.
#[test]
fn what_a_person_said_of_the_old_advertisements_goes_on() {
    let world = world(&[("web", &["203.0.113.7"])]);
    let (key, value) = LEGACY_LABEL;
    let old = json!({ "matchLabels": { key: value } });
    let ours = json!({ "matchLabels": { "app.kubernetes.io/managed-by": "groundplane" } });
    let mut present = nothing();
    present.pools = vec![object(
        "of-user",
        &[],
        json!({ "addresses": ["198.51.100.0/24"] }),
    )];
    present.bgp_advertisements = vec![
        object(
            "equinix-metal-bgp-adv",
            &[LEGACY_LABEL],
            json!({ "ipAddressPools": ["default.gone", "of-user"], "communities": ["65000:1"] }),
        ),
        object(
            "far",
            &[LEGACY_LABEL],
            json!({ "ipAddressPoolSelectors": [old], "peers": ["far"], "localPref": 50 }),
        ),
    ];
    let far = present.bgp_advertisements[1].clone();
    let first = json!({ "ipAddressPools": ["of-user"], "communities": ["65000:1"], "ipAddressPoolSelectors": [ours] });
    let second = json!({ "ipAddressPoolSelectors": [ours], "peers": ["far"], "localPref": 50 });

    let whole = plan(&world, &present, &settings()).changes;
    for cut in 0..=whole.len() {
        let mut present = present.clone();
        for change in &whole[..cut] {
            present.write(change);
        }
        settle(&world, &mut present, &settings());
        let specs: Vec<&Value> = present
            .bgp_advertisements
            .iter()
            .filter(|object| object.owner() == Owner::Us)
            .map(|object| &object.spec)
            .collect();
        assert_eq!(specs.len(), 2, "{cut}: {specs:?}");
        assert!(
            specs.contains(&&first) && specs.contains(&&second),
            "{cut}: {specs:?}"
        );
        assert!(present.bgp_advertisements.contains(&far));
        assert_eq!(present.bgp_advertisements.len(), 3);
    }
}

/// E58: ours from before, and then the old controller's once more with what a person said in it: nothing of ours says that, so it stays, and
/// people are told. What is new is announced by ours meanwhile.
#[test]
fn an_old_advertisement_goes_only_where_ours_says_what_it_said() {
    let world = world(&[("web", &["203.0.113.7"])]);
    let mut present = nothing();
    settle(&world, &mut present, &settings());
    let spec = json!({ "ipAddressPools": ["default.web"], "communities": ["65000:1"] });
    let old = object("equinix-metal-bgp-adv", &[LEGACY_LABEL], spec);
    present.bgp_advertisements.push(old.clone());
    let planned = plan(&world, &present, &settings());
    assert!(planned.changes.is_empty(), "{:?}", planned.changes);
    assert_eq!((planned.unannounced, planned.notes.len()), (None, 1));
    assert!(
        planned.notes[0].contains("equinix-metal-bgp-adv"),
        "{:?}",
        planned.notes
    );
    // Without anything of its own, it is as ours.
    present.bgp_advertisements.last_mut().unwrap().spec = json!({ "ipAddressPools": ["default.web"] });
    settle(&world, &mut present, &settings());
    assert!(
        !present
            .bgp_advertisements
            .iter()
            .any(|object| object.name == old.name)
    );
}

fn legacy_cluster() -> Present {
    let mut present = nothing();
    let marks = json!({ "matchLabels": { "nomatch.metal.equinix.com/service-name": "web", "nomatch.metal.equinix.com/service-namespace": "default" } });
    let peer = |n: usize, address: &str| {
        object(
            &format!("n-{n}"),
            &[LEGACY_LABEL],
            json!({
                "myASN": 65_000, "peerASN": 65_530, "peerAddress": address, "sourceAddress": "10.0.0.1", "peerPort": 179,
                "holdTime": "0s", "password": "pw", "nodeSelectors": [{ "matchLabels": { "kubernetes.io/hostname": "n" } }, marks],
            }),
        )
    };
    present.peers = vec![peer(0, "169.254.255.2"), peer(1, "169.254.255.1")];
    let pool = |name: &str, address: &str| {
        let spec = json!({ "addresses": [address], "autoAssign": false, "avoidBuggyIPs": false });
        object(name, &[LEGACY_LABEL], spec)
    };
    present.pools = vec![
        pool("default.web", "203.0.113.7/32"),
        pool("default.old", "203.0.113.9/32"),
    ];
    let spec = json!({ "ipAddressPools": ["default.web", "default.old"] });
    present.bgp_advertisements = vec![object("equinix-metal-bgp-adv", &[LEGACY_LABEL], spec)];
    present
}

/// E58, E59: what the older controller wrote is taken over where it stands: no session ends, and no address leaves its pool. It gets our
/// label, and only then our advertisement takes the place of the old one.
#[test]
fn the_old_controllers_objects_are_taken_over_in_place() {
    let password = |peer: Peer| Peer {
        password: "pw".to_owned(),
        ..peer
    };
    let peers = vec![
        password(peer("169.254.255.1", "10.0.0.1")),
        password(peer("169.254.255.2", "10.0.0.1")),
    ];
    let mut world = world(&[("web", &["203.0.113.7"]), ("new", &["203.0.113.8"])]);
    world.nodes = [node("n", Peers::Exactly(peers.clone()))].into();
    world
        .mentioned
        .insert(ip("203.0.113.9"), [Key::namespaced("default", "old")].into());
    let mut present = legacy_cluster();
    let before = present.peers.clone();
    assert_eq!(
        settle(&world, &mut present, &settings()),
        [
            "patch Pool default.old",
            "patch Pool default.web",
            "apply Pool groundplane-ipv4-0",
            "apply BgpAdvertisement groundplane",
            "delete BgpAdvertisement equinix-metal-bgp-adv",
        ]
    );
    assert!(present.peers == before, "sessions would end");
    assert!(present.pools.iter().all(|pool| pool.has(MANAGED_BY)));
    // A rotated password changes them, and is not in clear any more.
    let rotated = peers.into_iter().map(|peer| Peer {
        password: "next".to_owned(),
        ..peer
    });
    world.nodes = [node("n", Peers::Exactly(rotated.collect()))].into();
    let mut written = settle(&world, &mut present, &settings());
    written.sort();
    assert_eq!(
        written,
        [
            "apply Secret n-0",
            "apply Secret n-1",
            "patch Peer n-0",
            "patch Peer n-1"
        ]
    );
    for peer in &present.peers {
        assert_eq!(peer.spec["password"], Value::Null);
        assert_eq!(peer.spec["passwordSecret"]["name"], *peer.name);
        assert_eq!(peer.spec["holdTime"], "30s");
    }
    // The pools of the older controller go with their Services.
    world.mentioned.clear();
    world.services.clear();
    settle(&world, &mut present, &settings());
    assert!(present.pools.is_empty() && present.peers.is_empty() && present.bgp_advertisements.is_empty());
}

/// E56: what the user has covers what it covers, and nothing of it is written.
#[test]
fn the_users_own_objects_are_kept_and_not_doubled() {
    let mut world = world(&[("web", &["203.0.113.7"]), ("own", &["198.51.100.5"])]);
    let peers = Peers::Exactly(vec![
        peer("169.254.255.1", "10.0.0.1"),
        peer("169.254.255.2", "10.0.0.1"),
    ]);
    world.nodes = [node("n", peers)].into();
    let mut present = nothing();
    present.pools = vec![object(
        "theirs",
        &[],
        json!({ "addresses": ["198.51.100.0/28"], "autoAssign": true }),
    )];
    present.peers = vec![object(
        "n-1",
        &[],
        json!({ "peerAddress": "169.254.255.1", "myASN": 1, "peerASN": 2, "bfdProfile": "fast" }),
    )];
    let (pools, peers) = (present.pools.clone(), present.peers.clone());
    settle(&world, &mut present, &settings());
    assert!(present.pools[0] == pools[0] && present.peers[0] == peers[0]);
    assert_eq!(present.pools[1].spec["addresses"], json!(["203.0.113.7/32"]));
    assert_eq!(present.peers[1].spec["peerAddress"], "169.254.255.2");
    // Its name was taken.
    assert!(
        present.peers[1].name.starts_with("n-1-"),
        "{}",
        present.peers[1].name
    );
    let plan = plan(&world, &present, &settings());
    assert!(plan.placed.contains(&ip("198.51.100.5")));
}

/// E65: one peer for many nodes, without a second object for its address. Who joins or leaves changes it, and who is not known stays.
#[test]
fn frr_gets_one_object_for_each_peer() {
    let frr = Settings {
        peer_mode: PeerMode::Frr,
        ..settings()
    };
    let peers =
        |source: &str| Peers::Exactly(vec![peer("169.254.255.1", source), peer("169.254.255.2", source)]);
    let mut world = world(&[("web", &["203.0.113.7"])]);
    world.nodes = [node("a", peers("10.0.0.1")), node("b", peers("10.0.0.2"))].into();
    let mut present = nothing();
    settle(&world, &mut present, &frr);
    assert_eq!(
        specs(&present.peers)[0],
        (
            "groundplane-169-254-255-1",
            &json!({
                "myASN": 65_000, "peerASN": 65_530, "peerAddress": "169.254.255.1", "peerPort": 179, "holdTime": "30s",
                "nodeSelectors": [{ "matchExpressions": [{ "key": "kubernetes.io/hostname", "operator": "In", "values": ["a", "b"] }] }],
            })
        )
    );
    assert_eq!(present.peers.len(), 2);
    world.nodes = [node("a", Peers::Unknown), node("c", peers("10.0.0.3"))].into();
    settle(&world, &mut present, &frr);
    let hosts = |present: &Present| {
        present.peers[0].spec["nodeSelectors"][0]["matchExpressions"][0]["values"].clone()
    };
    assert_eq!(hosts(&present), json!(["a", "c"]));
    // Where one node speaks for itself, its address is known.
    world.nodes = [node("c", peers("10.0.0.3"))].into();
    settle(&world, &mut present, &frr);
    assert_eq!(present.peers[0].spec["sourceAddress"], "10.0.0.3");
    // Another AS number needs another object for its nodes.
    let other = Peer {
        my_asn: 64_999,
        ..peer("169.254.255.1", "10.0.0.4")
    };
    world.nodes.extend([node("d", Peers::Exactly(vec![other]))]);
    settle(&world, &mut present, &frr);
    let mut names: Vec<&str> = present.peers.iter().map(|peer| peer.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names.len(), 3);
    assert!(names[1].starts_with("groundplane-169-254-255-1-"), "{names:?}");
    // From one mode to the other: none is left over, and never two at a time for one node.
    let written = settle(&world, &mut present, &settings());
    let last_delete = written.iter().rposition(|change| change.starts_with("delete"));
    let first_apply = written.iter().position(|change| change.starts_with("apply"));
    assert!(last_delete < first_apply, "{written:?}");
    assert_eq!(present.peers.len(), 3);
    let none = Settings {
        peer_mode: PeerMode::None,
        ..settings()
    };
    settle(&world, &mut present, &none);
    assert!(present.peers.is_empty());
}

#[test]
fn services_of_both_families_have_a_pool_of_their_own() {
    let mut world = world(&[
        ("four", &["203.0.113.4"]),
        ("six", &["2001:db8::6"]),
        ("both", &["203.0.113.7", "2001:db8::7"]),
    ]);
    let mut present = nothing();
    settle(&world, &mut present, &settings());
    let names: Vec<&str> = specs(&present.pools).into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        ["groundplane-dual-0", "groundplane-ipv4-0", "groundplane-ipv6-0"]
    );
    // One that gets a second address moves, and is never in two pools.
    world.services.insert(
        Key::namespaced("default", "four"),
        [ip("203.0.113.4"), ip("2001:db8::4")].into(),
    );
    settle(&world, &mut present, &settings());
    assert_eq!(present.pools.len(), 2);
}

#[test]
fn a_full_pool_is_followed_by_the_next() {
    let mut world = world(&[]);
    for n in 0..=u32::try_from(LIMIT).unwrap() {
        let address = IpAddr::V4((0xC612_0000 + n).into());
        world
            .services
            .insert(Key::namespaced("default", &format!("s{n}")), [address].into());
    }
    let mut present = nothing();
    settle(&world, &mut present, &settings());
    assert_eq!(present.pools.len(), 2);
    let first = present.pools[0].clone();
    world.services.remove(&Key::namespaced("default", "s5000"));
    settle(&world, &mut present, &settings());
    assert!(present.pools == [first], "others moved");
}

#[test]
fn a_password_is_never_written_in_clear() {
    let mut world = world(&[("web", &["203.0.113.7"])]);
    let peer = Peer {
        password: "pw".to_owned(),
        ..peer("169.254.255.1", "10.0.0.1")
    };
    world.nodes = [node("n", Peers::Exactly(vec![peer]))].into();
    let mut present = Present {
        peer_version: PeerVersion::V1Beta1,
        ..nothing()
    };
    settle(&world, &mut present, &settings());
    assert!(present.peers.is_empty() && present.secrets.is_empty());
    assert_eq!(plan(&world, &present, &settings()).notes.len(), 1);
}

#[test]
fn names_are_valid_whatever_a_node_is_called() {
    for name in [
        "n1-0",
        &"x".repeat(300),
        "UPPER_case",
        "a..b",
        "-",
        "node.example.com-0",
        "ü",
    ] {
        for taken in [false, true] {
            let free = free_name(name, |other| taken && other == name);
            assert!(is_object_name(&free), "{name} {free}");
            assert!(!taken || free != name);
        }
    }
    assert_eq!(free_name("n1-0", |_| false), "n1-0");
}

fn services() -> impl Strategy<Value = World> {
    let address = (0_u8..12).prop_map(|n| {
        if n < 8 {
            format!("203.0.113.{n}")
        } else {
            format!("2001:db8::{n}")
        }
    });
    let service = proptest::collection::btree_set(address, 1..3);
    let services = proptest::collection::btree_map(0_u8..6, service, 0..6);
    let source = proptest::option::of(0_u8..3);
    let nodes = proptest::collection::btree_map(0_u8..4, source, 0..4);
    (services, nodes, any::<bool>()).prop_map(|(services, nodes, complete)| {
        let mut world = world(&[]);
        for (n, addresses) in services {
            let addresses = addresses.iter().map(|address| ip(address)).collect();
            world
                .services
                .insert(Key::namespaced("default", &format!("s{n}")), addresses);
        }
        for (n, source) in nodes {
            let peers = source.map_or(Peers::Unknown, |source| {
                let source = format!("10.0.0.{source}");
                Peers::Exactly(vec![
                    peer("169.254.255.1", &source),
                    peer("169.254.255.2", &source),
                ])
            });
            world.nodes.extend([node(&format!("n{n}"), peers)]);
        }
        world.complete = complete;
        world
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Whatever there was, and whatever there should be: each write is one that MetalLB takes, the last leaves nothing to do, every address is
    /// in a pool, and the user's objects are as they were.
    #[test]
    fn any_world_follows_any_other(worlds in proptest::collection::vec((services(), any::<bool>()), 1..6), legacy in any::<bool>()) {
        let mut present = if legacy { legacy_cluster() } else { nothing() };
        let theirs = object("theirs", &[], json!({ "addresses": ["198.51.100.0/28"] }));
        present.pools.push(theirs.clone());
        for (world, frr) in worlds {
            let settings = Settings {
                peer_mode: if frr { PeerMode::Frr } else { PeerMode::Native },
                ..settings()
            };
            settle(&world, &mut present, &settings);
            let held: BTreeSet<IpAddr> = present
                .pools
                .iter()
                .flat_map(|pool| pool.spec["addresses"].as_array().unwrap().iter())
                .filter_map(|entry| single(entry.as_str().unwrap()))
                .collect();
            for address in world.services.values().flatten() {
                prop_assert!(held.contains(address), "{address}");
            }
            prop_assert!(present.pools.contains(&theirs));
        }
    }
}
