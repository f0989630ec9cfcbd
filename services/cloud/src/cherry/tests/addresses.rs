//! Floating IPs.

use groundplane_core::{ClusterId, Owner};
use groundplane_sandbox::{ReservationKind, ReservationOptions};
use pretty_assertions::assert_eq;

use super::*;
use crate::{ElasticIps, NewReservation, Placement, ReservationState};

const LIST: &str = "/projects/{pid}/ips";

fn service(cluster: &str, namespace: &str, name: &str) -> Owner {
    let cluster: ClusterId = cluster.parse().unwrap();
    Owner::service(cluster, namespace.parse().unwrap(), name.parse().unwrap())
}

/// E35, E90: tags and body to the letter.
#[tokio::test]
async fn a_floating_ip_is_asked_for_as_the_clouds_own_controller_does() {
    let bench = Bench::new().await;
    let tags = bench.driver.tags_of(&service("c1", "default", "nginx"));
    assert_eq!(
        tags,
        [
            "usage=cloud-provider-cherry-auto",
            "cluster=c1",
            "service=l7RnKS8k48oG3Qv3Pxx8FzEMj3X3E5c8JPOIzyLWWdY=",
        ]
    );
    let foo = bench.driver.tags_of(&service("c1", "kube-system", "foo"));
    assert_eq!(foo[2], "service=6AI0U19lNyQbe/RvRL4GrM/Dp5nGlASBBv3CX4QJmSo=");
    assert_eq!(
        bench.driver.cluster_tags(&"c1".parse().unwrap()),
        ["usage=cloud-provider-cherry-auto", "cluster=c1"]
    );
    let made = bench
        .driver
        .create(&wanted(Family::V4, tags.clone()))
        .await
        .unwrap();
    assert_eq!((made.state, &made.tags), (ReservationState::Ready, &tags));
    assert!(made.prefix.unwrap().is_host());
    assert_eq!(
        bench.bodies("POST", LIST),
        [json!({
            "region": "EU-Nord-1",
            "tags": {
                "usage": "cloud-provider-cherry-auto",
                "service": "l7RnKS8k48oG3Qv3Pxx8FzEMj3X3E5c8JPOIzyLWWdY=",
                "cluster": "c1",
            },
        })]
    );
}

/// Whatever a map can say comes back as it was, and what it cannot say is not asked for.
#[tokio::test]
async fn tags_survive_the_map() {
    let bench = Bench::new().await;
    let texts: Vec<String> = ["a=b=c", "alone", "d=", "e=e", "e=e"].map(str::to_owned).into();
    let made = bench.driver.create(&wanted(Family::V4, texts)).await.unwrap();
    assert_eq!(made.tags, ["a=b=c", "alone", "d", "e=e"]);
    let tags = wire::Tags::of_texts(&made.tags).unwrap();
    for (text, has) in [
        ("alone", true),
        ("alone=", true),
        ("d=", true),
        ("a=b", false),
        ("a", false),
        ("e=e", true),
    ] {
        assert_eq!(tags.has(text), has, "{text}");
    }
    let twice = vec!["k=1".to_owned(), "k=2".to_owned()];
    let error = bench.driver.create(&wanted(Family::V4, twice)).await.unwrap_err();
    assert!(
        error.is(CloudErrorKind::Refused) && error.message.contains("`k`"),
        "{error}"
    );
    assert_eq!(bench.calls("POST", LIST), 1);
}

#[tokio::test]
async fn the_region_that_is_asked_for_comes_before_the_configured_one() {
    let bench = Bench::new().await;
    for (metro, facility, region) in [
        ("", "", "EU-Nord-1"),
        ("eu_west_1", "", "eu_west_1"),
        ("", "eu_west_1", "eu_west_1"),
        ("SG-Singapore-1", "eu_west_1", "SG-Singapore-1"),
    ] {
        let wanted = NewReservation {
            placement: Placement {
                metro: metro.to_owned(),
                facility: facility.to_owned(),
            },
            ..wanted(Family::V4, vec![])
        };
        bench.driver.create(&wanted).await.unwrap();
        assert_eq!(bench.bodies("POST", LIST).pop().unwrap()["region"], region);
    }
    let nowhere = Bench::with(ProjectOptions::cherry(), |config| config.region = String::new()).await;
    let error = nowhere
        .driver
        .create(&wanted(Family::V4, vec![]))
        .await
        .unwrap_err();
    assert!(
        error.is(CloudErrorKind::Refused) && error.message.contains("cherry.region"),
        "{error}"
    );
    assert_eq!(nowhere.project().journal().total(0), 0, "nothing was asked");
}

