//! What others do between two of our steps: another leader, another controller, another Service of the same name.

use std::time::Duration;

use pretty_assertions::assert_eq;
use serde_json::json;
use tokio::time::Instant;

use super::*;

impl Setup {
    /// Another replica led, and now we do again.
    fn next_term(&self) {
        let until = Instant::now() + Duration::from_secs(43_200);
        self.world.leads.send_replace(Some(until));
    }
}

/// Without the lease nothing is taken and nothing is given back: another leader may be serving the next Service of that name, which a
/// cloud's tags do not tell from this one.
#[tokio::test]
async fn addresses_are_left_alone_without_the_lease() {
    let setup = Setup::new(cloud(), web(), &["192.0.2.7"]);
    setup.reconcile().await;
    setup.world.eip.ensured();
    setup.change(|service| service["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
    setup.world.leads.send_replace(None);
    assert_eq!(setup.reconcile().await, Outcome::Conflict);
    assert!(setup.world.eip.released().is_empty());
    let waiting = with(|service| service["metadata"]["finalizers"] = json!([FINALIZER]));
    let setup = Setup::new(cloud(), waiting, &["192.0.2.7"]);
    setup.world.leads.send_replace(None);
    assert_eq!(setup.reconcile().await, Outcome::Conflict);
    assert!(setup.world.eip.ensured().is_empty());
}

/// What we remember of an earlier term is not written over what another leader gave meanwhile: it may be somebody else's by now.
#[tokio::test]
async fn what_another_leader_gave_is_not_undone_from_memory() {
    let setup = Setup::empty(web());
    setup.reconcile().await;
    setup.world.eip.hold("default/web", "u1", "192.0.2.8");
    setup.change(|service| {
        service["status"]["loadBalancer"]["ingress"] = json!([{ "ip": "192.0.2.8", "ipMode": "VIP" }]);
        service["status"]["conditions"][0]["message"] = json!("Holds 192.0.2.8.");
    });
    setup.next_term();
    setup.patches();
    assert_eq!(setup.reconcile().await, Outcome::Done);
    assert_eq!(setup.ingress()[0]["ip"], "192.0.2.8");
    assert!(setup.patches().is_empty());
}

/// A Service that another leader let go, and served again under its name with another UID, keeps its elastic IP: by the cloud's tags the
/// two are one owner, and to give back what the first one held would delete what the second one holds.
#[tokio::test]
async fn a_cloud_address_is_not_deleted_for_a_predecessor_that_is_remembered() {
    let setup = Setup::new(cloud(), web(), &["192.0.2.7"]);
    setup.reconcile().await;
    setup.world.eip.hold("default/web", "u2", "192.0.2.99");
    setup.change(|service| {
        service["metadata"]["uid"] = json!("u2");
        service["status"]["loadBalancer"]["ingress"] = json!([{ "ip": "192.0.2.99", "ipMode": "VIP" }]);
    });
    setup.next_term();
    assert_eq!(setup.reconcile().await, Outcome::Done);
    assert!(setup.world.eip.released().is_empty());
    assert_eq!(setup.ingress()[0]["ip"], "192.0.2.99");
}

/// The same where the cache does not show the successor yet.
#[tokio::test]
async fn a_cloud_address_is_not_deleted_while_the_name_lives() {
    let setup = Setup::new(cloud(), web(), &["192.0.2.7"]);
    setup.reconcile().await;
    let service = setup.world.gateway.cluster.services.get(&setup.key).unwrap();
    setup.world.gateway.cluster.services.index.delete(&service);
    let mut successor = setup.live();
    successor["metadata"]["uid"] = json!("u2");
    setup
        .world
        .api
        .put("/api/v1/namespaces/default/services", successor);
    assert_eq!(setup.reconcile().await, Outcome::Conflict);
    assert!(setup.world.eip.released().is_empty());
}

/// A Service that waited for us, with our finalizer on it, and was given an address by somebody else: it is left alone, but it does
/// not stay for ever when it is deleted.
#[tokio::test]
async fn our_finalizer_goes_though_the_address_is_anothers() {
    for leave in [
        json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }),
        json!({ "spec": { "loadBalancerClass": "example.com/other" } }),
    ] {
        let setup = Setup::new(Config::default(), web(), &[]);
        assert_eq!(setup.reconcile().await, Outcome::Parked(WAITS_FOR_ADDRESS));
        setup.change(|service| {
            service["status"]["loadBalancer"]["ingress"] = json!([{ "ip": "198.51.100.1" }]);
        });
        for _ in 0..2 {
            assert_eq!(setup.reconcile().await, Outcome::Parked(WAITS_FOR_ADDRESS));
            assert_eq!(
                setup.condition(),
                ("False".to_owned(), "ForeignFinalized".to_owned())
            );
        }
        setup.change(|service| {
            for (part, fields) in leave.as_object().unwrap() {
                let part = service[part].as_object_mut().unwrap();
                part.extend(fields.as_object().unwrap().clone());
            }
        });
        assert_eq!(setup.reconcile().await, Outcome::Done);
        assert_eq!(setup.live()["metadata"]["finalizers"], json!([]));
        assert_eq!(setup.ingress()[0]["ip"], "198.51.100.1");
    }
}

