//! What older controllers left, what owners share, and what nobody has any more.

use groundplane_cloud::EndpointSelector;
use groundplane_core::ErrorKind;
use groundplane_proto::core::v1 as core;
use groundplane_proto::eip::v1 as eip;
use groundplane_sandbox::{Action, FaultRule, ProjectOptions, ReservationKind, ReservationOptions};
use pretty_assertions::assert_eq;

use super::world::*;

/// `default/nginx`, in the words of every controller.
const NGINX: &str = "service=l7RnKS8k48oG3Qv3Pxx8FzEMj3X3E5c8JPOIzyLWWdY=";
const USAGE: &str = "usage=cloud-provider-equinix-metal-auto";
const DELETE: (&str, &str) = ("DELETE", "/ips/{id}");
const PATCH: (&str, &str) = ("PATCH", "/ips/{id}");

fn nginx(address: &str) -> eip::EnsureAddressRequest {
    ask(owner(CLUSTER, "nginx"), address)
}

fn population(names: &[&str], in_use: &[&str]) -> eip::Population {
    eip::Population {
        cluster: CLUSTER.to_owned(),
        owners: names.iter().map(|name| owner(CLUSTER, name)).collect(),
        in_use: in_use.iter().map(|text| (*text).to_owned()).collect(),
    }
}

impl Process {
    async fn audit(&self, population: eip::Population) -> Vec<eip::AuditedAddress> {
        self.audit_all(population, false).await
    }

    async fn audit_all(&self, population: eip::Population, foreign: bool) -> Vec<eip::AuditedAddress> {
        let request = eip::AuditAddressesRequest {
            population: Some(population),
            fresh: true,
            foreign,
        };
        let answer = self.client.clone().audit_addresses(request).await.unwrap();
        answer.into_inner().addresses
    }

    async fn reclaim(
        &self,
        population: eip::Population,
        ids: &[&str],
    ) -> Result<Vec<String>, groundplane_runtime::grpc::RpcError> {
        let request = eip::ReclaimAddressesRequest {
            population: Some(population),
            reservations: ids.iter().map(|id| (*id).to_owned()).collect(),
            ..eip::ReclaimAddressesRequest::default()
        };
        let answer = self.client.clone().reclaim_addresses(request).await?.into_inner();
        Ok(answer
            .reclaimed
            .into_iter()
            .filter_map(|one| Some(one.address?.origin))
            .collect())
    }

    async fn hand_over(&self, from: &str, heir: core::Owner, address: &str) -> eip::ReleaseAddressResponse {
        let request = eip::ReleaseAddressRequest {
            owner: Some(owner(CLUSTER, from)),
            heirs: vec![eip::Heir {
                owner: Some(heir),
                addresses: vec![address.to_owned()],
            }],
            ..eip::ReleaseAddressRequest::default()
        };
        let answer = self.client.clone().release_address(request).await.unwrap();
        answer.into_inner()
    }
}

/// A world where an older controller left one reservation with these tags; its id and its address.
async fn left(tags: &[&str]) -> (World, String, String) {
    let world = World::new().await;
    let left = world
        .project
        .add_reservation(ReservationOptions::tagged(tags.iter().copied()));
    let (id, address) = (left.id.to_string(), left.address.unwrap().to_string());
    (world, id, address)
}

/// Every tag that there is, a reservation a line.
fn tags(world: &World) -> Vec<String> {
    let reservations = world.project.reservations();
    reservations
        .iter()
        .filter(|one| !one.management)
        .map(|one| one.tags.join(" "))
        .collect()
}

/// E50: whatever its usage; because the address is asked for, is live, or a person says so. It has today's tags then, nothing is ordered,
/// and it is ours to delete.
#[tokio::test]
async fn what_the_oldest_controllers_tagged_is_carried_over() {
    for (usage, proof) in [
        ("usage=packet-ccm-auto", 0),
        ("usage=packet-ccm-auto", 1),
        ("usage=packet-ccm-auto", 2),
        ("usage=metal-ccm-auto", 0),
        (USAGE, 1),
    ] {
        let (world, id, address) = left(&[usage, NGINX, "mine"]).await;
        let mut request = nginx(if proof == 0 { &address } else { "" });
        match proof {
            1 => request.in_use = vec![address.clone()],
            2 => request.adopt = vec![id.clone()],
            _ => {}
        }
        let eip = world.process().await;
        let given = eip.ensure(request.clone()).await.unwrap().addresses.remove(0);
        assert_eq!(
            (&given.origin, given.user_provided),
            (&id, false),
            "{usage} {proof}"
        );
        assert_eq!(tags(&world), [format!("{USAGE} {NGINX} cluster=cluster-a mine")]);
        assert_eq!(world.project.journal().calls(0, CREATE.0, CREATE.1), []);
        let mark = world.project.journal().mark();
        eip.ensure(request).await.unwrap();
        assert_eq!(world.project.journal().writes(mark), [], "once is enough");
        assert_eq!(eip.release(owner(CLUSTER, "nginx")).await.unwrap().len(), 1);
        assert_eq!(tags(&world), [""; 0]);
    }
}