#[tokio::test]
async fn ipv6_is_not_asked_for() {
    let bench = Bench::new().await;
    assert!(bench.driver.supports(Family::V4) && !bench.driver.supports(Family::V6));
    let error = bench
        .driver
        .create(&wanted(Family::V6, vec![]))
        .await
        .unwrap_err();
    assert_eq!(error.kind, CloudErrorKind::Refused);
    assert_eq!(bench.project().journal().total(0), 0);
}

/// E43, E90, the driver's part: a spent quota is told as such, whatever its status; other refusals are not.
#[tokio::test]
async fn refusals_of_an_order_are_told_apart() {
    let options = ProjectOptions {
        quota: Some(0),
        ..ProjectOptions::cherry()
    };
    let bench = Bench::with(options, |_| {}).await;
    let create = || async {
        bench
            .driver
            .create(&wanted(Family::V4, vec![]))
            .await
            .unwrap_err()
    };
    let error = create().await;
    assert_eq!(error.kind, CloudErrorKind::QuotaExceeded, "{error}");
    for (status, message, kind) in [
        (400, "Floating IP limit reached", CloudErrorKind::QuotaExceeded),
        (
            403,
            "IP limit exceeded for this project",
            CloudErrorKind::QuotaExceeded,
        ),
        (402, "not enough credit", CloudErrorKind::QuotaExceeded),
        (422, "quota is spent", CloudErrorKind::QuotaExceeded),
        (400, "region is not valid", CloudErrorKind::Refused),
        (403, "forbidden", CloudErrorKind::Denied),
        (409, "in progress", CloudErrorKind::AlreadyExists),
        (422, "region is not valid", CloudErrorKind::Refused),
        // A project that is not there is no absence of an address.
        (404, "project not found", CloudErrorKind::Refused),
    ] {
        bench.project().clear_faults();
        bench
            .project()
            .fault(rule("POST", LIST, refusal(status, message)));
        let error = create().await;
        assert_eq!(error.kind, kind, "{status} {message}: {error}");
        assert!(error.message.contains(message), "the cloud's words: {error}");
    }
}

#[tokio::test]
async fn a_create_is_sent_once_whatever_happens() {
    for action in [
        Action::status(500),
        Action::status(429),
        Action::DropBefore,
        Action::DropAfter,
        Action::HalfBody,
    ] {
        let bench = Bench::new().await;
        bench.project().fault(rule("POST", LIST, action.clone()));
        let error = bench
            .driver
            .create(&wanted(Family::V4, vec![]))
            .await
            .unwrap_err();
        assert!(
            error.is(CloudErrorKind::Unavailable) || error.is(CloudErrorKind::RateLimited),
            "{error}"
        );
        assert_eq!(bench.calls("POST", LIST), 1, "{action:?}");
    }
}

/// E90: an address is never a CIDR, and only floating ones serve Services.
#[tokio::test]
async fn only_floating_ips_are_usable() {
    let bench = Bench::new().await;
    let device = bench.project().add_devices(1)[0];
    let tagged = || ReservationOptions::tagged(["t=1"]);
    let free = bench.project().add_reservation(tagged());
    let held = bench.project().add_reservation(tagged());
    bench.project().assign(device, held.address.unwrap());
    let block = bench.project().add_reservation(ReservationOptions {
        quantity: 4,
        ..tagged()
    });
    bench.project().add_reservation(ReservationOptions {
        kind: ReservationKind::Vrf,
        address: Some("10.0.0.0".parse().unwrap()),
        quantity: 8,
        ..ReservationOptions::default()
    });
    let rows = ElasticIps::list(&bench.driver).await.unwrap();
    let find = |id: String| rows.iter().find(|row| row.id == id).unwrap();
    let free = (find(free.id.to_string()), free.address.unwrap());
    assert_eq!(free.0.prefix.unwrap().address(), free.1);
    assert!(free.0.prefix.unwrap().is_host() && free.0.usable && free.0.tags == ["t=1"]);
    assert_eq!(free.0.assignments, []);
    let server = bench.machine(device).id().to_owned();
    let held = find(held.id.to_string());
    assert_eq!(held.assignments[0].machine, server);
    assert_eq!(held.assignments[0].id, format!("{}.{server}", held.id));
    let block = find(block.id.to_string());
    assert!(!block.usable && !block.prefix.unwrap().is_host());
    let own: Vec<_> = rows
        .iter()
        .filter(|row| !row.usable && row.id != block.id)
        .collect();
    assert_eq!(
        own.len(),
        bench
            .project()
            .addresses(device)
            .iter()
            .filter(|row| row.management)
            .count()
    );
    assert!(own.iter().all(|row| row.prefix.unwrap().is_host()), "{own:?}");
}

