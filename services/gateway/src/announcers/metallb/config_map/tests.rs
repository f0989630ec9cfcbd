use pretty_assertions::assert_eq;

use super::super::resources::tests::{ip, node, peer, settings, world};
use super::*;

/// E53: what the older controller writes for one Service on one node.
const GOLDEN: &str = r#"address-pools:
- addresses:
  - 145.40.1.1/32
  auto-assign: false
  avoid-buggy-ips: false
  bgp-advertisements: null
  name: default/svc1
  protocol: bgp
bgp-communities: null
peers:
- hold-time: ""
  my-asn: 65000
  node-selectors:
  - match-expressions: null
    match-labels:
      kubernetes.io/hostname: n1
  - match-expressions: null
    match-labels:
      nomatch.metal.equinix.com/service-name: svc1
      nomatch.metal.equinix.com/service-namespace: default
  password: pw
  peer-address: 169.254.255.1
  peer-asn: 65530
  peer-port: 0
  router-id: ""
  source-address: 10.1.1.1
"#;

/// What a user has, with everything that the older controller lost.
const USERS: &str = r#"# by hand
address-pools:
- name: lan
  protocol: layer2
  addresses: ["192.168.7.0/24"]   # the office
- name: wan
  protocol: bgp
  addresses: [198.51.100.0/28]
  bgp-advertisements:
  - aggregation-length: 32
    aggregation-length-v6: 128
    localpref: 100
    communities: [no-advertise, 64512:1]
peers:
- {my-asn: 64500, peer-asn: 64501, peer-address: 10.0.0.1, keepalive-time: 10s, bfd-profile: fast, ebgp-multihop: true}
bgp-communities: {no-advertise: 65535:65282}
bfd-profiles:
- name: fast
  receive-interval: 100
"#;

fn golden_peer() -> Peer {
    Peer {
        password: "pw".to_owned(),
        ..peer("169.254.255.1", "10.1.1.1")
    }
}

fn golden_world() -> World {
    World {
        nodes: [node("n1", Peers::Exactly(vec![golden_peer()]))].into(),
        ..world(&[("svc1", &["145.40.1.1"])])
    }
}

/// Writes what has to be written, and asserts that nothing is left to do then.
fn settle(text: &str, world: &World) -> String {
    let planned = plan(text, world, &settings()).unwrap();
    let after = planned.text.unwrap_or_else(|| text.to_owned());
    assert_eq!(plan(&after, world, &settings()).unwrap().text, None, "{after}");
    for address in world.services.values().flatten() {
        assert!(planned.placed.contains(address));
    }
    after
}

/// E53, E55, E62: into an empty `ConfigMap`, exactly what the older controller writes, the mark of the first Service on the first peer.
#[test]
fn the_first_service_is_written_as_the_old_controller_writes_it() {
    for empty in ["", "\n", "{}", "null\n"] {
        assert_eq!(settle(empty, &golden_world()), GOLDEN, "{empty:?}");
    }
    assert_eq!(settle("# mine\n", &golden_world()), format!("# mine\n{GOLDEN}"));
}

/// E62: what the older controller wrote needs no write, marks of many Services included; what is new is beside it.
#[test]
fn what_the_old_controller_wrote_stays_as_it_is() {
    let second = "  - match-expressions: null
    match-labels:
      nomatch.metal.equinix.com/service-name: svc2
      nomatch.metal.equinix.com/service-namespace: default
";
    let legacy = GOLDEN.replace("  password: pw\n", &format!("{second}  password: pw\n"));
    assert_eq!(settle(&legacy, &golden_world()), legacy);
    let mut world = golden_world();
    world
        .services
        .extend(self::world(&[("svc2", &["145.40.1.2"])]).services);
    let both = settle(&legacy, &world);
    assert!(both.contains("name: default/svc2\n"));
    assert_eq!(both.matches("peer-address").count(), 1);
    // A pool that is called by the Service's name alone is its, too.
    let bare = GOLDEN.replace("default/svc1", "svc1");
    assert_eq!(settle(&bare, &golden_world()), bare);
    let mut left = golden_world();
    left.services.clear();
    left.leaving = [(ip("145.40.1.1"), [Key::namespaced("default", "svc1")].into())].into();
    assert!(!settle(&bare, &left).contains("svc1"));
}