/// E37, E50: nothing says that it is this cluster's, or its tags say that it is another's: it is left alone.
#[tokio::test]
async fn what_may_be_another_clusters_is_left_alone() {
    let old = "usage=packet-ccm-auto";
    for tagged in [
        &[old, NGINX][..],
        &[old, NGINX, "cluster=cluster-b"],
        &[USAGE, NGINX, "cluster=cluster-b"],
        &[old, "service=another"],
    ] {
        let (world, id, _) = left(tagged).await;
        let eip = world.process().await;
        assert_ne!(eip.address("nginx").await.unwrap().origin, id, "{tagged:?}");
        assert!(tags(&world).contains(&tagged.join(" ")));
        eip.release(owner(CLUSTER, "nginx")).await.unwrap();
        assert_eq!(tags(&world), [tagged.join(" ")]);
    }
}

/// E50: its tags name this cluster; that is proof enough.
#[tokio::test]
async fn an_old_usage_with_this_cluster_is_this_clusters() {
    let (world, id, _) = left(&["usage=packet-ccm-auto", NGINX, "cluster=cluster-a"]).await;
    let eip = world.process().await;
    assert_eq!(eip.address("nginx").await.unwrap().origin, id);
    assert_eq!(tags(&world), [format!("{USAGE} {NGINX} cluster=cluster-a")]);
}

/// E41, E50: an answer that is lost, or an error, at the one write of a migration: the next try finds how far it came.
#[tokio::test]
async fn a_migration_that_is_cut_short_is_finished() {
    for action in [Action::DropBefore, Action::DropAfter, Action::status(500)] {
        let (world, id, address) = left(&["usage=packet-ccm-auto", NGINX]).await;
        let rule = FaultRule::on(PATCH.0, PATCH.1, action).first(1);
        world.project.fault(rule);
        let eip = world.process().await;
        let error = eip.ensure(nginx(&address)).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unavailable);
        let given = eip.ensure(nginx(&address)).await.unwrap().addresses.remove(0);
        assert_eq!((given.origin, given.user_provided), (id, false));
        assert_eq!(tags(&world), [format!("{USAGE} {NGINX} cluster=cluster-a")]);
    }
}

/// E36, E39: an address that is asked for and carries the owner's tags is managed, whoever wrote the request.
#[tokio::test]
async fn an_address_that_is_asked_for_and_ours_is_not_brought() {
    let (world, id, address) = left(&[USAGE, NGINX, "cluster=cluster-a"]).await;
    let eip = world.process().await;
    let given = eip.ensure(nginx(&address)).await.unwrap().addresses.remove(0);
    assert_eq!((given.origin, given.user_provided), (id, false));
    assert_eq!(eip.release(owner(CLUSTER, "nginx")).await.unwrap().len(), 1);
    assert_eq!(tags(&world), [""; 0]);
}

/// E37, E50, E51: an audit tells everything apart, and writes nothing.
#[tokio::test]
async fn an_audit_tells_owners_orphans_and_the_past_apart() {
    let world = World::new().await;
    let eip = world.process().await;
    eip.address("nginx").await.unwrap();
    eip.address("gone").await.unwrap();
    let used = eip.address("used").await.unwrap();
    eip.ensure(ask(owner("cluster-b", "gone"), "")).await.unwrap();
    let past = ReservationOptions::tagged(["usage=packet-ccm-auto", NGINX]);
    world.project.add_reservation(past);
    world
        .project
        .add_reservation(ReservationOptions::tagged(["mine"]));
    let mark = world.project.journal().mark();
    let in_use = used.prefix.trim_end_matches("/32");
    let found = eip.audit(population(&["nginx"], &[in_use])).await;
    let mut standings: Vec<_> = found
        .iter()
        .map(|one| {
            let owner = one.owner.as_ref().map(|owner| owner.name.as_str());
            (one.standing(), owner, one.names_cluster)
        })
        .collect();
    standings.sort();
    assert_eq!(
        standings,
        [
            (eip::Standing::Held, Some("nginx"), true),
            (eip::Standing::Orphan, None, true),
            (eip::Standing::Spared, None, true),
            (eip::Standing::Former, Some("nginx"), false),
        ]
    );
    let all = eip.audit_all(population(&["nginx"], &[in_use]), true).await;
    let others: Vec<_> = all
        .iter()
        .filter(|one| one.standing() == eip::Standing::Foreign)
        .collect();
    assert_eq!(
        (all.len(), others.len()),
        (found.len() + 1, 1),
        "whoever asks is told of the other cluster's"
    );
    assert!(
        others[0].tags.contains(&"cluster=cluster-b".to_owned()),
        "{others:?}"
    );
    assert_eq!(world.project.journal().writes(mark), []);
}

