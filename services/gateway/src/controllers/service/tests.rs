use groundplane_core::{DriverName, ErrorKind};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::*;
use crate::config::{self, Config};
use crate::gateway::Standing;
use crate::testing::{World, fresh_node, rpc_error};

mod company;
mod others;

const PATH: &str = "/api/v1/namespaces/default/services/web";
const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

struct Setup {
    world: World,
    controller: ServiceController,
    key: Key,
}

impl Setup {
    /// One Service, a node, and what gives addresses.
    fn new(config: Config, service: Value, free: &[&'static str]) -> Self {
        let world = World::new(config);
        world.node(fresh_node("n"));
        world.eip.free(free);
        world.gateway.adoption.set(Standing::Adopted {
            store: "s".to_owned(),
            revision: 1,
        });
        let key = world.service(service);
        let controller = ServiceController::new(Arc::clone(&world.gateway));
        Self {
            world,
            controller,
            key,
        }
    }

    fn empty(service: Value) -> Self {
        Self::new(
            Config::default(),
            service,
            &["192.0.2.7", "192.0.2.8", "2001:db8::7"],
        )
    }

    async fn reconcile(&self) -> Outcome {
        self.controller.reconcile(&self.key).await
    }

    fn live(&self) -> Value {
        self.world.api.get(PATH).unwrap()
    }

    /// Somebody changes the Service, and the watch tells.
    fn change(&self, change: impl FnOnce(&mut Value)) {
        let mut service = self.live();
        change(&mut service);
        self.world.service(service);
    }

    fn patches(&self) -> Vec<String> {
        self.world
            .api
            .calls()
            .into_iter()
            .map(|call| call.replace(PATH, ""))
            .collect()
    }

    fn events(&mut self) -> Vec<&'static str> {
        self.world
            .events
            .take()
            .into_iter()
            .map(|(_, reason)| reason)
            .collect()
    }

    fn forget_writes(&mut self) {
        self.patches();
        self.events();
    }

    fn condition(&self) -> (String, String) {
        let condition = &self.live()["status"]["conditions"][0];
        let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        (text("status"), text("reason"))
    }

    fn ingress(&self) -> Value {
        self.live()["status"]["loadBalancer"]["ingress"].clone()
    }
}

