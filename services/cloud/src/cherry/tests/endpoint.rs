//! The API endpoint.

use groundplane_sandbox::{DeviceOptions, ReservationOptions, most_holders};
use pretty_assertions::assert_eq;

use super::*;
use crate::{EndpointIps, EndpointSelector};

const TAG: &str = "api=cluster-a";
const LIST: &str = "/projects/{pid}/ips";
const PUT: &str = "/ips/{id}";

fn by_tag(tag: &str) -> EndpointSelector {
    EndpointSelector::Tag(tag.to_owned())
}

fn tagged() -> ReservationOptions {
    ReservationOptions::tagged(["before=1", TAG, "zebra=2"])
}

/// E90
#[tokio::test]
async fn the_driver_keeps_the_contract_of_endpoints() {
    let bench = Bench::new().await;
    let machine = |device| bench.machine(device);
    let (tags, absent) = (["before=1", TAG, "zebra=2"], ABSENT.parse().unwrap());
    bench
        .case(&machine)
        .endpoints_keep_their_contract(&tags, TAG, "api=cluster", &absent)
        .await;
}

/// E69, E90: a move is one call, in which the address is on one machine all the time; with the read before and after it three.
#[tokio::test]
async fn a_move_is_one_call_and_leaves_no_gap() {
    let bench = Bench::new().await;
    let address = bench.project().add_reservation(tagged()).address.unwrap();
    let machines = bench.add_machines(2);
    bench.driver.assign(address, &machines[0]).await.unwrap();
    let mark = bench.project().journal().mark();
    let before = bench.driver.endpoint(&by_tag(TAG)).await.unwrap();
    assert_eq!(before.assignments[0].machine, machines[0]);
    let moved = bench.driver.reassign(address, &machines[1]).await.unwrap();
    assert_eq!(
        bench.driver.endpoint(&by_tag(TAG)).await.unwrap().assignments,
        vec![moved]
    );
    let calls = bench.project().journal().since(mark);
    assert_eq!(calls.len(), bench.driver.calls_per_move() as usize, "{calls:?}");
    assert_eq!(
        bench.bodies("PUT", PUT).pop(),
        Some(json!({ "targeted_to": machines[1].id() }))
    );
    assert_eq!(most_holders(&bench.project().holder_changes(address)), 1);
}

/// Who begins with a move, or whose floating IP was ordered anew, looks it up first.
#[tokio::test]
async fn an_address_that_got_another_id_is_looked_up_again() {
    let bench = Bench::new().await;
    let first = bench.project().add_reservation(tagged());
    let address = first.address.unwrap();
    let machines = bench.add_machines(2);
    bench.driver.reassign(address, &machines[0]).await.unwrap();
    *bench.driver.known.lock() = Some(FloatingIp {
        address,
        id: "00000000-0000-4000-8000-000000000000".to_owned(),
        region: String::new(),
    });
    let moved = bench.driver.reassign(address, &machines[1]).await.unwrap();
    assert_eq!(moved.id, format!("{}.{}", first.id, machines[1].id()));
    assert_eq!(
        bench.driver.known.lock().as_ref().unwrap().id,
        first.id.to_string()
    );
    let nowhere = "192.0.2.77".parse().unwrap();
    for error in [
        bench.driver.reassign(nowhere, &machines[0]).await.unwrap_err(),
        bench.driver.assign(nowhere, &machines[0]).await.unwrap_err(),
    ] {
        assert_eq!(error.kind, CloudErrorKind::NotFound, "{error}");
    }
}

/// E90: an address moves within its region only, and who asks for more is told both.
#[tokio::test]
async fn a_server_of_another_region_is_named_as_such() {
    let bench = Bench::new().await;
    let address = bench.project().add_reservation(tagged()).address.unwrap();
    let here = bench.add_machines(1).remove(0);
    let there = bench.machine(bench.project().add_device(DeviceOptions {
        metro: Some("eu_west_1".to_owned()),
        ..DeviceOptions::named("there")
    }));
    bench.driver.assign(address, &here).await.unwrap();
    let error = bench.driver.reassign(address, &there).await.unwrap_err();
    assert_eq!(error.kind, CloudErrorKind::Refused);
    for part in ["eu_nord_1", "eu_west_1", "within its region only", there.id()] {
        assert!(error.message.contains(part), "{part}: {error}");
    }
    let held = bench.driver.endpoint(&by_tag(TAG)).await.unwrap();
    assert_eq!(held.assignments[0].machine, here, "and stays where it is");
    // As a conflict, even: a caller would wait for it in vain.
    bench
        .project()
        .fault(rule("PUT", PUT, refusal(409, "cannot be targeted")));
    let error = bench.driver.reassign(address, &there).await.unwrap_err();
    assert_eq!(error.kind, CloudErrorKind::Refused, "{error}");
    // What is refused within the region has the cloud's own reason.
    let error = bench.driver.reassign(address, &here).await.unwrap_err();
    assert!(
        error.is(CloudErrorKind::AlreadyExists) && error.message.contains("cannot be targeted"),
        "{error}"
    );
}

/// The answer says who has it: not always who was meant.
#[tokio::test]
async fn who_lost_a_race_is_told() {
    let bench = Bench::new().await;
    let row = bench.project().add_reservation(tagged());
    let machine = bench.add_machines(1).remove(0);
    let body = json!({ "id": row.id.to_string(), "address": row.address, "type": "floating-ip", "targeted_to": { "id": 4711 } });
    bench.project().fault(rule("PUT", PUT, answer(200, body)));
    let error = bench
        .driver
        .reassign(row.address.unwrap(), &machine)
        .await
        .unwrap_err();
    assert!(
        error.is(CloudErrorKind::AlreadyExists) && error.message.contains("4711"),
        "{error}"
    );
}

