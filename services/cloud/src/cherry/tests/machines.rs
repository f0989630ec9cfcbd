//! Machines, and lists.

use std::time::Duration;

use pretty_assertions::assert_eq;

use super::*;
use crate::MachineSource;

const LIST: &str = "/projects/{pid}/servers";

/// E15, E90: more machines than the API shows on a page, whatever it thinks a page is.
#[tokio::test]
async fn every_page_of_machines_is_read() {
    for (page_size, most, calls) in [
        (1000, 1000, 1),
        (10, 1000, 7),
        (1000, 7, 9),
        (33, 1000, 1),
        (11, 11, 5),
    ] {
        let options = ProjectOptions {
            max_per_page: most,
            ..ProjectOptions::cherry()
        };
        let bench = Bench::with(options, |config| config.page_size = page_size).await;
        let made = bench.add_machines(33);
        let listed = MachineSource::list(&bench.driver).await.unwrap();
        let ids: Vec<_> = listed.into_iter().map(|machine| machine.id).collect();
        assert_eq!(ids, made);
        assert_eq!(bench.calls("GET", LIST), calls, "{page_size} of at most {most}");
    }
}

/// E90
#[tokio::test]
async fn a_list_that_does_not_add_up_is_read_on_and_then_refused() {
    let bench = Bench::with(ProjectOptions::cherry(), |config| config.page_size = 10).await;
    let machine = |device| bench.machine(device);
    bench
        .case(&machine)
        .a_list_that_does_not_add_up_is_read_on_and_then_refused()
        .await;
}

/// E90
#[tokio::test]
async fn a_page_that_breaks_off_is_asked_for_again() {
    let bench = Bench::with(ProjectOptions::cherry(), |config| config.page_size = 10).await;
    let machine = |device| bench.machine(device);
    bench
        .case(&machine)
        .a_page_that_breaks_off_is_asked_for_again()
        .await;
}

/// A list of unknown length may be half of one.
#[tokio::test]
async fn a_list_that_does_not_say_how_long_it_is_is_no_list() {
    let bench = Bench::new().await;
    bench.add_machines(1);
    bench.project().fault(rule("GET", LIST, answer(200, json!([]))));
    let error = MachineSource::list(&bench.driver).await.unwrap_err();
    assert_eq!(error.kind, CloudErrorKind::Unavailable, "{error}");
    assert!(error.message.contains("how long"), "{error}");
}

/// E17, E90: dual-stack and private-only machines are shown as they are, and an address that moves is not theirs.
#[tokio::test]
async fn a_machine_shows_its_own_addresses_of_both_families_and_no_floating_ones() {
    let bench = Bench::new().await;
    let machine = |device| bench.machine(device);
    let placed = ["", "eu_nord_1", "c3.small.x86"];
    bench
        .case(&machine)
        .a_machine_shows_its_own_addresses_and_no_elastic_ones(placed)
        .await;
}

/// E19, E90, the driver's part: only `inactive` is off.
#[tokio::test]
async fn only_an_inactive_machine_is_off() {
    let bench = Bench::new().await;
    let machine = |device| bench.machine(device);
    bench.case(&machine).only_an_inactive_machine_is_off().await;
}

/// E13, E14, E90. 0 is what the API calls nobody: it must never be taken for a server.
#[test]
fn provider_ids_of_this_cloud_are_known_in_each_form_and_others_are_not() {
    for (ours, number) in [
        ("cherryservers://383531", 383_531),
        ("383531", 383_531),
        ("cherryservers://007", 7),
    ] {
        assert_eq!(server_of(&ours.parse().unwrap()), Some(number), "{ours}");
    }
    for foreign in [
        "aws:///eu-west-1a/i-0abc",
        "equinixmetal://383531",
        "a://b://c",
        "cherryservers://1://2",
        "cherryservers://",
        "cherryservers://0",
        "0",
        "cherryservers://-1",
        "cherryservers://+1",
        "cherryservers://1/ips",
        "cherryservers://99999999999999999999",
        "11111111-1111-4111-8111-111111111111",
        "node-1",
    ] {
        assert_eq!(server_of(&foreign.parse().unwrap()), None, "{foreign}");
    }
}