/// E51: of what is named, the orphans go, and nothing else; also not what an owner or an address in use explains by now.
#[tokio::test]
async fn only_orphans_that_were_named_are_reclaimed() {
    let world = World::new().await;
    let eip = world.process().await;
    let mut ids = Vec::new();
    for name in ["nginx", "gone", "unnamed", "used"] {
        ids.push(eip.address(name).await.unwrap());
    }
    let theirs = eip.ensure(ask(owner("cluster-b", "gone"), "")).await.unwrap();
    let brought = world
        .project
        .add_reservation(ReservationOptions::tagged(["mine"]));
    let named = [
        &ids[0].origin,
        &ids[1].origin,
        &ids[3].origin,
        &theirs.addresses[0].origin,
        &brought.id.to_string(),
    ];
    let named: Vec<&str> = named.iter().map(|id| id.as_str()).collect();
    let now = population(&["nginx"], &[ids[3].prefix.trim_end_matches("/32")]);
    let reclaimed = eip.reclaim(now.clone(), &named).await.unwrap();
    assert_eq!(reclaimed, [ids[1].origin.as_str()]);
    assert_eq!(tags(&world).len(), 5);
    assert_eq!(
        eip.reclaim(now, &named).await.unwrap(),
        [""; 0],
        "twice is as once"
    );
}

/// E51: a read that fails, at once or half-way through its pages, reclaims nothing; nor does a cached one count.
#[tokio::test]
async fn a_read_that_fails_reclaims_nothing() {
    let world = World::with(ProjectOptions {
        max_per_page: 2,
        ..ProjectOptions::default()
    })
    .await;
    let eip = world.process().await;
    let mut ids = Vec::new();
    for name in ["a", "b", "c", "d"] {
        ids.push(eip.address(name).await.unwrap().origin);
    }
    let named: Vec<&str> = ids.iter().map(String::as_str).collect();
    for (page, action) in [
        ("page=", Action::status(500)),
        ("page=2", Action::status(500)),
        ("page=2", Action::HalfBody),
        ("page=2", Action::DropBefore),
    ] {
        // Each time: reads are tried again.
        let rule = FaultRule::on(LIST.0, LIST.1, action).object(page);
        world.project.fault(rule);
        let error = eip.reclaim(population(&[], &[]), &named).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unavailable);
        assert_eq!(world.project.journal().calls(0, DELETE.0, DELETE.1), []);
        world.project.clear_faults();
    }
    assert_eq!(eip.reclaim(population(&[], &[]), &named).await.unwrap().len(), 4);
}

/// E51: a deletion that fails ends the call; what went is told, what is left is an orphan the next time.
#[tokio::test]
async fn a_deletion_that_fails_is_taken_up_again() {
    let world = World::new().await;
    let eip = world.process().await;
    let mut ids = Vec::new();
    for name in ["a", "b", "c"] {
        ids.push(eip.address(name).await.unwrap().origin);
    }
    // In the order of their ids.
    ids.sort();
    let rule = FaultRule::on(DELETE.0, DELETE.1, Action::status(500)).object(&ids[1]);
    world.project.fault(rule);
    let named: Vec<&str> = ids.iter().map(String::as_str).collect();
    let first = eip.reclaim(population(&[], &[]), &named).await.unwrap();
    assert_eq!(first, [ids[0].as_str()]);
    let error = eip.reclaim(population(&[], &[]), &named).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    world.project.clear_faults();
    let then = eip.reclaim(population(&[], &[]), &named).await.unwrap();
    assert_eq!((then.len(), tags(&world).len()), (2, 0));
}

/// A deletion whose answer is lost may have had its effect: its owner, back meanwhile, is not given from memory what is not there any
/// more.
#[tokio::test]
async fn what_may_be_deleted_is_not_given_from_memory() {
    let world = World::new().await;
    let eip = world.process().await;
    let before = eip.address("nginx").await.unwrap().origin;
    world
        .project
        .fault(FaultRule::on(DELETE.0, DELETE.1, Action::DropAfter));
    let error = eip.release(owner(CLUSTER, "nginx")).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    world.project.clear_faults();
    let after = eip.address("nginx").await.unwrap().origin;
    assert_ne!(after, before);
    assert_eq!(tags(&world), [format!("{USAGE} {NGINX} cluster=cluster-a")]);
}