/// A call that changes something is sent once, and one without an answer is told as such.
#[tokio::test]
async fn what_changes_something_is_never_repeated_by_the_client() {
    for action in [
        Action::DropAfter,
        Action::StatusAfter(StatusFault::new(500)),
        Action::status(503),
        Action::HalfBody,
    ] {
        let bench = Bench::new().await;
        let address = bench.project().add_reservation(tagged()).address.unwrap();
        let machines = bench.add_machines(2);
        let held = bench.driver.assign(address, &machines[0]).await.unwrap();
        let before = bench.calls("PUT", PUT);
        bench.project().fault(rule("PUT", PUT, action).first(1));
        let error = bench.driver.reassign(address, &machines[1]).await.unwrap_err();
        assert_eq!(error.kind, CloudErrorKind::Unavailable, "{error}");
        assert_eq!(bench.calls("PUT", PUT), before + 1);
        // What it is called by then, it is by the machine that it is on.
        let now = bench
            .driver
            .endpoint(&by_tag(TAG))
            .await
            .unwrap()
            .assignments
            .remove(0);
        let gone = bench.driver.unassign(&held.id).await;
        assert_eq!(gone.is_ok(), now.id == held.id, "{gone:?}");
    }
}

#[tokio::test]
async fn an_assignment_is_taken_away_from_its_own_machine_only() {
    let bench = Bench::new().await;
    let address = bench.project().add_reservation(tagged()).address.unwrap();
    let machines = bench.add_machines(2);
    let first = bench.driver.assign(address, &machines[0]).await.unwrap();
    let second = bench.driver.reassign(address, &machines[1]).await.unwrap();
    let error = bench.driver.unassign(&first.id).await.unwrap_err();
    assert_eq!(error.kind, CloudErrorKind::NotFound, "{error}");
    assert_eq!(
        bench.driver.endpoint(&by_tag(TAG)).await.unwrap().assignments,
        vec![second.clone()]
    );
    bench.driver.unassign(&second.id).await.unwrap();
    assert_eq!(
        bench.bodies("PUT", PUT).pop(),
        Some(json!({ "targeted_to": "0" }))
    );
}

/// A list from which something may be missing proves no absence.
#[tokio::test]
async fn half_a_list_is_no_proof_that_there_is_no_endpoint() {
    let bench = Bench::new().await;
    bench.project().add_reservation(tagged());
    for action in [
        Action::HalfBody,
        answer(200, json!([])),
        answer(404, json!("nginx")),
    ] {
        bench.project().clear_faults();
        bench.project().fault(rule("GET", LIST, action));
        let error = bench.driver.endpoint(&by_tag(TAG)).await.unwrap_err();
        assert_eq!(error.kind, CloudErrorKind::Unavailable, "{error}");
    }
}

#[tokio::test]
async fn what_is_not_one_floating_ip_is_refused_with_its_id() {
    let block = || ReservationOptions {
        quantity: 4,
        ..tagged()
    };
    for reservations in [vec![tagged(), tagged()], vec![block()]] {
        let bench = Bench::new().await;
        let made: Vec<_> = reservations
            .into_iter()
            .map(|options| bench.project().add_reservation(options))
            .collect();
        let error = bench.driver.endpoint(&by_tag(TAG)).await.unwrap_err();
        assert_eq!(error.kind, CloudErrorKind::Refused, "{error}");
        assert!(
            made.iter().all(|row| error.message.contains(&row.id.to_string())),
            "{error}"
        );
    }
    let bench = Bench::new().await;
    let first = bench.project().add_reservation(block()).address.unwrap();
    let device = bench.project().add_devices(1)[0];
    let own = bench.project().own_ipv4(device, true).unwrap();
    for address in [first, own] {
        let error = bench
            .driver
            .endpoint(&EndpointSelector::Address(address))
            .await
            .unwrap_err();
        assert_eq!(
            error.kind,
            CloudErrorKind::Refused,
            "part of a block, or a machine's own: {error}"
        );
    }
}

#[tokio::test]
async fn what_is_not_of_this_cloud_is_not_called_for() {
    let bench = Bench::new().await;
    let address = "203.0.113.9".parse().unwrap();
    for foreign in ["aws:///x/i-1", "cherryservers://0", "equinixmetal://7"] {
        let foreign: ProviderId = foreign.parse().unwrap();
        assert_eq!(bench.driver.machine(&foreign), None);
        for error in [
            bench.driver.assign(address, &foreign).await.unwrap_err(),
            bench.driver.reassign(address, &foreign).await.unwrap_err(),
        ] {
            assert_eq!(error.kind, CloudErrorKind::Refused, "{error}");
        }
    }
    for id in ["a/b.1", "", "a", "a.0", "a.b", ".1"] {
        let error = bench.driver.unassign(id).await.unwrap_err();
        assert_eq!(error.kind, CloudErrorKind::Refused, "{id}: {error}");
    }
    assert_eq!(bench.project().journal().total(0), 0);
    for known in ["7", "cherryservers://7", "cherryservers://007"] {
        let known = bench.driver.machine(&known.parse().unwrap());
        assert_eq!(known, Some("cherryservers://7".parse().unwrap()));
    }
}

#[tokio::test]
async fn the_configured_endpoint_is_handed_out() {
    let bench = Bench::new().await;
    for selector in [None, Some(by_tag(TAG))] {
        let context = Context::new();
        let metrics = context.metrics.register(HttpMetrics::register);
        let cloud = connect(&bench.driver.config, selector.clone(), metrics, &context).unwrap();
        assert_eq!(cloud.endpoint.map(|endpoint| endpoint.selector), selector);
    }
}
