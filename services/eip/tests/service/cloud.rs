use groundplane_core::ErrorKind;
use groundplane_proto::core::v1 as core;
use groundplane_proto::eip::v1 as eip;
use groundplane_sandbox::{Action, FaultRule, ProjectOptions, ReservationOptions};
use pretty_assertions::assert_eq;
use serde_json::json;

use super::world::*;

/// `default/nginx` in the words of the Equinix Metal CCM.
const NGINX: &str = "service=l7RnKS8k48oG3Qv3Pxx8FzEMj3X3E5c8JPOIzyLWWdY=";
const USAGE: &str = "usage=cloud-provider-equinix-metal-auto";

fn nginx_tags() -> [&'static str; 3] {
    [USAGE, NGINX, "cluster=cluster-a"]
}

/// E35: a Service without an address gets one, with exactly the tags and the body that the cloud's own controller would send.
#[tokio::test]
async fn a_new_service_gets_an_address_with_the_tags_of_its_owner() {
    let world = World::new().await;
    let eip = world.process().await;
    let mark = world.project.journal().mark();
    let address = eip.address("nginx").await.unwrap();
    assert_eq!(
        (address.state(), address.user_provided),
        (eip::State::Ready, false)
    );
    let [made] = &world.project.reservations()[..] else {
        panic!("one reservation")
    };
    assert_eq!(address.origin, made.id.to_string());
    let [create] = &world.project.journal().calls(mark, "POST", "/projects/{pid}/ips")[..] else {
        panic!("one create")
    };
    let mut body = create.body.clone().unwrap();
    assert!(body.as_object_mut().unwrap().remove("details").is_some());
    let expected = json!({
        "type": "public_ipv4", "quantity": 1, "tags": nginx_tags(), "fail_on_approval_required": true, "metro": "sv",
    });
    assert_eq!(body, expected);
    assert_eq!(
        eip.address("nginx").await.unwrap(),
        address,
        "the same owner gets the same address"
    );
    assert_eq!(world.project.reservations().len(), 1);
}

/// E36: what carries the tags is taken over.
#[tokio::test]
async fn a_tagged_reservation_is_adopted() {
    let world = World::new().await;
    let mine = world
        .project
        .add_reservation(ReservationOptions::tagged(nginx_tags()));
    let eip = world.process().await;
    let mark = world.project.journal().mark();
    assert_eq!(eip.address("nginx").await.unwrap().origin, mine.id.to_string());
    assert_eq!(world.project.journal().writes(mark), []);
}

/// E37: two clusters in one project have each their own, and neither touches the other's.
#[tokio::test]
async fn clusters_in_one_project_do_not_meet() {
    let world = World::new().await;
    let eip = world.process().await;
    let ours = eip.address("nginx").await.unwrap();
    let theirs = eip
        .ensure(ask(owner("cluster-b", "nginx"), ""))
        .await
        .unwrap()
        .addresses
        .remove(0);
    assert_ne!(ours.prefix, theirs.prefix);
    assert_eq!(eip.release(owner("cluster-b", "nginx")).await.unwrap().len(), 1);
    let left: Vec<_> = world
        .project
        .reservations()
        .iter()
        .map(|row| row.id.to_string())
        .collect();
    assert_eq!(left, [ours.origin]);
}

/// E39: an address that the user brings is used and never destroyed, whether the project has it or not.
#[tokio::test]
async fn a_brought_address_is_used_and_left_alone() {
    let world = World::new().await;
    let brought = world
        .project
        .add_reservation(ReservationOptions::tagged(["mine"]));
    let address = brought.address.unwrap().to_string();
    let eip = world.process().await;
    let mark = world.project.journal().mark();
    for (text, origin) in [
        (address.as_str(), brought.id.to_string()),
        ("192.0.2.77", String::new()),
    ] {
        let given = eip
            .ensure(ask(owner(CLUSTER, "nginx"), text))
            .await
            .unwrap()
            .addresses
            .remove(0);
        assert_eq!((given.prefix, given.origin), (format!("{text}/32"), origin));
        assert!(given.user_provided);
    }
    assert_eq!(eip.release(owner(CLUSTER, "nginx")).await.unwrap(), []);
    assert_eq!(world.project.journal().writes(mark), []);
}

#[tokio::test]
async fn an_address_of_another_owner_is_not_given_away() {
    let world = World::new().await;
    let eip = world.process().await;
    let taken = eip
        .ensure(ask(owner("cluster-b", "web"), ""))
        .await
        .unwrap()
        .addresses
        .remove(0);
    let error = eip
        .ensure(ask(owner(CLUSTER, "nginx"), taken.prefix.trim_end_matches("/32")))
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind, error.reason.as_str()),
        (ErrorKind::AlreadyExists, "ADDRESS_TAKEN")
    );
    assert!(
        error.metadata["holder"].contains("cluster=cluster-b"),
        "{error:?}"
    );
}