/// E18, E20, E90: the API's own 404 is absence; a refusal, a failure or another's 404 is not.
#[tokio::test]
async fn only_the_apis_own_404_is_absence() {
    let bench = Bench::new().await;
    let device = bench.project().add_devices(1)[0];
    let machine = bench.machine(device);
    for (action, kind) in [
        (Action::status(500), CloudErrorKind::Unavailable),
        (Action::status(403), CloudErrorKind::Denied),
        (Action::status(401), CloudErrorKind::Unauthenticated),
        (answer(404, json!("nothing here")), CloudErrorKind::Unavailable),
        (
            answer(404, json!({ "message": "no route matched" })),
            CloudErrorKind::Unavailable,
        ),
        (
            answer(404, json!({ "error": "Not found" })),
            CloudErrorKind::Unavailable,
        ),
        (
            answer(200, json!({ "hostname": "n" })),
            CloudErrorKind::Unavailable,
        ),
        (Action::DropBefore, CloudErrorKind::Unavailable),
        (Action::HalfBody, CloudErrorKind::Unavailable),
        (Action::MalformedJson, CloudErrorKind::Unavailable),
        (refusal(404, "server not found"), CloudErrorKind::NotFound),
    ] {
        bench.project().clear_faults();
        bench
            .project()
            .fault(rule("GET", "/servers/{id}", action.clone()));
        let error = bench.driver.get(&machine).await.unwrap_err();
        assert_eq!(error.kind, kind, "{action:?}: {error}");
    }
    bench.project().clear_faults();
    bench.project().remove_device(device);
    let error = bench.driver.get(&machine).await.unwrap_err();
    assert_eq!(error.kind, CloudErrorKind::NotFound);
}

/// E87, E90
#[tokio::test]
async fn a_call_that_hangs_ends_at_its_deadline() {
    for action in [Action::Hang, Action::HangAfter] {
        let bench = Bench::with(ProjectOptions::cherry(), |config| {
            config.request_timeout = Duration::from_millis(150);
        })
        .await;
        bench.project().fault(rule("GET", LIST, action));
        let error = MachineSource::list(&bench.driver).await.unwrap_err();
        assert_eq!(error.kind, CloudErrorKind::Timeout, "{error}");
    }
}

/// A limit that would outlast the call ends it, says when to come back, and holds back what comes after.
#[tokio::test]
async fn a_rate_limit_is_heeded_until_its_reset() {
    let bench = Bench::new().await;
    let reset = bench.context.clock.now().as_second() + 3600;
    let limited = StatusFault {
        reset: Some(reset),
        ..StatusFault::new(429)
    };
    bench
        .project()
        .fault(rule("GET", LIST, Action::Status(limited)).first(1));
    for _ in 0..2 {
        let error = MachineSource::list(&bench.driver).await.unwrap_err();
        assert_eq!(error.kind, CloudErrorKind::RateLimited, "{error}");
        assert!(
            error
                .retry_after
                .is_some_and(|pause| pause > Duration::from_secs(10))
        );
    }
    assert_eq!(bench.calls("GET", LIST), 1, "what would be refused is not asked");
}

#[tokio::test]
async fn a_refused_token_is_told() {
    let bench = Bench::new().await;
    std::fs::write(bench.cloud.token_file(), "not-the-token-at-all").unwrap();
    let error = MachineSource::list(&bench.driver).await.unwrap_err();
    assert_eq!(error.kind, CloudErrorKind::Unauthenticated);
    let metrics = bench.context.metrics.encode().unwrap();
    assert!(metrics.contains(r#"route="/projects/{pid}/servers",method="GET",code="401""#));
}

/// What the API may leave out, or write otherwise, is no reason to refuse what it says.
#[test]
fn an_answer_may_be_poor() {
    let server = |body: Value| serde_json::from_value::<wire::Server>(body);
    let poor = server(json!({
        "id": 7, "hostname": null, "region": [], "plan": [], "bgp": null, "ip_addresses": null, "tags": [],
    }))
    .unwrap();
    assert_eq!(
        (poor.id, poor.tags, poor.bgp.enabled),
        (7, wire::Tags::default(), false)
    );
    let tags = json!({ "id": 7, "tags": { "a": null, "b": 1, "c": true, "d": "x=y" } });
    assert_eq!(
        server(tags).unwrap().tags.texts(),
        ["a", "b=1", "c=true", "d=x=y"]
    );
    for wrong in [
        json!({ "hostname": "n" }),
        json!({ "id": "seven" }),
        json!({ "id": 7, "tags": { "a": {} } }),
        json!({ "id": 7, "tags": "a" }),
        json!({ "id": 7, "region": { "bgp": { "hosts": ["nowhere"] } } }),
    ] {
        assert!(server(wrong.clone()).is_err(), "{wrong}");
    }
    let address = |target: Value| {
        let body = json!({ "id": "a", "address": "192.0.2.1", "targeted_to": target });
        serde_json::from_value::<wire::Ip>(body).unwrap().holder()
    };
    for (target, holder) in [
        (json!({ "id": 7 }), Some(7)),
        (json!({ "id": 0 }), None),
        (json!({ "id": null }), None),
        (json!({}), None),
        (json!([]), None),
        (Value::Null, None),
    ] {
        assert_eq!(address(target.clone()), holder, "{target}");
    }
}