#[tokio::test]
async fn every_page_of_addresses_is_read() {
    let bench = Bench::with(ProjectOptions::cherry(), |config| config.page_size = 2).await;
    for _ in 0..5 {
        bench.project().add_reservation(ReservationOptions::default());
    }
    assert_eq!(ElasticIps::list(&bench.driver).await.unwrap().len(), 5);
    assert_eq!(bench.calls("GET", LIST), 5);
}

/// Gone already is success; by the API's word only.
#[tokio::test]
async fn a_deletion_believes_in_absence_by_the_apis_word_only() {
    let bench = Bench::new().await;
    let made = bench.driver.create(&wanted(Family::V4, vec![])).await.unwrap();
    let route = "/ips/{id}";
    bench
        .project()
        .fault(rule("DELETE", route, answer(404, json!("nginx"))));
    let error = bench.driver.delete(&made.id).await.unwrap_err();
    assert_eq!(error.kind, CloudErrorKind::Unavailable, "{error}");
    bench.project().clear_faults();
    bench
        .project()
        .fault(rule("DELETE", route, Action::DropAfter).first(1));
    bench.driver.delete(&made.id).await.unwrap();
    assert_eq!(bench.project().reservations().len(), 0);
    for id in ["", "..", "a/b", "a?b"] {
        let error = bench.driver.delete(id).await.unwrap_err();
        assert_eq!(error.kind, CloudErrorKind::Refused, "{id}");
    }
}

#[tokio::test]
async fn a_project_that_is_not_there_is_no_empty_list() {
    let bench = Bench::with(ProjectOptions::cherry(), |config| {
        config.project_id = "999999999".to_owned();
    })
    .await;
    let machine = |device| bench.machine(device);
    bench
        .case(&machine)
        .a_project_that_is_not_there_is_no_empty_list()
        .await;
}

/// Other tags, the same address on the same machine.
#[tokio::test]
async fn tags_are_replaced_and_nothing_else() {
    let bench = Bench::new().await;
    let device = bench.project().add_devices(1)[0];
    let row = bench
        .project()
        .add_reservation(ReservationOptions::tagged(["service=a", "team=x"]));
    bench.project().assign(device, row.address.unwrap());
    let id = row.id.to_string();
    let tags: Vec<String> = ["usage=u", "service=b=="].map(str::to_owned).into();
    assert!(bench.driver.retags());
    for _ in 0..2 {
        let now = bench.driver.retag(&id, &tags).await.unwrap();
        assert_eq!(now.tags, ["usage=u", "service=b=="]);
        let listed = ElasticIps::list(&bench.driver).await.unwrap();
        assert!(listed.contains(&now) && now.assignments.len() == 1, "{now:?}");
    }
    let body = json!({ "tags": { "usage": "u", "service": "b==" } });
    assert_eq!(bench.bodies("PUT", "/ips/{id}").pop(), Some(body));
    let twice = ["k=1".to_owned(), "k=2".to_owned()];
    for (id, tags, kind) in [
        (id.as_str(), &twice[..], CloudErrorKind::Refused),
        ("a/b", &tags[..], CloudErrorKind::Refused),
        (
            "00000000-0000-4000-8000-000000000000",
            &tags[..],
            CloudErrorKind::NotFound,
        ),
    ] {
        let error = bench.driver.retag(id, tags).await.unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
    }
}