/// E51: the API endpoint is nobody's orphan, whatever tags it has.
#[tokio::test]
async fn the_api_endpoint_is_never_reclaimed() {
    let (world, id, _) = left(&[USAGE, NGINX, "cluster=cluster-a", "endpoint"]).await;
    let eip = world
        .process_with(Some(EndpointSelector::Tag("endpoint".to_owned())))
        .await;
    assert_eq!(eip.reclaim(population(&[], &[]), &[&id]).await.unwrap(), [""; 0]);
    assert_eq!(tags(&world).len(), 1);
}

/// E36: no Service gets the API endpoint's address by asking for it, and none gives it back, whatever tags its reservation has.
#[tokio::test]
async fn the_api_endpoint_is_no_services() {
    for tagged in [
        &["endpoint"][..],
        &["endpoint", USAGE, NGINX, "cluster=cluster-a"],
    ] {
        let (world, _, address) = left(tagged).await;
        let by_address = EndpointSelector::Address(address.parse().unwrap());
        for selector in [EndpointSelector::Tag("endpoint".to_owned()), by_address] {
            let eip = world.process_with(Some(selector)).await;
            let refused = eip.ensure(nginx(&address)).await.unwrap_err();
            assert_eq!(refused.reason, "ADDRESS_OF_ENDPOINT", "{tagged:?}");
            assert!(refused.message.contains(&address), "{refused}");
            eip.release(owner(CLUSTER, "nginx")).await.unwrap();
            assert_eq!(tags(&world), [tagged.join(" ")]);
        }
    }
    // A block of which it has one address: the others are anybody's.
    let world = World::new().await;
    let block = world.project.add_reservation(ReservationOptions {
        quantity: 8,
        ..ReservationOptions::default()
    });
    let first = block.address.unwrap();
    let eip = world.process_with(Some(EndpointSelector::Address(first))).await;
    let refused = eip.ensure(nginx(&first.to_string())).await.unwrap_err();
    assert_eq!(refused.reason, "ADDRESS_OF_ENDPOINT");
    let std::net::IpAddr::V4(first) = first else {
        panic!("{first}")
    };
    let next = std::net::Ipv4Addr::from_bits(first.to_bits() + 1).to_string();
    assert!(eip.ensure(nginx(&next)).await.unwrap().addresses[0].user_provided);
    // One that is not a reservation of the project at all.
    let world = World::new().await;
    let eip = world
        .process_with(Some(EndpointSelector::Address("198.51.100.7".parse().unwrap())))
        .await;
    let refused = eip.ensure(nginx("198.51.100.7")).await.unwrap_err();
    assert_eq!(refused.reason, "ADDRESS_OF_ENDPOINT");
}

/// E37, E50: an older controller made it for another Service: who asks for its address is told so, since its owner may give it back any day.
#[tokio::test]
async fn what_an_older_controller_made_for_another_is_not_brought() {
    for tagged in [
        &["usage=packet-ccm-auto", "service=another"][..],
        &["usage=packet-ccm-auto", NGINX, "cluster=cluster-b"],
        &[USAGE, "service=another", "cluster=cluster-b"],
    ] {
        let (world, id, address) = left(tagged).await;
        let eip = world.process().await;
        let refused = eip.ensure(nginx(&address)).await.unwrap_err();
        assert_eq!(
            (refused.kind, &*refused.reason),
            (ErrorKind::AlreadyExists, "ADDRESS_TAKEN"),
            "{tagged:?}"
        );
        assert_eq!(refused.metadata["reservation"], id);
        assert_eq!(tags(&world), [tagged.join(" ")]);
    }
}

/// E41, E51: a create that timed out and lands after the release carries an owner's tags that nobody has any more: an orphan.
#[tokio::test]
async fn a_create_that_lands_after_the_release_is_an_orphan() {
    let world = World::new().await;
    let eip = world.process().await;
    let rule = FaultRule::on(CREATE.0, CREATE.1, Action::DropBefore).first(1);
    world.project.fault(rule);
    eip.address("nginx").await.unwrap_err();
    assert_eq!(eip.release(owner(CLUSTER, "nginx")).await.unwrap(), []);
    // Here it lands.
    let late = ReservationOptions::tagged([USAGE, NGINX, "cluster=cluster-a"]);
    let late = world.project.add_reservation(late).id.to_string();
    let [found] = &eip.audit(population(&[], &[])).await[..] else {
        panic!("one reservation")
    };
    assert_eq!(found.standing(), eip::Standing::Orphan);
    assert_eq!(eip.reclaim(population(&[], &[]), &[&late]).await.unwrap(), [late]);
}