/// E40: what an owner held is gone, what others hold is not; once more is no error, and a new Service gets a new address.
#[tokio::test]
async fn release_takes_back_the_owners_and_no_others() {
    let world = World::new().await;
    let eip = world.process().await;
    let (nginx, other) = (
        eip.address("nginx").await.unwrap(),
        eip.address("other").await.unwrap(),
    );
    let released = eip.release(owner(CLUSTER, "nginx")).await.unwrap();
    assert_eq!(released, std::slice::from_ref(&nginx));
    assert_eq!(eip.release(owner(CLUSTER, "nginx")).await.unwrap(), []);
    assert_eq!(world.project.reservations().len(), 1);
    assert_eq!(eip.address("other").await.unwrap(), other);
    assert_ne!(
        eip.address("nginx").await.unwrap().origin,
        nginx.origin,
        "E42: not the one that is gone"
    );
}

/// E41 (part): the cloud made the address and the answer was lost. Asked again, by this process or by the next, it is found.
#[tokio::test]
async fn an_unanswered_create_is_found_again() {
    for restart in [false, true] {
        let world = World::new().await;
        let mut eip = world.process().await;
        world
            .project
            .fault(FaultRule::on(CREATE.0, CREATE.1, Action::DropAfter).first(1));
        let error = eip.address("nginx").await.unwrap_err();
        assert_eq!(
            (error.kind, error.reason.as_str()),
            (ErrorKind::Unavailable, "CLOUD_UNAVAILABLE")
        );
        if restart {
            eip = world.process().await;
        }
        let address = eip.address("nginx").await.unwrap();
        let [made] = &world.project.reservations()[..] else {
            panic!("one reservation, restart: {restart}")
        };
        assert_eq!(address.origin, made.id.to_string());
    }
}

/// E43 (part): a spent quota is told as such, and once there is room the address comes.
#[tokio::test]
async fn a_spent_quota_is_told_and_passes() {
    let world = World::with(ProjectOptions {
        quota: Some(0),
        ..ProjectOptions::default()
    })
    .await;
    let eip = world.process().await;
    let error = eip.address("nginx").await.unwrap_err();
    assert_eq!(
        (error.kind, error.reason.as_str()),
        (ErrorKind::Exhausted, "QUOTA_EXCEEDED")
    );
    world.project.set_quota(None);
    eip.address("nginx").await.unwrap();
}

/// E45: of reservations with the same tags one is used and the others are deleted; release leaves none.
#[tokio::test]
async fn duplicates_are_settled_to_one() {
    let world = World::new().await;
    for _ in 0..3 {
        world
            .project
            .add_reservation(ReservationOptions::tagged(nginx_tags()));
    }
    let eip = world.process().await;
    let address = eip.address("nginx").await.unwrap();
    let [left] = &world.project.reservations()[..] else {
        panic!("one reservation")
    };
    assert_eq!(address.origin, left.id.to_string());
    world
        .project
        .add_reservation(ReservationOptions::tagged(nginx_tags()));
    assert_eq!(eip.release(owner(CLUSTER, "nginx")).await.unwrap().len(), 2);
    assert!(world.project.reservations().is_empty());
}

#[tokio::test]
async fn many_calls_of_one_owner_at_once_make_one_address() {
    let world = World::new().await;
    let (one, other) = (world.process().await, world.process().await);
    let calls = (0..20).map(|_| one.address("nginx"));
    let addresses = futures::future::try_join_all(calls).await.unwrap();
    assert!(addresses.iter().all(|address| *address == addresses[0]));
    assert_eq!(
        other.address("nginx").await.unwrap(),
        addresses[0],
        "another replica finds it"
    );
    assert_eq!(world.project.reservations().len(), 1);
}

/// A list that began before the create and ends after it must not hide what was made.
#[tokio::test]
async fn another_process_with_an_old_inventory_makes_no_second_address() {
    let world = World::new().await;
    let (one, other) = (world.process().await, world.process().await);
    other.address("warm").await.unwrap();
    let address = one.address("nginx").await.unwrap();
    assert_eq!(other.address("nginx").await.unwrap(), address);
}

/// E85 (part): after a restart, a hundred settled Services cost the pages of one list.
#[tokio::test]
async fn settled_services_cost_one_list() {
    let world = World::new().await;
    let eip = world.process().await;
    for number in 0..100 {
        eip.address(&format!("web-{number}")).await.unwrap();
    }
    let eip = world.process().await;
    let mark = world.project.journal().mark();
    let names: Vec<_> = (0..100).map(|number| format!("web-{number}")).collect();
    futures::future::try_join_all(names.iter().map(|name| eip.address(name)))
        .await
        .unwrap();
    assert!(
        world.project.journal().total(mark) <= 2,
        "{:?}",
        world.project.journal().counts(mark)
    );
}

