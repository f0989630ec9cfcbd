//! The token is never shown: not in a log at its finest, not in an error, not in what a value says of itself, whatever the cloud does.

use pretty_assertions::assert_eq;

use super::*;
use crate::testing::overheard::{Log, check, told};
use crate::{BgpFabric, ElasticIps, EndpointIps, EndpointSelector, MachineSource};

/// One call of each kind.
async fn calls(driver: &Cherry, machine: &ProviderId) -> String {
    let address = "203.0.113.9".parse().unwrap();
    let order = wanted(Family::V4, vec![]);
    let selector = EndpointSelector::Tag("api=1".to_owned());
    let (machines, made, enabled, session, endpoint, moved) = tokio::join!(
        MachineSource::list(driver),
        driver.create(&order),
        driver.enable(),
        driver.create_session(machine, Family::V4),
        driver.endpoint(&selector),
        driver.reassign(address, machine),
    );
    [
        told(machines),
        told(made),
        told(enabled),
        told(session),
        told(endpoint),
        told(moved),
    ]
    .join("\n")
}

#[tokio::test]
async fn whatever_the_cloud_answers_the_token_is_not_logged_or_told() {
    let (log, _guard) = Log::begin();
    let bench = Bench::new().await;
    let token = bench.project().token().to_owned();
    let machine = bench.add_machines(1).remove(0);
    let mut said = calls(&bench.driver, &machine).await;
    let echo = format!("bad Authorization: Bearer {token}");
    // Just so long that the cut goes through the token.
    let straddling = format!("{}{token}", "x".repeat(300 - 9));
    let answers = [
        (401, json!({ "code": 401, "message": echo })),
        (500, json!({ "code": 500, "message": echo })),
        (422, json!({ "code": 422, "message": straddling })),
        (302, json!({ "code": 302, "message": echo })),
        (403, json!({ "message": echo })),
        (200, json!(echo)),
        (200, json!({ "id": echo, "bgp": echo, "tags": { "a": [echo] } })),
    ];
    for (status, body) in answers {
        bench.project().fault(FaultRule::new(answer(status, body)));
        said.push_str(&calls(&bench.driver, &machine).await);
        bench.project().clear_faults();
    }
    for action in [Action::MalformedJson, Action::HalfBody, Action::DropBefore] {
        bench.project().fault(FaultRule::new(action));
        said.push_str(&calls(&bench.driver, &machine).await);
        bench.project().clear_faults();
    }
    let log = log.text();
    assert!(log.contains("cloud.http") && log.contains("hyper"), "{log}");
    assert!(said.contains("bad Authorization: Bearer [token]"), "{said}");
    check("the log", &log, &[&token]);
    check("an outcome", &said, &[&token]);
    check("a metric", &bench.context.metrics.encode().unwrap(), &[&token]);
}

#[tokio::test]
async fn what_holds_the_token_does_not_say_it() {
    let bench = Bench::new().await;
    // What was read is remembered.
    MachineSource::list(&bench.driver).await.unwrap();
    for text in [
        format!("{:?}", bench.driver),
        format!("{:#?}", bench.driver.config),
        format!("{:?}", bench.driver.http),
    ] {
        check("a value", &text, &[bench.project().token()]);
    }
}

/// A file that holds no token is named, and not shown.
#[tokio::test]
async fn a_token_that_cannot_be_sent_is_not_shown() {
    let bench = Bench::new().await;
    std::fs::write(bench.cloud.token_file(), "Geheim4711\u{1}").unwrap();
    let error = MachineSource::list(&bench.driver).await.unwrap_err();
    assert_eq!(error.kind, CloudErrorKind::Unauthenticated);
    assert!(error.message.contains("cherry.apiTokenFile"), "{error}");
    check("an error", &told(Err::<(), _>(error)), &["Geheim4711"]);
}