fn web() -> Value {
    json!({
        "metadata": { "name": "web", "namespace": "default", "uid": "u1" },
        "spec": { "type": "LoadBalancer", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack" },
        "status": { "loadBalancer": {} },
    })
}

fn with(change: impl FnOnce(&mut Value)) -> Value {
    let mut service = web();
    change(&mut service);
    service
}

fn kube_vip() -> Config {
    Config {
        announcer: config::Announcer::KubeVip,
        ..Config::default()
    }
}

fn cloud() -> Config {
    Config {
        driver: DriverName::Equinix,
        ..Config::default()
    }
}

/// S2, S6: the finalizer, the status, one event; and nothing when it is looked at again.
#[tokio::test]
async fn a_service_gets_its_address_in_two_patches() {
    let mut setup = Setup::empty(web());
    assert_eq!(setup.controller.due(), std::slice::from_ref(&setup.key));
    assert_eq!(setup.reconcile().await, Outcome::Done);
    assert_eq!(setup.patches(), ["PATCH ", "PATCH /status"]);
    assert_eq!(setup.events(), ["EnsuredLoadBalancer"]);
    assert_eq!(setup.live()["metadata"]["finalizers"], json!([FINALIZER]));
    assert_eq!(setup.ingress(), json!([{ "ip": "192.0.2.7", "ipMode": "VIP" }]));
    assert_eq!(setup.condition(), ("True".to_owned(), "Assigned".to_owned()));
    assert_eq!(setup.world.eip.ensured().len(), 1);
    assert!(setup.controller.due().is_empty());
    assert_eq!(setup.reconcile().await, Outcome::Done);
    assert!(setup.patches().is_empty() && setup.events().is_empty());
    assert!(
        setup.world.eip.ensured().is_empty(),
        "known from a short while ago"
    );
}

/// S2, E35: an announcer that reads the spec makes it three patches.
#[tokio::test]
async fn kube_vip_makes_it_three_patches() {
    let mut setup = Setup::new(kube_vip(), web(), &["192.0.2.7"]);
    assert_eq!(setup.reconcile().await, Outcome::Done);
    assert_eq!(setup.patches(), ["PATCH ", "PATCH ", "PATCH /status"]);
    assert_eq!(setup.events(), ["EnsuredLoadBalancer"]);
    assert_eq!(setup.live()["spec"]["loadBalancerIP"], "192.0.2.7");
    assert_eq!(
        setup.live()["metadata"]["annotations"]["kube-vip.io/loadbalancerIPs"],
        "192.0.2.7"
    );
    assert!(setup.controller.due().is_empty());
}

/// Restart: nothing is remembered, nothing is written.
#[tokio::test]
async fn a_restart_asks_once_and_writes_nothing() {
    let mut setup = Setup::new(kube_vip(), web(), &["192.0.2.7"]);
    setup.reconcile().await;
    setup.forget_writes();
    setup.world.gateway.held.forget(&setup.key);
    setup.world.eip.ensured();
    assert_eq!(setup.reconcile().await, Outcome::Done);
    let asked = setup.world.eip.ensured();
    assert_eq!(asked.len(), 1);
    assert_eq!(
        asked[0].requests[0].address, "192.0.2.7",
        "the address in live status is asked for"
    );
    assert!(setup.patches().is_empty() && setup.events().is_empty());
}

/// S4, E40: a Service that is no load balancer any more gives everything back; the finalizer goes last.
#[tokio::test]
async fn a_type_flip_takes_everything_back() {
    let mut setup = Setup::new(kube_vip(), web(), &["192.0.2.7"]);
    setup.reconcile().await;
    setup.forget_writes();
    setup.change(|service| service["spec"]["type"] = json!("ClusterIP"));
    assert_eq!(setup.reconcile().await, Outcome::Done);
    assert_eq!(setup.patches(), ["PATCH ", "PATCH /status", "PATCH /status"]);
    assert_eq!(setup.events(), ["DeletedLoadBalancer"]);
    assert_eq!(
        setup.world.eip.released(),
        [("default/web".to_owned(), "u1".to_owned())]
    );
    let live = setup.live();
    assert_eq!(live["metadata"]["finalizers"], json!([]));
    assert_eq!(live["metadata"]["annotations"], json!({}));
    assert!(live["spec"]["loadBalancerIP"].is_null() && setup.ingress().is_null());
    assert_eq!(live["status"]["conditions"], json!([]));
    assert_eq!(setup.reconcile().await, Outcome::Done);
    assert!(setup.patches().is_empty() && setup.events().is_empty());
}

/// S4 as the upstream has it: a finalizer and an address from before, and no word of ours.
#[tokio::test]
async fn a_cluster_ip_with_a_finalizer_is_cleaned_up_in_two_patches() {
    let setup = Setup::empty(with(|service| {
        service["spec"]["type"] = json!("ClusterIP");
        service["metadata"]["finalizers"] = json!([FINALIZER]);
        service["status"]["loadBalancer"]["ingress"] = json!([{ "ip": "192.0.2.7" }]);
    }));
    assert_eq!(setup.reconcile().await, Outcome::Done);
    assert_eq!(setup.patches(), ["PATCH /status", "PATCH /status"]);
    assert_eq!(setup.live()["metadata"]["finalizers"], json!([]));
    assert!(setup.ingress().is_null());
}

/// S5: what is being deleted needs one write, the finalizer's; other finalizers stay.
#[tokio::test]
async fn a_deletion_needs_one_patch() {
    let mut setup = Setup::empty(with(|service| {
        service["metadata"]["finalizers"] = json!(["example.com/other"]);
    }));
    setup.reconcile().await;
    setup.forget_writes();
    setup.change(|service| service["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
    assert_eq!(setup.reconcile().await, Outcome::Done);
    assert_eq!(setup.patches(), ["PATCH /status"]);
    assert_eq!(
        setup.live()["metadata"]["finalizers"],
        json!(["example.com/other"])
    );
    assert_eq!(setup.world.eip.held("default/web"), [""; 0]);
    assert_eq!(setup.events(), ["DeletedLoadBalancer"]);
}

#[tokio::test]
async fn the_finalizer_stays_until_the_address_is_back() {
    let setup = Setup::empty(web());
    setup.reconcile().await;
    setup.change(|service| service["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
    setup
        .world
        .eip
        .fail(rpc_error(ErrorKind::Unavailable, "UNAVAILABLE"));
    setup.patches();
    assert!(matches!(setup.reconcile().await, Outcome::After(_)));
    assert!(setup.patches().is_empty());
    assert_eq!(setup.reconcile().await, Outcome::Done);
    assert_eq!(setup.live()["metadata"]["finalizers"], json!([]));
}

/// S9: a lost race is told and tried again.
#[tokio::test]
async fn a_conflict_of_the_status_is_told_and_tried_again() {
    let mut setup = Setup::empty(web());
    setup.world.api.fail(&format!("PATCH {PATH}/status"), 409, 1);
    assert_eq!(setup.reconcile().await, Outcome::Conflict);
    assert_eq!(setup.events(), ["SyncLoadBalancerFailed"]);
    assert_eq!(setup.reconcile().await, Outcome::Done);
    assert_eq!(setup.events(), ["EnsuredLoadBalancer"]);
    assert_eq!(setup.world.eip.ensured().len(), 1, "what it holds is known");
}

/// S9: an address that somebody else wrote since we looked is not overwritten.
#[tokio::test]
async fn the_status_is_written_only_over_what_was_read() {
    let setup = Setup::empty(web());
    let mut behind = setup.live();
    behind["metadata"]["finalizers"] = json!([FINALIZER]);
    setup.change(|service| *service = behind);
    // The API server is ahead of the cache.
    let mut ahead = setup.live();
    ahead["status"]["loadBalancer"]["ingress"] = json!([{ "ip": "198.51.100.1" }]);
    setup.world.api.put("/api/v1/namespaces/default/services", ahead);
    assert_eq!(setup.reconcile().await, Outcome::Conflict);
    assert_eq!(setup.ingress(), json!([{ "ip": "198.51.100.1" }]));
}

/// S9: where the watch is broken and the API server answers, what won the race is read, once, and is not lost against again.
#[tokio::test]
async fn what_won_a_race_is_read_before_the_next_try() {
    let setup = Setup::empty(with(|service| {
        service["metadata"]["finalizers"] = json!([FINALIZER]);
    }));
    let mut ahead = setup.live();
    ahead["metadata"]["labels"] = json!({ "team": "a" });
    setup.world.api.put("/api/v1/namespaces/default/services", ahead);
    assert_eq!(setup.reconcile().await, Outcome::Conflict);
    assert_eq!(setup.patches(), ["PATCH /status", "GET "]);
    assert_eq!(setup.reconcile().await, Outcome::Done);
    assert_eq!(setup.patches(), ["PATCH /status"]);
    assert_eq!(setup.ingress()[0]["ip"], "192.0.2.7");
}

/// A read that fails after a lost race changes nothing: it is a race that was lost.
#[tokio::test(start_paused = true)]
async fn a_race_is_lost_though_what_won_cannot_be_read() {
    for code in [None, Some(503), Some(404)] {
        let setup = Setup::empty(web());
        setup.world.api.fail(&format!("PATCH {PATH}/status"), 409, 1);
        match code {
            Some(code) => setup.world.api.fail(&format!("GET {PATH}"), code, 1),
            None => setup.world.api.hang(&format!("GET {PATH}")),
        }
        assert_eq!(setup.reconcile().await, Outcome::Conflict);
        assert_eq!(setup.reconcile().await, Outcome::Done);
    }
}

/// S10: an object that is gone needs nothing any more; what it was given goes back.
#[tokio::test]
async fn a_service_that_vanishes_meanwhile_is_no_error() {
    let mut setup = Setup::empty(web());
    setup.world.api.fail(&format!("PATCH {PATH}/status"), 404, 1);
    assert_eq!(setup.reconcile().await, Outcome::Done);
    assert!(setup.events().is_empty());
    let service = setup.world.gateway.cluster.services.get(&setup.key).unwrap();
    setup.world.gateway.cluster.services.index.delete(&service);
    setup.world.api.remove(PATH);
    assert_eq!(setup.reconcile().await, Outcome::Done);
    assert_eq!(
        setup.world.eip.released(),
        [("default/web".to_owned(), "u1".to_owned())]
    );
}

/// S13: a Service that nobody ever knew is nothing to do.
#[tokio::test]
async fn an_unknown_service_is_nothing_to_do() {
    let setup = Setup::empty(web());
    let unknown = Key::namespaced("default", "other");
    assert_eq!(setup.controller.reconcile(&unknown).await, Outcome::Done);
    assert!(setup.patches().is_empty() && setup.world.eip.released().is_empty());
}

/// S21: no nodes is worth a warning, and no reason to wait.
#[tokio::test]
async fn no_nodes_is_worth_a_warning() {
    let world = World::new(Config::default());
    world.eip.free(&["192.0.2.7"]);
    world.gateway.adoption.set(Standing::Adopted {
        store: "s".to_owned(),
        revision: 1,
    });
    let key = world.service(web());
    let controller = ServiceController::new(Arc::clone(&world.gateway));
    let mut setup = Setup {
        world,
        controller,
        key,
    };
    setup.reconcile().await;
    assert_eq!(setup.events(), ["EnsuredLoadBalancer", "UnAvailableLoadBalancer"]);
    assert_eq!(setup.condition().0, "True");
}

/// S24: a status that somebody wiped is restored, without asking anybody.
#[tokio::test]
async fn a_wiped_status_is_restored() {
    let setup = Setup::empty(web());
    setup.reconcile().await;
    setup.world.eip.ensured();
    setup.change(|service| service["status"] = json!({}));
    assert_eq!(setup.controller.due(), std::slice::from_ref(&setup.key));
    assert_eq!(setup.reconcile().await, Outcome::Done);
    assert_eq!(setup.ingress(), json!([{ "ip": "192.0.2.7", "ipMode": "VIP" }]));
    assert!(setup.world.eip.ensured().is_empty());
}

/// S23: an address that vanished from the cloud is replaced at the next look at the cloud.
#[tokio::test]
async fn what_vanished_from_the_cloud_is_replaced() {
    let setup = Setup::new(cloud(), web(), &["192.0.2.7"]);
    setup.reconcile().await;
    setup.world.eip.hold("default/web", "u1", "192.0.2.99");
    setup.reconcile().await;
    assert_eq!(
        setup.ingress()[0]["ip"],
        "192.0.2.7",
        "not before it is time to look"
    );
    assert_eq!(setup.controller.all(), std::slice::from_ref(&setup.key));
    setup.reconcile().await;
    assert_eq!(setup.ingress()[0]["ip"], "192.0.2.99");
}

/// A full pool: told once, waited for, and served when something becomes free.
#[tokio::test]
async fn a_full_pool_is_told_once_and_waited_for() {
    let mut setup = Setup::new(Config::default(), web(), &[]);
    assert_eq!(setup.reconcile().await, Outcome::Parked(WAITS_FOR_ADDRESS));
    assert_eq!(setup.patches(), ["PATCH ", "PATCH /status"]);
    assert_eq!(setup.events(), ["SyncLoadBalancerFailed"]);
    assert_eq!(
        setup.condition(),
        ("False".to_owned(), "PoolExhausted".to_owned())
    );
    assert_eq!(setup.reconcile().await, Outcome::Parked(WAITS_FOR_ADDRESS));
    assert!(
        setup.patches().is_empty() && setup.events().is_empty(),
        "said once"
    );
    setup.world.eip.free(&["192.0.2.7"]);
    assert_eq!(setup.reconcile().await, Outcome::Done);
    assert_eq!(setup.condition(), ("True".to_owned(), "Assigned".to_owned()));
    assert_eq!(setup.events(), ["EnsuredLoadBalancer"]);
}

#[tokio::test]
async fn a_wrong_family_is_told_and_costs_no_call() {
    let mut setup = Setup::empty(with(|service| {
        service["metadata"]["annotations"] = json!({ "groundplane.dev/addresses": "2001:db8::7" });
    }));
    assert_eq!(setup.reconcile().await, Outcome::Parked(WAITS_FOR_ADDRESS));
    assert_eq!(setup.condition().1, "WrongFamily");
    assert_eq!(setup.events(), ["SyncLoadBalancerFailed"]);
    assert!(setup.controller.due().is_empty() && setup.world.eip.ensured().is_empty());
}

/// A live address outlives a wish that cannot be.
#[tokio::test]
async fn a_new_wish_does_not_cost_the_address_that_is_live() {
    let setup = Setup::empty(web());
    setup.reconcile().await;
    setup.change(|service| {
        service["metadata"]["annotations"] = json!({ "groundplane.dev/addresses": "192.0.2.8" });
    });
    assert_eq!(setup.reconcile().await, Outcome::Parked(WAITS_FOR_ADDRESS));
    assert_eq!(setup.condition(), ("False".to_owned(), "Kept".to_owned()));
    assert_eq!(setup.ingress()[0]["ip"], "192.0.2.7");
    setup.change(|service| service["metadata"]["annotations"] = json!({}));
    assert_eq!(setup.reconcile().await, Outcome::Done);
    assert_eq!(setup.condition(), ("True".to_owned(), "Assigned".to_owned()));
}

/// A cluster that already runs: an address that no pool covers is left alone, and nothing but the condition is written.
#[tokio::test]
async fn an_address_of_somebody_else_is_left_alone() {
    let mut setup = Setup::empty(with(|service| {
        service["status"]["loadBalancer"]["ingress"] = json!([{ "ip": "198.51.100.1", "ipMode": "Proxy" }]);
    }));
    let before = setup.ingress();
    assert_eq!(setup.reconcile().await, Outcome::Parked(WAITS_FOR_ADDRESS));
    assert_eq!(setup.patches(), ["PATCH /status"]);
    assert_eq!(setup.condition(), ("False".to_owned(), "Foreign".to_owned()));
    assert_eq!(setup.ingress(), before);
    assert!(
        setup.live()["metadata"]["finalizers"]
            .as_array()
            .unwrap()
            .is_empty()
    );
    assert_eq!(setup.events(), ["SyncLoadBalancerFailed"]);
}

/// E36: one that a pool covers, and that is free, is taken over as it is.
#[tokio::test]
async fn an_address_of_somebody_else_is_adopted_if_it_can_be() {
    let setup = Setup::empty(with(|service| {
        service["status"]["loadBalancer"]["ingress"] = json!([{ "ip": "192.0.2.8", "ipMode": "Proxy" }]);
    }));
    let before = setup.ingress();
    assert_eq!(setup.reconcile().await, Outcome::Done);
    assert_eq!(setup.ingress(), before);
    assert_eq!(setup.condition(), ("True".to_owned(), "Adopted".to_owned()));
    assert_eq!(setup.live()["metadata"]["finalizers"], json!([FINALIZER]));
    assert_eq!(setup.world.eip.held("default/web"), ["192.0.2.8/32"]);
    setup.patches();
    assert_eq!(setup.reconcile().await, Outcome::Done);
    assert!(setup.patches().is_empty());
}

/// Dual stack: the status is in the order of the families.
#[tokio::test]
async fn both_families_stand_in_the_status() {
    let setup = Setup::empty(with(|service| {
        service["spec"]["ipFamilies"] = json!(["IPv6", "IPv4"]);
        service["spec"]["ipFamilyPolicy"] = json!("RequireDualStack");
    }));
    setup.reconcile().await;
    let vip = |ip: &str| json!({ "ip": ip, "ipMode": "VIP" });
    assert_eq!(setup.ingress(), json!([vip("2001:db8::7"), vip("192.0.2.7")]));
}

/// E89: an outage is waited for; a blink is not told, and a live Service is not told at all.
#[tokio::test]
async fn an_outage_is_told_when_it_lasts() {
    let mut setup = Setup::empty(web());
    for (nth, told) in [(1, 0), (2, 0), (3, 1), (4, 0)] {
        setup
            .world
            .eip
            .fail(rpc_error(ErrorKind::Unavailable, "UNAVAILABLE"));
        assert!(matches!(setup.reconcile().await, Outcome::After(_)));
        assert_eq!(setup.events().len(), told, "failure {nth}");
    }
    assert_eq!(setup.condition().1, "Unavailable");
    assert_eq!(setup.reconcile().await, Outcome::Done);
    setup.events();
    for _ in 0..4 {
        setup.world.gateway.held.reconsider_one(&setup.key);
        setup
            .world
            .eip
            .fail(rpc_error(ErrorKind::Unavailable, "UNAVAILABLE"));
        assert!(matches!(setup.reconcile().await, Outcome::After(_)));
    }
    assert!(setup.events().is_empty());
    assert_eq!(setup.condition().0, "True");
}

/// A Service that was created again under its name gets an address of its own, once the API server says that the name is its.
#[tokio::test]
async fn a_predecessor_of_the_same_name_gives_way() {
    let setup = Setup::empty(web());
    setup.world.eip.hold("default/web", "u0", "192.0.2.99");
    assert_eq!(setup.reconcile().await, Outcome::Done);
    assert_eq!(setup.ingress()[0]["ip"], "192.0.2.7");
    // A cache that is behind proves nothing.
    setup.world.eip.hold("default/web", "u2", "192.0.2.99");
    setup.world.gateway.held.forget(&setup.key);
    let mut newer = setup.live();
    newer["metadata"]["uid"] = json!("u2");
    setup.world.api.put("/api/v1/namespaces/default/services", newer);
    setup.world.eip.released();
    assert_eq!(setup.reconcile().await, Outcome::Conflict);
    assert!(setup.world.eip.released().is_empty());
    assert_eq!(setup.world.eip.held("default/web"), ["192.0.2.99/32"]);
}

/// Until ipam knows what the cluster holds, no address is asked for; a store that is not trusted is named.
#[tokio::test(start_paused = true)]
async fn an_unknown_store_is_named_on_services_that_wait() {
    let mut setup = Setup::empty(web());
    setup.world.gateway.adoption.set(Standing::Waiting);
    assert!(matches!(setup.reconcile().await, Outcome::After(_)));
    assert!(setup.events().is_empty());
    let refused = Standing::Refused {
        trusted: "old".to_owned(),
        offered: "new".to_owned(),
    };
    setup.world.gateway.adoption.set(refused);
    assert_eq!(setup.reconcile().await, Outcome::Parked(WAITS_FOR_ADDRESS));
    assert_eq!(setup.condition().1, "UnknownStore");
    assert!(
        setup.live()["status"]["conditions"][0]["message"]
            .as_str()
            .unwrap()
            .contains("ctl store accept new")
    );
    assert!(setup.world.eip.ensured().is_empty());
}

/// The annotation of kube-vip that a user set to another address is not overwritten.
#[tokio::test]
async fn a_word_that_the_announcer_would_follow_is_not_overwritten() {
    let setup = Setup::new(
        kube_vip(),
        with(|service| {
            service["metadata"]["annotations"] = json!({ "groundplane.dev/addresses": "192.0.2.7", "kube-vip.io/loadbalancerIPs": "192.0.2.9" });
        }),
        &["192.0.2.7"],
    );
    assert_eq!(setup.reconcile().await, Outcome::Parked(WAITS_FOR_ADDRESS));
    assert_eq!(setup.condition().1, "AnnouncerConflict");
    assert_eq!(
        setup.live()["metadata"]["annotations"]["kube-vip.io/loadbalancerIPs"],
        "192.0.2.9"
    );
}
