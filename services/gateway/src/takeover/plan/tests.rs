//! Leftovers of each generation, and what becomes of them.

use groundplane_core::DriverName;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::*;
use crate::config::{AnnotationFormat, Config};

const ADDRESS: &str = "198.51.100.7";

fn service(name: &str, spec: &Value, status: &Value) -> Arc<ServiceObject> {
    let mut whole = json!({
        "metadata": { "namespace": "shop", "name": name, "uid": name },
        "spec": { "type": "LoadBalancer", "ipFamilies": ["IPv4"] },
        "status": status,
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        whole["spec"][key] = value.clone();
    }
    Arc::new(serde_json::from_value(whole).unwrap())
}

fn settled() -> Value {
    json!({
        "loadBalancer": { "ingress": [{ "ip": ADDRESS }] },
        "conditions": [{ "type": "groundplane.dev/AddressReady", "status": "True", "reason": "Adopted" }],
    })
}

fn reserved(standing: Standing, owner: Option<&str>, names_cluster: bool) -> Reserved {
    Reserved {
        id: "r1".to_owned(),
        prefix: Some(format!("{ADDRESS}/32").parse().unwrap()),
        standing,
        owner: owner.map(|name| Key::namespaced("shop", name)),
        tags: vec!["usage=packet-ccm-auto".to_owned(), "service=x".to_owned()],
        names_cluster,
    }
}

fn facts() -> Facts {
    let config = Config {
        driver: DriverName::Equinix,
        ..Config::default()
    };
    let format = |format| {
        let mut one = config.clone();
        one.annotation_formats = vec![format];
        one.layouts()
    };
    Facts {
        scope: Scope::of(&config),
        announcer: Announcer::KubeVip,
        bgp: true,
        bgp_selector: String::new(),
        written: vec!["indexed"],
        formats: vec![
            ("indexed", format(AnnotationFormat::Indexed)),
            ("packet", format(AnnotationFormat::Packet)),
        ],
        rivals: Verdict::Clear,
        refuses: true,
        reservations: Vec::new(),
        peerless: BTreeMap::new(),
        services: Vec::new(),
        nodes: Vec::new(),
        metallb: Metallb::default(),
        externals: Vec::new(),
        unread: Vec::new(),
        endpoint: None,
    }
}

/// Group, action, and whether it waits for a person.
fn lines(facts: &Facts) -> Vec<(&'static str, Action, bool)> {
    let items = plan(facts).items.into_iter();
    items
        .map(|item| (item.group, item.action, item.gives.is_some()))
        .collect()
}

/// E50: what the oldest controller tagged becomes its Service's where the Service has the address, and waits for a word where nothing
/// but a name speaks for it.
#[test]
fn the_oldest_tags_are_changed_where_the_service_has_the_address() {
    let mut facts = facts();
    facts.reservations = vec![reserved(Standing::Former, Some("web"), false)];
    facts.services = vec![service("web", &json!({ "loadBalancerIP": ADDRESS }), &json!({}))];
    assert_eq!(
        lines(&facts),
        [
            ("reservations", Action::Change, false),
            ("services", Action::Adopt, false)
        ]
    );
    facts.services = vec![service("web", &json!({}), &json!({}))];
    assert_eq!(
        lines(&facts),
        [
            ("reservations", Action::Adopt, true),
            ("services", Action::Change, false)
        ]
    );
    facts.reservations[0].names_cluster = true;
    assert_eq!(lines(&facts)[0], ("reservations", Action::Change, false));
    facts.services = vec![service(
        "web",
        &json!({ "loadBalancerIP": "198.51.100.8" }),
        &json!({}),
    )];
    assert_eq!(lines(&facts)[0], ("reservations", Action::Leave, false));
    facts.services.clear();
    assert_eq!(lines(&facts), [("reservations", Action::Leave, false)]);
}

#[test]
fn what_nobody_of_ours_has_is_left() {
    let mut facts = facts();
    facts.reservations = vec![
        reserved(Standing::Orphan, None, true),
        reserved(Standing::Spared, None, true),
        reserved(Standing::Former, None, false),
        reserved(Standing::Held, Some("other"), true),
    ];
    facts.services = vec![service(
        "other",
        &json!({ "loadBalancerClass": "example.com/lb" }),
        &json!({}),
    )];
    assert!(
        lines(&facts)
            .iter()
            .all(|(_, action, gives)| *action == Action::Leave && !gives)
    );
}

/// Those of other clusters are listed and left, and what happens to them changes no plan.
#[test]
fn what_other_clusters_have_is_listed_and_left() {
    let mut facts = facts();
    facts.services = vec![service("web", &json!({ "loadBalancerIP": ADDRESS }), &json!({}))];
    let before = plan(&facts);
    let mut foreign = reserved(Standing::Foreign, None, false);
    foreign.tags.push("cluster=other".to_owned());
    facts.reservations = vec![foreign];
    let after = plan(&facts);
    assert_eq!(after.id, before.id);
    let item = after.items.last().unwrap();
    assert_eq!(item.found, format!("{ADDRESS}/32, tags of cluster other"));
    assert_eq!((item.group, item.action), ("reservations", Action::Leave));
}

#[test]
fn an_address_of_a_reservation_is_told_from_one_that_was_brought() {
    let mut facts = facts();
    facts.reservations = vec![reserved(Standing::Held, Some("web"), true)];
    facts.services = vec![
        service("brought", &json!({ "loadBalancerIP": "203.0.113.9" }), &json!({})),
        service("web", &json!({ "loadBalancerIP": ADDRESS }), &json!({})),
    ];
    let found: Vec<String> = plan(&facts).items.into_iter().map(|item| item.found).collect();
    assert_eq!(
        found[1..],
        [
            "203.0.113.9 that was brought".to_owned(),
            format!("{ADDRESS} of reservation r1")
        ]
    );
}

#[test]
fn a_cluster_that_was_taken_over_has_nothing_left() {
    let mut facts = facts();
    facts.announcer = Announcer::MetallbConfigmap;
    facts.scope.backend = true;
    facts.reservations = vec![reserved(Standing::Held, Some("web"), true)];
    facts.services = vec![service("web", &json!({ "loadBalancerIP": ADDRESS }), &settled())];
    facts.nodes = vec![node(
        &json!({ "packet.com/node.asn": "1", "groundplane.dev/annotated": "x" }),
    )];
    facts.metallb.text = Some(CONFIG.to_owned());
    facts.externals = vec![external(true, "groundplane")];
    facts.endpoint = Some(Ok((ADDRESS.to_owned(), "equinixmetal://1".to_owned())));
    let left: Vec<_> = plan(&facts)
        .items
        .into_iter()
        .filter(|item| item.action != Action::Leave)
        .collect();
    assert_eq!(left, []);
}

fn node(annotations: &Value) -> Arc<NodeObject> {
    let node = json!({
        "metadata": { "name": "n1", "uid": "n1", "annotations": annotations },
        "spec": { "providerID": "packet://1" },
    });
    Arc::new(serde_json::from_value(node).unwrap())
}

#[test]
fn nodes_tell_which_generations_they_carry() {
    let mut facts = facts();
    facts.nodes = vec![node(
        &json!({ "packet.com/node.asn": "65000", "metal.equinix.com/bgp-peers-0-node-asn": "65000" }),
    )];
    let item = plan(&facts).items.remove(0);
    assert_eq!(item.found, "packet://1; annotations: indexed, packet");
    assert_eq!(item.action, Action::Change);
    assert!(
        item.detail.contains("indexed are kept") && item.detail.contains("packet stay"),
        "{}",
        item.detail
    );
    // Whoever knows whether its machine has peers plans the same.
    let id = plan(&facts).id;
    facts.peerless = BTreeMap::from([(Key::cluster_wide("n1"), "its machine is not there".to_owned())]);
    let item = plan(&facts).items.remove(0);
    assert_eq!(item.action, Action::Leave);
    assert!(
        item.detail.contains("its machine is not there"),
        "{}",
        item.detail
    );
    assert_eq!(plan(&facts).id, id);
    facts.peerless.clear();
    facts.bgp = false;
    assert_eq!(plan(&facts).items[0].action, Action::Leave);
}

const CONFIG: &str = "address-pools:
- {name: shop/web, protocol: bgp, auto-assign: false, addresses: [198.51.100.7/32]}
- {name: 'shop/a,shop/b', protocol: bgp, auto-assign: false, addresses: [198.51.100.8/32]}
- {name: web, protocol: bgp, auto-assign: false, addresses: [198.51.100.9/32]}
- {name: mine, protocol: layer2, addresses: [10.0.0.0/24]}
peers:
- my-asn: 65000
  peer-asn: 65530
  peer-address: 169.254.255.1
  node-selectors:
  - match-labels: {kubernetes.io/hostname: n1}
  - match-labels: {nomatch.metal.equinix.com/service-name: web}
- {my-asn: 65000, peer-asn: 65001, peer-address: 10.0.0.1}
";

#[test]
fn pools_of_services_are_told_from_a_users_own() {
    let mut facts = facts();
    facts.announcer = Announcer::MetallbConfigmap;
    facts.metallb.name = "metallb-system/config".to_owned();
    facts.metallb.text = Some(CONFIG.to_owned());
    facts.services = vec![service("web", &json!({ "loadBalancerIP": ADDRESS }), &json!({}))];
    let metallb = |facts: &Facts| -> Vec<(String, Action)> {
        let items = plan(facts).items.into_iter();
        let ours = items.filter(|item| item.group == "metallb");
        ours.map(|item| (item.found, item.action)).collect()
    };
    let found = |action| {
        vec![
            ("a pool of Services".to_owned(), action),
            ("a pool of Services".to_owned(), action),
            ("a pool of Services".to_owned(), action),
            ("1 peers of an older controller".to_owned(), action),
            ("1 pools and 1 peers of yours".to_owned(), Action::Leave),
        ]
    };
    assert_eq!(metallb(&facts), found(Action::Adopt));
    // Nobody would keep them.
    facts.announcer = Announcer::KubeVip;
    assert_eq!(metallb(&facts), found(Action::Blocked));
    facts.metallb.text = Some("address-pools: {".to_owned());
    assert_eq!(metallb(&facts), [("cannot be read".to_owned(), Action::Blocked)]);
}

fn external(is_ours: bool, manager: &str) -> External {
    External {
        key: Key::namespaced("kube-system", "packet-ccm-kubernetes-external"),
        is_ours,
        address: Some(ADDRESS.to_owned()),
        managers: vec![manager.to_owned()],
    }
}

#[test]
fn the_external_service_is_taken_over_where_we_are_told_to_keep_it() {
    let mut facts = facts();
    facts.externals = vec![external(true, "cloud-provider-equinix-metal-auto")];
    assert_eq!(lines(&facts), [("endpoint", Action::Adopt, false)]);
    facts.externals = vec![external(false, "packet-ccm-auto")];
    assert_eq!(lines(&facts), [("endpoint", Action::Blocked, false)]);
}

/// What cannot be read is said, never taken for absence. It is in the way only where groundplane is to keep it.
#[test]
fn what_cannot_be_read_is_said() {
    let unread = |kind, name: &str| Unread {
        kind,
        name: name.to_owned(),
        why: "bgppeers is forbidden".to_owned(),
    };
    let mut facts = facts();
    facts.metallb.unread = vec![unread("BGPPeer", "metallb-system/*")];
    facts.unread = vec![unread("Service", "kube-system/external")];
    let blocked = ("endpoint", Action::Blocked, false);
    assert_eq!(lines(&facts), [("metallb", Action::Leave, false), blocked]);
    facts.announcer = Announcer::Metallb;
    assert_eq!(lines(&facts), [("metallb", Action::Blocked, false), blocked]);
    assert!(
        plan(&facts)
            .items
            .iter()
            .all(|item| item.detail.contains("forbidden"))
    );
}

/// What a person made, with the label of an older controller: not adopted, and not called so.
#[test]
fn what_is_a_persons_stays_so_whatever_its_label() {
    let labelled = |users| Labelled {
        kind: "BGPPeer",
        name: "region".to_owned(),
        users,
    };
    let mut facts = facts();
    facts.rivals = Verdict::Undecided;
    facts.announcer = Announcer::Metallb;
    facts.metallb.labelled = vec![labelled(true)];
    assert_eq!(lines(&facts)[1], ("metallb", Action::Leave, false));
    facts.metallb.labelled = vec![labelled(false)];
    assert_ne!(
        plan(&facts).items[1].detail,
        "yours, though it has that label: not touched"
    );
}

/// The id stands for what a person decides: it is another where that is another, and the same whatever the controllers do meanwhile.
#[test]
fn a_plan_is_known_by_its_id() {
    let mut one = facts();
    one.reservations = vec![reserved(Standing::Former, Some("web"), false)];
    one.services = vec![service("web", &json!({}), &json!({}))];
    let before = plan(&one).id;
    assert_eq!(plan(&one.clone()).id, before);
    one.services.push(service("other", &json!({}), &settled()));
    one.nodes = vec![node(&json!({ "packet.com/node.asn": "1" }))];
    assert_eq!(plan(&one).id, before, "the controllers go on");
    let other = format!("{ADDRESS}0");
    one.services[0] = service("web", &json!({ "loadBalancerIP": other }), &json!({}));
    assert_ne!(plan(&one).id, before, "its Service has another address by now");
    one.services[0] = service("web", &json!({}), &json!({}));
    assert_eq!(plan(&one).id, before);
    one.rivals = Verdict::Rivals(vec![Rival {
        what: "daemonset kube-system/x".to_owned(),
        found: "1 of its pods ready".to_owned(),
        stop: "kubectl delete".to_owned(),
    }]);
    assert_ne!(plan(&one).id, before);
    assert_eq!(lines(&one)[0], ("rivals", Action::Blocked, false));
    assert_eq!(plan(&one).items[0].detail, "stop it: kubectl delete");
    one.refuses = false;
    let item = plan(&one).items.remove(0);
    assert_eq!(
        item.action,
        Action::Blocked,
        "a person has to stop it all the same"
    );
    assert!(item.detail.contains("gateway.rivals"), "{}", item.detail);
}
