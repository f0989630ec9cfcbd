//! What each capability promises, as tests that any driver can be put through.
#![allow(
    clippy::expect_used,
    reason = "a contract is a test: it panics where it is broken"
)]

use std::collections::{BTreeMap, BTreeSet};

use groundplane_core::{ClusterId, Family, Owner, OwnerKind, ProviderId};

use crate::{
    BgpFabric, CloudErrorKind, ElasticIps, MachineSource, NeighborQuery, NewReservation, Placement,
    Reservation, ReservationState,
};

/// `count` machines are there, and `absent` is not, though it could be.
///
/// # Panics
/// Where the contract is broken.
pub async fn machine_source_contract(source: &dyn MachineSource, count: usize, absent: &ProviderId) {
    let machines = source.list().await.expect("list");
    assert_eq!(machines.len(), count, "the list is complete");
    let ids: BTreeSet<_> = machines.iter().map(|machine| &machine.id).collect();
    assert_eq!(ids.len(), count, "every machine is there once");
    for machine in &machines {
        assert!(source.accepts(&machine.id), "{} is its own", machine.id);
        assert_eq!(
            source.get(&machine.id).await.expect("get"),
            *machine,
            "get and list agree"
        );
    }
    assert!(source.accepts(absent) && !ids.contains(absent));
    let error = source.get(absent).await.expect_err("there is no such machine");
    assert_eq!(error.kind, CloudErrorKind::NotFound, "{error}");
    let foreign: ProviderId = "aws:///eu-west-1a/i-0abc".parse().expect("a provider id");
    assert!(!source.accepts(&foreign), "a machine of another cloud");
}

/// Nobody else reserves addresses meanwhile. What the contract reserves it gives back.
///
/// # Panics
/// Where the contract is broken.
pub async fn elastic_ips_contract(ips: &dyn ElasticIps) {
    tags_tell_owners_apart(ips);
    let before = ips.list().await.expect("list").len();
    let mut made = Vec::new();
    for (name, family) in [("a", Family::V4), ("b", Family::V4), ("a", Family::V6)] {
        if ips.supports(family) {
            let tags = ips.tags_of(&owner("one", name));
            let wanted = NewReservation {
                family,
                tags,
                placement: Placement::default(),
            };
            let reservation = ips.create(&wanted).await.expect("create");
            check_new(&reservation, &wanted);
            made.push(reservation);
        }
    }
    let listed = ips.list().await.expect("list");
    assert_eq!(listed.len(), before + made.len(), "nothing more and nothing less");
    for reservation in &made {
        let same = listed
            .iter()
            .find(|row| row.id == reservation.id)
            .expect("listed");
        assert_eq!(
            same, reservation,
            "the list says what the answer to `create` said"
        );
    }
    for reservation in &made {
        tags_are_replaced(ips, reservation).await;
        ips.delete(&reservation.id).await.expect("delete");
        ips.delete(&reservation.id)
            .await
            .expect("gone already is success");
    }
    assert_eq!(ips.list().await.expect("list").len(), before, "all given back");
}

/// Where they can be: as often as anybody wants, and nothing else is.
async fn tags_are_replaced(ips: &dyn ElasticIps, before: &Reservation) {
    let tags = ips.tags_of(&owner("one", "heir"));
    if !ips.retags() {
        let error = ips.retag(&before.id, &tags).await.expect_err("it cannot");
        assert_eq!(error.kind, CloudErrorKind::Refused, "{error}");
        return;
    }
    for _ in 0..2 {
        let after = ips.retag(&before.id, &tags).await.expect("retag");
        let given: BTreeSet<_> = tags.iter().collect();
        assert_eq!(
            after.tags.iter().collect::<BTreeSet<_>>(),
            given,
            "these tags alone"
        );
        let expected = Reservation {
            tags: after.tags.clone(),
            ..before.clone()
        };
        assert_eq!(after, expected, "nothing else changes");
        assert!(
            ips.list().await.expect("list").contains(&after),
            "the list shows it"
        );
    }
}

fn owner(cluster: &str, name: &str) -> Owner {
    let cluster: ClusterId = cluster.parse().expect("a cluster");
    Owner::service(
        cluster,
        "contract".parse().expect("a namespace"),
        name.parse().expect("a name"),
    )
}