/// A Service that was created anew is not given what an old list shows of its predecessor, whose elastic IP another process deleted.
#[tokio::test]
async fn a_service_that_was_told_nothing_is_served_from_a_fresh_list() {
    let setup = Setup::new(cloud(), web(), &["192.0.2.7"]);
    for fresh in [true, false] {
        setup.reconcile().await;
        let asked = setup.world.eip.ensured();
        assert_eq!(asked.iter().map(|asked| asked.fresh).collect::<Vec<_>>(), [fresh]);
        setup.world.gateway.held.reconsider_one(&setup.key);
    }
}

/// kube-vip says in the status what we told it, before we do: that is no address of somebody else, to be kept though the cloud has it
/// no more.
#[tokio::test]
async fn what_the_announcer_repeats_is_not_adopted() {
    let config = Config {
        driver: DriverName::Equinix,
        ..kube_vip()
    };
    let setup = Setup::new(config, web(), &["192.0.2.7"]);
    setup.world.api.fail(&format!("PATCH {PATH}/status"), 409, 1);
    assert_eq!(setup.reconcile().await, Outcome::Conflict);
    setup.change(|service| {
        service["status"]["loadBalancer"]["ingress"] =
            json!([{ "ip": "192.0.2.7", "ports": [{ "port": 80, "protocol": "TCP" }] }]);
    });
    assert_eq!(setup.reconcile().await, Outcome::Done);
    assert_eq!(setup.condition(), ("True".to_owned(), "Assigned".to_owned()));
}

/// S8: each write that takes our traces off a Service names the version that was read, so that one which comes through late meets nothing but
/// the Service that it was meant for.
#[test]
fn a_farewell_names_the_version_that_was_read() {
    let service = with(|service| {
        service["metadata"]["resourceVersion"] = json!("41");
        service["metadata"]["finalizers"] = json!([FINALIZER]);
        service["status"]["conditions"] =
            json!([{ "type": "groundplane.dev/AddressReady", "status": "True" }]);
    });
    let service: ServiceObject = serde_json::from_value(service).unwrap();
    for patch in [
        patch::farewell(&service, true),
        patch::farewell(&service, false),
        patch::empty_status(&service),
    ] {
        let kube::api::Patch::Strategic(patch) = patch else {
            panic!("finalizers and conditions are merged by the API server");
        };
        assert_eq!(patch["metadata"]["uid"], "u1");
        assert_eq!(patch["metadata"]["resourceVersion"], "41");
    }
}

