//! Services that name one address, that share it, and that would be one too many.

use pretty_assertions::assert_eq;

use super::*;
use crate::gateway::WAITS_FOR_SERVICE;

const SHARED: &str = "192.0.2.7";

/// What somebody changes of a Service.
type Edit = fn(&mut Value);

/// A Service with one port, which names the address where `asks`, and shares it under `key`.
fn service(name: &str, port: u16, asks: bool, key: &str) -> Value {
    let mut annotations = json!({});
    if !key.is_empty() {
        annotations["metallb.io/allow-shared-ip"] = json!(key);
    }
    with(|service| {
        service["metadata"]["name"] = json!(name);
        service["metadata"]["uid"] = json!(name);
        service["metadata"]["annotations"] = annotations;
        service["spec"]["ports"] = json!([{ "port": port }]);
        if asks {
            service["spec"]["loadBalancerIP"] = json!(SHARED);
        }
    })
}

struct Two {
    setup: Setup,
    second: Key,
}

impl Two {
    fn new(first: Value, second: Value) -> Self {
        Self::with(cloud(), first, second)
    }

    /// As the gateway is configured where a BGP session carries one prefix.
    fn limited(first: Value, second: Value) -> Self {
        let config = Config {
            max_prefixes: 1,
            ..cloud()
        };
        Self::with(config, first, second)
    }

    fn with(config: Config, first: Value, second: Value) -> Self {
        let setup = Setup::new(config, first, &[SHARED, "192.0.2.8"]);
        let second = setup.world.service(second);
        Self { setup, second }
    }

    async fn first(&self) -> Outcome {
        self.setup.reconcile().await
    }

    async fn second(&self) -> Outcome {
        self.setup.controller.reconcile(&self.second).await
    }

    fn object(&self, name: &str) -> Value {
        let path = format!("/api/v1/namespaces/default/services/{name}");
        self.setup.world.api.get(&path).unwrap()
    }

    fn says(&self, name: &str) -> (String, String) {
        let service = self.object(name);
        let ip = &service["status"]["loadBalancer"]["ingress"][0]["ip"];
        let reason = &service["status"]["conditions"][0]["reason"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(ip), text(reason))
    }