fn tags_tell_owners_apart(ips: &dyn ElasticIps) {
    let first = owner("one", "a");
    let all_tags: BTreeSet<_> = ips.tags_of(&first).into_iter().collect();
    let of_cluster = ips.cluster_tags(&first.cluster);
    assert!(
        !of_cluster.is_empty() && of_cluster.iter().all(|tag| all_tags.contains(tag)),
        "a cluster finds its own"
    );
    assert_eq!(
        ips.tags_of(&first),
        ips.tags_of(&first.clone()),
        "tags never change"
    );
    let endpoint = Owner {
        kind: OwnerKind::Endpoint,
        ..first.clone()
    };
    let slot = Owner {
        slot: "2".into(),
        ..first.clone()
    };
    for other in [owner("two", "a"), owner("one", "b"), endpoint, slot] {
        let of_other: BTreeSet<_> = ips.tags_of(&other).into_iter().collect();
        assert!(
            !all_tags.is_subset(&of_other) && !of_other.is_subset(&all_tags),
            "{other:?} is not {first:?}"
        );
    }
}

fn check_new(reservation: &Reservation, wanted: &NewReservation) {
    assert_eq!(reservation.state, ReservationState::Ready);
    let prefix = reservation.prefix.expect("an address");
    assert!(prefix.is_host() && prefix.family() == wanted.family, "{prefix}");
    let has = |tag: &String| reservation.tags.contains(tag);
    assert!(wanted.tags.iter().all(has), "every tag is kept");
    assert!(reservation.usable && reservation.assignments.is_empty());
}

/// BGP was never enabled, or is; `machine` has an IPv4 address, and `absent` is not there, though it could be.
/// Leaves BGP enabled, and a session of `machine` where the cloud needs one.
///
/// # Panics
/// Where the contract is broken.
pub async fn bgp_fabric_contract(fabric: &dyn BgpFabric, machine: &ProviderId, absent: &ProviderId) {
    let enabled = fabric.enable().await.expect("enable");
    assert!(enabled.enabled && enabled.local_asn != 0);
    let again = fabric.enable().await.expect("enabled already is success");
    let read = fabric.project().await.expect("project").expect("enabled");
    assert_eq!(
        [again.local_asn, read.local_asn],
        [enabled.local_asn; 2],
        "all say the same"
    );
    for _ in 0..2 {
        fabric
            .create_session(machine, Family::V4)
            .await
            .expect("a session that is there is success");
    }
    let sessions = fabric.sessions().await.expect("sessions");
    let of_machine = sessions
        .iter()
        .filter(|session| session.machine == *machine && session.family == Family::V4);
    assert_eq!(
        of_machine.count(),
        usize::from(fabric.needs_sessions()),
        "one session, where there are sessions"
    );
    let neighbors = fabric.neighbors(&query(machine)).await.expect("neighbors");
    assert!(!neighbors.peers.is_empty(), "somebody to speak to");
    assert!(
        neighbors.peers.is_sorted_by_key(|peer| peer.address),
        "ordered by address"
    );
    assert!(
        neighbors
            .peers
            .iter()
            .all(|peer| peer.local_asn == enabled.local_asn && peer.asn != 0)
    );
    if fabric.needs_sessions() {
        let error = fabric
            .neighbors(&query(absent))
            .await
            .expect_err("there is no such machine");
        assert_eq!(error.kind, CloudErrorKind::NotFound, "{error}");
    }
}

fn query(machine: &ProviderId) -> NeighborQuery {
    let addresses = vec!["10.0.0.1".parse().expect("an address")];
    NeighborQuery {
        machine: machine.clone(),
        node: "node".to_owned(),
        labels: BTreeMap::new(),
        addresses,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeCloud, Operation};

    #[tokio::test]
    async fn the_fake_keeps_the_contracts() {
        let cloud = FakeCloud::new();
        let machine = cloud.add_machine("m1", &["10.0.0.1".parse().unwrap()]).unwrap();
        let absent = "fake://gone".parse().unwrap();
        machine_source_contract(&cloud, 1, &absent).await;
        elastic_ips_contract(&cloud).await;
        bgp_fabric_contract(&cloud, &machine, &absent).await;
    }

    #[tokio::test]
    async fn a_lost_answer_leaves_its_effect_behind() {
        let cloud = FakeCloud::new();
        cloud.lose_answer(Operation::CreateReservation);
        let wanted = NewReservation {
            family: Family::V4,
            tags: vec![],
            placement: Placement::default(),
        };
        assert_eq!(
            cloud.create(&wanted).await.unwrap_err().kind,
            CloudErrorKind::Timeout
        );
        assert_eq!(
            (
                cloud.reservations().len(),
                cloud.calls(Operation::CreateReservation)
            ),
            (1, 1)
        );
    }
}