/// A Service that was let go, and became ours again before the farewell was written: the farewell is refused, the finalizer stays, and the
/// Service gets an address.
#[tokio::test]
async fn a_late_farewell_does_not_meet_a_service_that_is_ours_again() {
    let let_go = with(|service| {
        service["metadata"]["finalizers"] = json!([FINALIZER]);
        service["spec"]["type"] = json!("ClusterIP");
    });
    let setup = Setup::empty(let_go);
    // The API server has it as a load balancer again, and the cache does not know yet.
    let again = with(|service| service["metadata"]["finalizers"] = json!([FINALIZER]));
    setup.world.api.put("/api/v1/namespaces/default/services", again);
    assert_eq!(setup.reconcile().await, Outcome::Conflict);
    assert_eq!(setup.live()["metadata"]["finalizers"], json!([FINALIZER]));
    assert_eq!(setup.reconcile().await, Outcome::Done);
    assert_eq!(setup.ingress()[0]["ip"], "192.0.2.7");
    assert_eq!(setup.live()["metadata"]["finalizers"], json!([FINALIZER]));
}

/// Where only Services of a class are ours, one that turns into another type loses its class with it. If nothing but our finalizer was on it by
/// then, it does not stay for ever: the API server knows that we set it, also after a restart. One that another controller set is left alone.
#[tokio::test]
async fn a_finalizer_goes_with_the_type_though_the_class_went_too() {
    for (manager, ours) in [("groundplane", true), ("other-controller", false)] {
        let config = Config {
            claim_classless: false,
            ..Config::default()
        };
        let left = with(|service| {
            service["metadata"]["finalizers"] = json!([FINALIZER]);
            let finalizers = json!({ ".": {}, (format!("v:\"{FINALIZER}\"")): {} });
            service["metadata"]["managedFields"] = json!([{
                "manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
                "fieldsV1": { "f:metadata": { "f:finalizers": finalizers } },
            }]);
            service["spec"] = json!({ "type": "ClusterIP" });
        });
        let setup = Setup::new(config, left, &["192.0.2.7"]);
        assert_eq!(setup.reconcile().await, Outcome::Done);
        let stays = if ours { json!([]) } else { json!([FINALIZER]) };
        assert_eq!(setup.live()["metadata"]["finalizers"], stays, "{manager}");
        // What it may have been given goes back first.
        assert_eq!(setup.world.eip.released().len(), usize::from(ours));
    }
}

/// The same where the first write of the release needs no version, since it takes away what is ours alone: its answer tells that the Service
/// is ours again, and nothing is given back.
#[tokio::test]
async fn a_service_that_is_ours_again_in_the_midst_of_its_release_keeps_its_address() {
    let config = Config {
        announcer: config::Announcer::KubeVip,
        ..Config::default()
    };
    let setup = Setup::new(config, web(), &["192.0.2.7", "192.0.2.8"]);
    assert_eq!(setup.reconcile().await, Outcome::Done);
    let again = setup.live();
    setup.change(|service| service["spec"]["type"] = json!("ClusterIP"));
    setup.world.api.put("/api/v1/namespaces/default/services", again);
    assert_eq!(setup.reconcile().await, Outcome::Conflict);
    assert!(setup.world.eip.released().is_empty());
    let live = serde_json::from_value(setup.live()).unwrap();
    setup.world.gateway.cluster.services.index.apply(live);
    assert_eq!(setup.reconcile().await, Outcome::Done);
    assert_eq!(setup.ingress()[0]["ip"], "192.0.2.7");
    assert!(setup.world.eip.released().is_empty());
}

/// Where a backend was told of an address, it is told that it is no more before the address goes back, even if somebody took all our traces off
/// the Service.
#[tokio::test]
async fn what_lost_our_traces_is_withdrawn_before_it_is_given_back() {
    let config = Config {
        announcer: config::Announcer::Metallb,
        ..Config::default()
    };
    let setup = Setup::new(config, web(), &["192.0.2.7"]);
    let waits = Outcome::Parked(crate::gateway::WAITS_FOR_ANNOUNCER);
    assert_eq!(setup.reconcile().await, waits);
    assert_eq!(setup.world.eip.held("default/web"), ["192.0.2.7/32"]);
    setup.change(|service| {
        service["metadata"]["finalizers"] = json!([]);
        service["spec"]["type"] = json!("ClusterIP");
    });
    assert_eq!(setup.reconcile().await, waits);
    assert!(setup.world.eip.released().is_empty());
}
