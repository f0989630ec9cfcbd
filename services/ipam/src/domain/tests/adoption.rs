//! Adoption: live status wins, and nothing is taken on doubt.

use std::collections::BTreeSet;

use groundplane_core::{NetworkName, OwnerKind, Revision};
use pretty_assertions::assert_eq;

use super::*;

fn holding(name: &str, prefixes: &[&str]) -> Holding {
    Holding {
        owner: owner(name),
        uid: "".into(),
        network: NetworkName::default(),
        prefixes: prefixes.iter().map(|text| prefix(text)).collect(),
    }
}

fn request(holdings: Vec<Holding>) -> AdoptionRequest {
    let kinds = BTreeSet::from([OwnerKind::Service]);
    AdoptionRequest {
        cluster: "east".parse().unwrap(),
        holdings,
        kinds,
        newer: None,
    }
}

fn adopt(ledger: &mut Ledger, request: &AdoptionRequest) -> Adoption {
    let before = ledger.networks.clone();
    let adoption = ledger.adopt(request, at(50));
    ledger.check().unwrap();
    let after = ledger.networks.clone();
    for change in adoption.changes.iter().rev() {
        ledger.apply(&change.reversed());
    }
    assert_eq!(ledger.networks, before, "it can be taken back");
    for change in &adoption.changes {
        ledger.apply(change);
    }
    assert_eq!(ledger.networks, after);
    adoption
}

fn holder(ledger: &Ledger, address: &str) -> Option<String> {
    let held = ledger.holder(&NetworkName::default(), address.parse().unwrap())?;
    Some(held.owner.name.to_string())
}

/// An empty store takes over what the cluster holds.
#[test]
fn an_empty_store_takes_over_what_is_live_and_leaves_alone_what_no_pool_covers() {
    let mut ledger = ledger(&[pool("a", &["10.0.0.0/24"])]);
    let request = request(vec![
        holding("web", &["10.0.0.1"]),
        holding("api", &["192.0.2.1", "10.0.0.2"]),
    ]);
    let adoption = adopt(&mut ledger, &request);
    assert_eq!(
        (adoption.adopted, adoption.uncovered.as_slice()),
        (2, [(1, prefix("192.0.2.1"))].as_slice())
    );
    assert_eq!(
        give(&mut ledger, &ask("new", &[v4()]), at(60)).unwrap(),
        ["10.0.0.3/32"]
    );
    assert_eq!(adopt(&mut ledger, &request).changes, [], "again changes nothing");
}

#[test]
fn a_record_without_a_live_status_yields_to_one_with() {
    let mut ledger = ledger(&[pool("a", &["10.0.0.0/24"])]);
    give(&mut ledger, &ask("old", &[v4()]), at(0)).unwrap();
    let adoption = adopt(&mut ledger, &request(vec![holding("web", &["10.0.0.1"])]));
    assert_eq!(adoption.evicted[0].owner.name.as_str(), "old");
    assert_eq!(holder(&ledger, "10.0.0.1").as_deref(), Some("web"));
    assert_eq!(
        give(&mut ledger, &ask("old", &[v4()]), at(60)).unwrap(),
        ["10.0.0.2/32"]
    );
}

#[test]
fn where_two_live_objects_claim_an_address_the_recorded_one_keeps_it() {
    let mut ledger = ledger(&[pool("a", &["10.0.0.0/24"])]);
    give(&mut ledger, &ask("web", &[v4()]), at(0)).unwrap();
    let both = request(vec![
        holding("thief", &["10.0.0.1"]),
        holding("web", &["10.0.0.1"]),
        holding("x", &["10.0.0.9"]),
        holding("y", &["10.0.0.9"]),
    ]);
    let adoption = adopt(&mut ledger, &both);
    let told: Vec<_> = adoption
        .conflicts
        .iter()
        .map(|c| (c.holding, c.holder.name.to_string()))
        .collect();
    assert_eq!(told, [(0, "web".to_owned()), (3, "x".to_owned())]);
    assert_eq!((adoption.adopted, adoption.evicted.len()), (1, 0));
}

#[test]
fn nothing_is_taken_from_whom_the_snapshot_does_not_cover() {
    let mut ledger = ledger(&[pool("a", &["10.0.0.0/24"])]);
    let mut other_cluster = ask("web", &[Want::Exact(prefix("10.0.0.1"))]);
    Arc::make_mut(&mut other_cluster.owner).cluster = "west".parse().unwrap();
    let mut other_kind = ask("pod", &[Want::Exact(prefix("10.0.0.2"))]);
    Arc::make_mut(&mut other_kind.owner).kind = OwnerKind::Pod;
    let recent = ask("recent", &[Want::Exact(prefix("10.0.0.3"))]);
    for ask in [&other_cluster, &other_kind, &recent] {
        give(&mut ledger, ask, at(0)).unwrap();
    }
    let mut request = request(vec![
        holding("a", &["10.0.0.1"]),
        holding("b", &["10.0.0.2"]),
        holding("c", &["10.0.0.3"]),
    ]);
    // `recent` got its address after the snapshot was made.
    request.newer = Some(Revision(2));
    let adoption = adopt(&mut ledger, &request);
    assert_eq!((adoption.conflicts.len(), adoption.changes.len()), (3, 0));
}

#[test]
fn a_live_address_replaces_the_record_of_another_time() {
    let mut ledger = ledger(&[pool("a", &["10.0.0.0/24"])]);
    give(&mut ledger, &ask("web", &[v4()]), at(0)).unwrap();
    let adoption = adopt(&mut ledger, &request(vec![holding("web", &["10.0.0.7"])]));
    assert_eq!((adoption.adopted, adoption.superseded.len()), (1, 1));
    assert_eq!(
        give(&mut ledger, &ask("web", &[v4()]), at(60)).unwrap(),
        ["10.0.0.7/32"]
    );
}

#[test]
fn a_record_of_which_nobody_speaks_stays() {
    let mut ledger = ledger(&[pool("a", &["10.0.0.0/24"])]);
    give(&mut ledger, &ask("quiet", &[v4()]), at(0)).unwrap();
    assert_eq!(adopt(&mut ledger, &request(Vec::new())).changes, []);
    assert_eq!(holder(&ledger, "10.0.0.1").as_deref(), Some("quiet"));
}

#[test]
fn a_live_address_is_taken_out_of_a_cooling_one_and_out_of_a_block_without_holder() {
    let mut ledger = ledger(&[pool("a", &["10.0.0.0/24"])]);
    let block = Want::Any {
        family: Family::V4,
        length: 28,
    };
    give(&mut ledger, &ask("block", &[block]), at(0)).unwrap();
    release(&mut ledger, "block", at(1));
    give(&mut ledger, &ask("other", &[block]), at(2)).unwrap();
    let live = request(vec![
        holding("web", &["10.0.0.17"]),
        holding("api", &["10.0.0.33"]),
    ]);
    let adoption = adopt(&mut ledger, &live);
    assert_eq!((adoption.adopted, adoption.evicted.len()), (2, 1));
}