/// E56: the user's pools, peers, communities and profiles are kept to the byte, through all that comes and goes.
#[test]
fn the_users_entries_keep_their_bytes() {
    let with = settle(USERS, &golden_world());
    assert!(with.contains("name: default/svc1") && with.contains("169.254.255.1"));
    let kept: Vec<&str> = USERS.lines().collect();
    let mut found = with.lines();
    for line in kept {
        assert!(found.any(|other| other == line), "{line} is lost:\n{with}");
    }
    let mut gone = golden_world();
    gone.services.clear();
    assert_eq!(settle(&with, &gone), USERS);
    // An address of the user's own pool needs none of ours.
    let own = World {
        nodes: BTreeMap::new(),
        ..world(&[("own", &["198.51.100.5"])])
    };
    assert_eq!(settle(USERS, &own), USERS);
    // Nor a peer that the user has for all nodes.
    let mut theirs = golden_world();
    theirs.nodes = [node("n1", Peers::Exactly(vec![peer("10.0.0.1", "10.1.1.1")]))].into();
    assert!(!settle(USERS, &theirs).contains("nomatch"));
}

/// E58: nodes come, go and change; what does not change is not touched.
#[test]
fn peers_follow_their_nodes() {
    let mut world = golden_world();
    let one = settle("", &world);
    let second = peer("169.254.255.1", "10.1.1.2");
    world.nodes.extend([node("n2", Peers::Exactly(vec![second]))]);
    let two = settle(&one, &world);
    assert!(two.starts_with(&one) && two.contains("kubernetes.io/hostname: n2"));
    let moved = Peer {
        source: Some(ip("10.1.1.9")),
        password: "next".to_owned(),
        ..golden_peer()
    };
    world.nodes.extend([node("n1", Peers::Exactly(vec![moved]))]);
    let changed = settle(&two, &world);
    assert_eq!(
        changed,
        two.replace("10.1.1.1\n", "10.1.1.9\n")
            .replace("password: pw", "password: next")
    );
    world.nodes.remove("n2");
    assert!(!settle(&changed, &world).contains("n2"));
}

/// E58, E61: what packet-ccm wrote, which kept no books: its sessions are not touched, not for what it did not know either; they follow
/// their node from then on, and go with it. Neither the last Service nor another router takes them away, and what a person wrote stays.
#[test]
fn the_peers_of_packet_ccm_follow_their_nodes() {
    let old = "peers:\n- hold-time: \"\"\n  my-asn: 65000\n  node-selectors:\n  - match-expressions: []\n    match-labels:\n      \
               kubernetes.io/hostname: n1\n  password: \"\"\n  peer-address: 169.254.255.1\n  peer-asn: 65530\n  peer-port: 0\n  \
               router-id: \"\"\n";
    let by_hand = "- {my-asn: 64500, peer-asn: 64501, peer-address: 10.0.0.1, node-selectors: [{match-labels: {kubernetes.io/hostname: n7}}]}\n";
    let mut world = golden_world();
    let taken_over = settle(&format!("{old}{by_hand}"), &world);
    assert!(taken_over.contains(&format!("{old}{by_hand}")), "{taken_over}");
    assert_eq!(taken_over.matches("peer-address: 169.254.255.1").count(), 1);

    let renumbered = Peer {
        peer_asn: 65_531,
        ..golden_peer()
    };
    world.nodes.extend([node("n1", Peers::Exactly(vec![renumbered]))]);
    let changed = settle(&taken_over, &world);
    assert!(
        changed.contains("peer-asn: 65531") && !changed.contains("peer-asn: 65530"),
        "{changed}"
    );

    world.nodes.extend([node("n1", Peers::Exactly(Vec::new()))]);
    assert_eq!(settle(&changed, &world), changed);
    world.complete = false;
    world.nodes.remove("n1");
    assert_eq!(settle(&changed, &world), changed);
    world.complete = true;
    let gone = settle(&changed, &world);
    assert!(
        !gone.contains("169.254.255.1") && gone.contains(by_hand),
        "{gone}"
    );
}

/// E61: the last Service takes the peers with it.
#[test]
fn the_last_service_takes_the_peers_with_it() {
    let mut world = golden_world();
    let one = settle("", &world);
    world.services.clear();
    assert_eq!(
        settle(&one, &world),
        "address-pools: []\nbgp-communities: null\npeers: []\n"
    );
}

