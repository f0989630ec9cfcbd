use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::*;
use crate::config::Config;

fn scope() -> Scope {
    Scope::of(&Config::default())
}

fn read(value: Value) -> ServiceObject {
    serde_json::from_value(value).unwrap()
}

/// A Service of type `LoadBalancer` with these parts of metadata, spec and status on top.
#[allow(clippy::needless_pass_by_value, reason = "called with json! in place")]
fn service(metadata: Value, spec: Value, status: Value) -> ServiceObject {
    let mut value = json!({
        "metadata": { "name": "web", "namespace": "default", "uid": "u1" },
        "spec": { "type": "LoadBalancer", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack" },
        "status": status,
    });
    for (part, more) in [("metadata", metadata), ("spec", spec)] {
        value[part]
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
    }
    read(value)
}

fn condition(reason: &str) -> Value {
    json!({ "type": "groundplane.dev/AddressReady", "status": "False", "reason": reason, "message": "m" })
}

fn annotated(key: &str, value: &str) -> ServiceObject {
    service(json!({ "annotations": { key: value } }), json!({}), json!({}))
}

fn wish(service: &ServiceObject, scope: &Scope) -> Wish {
    match plan(service, scope) {
        Plan::Hold(wish) => wish,
        other => panic!("{other:?}"),
    }
}

fn refusal(service: &ServiceObject) -> Refusal {
    match plan(service, &scope()) {
        Plan::Refuse(refusal) => refusal,
        other => panic!("{other:?}"),
    }
}

fn wanted(service: &ServiceObject) -> Vec<(Family, Option<String>, bool)> {
    let wants = wish(service, &scope()).wants;
    wants
        .into_iter()
        .map(|want| (want.family, want.address.map(|a| a.to_string()), want.optional))
        .collect()
}

const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// S15: of the upstream's truth table, only finalizer and (deleted or not a load balancer) is released.
#[test]
fn what_has_to_be_cleaned_up() {
    for finalizer in [false, true] {
        for deleting in [false, true] {
            for load_balancer in [false, true] {
                let mut metadata = json!({});
                if finalizer {
                    metadata["finalizers"] = json!([FINALIZER]);
                }
                if deleting {
                    metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                }
                let kind = if load_balancer {
                    "LoadBalancer"
                } else {
                    "ClusterIP"
                };
                let service = service(metadata, json!({ "type": kind }), json!({}));
                let released = plan(&service, &scope()) == Plan::Release { finalizer: true };
                let expected = finalizer && (deleting || !load_balancer);
                assert_eq!(
                    released, expected,
                    "finalizer {finalizer} deleting {deleting} {kind}"
                );
            }
        }
    }
}

/// S1: a `ClusterIP` is none of our business.
#[test]
fn a_cluster_ip_is_ignored() {
    assert_eq!(
        plan(
            &service(json!({}), json!({ "type": "ClusterIP" }), json!({})),
            &scope()
        ),
        Plan::Ignore
    );
}

/// S3: a Service of another class is left alone, its finalizer and its address with it.
#[test]
fn a_foreign_class_is_ignored_whatever_is_on_it() {
    let foreign = json!({ "loadBalancerClass": "example.com/other" });
    let status = json!({ "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } });
    for deleted in [json!({}), json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" })] {
        let mut metadata = deleted;
        metadata["finalizers"] = json!([FINALIZER]);
        assert_eq!(
            plan(&service(metadata, foreign.clone(), status.clone()), &scope()),
            Plan::Ignore
        );
    }
}

#[test]
fn ours_is_what_the_scope_says() {
    let classless = service(json!({}), json!({}), json!({}));
    let ours = service(
        json!({}),
        json!({ "loadBalancerClass": "groundplane.dev/eip" }),
        json!({}),
    );
    let configured = service(json!({}), json!({ "loadBalancerClass": "a.b/c" }), json!({}));
    let unmanaged = annotated("groundplane.dev/managed", "false");
    let scope = |claim, class: &str, namespaces: &[&str]| {
        Scope::of(&Config {
            claim_classless: claim,
            load_balancer_class: class.to_owned(),
            namespaces: namespaces.iter().map(|n| (*n).to_owned()).collect(),
            ..Config::default()
        })
    };
    let default = "groundplane.dev/eip";
    for (service, scope, expected) in [
        (&classless, scope(true, default, &[]), true),
        (&classless, scope(false, default, &[]), false),
        (&ours, scope(false, "a.b/c", &[]), true),
        (&configured, scope(false, "a.b/c", &[]), true),
        (&configured, scope(true, default, &[]), false),
        (&unmanaged, scope(true, default, &[]), false),
        (&classless, scope(true, default, &["default"]), true),
        (&classless, scope(true, default, &["other"]), false),
    ] {
        assert_eq!(scope.has(service), expected, "{scope:?}");
        assert_eq!(scope.why_not(service).is_none(), expected);
    }
}

#[test]
fn what_was_ours_is_released_when_it_is_taken_from_us() {
    let finalizer = json!([FINALIZER]);
    let held = json!({ "conditions": [condition(condition::ASSIGNED)] });
    let opted_out = json!({ "finalizers": finalizer, "annotations": { "groundplane.dev/managed": "false" } });
    assert_eq!(
        plan(&service(opted_out, json!({}), held), &scope()),
        Plan::Release { finalizer: true }
    );
    // Never got an address: the finalizer is ours all the same.
    let waiting = json!({ "conditions": [condition("PoolExhausted")] });
    let opted_out = json!({ "finalizers": finalizer, "annotations": { "groundplane.dev/managed": "false" } });
    assert_eq!(
        plan(&service(opted_out, json!({}), waiting), &scope()),
        Plan::Release { finalizer: true }
    );
    // Not told by us, so perhaps not made by us.
    let never = json!({ "finalizers": finalizer, "annotations": { "groundplane.dev/managed": "false" } });
    assert_eq!(
        plan(&service(never, json!({}), json!({})), &scope()),
        Plan::Ignore
    );
}

#[test]
fn a_service_that_we_could_not_take_over_keeps_the_finalizer_of_its_controller() {
    let foreign = json!({
        "loadBalancer": { "ingress": [{ "ip": "198.51.100.1" }] },
        "conditions": [condition(condition::FOREIGN)],
    });
    let deleting = json!({ "finalizers": [FINALIZER], "deletionTimestamp": "2026-01-01T00:00:00Z" });
    assert_eq!(
        plan(&service(deleting, json!({}), foreign.clone()), &scope()),
        Plan::Ignore
    );
    let flipped = service(
        json!({ "finalizers": [FINALIZER] }),
        json!({ "type": "ClusterIP" }),
        foreign,
    );
    assert_eq!(
        plan(&flipped, &scope()),
        Plan::Release { finalizer: false },
        "our condition goes"
    );
}

#[test]
fn families_follow_the_policy() {
    use Family::{V4, V6};
    let any = |spec| wanted(&service(json!({}), spec, json!({})));
    for (families, policy, expected) in [
        (json!(["IPv4"]), "SingleStack", vec![(V4, None, false)]),
        (json!(["IPv6"]), "SingleStack", vec![(V6, None, false)]),
        (
            json!(["IPv6", "IPv4"]),
            "PreferDualStack",
            vec![(V6, None, false), (V4, None, true)],
        ),
        (json!(["IPv4"]), "PreferDualStack", vec![(V4, None, false)]),
        (
            json!(["IPv4", "IPv6"]),
            "RequireDualStack",
            vec![(V4, None, false), (V6, None, false)],
        ),
    ] {
        assert_eq!(
            any(json!({ "ipFamilies": families, "ipFamilyPolicy": policy })),
            expected,
            "{policy}"
        );
    }
}

/// E39: an address that the user brings is what is asked for; our own annotation comes before those of others.
#[test]
fn requested_addresses_are_read_wherever_users_write_them() {
    let asks = |service: &ServiceObject| wanted(service)[0].1.clone();
    for key in [
        "groundplane.dev/addresses",
        "kube-vip.io/loadbalancerIPs",
        "metallb.io/loadBalancerIPs",
        "metallb.universe.tf/loadBalancerIPs",
        "cherryservers.com/loadBalancerIPs",
    ] {
        assert_eq!(
            asks(&annotated(key, " 192.0.2.7 ")),
            Some("192.0.2.7".to_owned()),
            "{key}"
        );
    }
    let spec = json!({ "loadBalancerIP": "192.0.2.9" });
    assert_eq!(
        asks(&service(json!({}), spec.clone(), json!({}))),
        Some("192.0.2.9".to_owned())
    );
    let both = json!({ "annotations": { "groundplane.dev/addresses": "192.0.2.7" } });
    assert_eq!(
        asks(&service(both, spec, json!({}))),
        Some("192.0.2.7".to_owned())
    );
}

/// E42: what we wrote for the announcer is no wish, so that a Service that comes back asks for any address.
#[test]
fn what_we_wrote_is_no_wish() {
    let recorded = json!({ "annotations": {
        "groundplane.dev/announced": "kube-vip.io/loadbalancerIPs=192.0.2.7 spec.loadBalancerIP=192.0.2.7",
        "kube-vip.io/loadbalancerIPs": "192.0.2.7",
    }});
    let ours = service(
        recorded.clone(),
        json!({ "loadBalancerIP": "192.0.2.7" }),
        json!({}),
    );
    assert_eq!(wanted(&ours), [(Family::V4, None, false)]);
    let edited = service(recorded, json!({ "loadBalancerIP": "192.0.2.9" }), json!({}));
    assert_eq!(
        wanted(&edited),
        [(Family::V4, Some("192.0.2.9".to_owned()), false)]
    );
}

#[test]
fn a_request_that_cannot_be_is_named() {
    for (text, reason, part) in [
        (
            "2001:db8::1",
            "WrongFamily",
            "2001:db8::1 in annotation groundplane.dev/addresses is IPv6",
        ),
        ("192.0.2.x", "InvalidAddress", "`192.0.2.x`"),
        ("192.0.2.1,192.0.2.2", "InvalidAddress", "two addresses of IPv4"),
        ("0/0", "InvalidAddress", "`0/0`"),
    ] {
        let refusal = refusal(&annotated("groundplane.dev/addresses", text));
        assert_eq!(refusal.reason, reason, "{text}");
        assert!(refusal.message.contains(part), "{}", refusal.message);
    }
    assert_eq!(
        refusal(&annotated("groundplane.dev/pool", "a/b/c")).reason,
        "InvalidPool"
    );
}

#[test]
fn a_pool_may_have_a_namespace() {
    let pool = |text: &str| {
        wish(&annotated("groundplane.dev/pool", text), &scope())
            .pool
            .unwrap()
    };
    assert_eq!(
        pool("public"),
        PoolName {
            namespace: String::new(),
            name: "public".to_owned()
        }
    );
    assert_eq!(
        pool("lab/public"),
        PoolName {
            namespace: "lab".to_owned(),
            name: "public".to_owned()
        }
    );
}

#[test]
fn a_live_address_is_asked_for_again_where_pools_give_it() {
    let live = |reason: &str| {
        let ingress = json!([{ "ip": "192.0.2.7", "ipMode": "VIP" }]);
        service(
            json!({}),
            json!({}),
            json!({ "loadBalancer": { "ingress": ingress }, "conditions": [condition(reason)] }),
        )
    };
    let cloud = Scope {
        pin: false,
        ..scope()
    };
    let address = |service: &ServiceObject, scope: &Scope| wish(service, scope).wants[0].address.is_some();
    assert!(address(&live(condition::ASSIGNED), &scope()));
    // S23: what vanished in the cloud must be replaced, not asked for.
    assert!(!address(&live(condition::ASSIGNED), &cloud));
    assert!(
        address(&live(condition::ADOPTED), &cloud),
        "only the status says which address it has"
    );
    assert!(address(&live(condition::KEPT_ADOPTED), &cloud));
    let before = wish(&live(condition::ASSIGNED), &cloud).fingerprint;
    assert_eq!(
        wish(&live(condition::ASSIGNED), &scope()).fingerprint,
        before,
        "the wish of the user is the same"
    );
}

/// A cluster that already runs: what others gave is taken over as it is, or left alone.
#[test]
fn ingress_from_somebody_else_is_all_that_is_asked_for() {
    let given = |ingress: Value, spec: Value| {
        service(json!({}), spec, json!({ "loadBalancer": { "ingress": ingress } }))
    };
    let dual = json!({ "ipFamilies": ["IPv6", "IPv4"], "ipFamilyPolicy": "PreferDualStack" });
    let one = wish(&given(json!([{ "ip": "192.0.2.7" }]), dual.clone()), &scope());
    assert!(one.foreign);
    assert_eq!(
        one.wants,
        [Want {
            family: Family::V4,
            address: Some("192.0.2.7".parse().unwrap()),
            optional: false
        }]
    );
    let two = wish(
        &given(json!([{ "ip": "192.0.2.7" }, { "ip": "2001:db8::7" }]), dual),
        &scope(),
    );
    assert_eq!(two.wants[0].family, Family::V6, "in the order of the Service");
    let host = refusal(&given(json!([{ "hostname": "lb.example.com" }]), json!({})));
    assert_eq!(host.reason, "NotAnAddress");
    let many = refusal(&given(
        json!([{ "ip": "192.0.2.7" }, { "ip": "192.0.2.8" }]),
        json!({}),
    ));
    assert_eq!(many.reason, "TooManyAddresses");
    let other = refusal(&given(
        json!([{ "ip": "192.0.2.7" }]),
        json!({ "loadBalancerIP": "192.0.2.8" }),
    ));
    assert_eq!(other.reason, "AlreadyHolds");
}

/// S11: a key with two slashes is no key.
#[test]
fn a_key_with_two_slashes_is_refused() {
    assert!("a/b/c".parse::<crate::cluster::objects::Key>().is_err());
}

/// E77: the external Service of the API endpoint is not ours to serve, also before it says so itself: an older controller's has no class.
#[test]
fn the_external_service_of_the_endpoint_is_left_alone() {
    let config = Config {
        external: Some(crate::config::ExternalService {
            namespace: "default".to_owned(),
            name: "web".to_owned(),
            address: None,
            port: None,
            node_port: None,
            node_selector: String::new(),
            ip_mode: crate::config::IpMode::default(),
        }),
        ..Config::default()
    };
    let scope = Scope::of(&config);
    let external = service(json!({}), json!({}), json!({}));
    assert!(!scope.has(&external));
    assert!(scope.why_not(&external).unwrap().contains("API endpoint"));
    let other = service(json!({ "namespace": "other" }), json!({}), json!({}));
    assert!(scope.has(&other));
}

/// E77: that of an older controller of whatever generation is no load balancer that somebody wants, even where no endpoint is configured.
#[test]
fn the_external_services_of_older_controllers_are_left_alone() {
    let scope = Scope::of(&Config::default());
    for name in [
        "cloud-provider-equinix-metal-kubernetes-external",
        "packet-ccm-kubernetes-external",
        "metal-ccm-kubernetes-external",
        "cloud-provider-cherry-kubernetes-external",
    ] {
        let named = |namespace: &str| {
            service(
                json!({ "namespace": namespace, "name": name }),
                json!({}),
                json!({}),
            )
        };
        assert!(!scope.has(&named("kube-system")), "{name}");
        assert!(!scope.hides(&named("kube-system")), "{name}");
        assert!(
            scope
                .why_not(&named("kube-system"))
                .unwrap()
                .contains("API endpoint")
        );
        assert!(scope.has(&named("default")), "{name} of somebody else");
    }
}
