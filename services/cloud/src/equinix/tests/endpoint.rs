//! The API endpoint.

use pretty_assertions::assert_eq;

use super::*;
use crate::{EndpointIps, EndpointSelector};

const TAG: &str = "cluster-a-api";

fn by_tag(tag: &str) -> EndpointSelector {
    EndpointSelector::Tag(tag.to_owned())
}

fn tagged() -> ReservationOptions {
    ReservationOptions::tagged(["before", TAG, "after"])
}

#[tokio::test]
async fn the_driver_keeps_the_contract_of_endpoints() {
    let bench = Bench::new().await;
    let absent = ABSENT.parse().unwrap();
    let tags = ["before", TAG, "after"];
    bench
        .case()
        .endpoints_keep_their_contract(&tags, TAG, "cluster-a", &absent)
        .await;
}

#[tokio::test]
async fn the_endpoint_is_found_on_every_page() {
    let bench = Bench::with(ProjectOptions::default(), |config| config.page_size = 2).await;
    for number in 0..5 {
        bench
            .project
            .add_reservation(ReservationOptions::tagged([format!("{TAG}-{number}")]));
    }
    let last = bench.project.add_reservation(tagged());
    let found = bench.driver.endpoint(&by_tag(TAG)).await.unwrap();
    assert_eq!(Some(found.address), last.address);
    assert_eq!(bench.calls("GET", "/projects/{pid}/ips"), 5);
}

/// A list from which something may be missing proves no absence.
#[tokio::test]
async fn half_a_list_is_no_proof_that_there_is_no_endpoint() {
    let bench = Bench::new().await;
    bench.project.add_reservation(tagged());
    bench
        .project
        .fault(rule("GET", "/projects/{pid}/ips", Action::HalfBody));
    let error = bench.driver.endpoint(&by_tag(TAG)).await.unwrap_err();
    assert_eq!(error.kind, CloudErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn what_is_not_one_address_is_refused_with_its_id() {
    let block = || ReservationOptions {
        quantity: 4,
        ..tagged()
    };
    let pending = || ReservationOptions {
        pending: true,
        ..tagged()
    };
    for reservations in [vec![tagged(), tagged()], vec![block()], vec![pending()]] {
        let bench = Bench::new().await;
        let made: Vec<_> = reservations
            .into_iter()
            .map(|options| bench.project.add_reservation(options))
            .collect();
        let error = bench.driver.endpoint(&by_tag(TAG)).await.unwrap_err();
        assert_eq!(error.kind, CloudErrorKind::Refused, "{error}");
        assert!(
            made.iter().all(|row| error.message.contains(&row.id.to_string())),
            "{error}"
        );
    }
    let bench = Bench::new().await;
    let first = bench.project.add_reservation(block()).address.unwrap();
    let error = bench.driver.endpoint(&EndpointSelector::Address(first)).await;
    assert_eq!(
        error.unwrap_err().kind,
        CloudErrorKind::Refused,
        "part of a block"
    );
}

/// Of a removal whose answer was lost nobody is told that it was somebody else's: it is sent once, and its caller looks.
#[tokio::test]
async fn a_removal_is_never_repeated_by_the_client() {
    for action in [
        Action::DropAfter,
        Action::StatusAfter(StatusFault::new(500)),
        Action::status(503),
    ] {
        let bench = Bench::new().await;
        let address = bench.project.add_reservation(tagged()).address.unwrap();
        let device = bench.project.add_devices(1)[0];
        let held = bench.project.assign(device, address).to_string();
        bench.project.fault(rule("DELETE", "/ips/{id}", action).first(1));
        let error = bench.driver.unassign(&held).await.unwrap_err();
        assert_eq!(error.kind, CloudErrorKind::Unavailable, "{error}");
        assert_eq!(bench.calls("DELETE", "/ips/{id}"), 1);
    }
}

/// 404 by somebody in between proves nothing, of a removal neither.
#[tokio::test]
async fn a_404_that_is_not_the_clouds_is_no_lost_race() {
    let bench = Bench::new().await;
    let nginx = StatusFault {
        body: Some(json!("not here")),
        ..StatusFault::new(404)
    };
    bench
        .project
        .fault(rule("DELETE", "/ips/{id}", Action::Status(nginx)));
    let error = bench
        .driver
        .unassign("0f0f0f0f-0000-4000-8000-000000000000")
        .await
        .unwrap_err();
    assert_eq!(error.kind, CloudErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn what_is_not_of_this_cloud_is_not_called_for() {
    let bench = Bench::new().await;
    let foreign: ProviderId = "aws:///x/i-1".parse().unwrap();
    let address = "203.0.113.9".parse().unwrap();
    assert_eq!(bench.driver.machine(&foreign), None);
    for error in [
        bench.driver.assign(address, &foreign).await.unwrap_err(),
        bench.driver.unassign("a/b").await.unwrap_err(),
        bench.driver.unassign("").await.unwrap_err(),
    ] {
        assert_eq!(error.kind, CloudErrorKind::Refused, "{error}");
    }
    assert_eq!(bench.project.journal().since(0).len(), 0);
    let bare = ABSENT.rsplit('/').next().unwrap();
    for known in [bare.to_owned(), format!("packet://{bare}"), ABSENT.to_owned()] {
        let known = bench.driver.machine(&known.parse().unwrap());
        assert_eq!(known, Some(ABSENT.parse().unwrap()));
    }
}

#[tokio::test]
async fn the_configured_endpoint_is_handed_out() {
    let bench = Bench::new().await;
    let config = EquinixConfig {
        api_token_file: Some(SecretFile::new(bench.files.path().join("token"))),
        ..EquinixConfig::default()
    };
    for selector in [None, Some(by_tag(TAG))] {
        let context = Context::new();
        let metrics = context.metrics.register(HttpMetrics::register);
        let cloud = connect(&config, selector.clone(), metrics, &context).unwrap();
        assert_eq!(cloud.endpoint.map(|endpoint| endpoint.selector), selector);
    }
}