/// E63: what is not known removes nothing.
#[test]
fn what_is_not_known_removes_nothing() {
    let one = settle("", &golden_world());
    let silent = World {
        nodes: [node("n1", Peers::Unknown)].into(),
        ..golden_world()
    };
    let behind = World::default();
    let restarted = World {
        services: BTreeMap::new(),
        mentioned: [(ip("145.40.1.1"), [Key::namespaced("default", "svc1")].into())].into(),
        ..golden_world()
    };
    for world in [silent, behind, restarted] {
        assert_eq!(settle(&one, &world), one);
    }
}

/// After a restart, where the user's own pool covers every address: the peers stay until the Services have said what they want.
#[test]
fn a_restart_ends_no_session_where_the_users_pools_cover_all() {
    let users =
        "address-pools:\n- name: wan\n  protocol: bgp\n  auto-assign: false\n  addresses: [145.40.1.0/24]\n";
    let one = settle(users, &golden_world());
    assert!(one.contains("peer-address: 169.254.255.1"), "{one}");
    let restarted = World {
        services: BTreeMap::new(),
        nodes: [node("n1", Peers::Unknown)].into(),
        awaited: true,
        ..golden_world()
    };
    assert_eq!(settle(&one, &restarted), one);
    let over = World {
        awaited: false,
        ..restarted
    };
    assert!(!settle(&one, &over).contains("peer-address"));
}

/// A marked peer that selects no node by its name is one that the user has changed: not ours to remove.
#[test]
fn a_marked_peer_of_no_node_stays() {
    let one = settle("", &golden_world()).replace("kubernetes.io/hostname: n1", "rack: a");
    let next = settle(&one, &golden_world());
    assert!(
        next.contains("rack: a") && next.contains("kubernetes.io/hostname: n1"),
        "{next}"
    );
}

/// E66: Services that share an address share a pool, called by all of them; the address stays as long as one has it.
#[test]
fn services_that_share_an_address_share_a_pool() {
    let mut shared = golden_world();
    let one = settle("", &shared);
    shared
        .services
        .extend(world(&[("other", &["145.40.1.1"])]).services);
    let both = settle(&one, &shared);
    assert_eq!(both, one.replace("default/svc1", "default/other,default/svc1"));
    shared.services.remove(&Key::namespaced("default", "svc1"));
    let left = settle(&both, &shared);
    assert!(left.contains("name: default/other\n"), "{left}");
}

/// A document that would outgrow its object lets nobody in, and is never written by halves.
#[test]
fn a_full_config_map_lets_nobody_in() {
    let one = settle("", &golden_world());
    let mut more = golden_world();
    more.services.extend(world(&[("late", &["145.40.1.2"])]).services);
    let plan = plan_within(&one, &more, &settings(), one.len()).unwrap();
    assert_eq!(plan.text, None);
    let refused: Vec<String> = plan.refused.keys().map(Key::to_string).collect();
    assert_eq!(refused, ["default/late"]);
    assert_eq!(plan.refused.values().next().unwrap().reason, "AnnouncerFull");
    assert_eq!(plan.placed, [ip("145.40.1.1")].into());
    // One that goes makes it smaller, whatever its size.
    more.services.remove(&Key::namespaced("default", "svc1"));
    let smaller = plan_within(&one, &more, &settings(), 10).unwrap();
    assert!(smaller.text.is_none_or(|text| text.len() <= one.len()));
}

#[test]
fn a_thousand_services_on_fifty_nodes_fit_in() {
    let mut world = World {
        complete: true,
        ..World::default()
    };
    for n in 0..1000_u32 {
        let address = IpAddr::V4((0xC612_0000 + n).into());
        world.services.insert(
            Key::namespaced("production", &format!("service-{n}")),
            [address].into(),
        );
    }
    for n in 0..50 {
        let source = format!("10.0.0.{n}");
        let peers = vec![peer("169.254.255.1", &source), peer("169.254.255.2", &source)];
        world
            .nodes
            .extend([node(&format!("node-{n}"), Peers::Exactly(peers))]);
    }
    let text = settle("", &world);
    assert!(text.len() < LIMIT / 3, "{}", text.len());
}