    fn delete(&self, name: &str) {
        let mut service = self.object(name);
        service["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        self.setup.world.service(service);
    }
}

fn said(ip: &str, reason: &str) -> (String, String) {
    (ip.to_owned(), reason.to_owned())
}

/// Of two that name one address without a key, the one that has it keeps it, and the other is told whose it is; it comes when that goes.
#[tokio::test]
async fn of_two_that_name_one_address_one_has_it() {
    let two = Two::new(service("api", 443, true, ""), service("web", 80, true, ""));
    assert_eq!(two.first().await, Outcome::Done);
    assert_eq!(two.second().await, Outcome::Parked(WAITS_FOR_SERVICE));
    assert_eq!(two.says("web"), said("", "AddressInUse"));
    let message = two.object("web")["status"]["conditions"][0]["message"].to_string();
    assert!(message.contains("default/api"), "{message}");
    two.delete("api");
    assert_eq!(two.first().await, Outcome::Done);
    two.setup.world.eip.free(&[SHARED]);
    assert_eq!(two.second().await, Outcome::Done);
    assert_eq!(two.says("web"), said(SHARED, "Assigned"));
}

/// Who has it comes before who is the first by name, though only an answer says so that no status shows yet.
#[tokio::test]
async fn an_answer_that_no_status_shows_yet_counts() {
    let two = Two::new(service("web", 80, true, ""), service("api", 443, false, ""));
    let status = "PATCH /api/v1/namespaces/default/services/web/status";
    two.setup.world.api.fail(status, 503, 1);
    two.first().await;
    assert_eq!(two.says("web").0, "", "the status was not written");
    two.setup.world.service(service("api", 443, true, ""));
    assert_eq!(two.second().await, Outcome::Parked(WAITS_FOR_SERVICE));
    assert_eq!(two.first().await, Outcome::Done);
    assert_eq!(two.says("web"), said(SHARED, "Assigned"));
}

/// With one key and ports apart, both have it; when the first goes, it is the second's, and it goes with the last.
#[tokio::test]
async fn what_two_share_goes_with_the_last() {
    let two = Two::new(service("web", 80, false, "k"), service("api", 443, true, "k"));
    assert_eq!(two.first().await, Outcome::Done);
    assert_eq!(two.second().await, Outcome::Done);
    assert_eq!(
        (two.says("web").0, two.says("api").0),
        (SHARED.to_owned(), SHARED.to_owned())
    );
    two.delete("web");
    assert_eq!(two.first().await, Outcome::Done);
    assert_eq!(two.setup.world.eip.held("default/web"), [""; 0]);
    assert_eq!(two.setup.world.eip.held("default/api"), ["192.0.2.7/32"]);
    two.delete("api");
    assert_eq!(two.second().await, Outcome::Done);
    assert_eq!(two.setup.world.eip.held("default/api"), [""; 0]);
}

/// The API server empties the status of what is no load balancer any more, and who has just begun to lead remembers nothing: who shares
/// the address has it all the same.
#[tokio::test]
async fn an_emptied_status_disinherits_nobody() {
    let two = Two::new(service("web", 80, false, "k"), service("api", 443, true, "k"));
    two.first().await;
    two.second().await;
    two.setup.world.eip.reserve("r", "default/web", SHARED);
    two.setup.world.gateway.held.forget(&two.setup.key);
    two.setup.change(|service| {
        service["spec"]["type"] = json!("ClusterIP");
        service["status"]["loadBalancer"] = json!({});
    });
    assert_eq!(two.first().await, Outcome::Done);
    assert_eq!(two.setup.world.eip.held("default/web"), [""; 0]);
    assert_eq!(two.setup.world.eip.held("default/api"), ["192.0.2.7/32"]);
}

/// An heir that the API server does not know any more inherits nothing: it would be nobody's.
#[tokio::test]
async fn who_is_gone_inherits_nothing() {
    let two = Two::new(service("web", 80, false, "k"), service("api", 443, true, "k"));
    two.first().await;
    two.second().await;
    two.setup
        .world
        .api
        .remove("/api/v1/namespaces/default/services/api");
    two.delete("web");
    assert_eq!(two.first().await, Outcome::Done);
    assert_eq!(two.setup.world.eip.held("default/api"), [""; 0]);
}

/// Whether an heir lives is not known: nothing is given back until it is.
#[tokio::test]
async fn while_an_heir_is_in_doubt_nothing_goes() {
    let two = Two::new(service("web", 80, false, "k"), service("api", 443, true, "k"));
    two.first().await;
    two.second().await;
    two.delete("web");
    let read = "GET /api/v1/namespaces/default/services/api";
    two.setup.world.api.fail(read, 503, 1);
    assert!(matches!(two.first().await, Outcome::After(_)));
    assert_eq!(two.setup.world.eip.held("default/web"), ["192.0.2.7/32"]);
    assert_eq!(two.first().await, Outcome::Done);
    assert_eq!(two.setup.world.eip.held("default/api"), ["192.0.2.7/32"]);
}

/// A port in common.
#[tokio::test]
async fn a_port_in_common_is_refused() {
    let two = Two::new(service("web", 80, false, "k"), service("api", 80, true, "k"));
    two.first().await;
    assert_eq!(two.second().await, Outcome::Parked(WAITS_FOR_SERVICE));
    assert_eq!(two.says("api"), said("", "PortInUse"));
    let mut other = two.object("api");
    other["spec"]["ports"] = json!([{ "port": 81 }]);
    two.setup.world.service(other);
    assert_eq!(two.second().await, Outcome::Done);
    assert_eq!(two.says("api"), said(SHARED, "Assigned"));
}

/// E42: what an older controller wrote as a request goes with the address, so that the next time another one is asked for.
#[tokio::test]
async fn a_request_for_what_goes_back_goes_with_it() {
    for (held_by, left) in [("default/web", Value::Null), ("default/other", json!(SHARED))] {
        let setup = Setup::new(cloud(), service("web", 80, true, ""), &[SHARED]);
        setup.reconcile().await;
        setup.world.eip.reserve("r", held_by, SHARED);
        setup.change(|service| service["spec"]["type"] = json!("ClusterIP"));
        assert_eq!(setup.reconcile().await, Outcome::Done);
        assert_eq!(setup.live()["spec"]["loadBalancerIP"], left, "{held_by}");
    }
}

/// E42: the same in an annotation: Cherry Servers' controller's own, and one that it was told to write.
#[tokio::test]
async fn an_annotation_with_what_goes_back_goes_with_it() {
    let told = "example.org/ips";
    for key in ["cherryservers.com/loadBalancerIPs", told] {
        let config = Config {
            empty: config::Empty {
                tell: vec![told.to_owned()],
            },
            ..cloud()
        };
        let mut before = service("web", 80, false, "");
        before["metadata"]["annotations"] = json!({ key: SHARED });
        let setup = Setup::new(config, before, &[SHARED]);
        setup.reconcile().await;
        assert_eq!(setup.live()["metadata"]["annotations"][told], SHARED, "{key}");
        setup.world.eip.reserve("r", "default/web", SHARED);
        setup.change(|service| service["spec"]["type"] = json!("ClusterIP"));
        assert_eq!(setup.reconcile().await, Outcome::Done);
        let annotations = setup.live()["metadata"]["annotations"].clone();
        assert_eq!(
            (&annotations[key], &annotations[told]),
            (&Value::Null, &Value::Null)
        );
    }
}

/// E52: one address too many is not given, and given when another goes; who has one keeps it.
#[tokio::test]
async fn one_prefix_too_many_is_refused() {
    let two = Two::limited(service("web", 80, false, ""), service("api", 443, false, ""));
    assert_eq!(two.first().await, Outcome::Done);
    assert_eq!(two.second().await, Outcome::Parked(WAITS_FOR_SERVICE));
    assert_eq!(two.says("api"), said("", "PrefixLimit"));
    two.setup.world.gateway.held.reconsider_all();
    assert_eq!(two.first().await, Outcome::Done);
    assert_eq!(two.says("web").1, "Assigned");
    two.delete("web");
    assert_eq!(two.first().await, Outcome::Done);
    two.setup.world.api.remove(PATH);
    let gone = two
        .setup
        .world
        .gateway
        .cluster
        .services
        .get(&two.setup.key)
        .unwrap();
    two.setup.world.gateway.cluster.services.index.delete(&gone);
    assert_eq!(two.second().await, Outcome::Done);
}

/// E52: what an older controller announced counts before anybody has looked at it, and keeps its place whoever is looked at first.
#[tokio::test]
async fn what_is_announced_already_counts_before_it_is_adopted() {
    let mut old = service("web", 80, true, "");
    old["status"] = json!({ "loadBalancer": { "ingress": [{ "ip": SHARED }] } });
    let two = Two::limited(old, service("api", 443, false, ""));
    assert_eq!(two.second().await, Outcome::Parked(WAITS_FOR_SERVICE));
    assert_eq!(two.says("api"), said("", "PrefixLimit"));
    assert_eq!(two.first().await, Outcome::Done);
    assert_eq!(two.says("web").0, SHARED);
}

/// E52: the cloud's limit holds where none is configured, and the lower one where both are.
#[tokio::test(start_paused = true)]
async fn of_two_limits_the_lower_one_holds() {
    for (configured, allowed, fits) in [
        (0, 1, false),
        (5, 1, false),
        (1, 5, false),
        (0, 2, true),
        (0, 0, true),
    ] {
        let config = Config {
            max_prefixes: configured,
            ..cloud()
        };
        let two = Two::with(
            config,
            service("web", 80, false, ""),
            service("api", 443, false, ""),
        );
        two.setup.world.bgp.limit(allowed, allowed);
        assert_eq!(two.first().await, Outcome::Done);
        let expected = if fits {
            Outcome::Done
        } else {
            Outcome::Parked(WAITS_FOR_SERVICE)
        };
        assert_eq!(two.second().await, expected, "{configured} and {allowed}");
    }
}

/// E52: a limit that was raised is asked for before a Service is refused; and one that was refused comes when it is.
#[tokio::test(start_paused = true)]
async fn a_raised_limit_lets_services_in() {
    let two = Two::with(
        cloud(),
        service("web", 80, false, ""),
        service("api", 443, false, ""),
    );
    let bgp = &two.setup.world.bgp;
    bgp.limit(1, 1);
    assert_eq!(two.first().await, Outcome::Done);
    assert_eq!(two.second().await, Outcome::Parked(WAITS_FOR_SERVICE));
    let message = two.object("api")["status"]["conditions"][0]["message"].to_string();
    assert!(message.contains("the cloud raise the limit"), "{message}");
    bgp.limit(1, 2);
    tokio::time::advance(Duration::from_secs(11)).await;
    assert_eq!(two.second().await, Outcome::Done);
}

/// E52: while nobody knows the limit, no Service gets a new address, and each keeps what it has; a limit that was told holds until another
/// is told; and where no node speaks BGP, none is asked for.
#[tokio::test(start_paused = true)]
async fn an_unknown_limit_is_waited_for() {
    let two = Two::with(
        cloud(),
        service("web", 80, false, ""),
        service("api", 443, false, ""),
    );
    let world = &two.setup.world;
    let away = rpc_error(ErrorKind::Unavailable, "CLOUD_UNAVAILABLE");
    world.bgp.fail_project(&away);
    assert!(matches!(two.first().await, Outcome::After(_)));
    assert!(world.eip.ensured().is_empty());
    world.bgp.limit(2, 2);
    assert_eq!(two.first().await, Outcome::Done);
    world.bgp.fail_project(&away);
    tokio::time::advance(Duration::from_secs(3_600)).await;
    assert_eq!(two.second().await, Outcome::Done);
    two.setup.world.gateway.held.reconsider_all();
    assert_eq!(two.first().await, Outcome::Done);

    let config = Config {
        bgp_node_selector: "speaks=bgp".to_owned(),
        ..cloud()
    };
    let silent = Two::with(
        config,
        service("web", 80, false, ""),
        service("api", 443, false, ""),
    );
    silent.setup.world.bgp.fail_project(&away);
    assert_eq!(silent.first().await, Outcome::Done);
}

/// E52: what is shared is one prefix.
#[tokio::test]
async fn a_shared_address_is_one_prefix() {
    let two = Two::limited(service("web", 80, false, "k"), service("api", 443, true, "k"));
    assert_eq!(two.first().await, Outcome::Done);
    assert_eq!(two.second().await, Outcome::Done);
}

/// S16, S17: what decides about its address is looked at, whatever else changes is not.
#[tokio::test]
async fn only_what_matters_is_looked_at() {
    let changes: [(bool, Edit); 14] = [
        (true, |service| service["spec"]["type"] = json!("ClusterIP")),
        (true, |service| service["spec"]["ports"] = json!([{ "port": 81 }])),
        (true, |service| {
            service["spec"]["ports"] = json!([{ "port": 80, "protocol": "UDP" }]);
        }),
        (true, |service| {
            service["spec"]["ipFamilies"] = json!(["IPv4", "IPv6"]);
        }),
        (true, |service| {
            service["spec"]["ipFamilyPolicy"] = json!("PreferDualStack");
        }),
        (true, |service| {
            service["spec"]["externalTrafficPolicy"] = json!("Local");
        }),
        (true, |service| service["spec"]["loadBalancerIP"] = json!(SHARED)),
        (true, |service| {
            service["spec"]["loadBalancerClass"] = json!("example.com/other");
        }),
        (true, |service| service["metadata"]["uid"] = json!("another")),
        (true, |service| {
            service["metadata"]["labels"] = json!({ "team": "a" });
        }),
        (true, |service| {
            service["metadata"]["annotations"]["groundplane.dev/managed"] = json!("false");
        }),
        (false, |_| {}),
        (false, |service| {
            service["spec"]["selector"] = json!({ "app": "web" });
        }),
        (false, |service| {
            service["metadata"]["annotations"]["example.com/any"] = json!("x");
        }),
    ];
    for (at, (matters, change)) in changes.into_iter().enumerate() {
        let setup = Setup::new(cloud(), service("web", 80, false, ""), &[SHARED]);
        let mut changed_service = setup.live();
        change(&mut changed_service);
        let stored = setup
            .world
            .api
            .put("/api/v1/namespaces/default/services", changed_service);
        let index = &setup.world.gateway.cluster.services.index;
        let told = index.apply(serde_json::from_value(stored).unwrap());
        if let Some(told) = &told {
            changed(&setup.world.gateway, told);
        }
        let woken = setup.world.gateway.queues.services.depth().ready;
        assert_eq!(woken > 0, matters, "change {at}");
    }
}

/// S20: a Service that another implementation serves keeps its finalizer and its status, and gets no write from us.
#[tokio::test]
async fn what_others_serve_is_not_written_to() {
    for (driver, key) in [
        (DriverName::Equinix, "groundplane.dev/managed"),
        (DriverName::Cherry, "groundplane.dev/managed"),
        (DriverName::Cherry, "cherryservers.com/loadbalancer-managed"),
    ] {
        let served = with(|service| {
            service["metadata"]["finalizers"] = json!([FINALIZER]);
            service["metadata"]["annotations"] = json!({ key: "false" });
            service["status"]["loadBalancer"]["ingress"] = json!([{ "ip": "198.51.100.1" }]);
        });
        let config = Config {
            driver,
            ..Config::default()
        };
        let mut setup = Setup::new(config, served, &[SHARED]);
        assert!(setup.controller.due().is_empty() && setup.controller.all().is_empty());
        assert_eq!(setup.reconcile().await, Outcome::Done);
        assert!(
            setup.patches().is_empty() && setup.events().is_empty(),
            "{driver} {key}"
        );
        assert!(setup.world.eip.ensured().is_empty());
    }
}

/// E49: Cherry's word is Cherry's: in another cloud it leaves nothing to anybody.
#[tokio::test]
async fn the_opt_out_of_another_cloud_means_nothing() {
    let annotated = with(|service| {
        service["metadata"]["annotations"] = json!({ "cherryservers.com/loadbalancer-managed": "false" });
    });
    let setup = Setup::new(cloud(), annotated, &[SHARED]);
    assert_eq!(setup.reconcile().await, Outcome::Done);
    assert_eq!(setup.ingress()[0]["ip"], SHARED);
}

/// E52: a place that was taken for an address which never came is free again when its Service is gone, though nobody released it.
#[tokio::test]
async fn a_place_goes_with_its_service() {
    let two = Two::limited(service("web", 80, false, ""), service("api", 443, false, ""));
    let world = &two.setup.world;
    world.eip.fail(rpc_error(ErrorKind::Unavailable, "CLOUD"));
    assert!(matches!(two.first().await, Outcome::After(_)));
    assert_eq!(two.second().await, Outcome::Parked(WAITS_FOR_SERVICE));
    // Its finalizer was taken by force.
    let services = &world.gateway.cluster.services;
    let gone = services.get(&two.setup.key).unwrap();
    services.index.delete(&gone);
    world.api.remove(PATH);
    assert_eq!(two.first().await, Outcome::Done);
    assert_eq!(two.second().await, Outcome::Done);
    assert_eq!(two.says("api").1, "Assigned");
}