/// A reservation that owners share becomes the next one's when its owner goes, and is deleted with the last.
#[tokio::test]
async fn what_is_shared_goes_with_the_last() {
    let world = World::new().await;
    let eip = world.process().await;
    let given = eip.address("nginx").await.unwrap();
    let address = given.prefix.trim_end_matches("/32").to_owned();
    let mut request = ask(owner(CLUSTER, "other"), &address);
    assert_eq!(
        eip.ensure(request.clone()).await.unwrap_err().reason,
        "ADDRESS_TAKEN"
    );
    request.sharers = vec![owner(CLUSTER, "nginx")];
    let shared = eip.ensure(request.clone()).await.unwrap().addresses.remove(0);
    assert_eq!((&shared.origin, shared.user_provided), (&given.origin, false));
    let answer = eip.hand_over("nginx", owner(CLUSTER, "other"), &address).await;
    assert_eq!((answer.released.len(), answer.inherited.len()), (0, 1));
    request.sharers.clear();
    assert_eq!(
        eip.ensure(request).await.unwrap().addresses[0].origin,
        given.origin
    );
    // The first one comes back, and finds that the address is the other's now.
    assert_ne!(eip.address("nginx").await.unwrap().origin, given.origin);
    assert_eq!(eip.release(owner(CLUSTER, "other")).await.unwrap().len(), 1);
    assert_eq!(tags(&world).len(), 1);
}

/// E41: a cut at the one write of a handing over; repeated, it is done once.
#[tokio::test]
async fn a_handing_over_that_is_cut_short_is_finished() {
    let world = World::new().await;
    let eip = world.process().await;
    let given = eip.address("nginx").await.unwrap();
    let address = given.prefix.trim_end_matches("/32").to_owned();
    let rule = FaultRule::on(PATCH.0, PATCH.1, Action::DropAfter).first(1);
    world.project.fault(rule);
    let request = eip::ReleaseAddressRequest {
        owner: Some(owner(CLUSTER, "nginx")),
        heirs: vec![eip::Heir {
            owner: Some(owner(CLUSTER, "other")),
            addresses: vec![address.clone()],
        }],
        ..eip::ReleaseAddressRequest::default()
    };
    eip.client.clone().release_address(request).await.unwrap_err();
    let answer = eip.hand_over("nginx", owner(CLUSTER, "other"), &address).await;
    assert_eq!((answer.released.len(), answer.inherited.len()), (0, 0));
    assert_eq!(eip.address("other").await.unwrap().origin, given.origin);
}

/// What an heir does not use is deleted all the same.
#[tokio::test]
async fn what_no_heir_uses_is_deleted() {
    let world = World::new().await;
    let eip = world.process().await;
    eip.address("nginx").await.unwrap();
    let answer = eip
        .hand_over("nginx", owner(CLUSTER, "other"), "192.0.2.200")
        .await;
    assert_eq!((answer.released.len(), answer.inherited.len()), (1, 0));
    assert_eq!(tags(&world), [""; 0]);
}

/// More reservations than a page has, and one of a VRF among them: all are seen, and nothing is harmed.
#[tokio::test]
async fn many_pages_and_a_vrf_do_no_harm() {
    let world = World::with(ProjectOptions {
        max_per_page: 100,
        ..ProjectOptions::default()
    })
    .await;
    let vrf = ReservationOptions {
        kind: ReservationKind::Vrf,
        ..ReservationOptions::tagged([USAGE, "service=gone", "cluster=cluster-a"])
    };
    let vrf = world.project.add_reservation(vrf);
    for number in 0..260 {
        let tag = format!("number={number}");
        world.project.add_reservation(ReservationOptions::tagged([tag]));
    }
    let last = ReservationOptions::tagged([USAGE, NGINX, "cluster=cluster-a"]);
    let last = world.project.add_reservation(last);
    let eip = world.process().await;
    assert_eq!(eip.address("nginx").await.unwrap().origin, last.id.to_string());
    assert_eq!(world.project.journal().writes(0), []);
    let id = vrf.id.to_string();
    assert_eq!(
        eip.reclaim(population(&["nginx"], &[]), &[&id]).await.unwrap(),
        [""; 0]
    );
    assert_eq!(eip.release(owner(CLUSTER, "nginx")).await.unwrap().len(), 1);
    assert_eq!(tags(&world).len(), 261);
}