/// E87 (part): a cloud that never answers is an error within the call's time, and nothing is made twice when it wakes up.
#[tokio::test]
async fn a_hanging_cloud_is_an_error_and_not_a_second_address() {
    let world = World::new().await;
    let eip = world.process().await;
    world
        .project
        .fault(FaultRule::on(CREATE.0, CREATE.1, Action::HangAfter).first(1));
    assert_eq!(
        eip.address("nginx").await.unwrap_err().kind,
        ErrorKind::Unavailable
    );
    eip.address("nginx").await.unwrap();
    assert_eq!(world.project.reservations().len(), 1);
}

/// E89 (part): the service starts without the cloud, says so, answers `UNAVAILABLE`, and is ready once the cloud is back.
#[tokio::test]
async fn a_cloud_that_is_away_at_the_start_is_waited_for() {
    let world = World::new().await;
    world
        .project
        .fault(FaultRule::on(LIST.0, LIST.1, Action::status(500)));
    let eip = world.process().await;
    assert_eq!(
        eip.address("nginx").await.unwrap_err().kind,
        ErrorKind::Unavailable
    );
    assert!(!eip.context.health.is_ready());
    world.project.clear_faults();
    eip.context.health.ready().await;
    eip.address("nginx").await.unwrap();
}

/// E63 (part): a list that fails deletes nothing.
#[tokio::test]
async fn an_error_is_not_absence() {
    let world = World::new().await;
    let eip = world.process().await;
    eip.address("nginx").await.unwrap();
    world
        .project
        .fault(FaultRule::on(LIST.0, LIST.1, Action::status(500)));
    assert_eq!(
        eip.release(owner(CLUSTER, "nginx")).await.unwrap_err().kind,
        ErrorKind::Unavailable
    );
    assert_eq!(world.project.reservations().len(), 1);
}

#[tokio::test]
async fn a_dual_stack_service_gets_one_of_each_family_or_goes_without_the_optional_one() {
    let world = World::with(ProjectOptions {
        quota: Some(1),
        ..ProjectOptions::default()
    })
    .await;
    let eip = world.process().await;
    let mut request = ask(owner(CLUSTER, "nginx"), "");
    let v6 = core::AddressRequest {
        family: core::Family::Ipv6.into(),
        optional: true,
        ..core::AddressRequest::default()
    };
    request.requests.push(v6);
    let answer = eip.ensure(request.clone()).await.unwrap();
    assert_eq!(
        (answer.addresses.len(), answer.missing[0].reason.as_str()),
        (1, "QUOTA_EXCEEDED")
    );
    world.project.set_quota(None);
    request.requests[1].optional = false;
    let both = eip.ensure(request.clone()).await.unwrap().addresses;
    assert_eq!(both[0], answer.addresses[0]);
    assert!(both[1].prefix.contains(':'), "{both:?}");
    assert_eq!(eip.ensure(request).await.unwrap().addresses, both);
    assert_eq!(eip.release(owner(CLUSTER, "nginx")).await.unwrap().len(), 2);
}

#[tokio::test]
async fn requests_that_make_no_sense_are_refused() {
    let world = World::new().await;
    let eip = world.process().await;
    let good = ask(owner(CLUSTER, "nginx"), "");
    let twice = [good.requests.clone(), good.requests.clone()].concat();
    let bad = [
        eip::EnsureAddressRequest {
            owner: None,
            ..good.clone()
        },
        eip::EnsureAddressRequest {
            requests: Vec::new(),
            ..good.clone()
        },
        eip::EnsureAddressRequest {
            requests: twice,
            ..good.clone()
        },
        ask(owner("", "nginx"), ""),
        ask(owner(CLUSTER, "nginx"), "300.1.1.1"),
        ask(owner(CLUSTER, "nginx"), "2001:db8::1"),
    ];
    for request in bad {
        assert_eq!(
            eip.ensure(request.clone()).await.unwrap_err().kind,
            ErrorKind::Invalid,
            "{request:?}"
        );
    }
    assert!(world.project.reservations().is_empty());
}

#[tokio::test]
async fn addresses_of_a_cluster_are_listed_by_pages() {
    let world = World::new().await;
    let eip = world.process().await;
    for name in ["a", "b", "c"] {
        eip.address(name).await.unwrap();
    }
    eip.ensure(ask(owner("cluster-b", "nginx"), "")).await.unwrap();
    let (mut seen, mut token, mut pages) = (std::collections::BTreeSet::new(), String::new(), 0);
    loop {
        let request = eip::ListAddressesRequest {
            cluster: CLUSTER.to_owned(),
            page_size: 2,
            page_token: token,
        };
        let page = eip
            .client
            .clone()
            .list_addresses(request)
            .await
            .unwrap()
            .into_inner();
        seen.extend(
            page.addresses
                .into_iter()
                .map(|held| held.address.unwrap().origin),
        );
        (token, pages) = (page.next_page_token, pages + 1);
        if token.is_empty() {
            break;
        }
    }
    assert_eq!((seen.len(), pages), (3, 2));
}
