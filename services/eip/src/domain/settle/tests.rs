use groundplane_cloud::Assignment;
use pretty_assertions::assert_eq;
use proptest::prelude::*;

use super::*;

fn reservation(id: &str, address: &str, state: ReservationState) -> Reservation {
    Reservation {
        id: id.to_owned(),
        prefix: (!address.is_empty()).then(|| address.parse().unwrap()),
        state,
        tags: vec!["mark".to_owned(), format!("service={id}")],
        assignments: Vec::new(),
        usable: true,
    }
}

fn ready(id: &str, address: &str) -> Reservation {
    reservation(id, address, ReservationState::Ready)
}

fn want(address: &str) -> Wanted {
    Wanted {
        family: Family::V4,
        address: (!address.is_empty()).then(|| address.parse().unwrap()),
        in_use: None,
        optional: false,
    }
}

fn plan(mine: &[Reservation], wanted: Wanted) -> Plan {
    let held = Held {
        mine: mine.to_vec(),
        ..Held::default()
    };
    settle(&held, &[wanted], |family| family == Family::V4)
}

fn ids(reservations: &[Reservation]) -> Vec<&str> {
    reservations
        .iter()
        .map(|reservation| reservation.id.as_str())
        .collect()
}

#[test]
fn nothing_there_is_made_on_fresh_facts_only() {
    let plan = plan(&[], want(""));
    assert_eq!(
        (plan.choices.clone(), plan.needs()),
        (vec![Choice::Create], Needs::Fresh)
    );
}

#[test]
fn one_that_is_there_is_used_without_asking_again() {
    let one = ready("r1", "203.0.113.1");
    let plan = plan(std::slice::from_ref(&one), want(""));
    assert_eq!(
        (plan.choices.clone(), plan.needs()),
        (vec![Choice::Use(one)], Needs::Cached)
    );
}

/// E45: of several, each replica uses the same one, and the others go on fresh facts only.
#[test]
fn duplicates_are_settled_to_one() {
    let mut mine = vec![
        ready("r2", "203.0.113.2"),
        ready("r1", "203.0.113.1"),
        ready("r3", "203.0.113.3"),
    ];
    let first = plan(&mine, want(""));
    assert_eq!(first.choices, [Choice::Use(mine[1].clone())]);
    assert_eq!(
        (ids(&first.surplus), first.needs()),
        (vec!["r2", "r3"], Needs::Fresh)
    );
    mine.reverse();
    assert_eq!(plan(&mine, want("")), first);
}

#[test]
fn of_duplicates_the_address_in_use_stays() {
    let mine = [ready("r1", "203.0.113.1"), ready("r2", "203.0.113.2")];
    let plan = plan(&mine, want("203.0.113.2"));
    assert_eq!(plan.choices, [Choice::Use(mine[1].clone())]);
    assert_eq!(ids(&plan.surplus), ["r1"]);
}

/// A create that was given up on may come late, with a lower id than the one whose address the owner has announced by BGP since.
#[test]
fn of_duplicates_the_one_in_the_owners_status_stays_though_on_no_machine() {
    let mine = [ready("r1", "203.0.113.1"), ready("r2", "203.0.113.2")];
    let live = |address: &str| Wanted {
        in_use: Some(address.parse().unwrap()),
        ..want("")
    };
    let settled = plan(&mine, live("203.0.113.2"));
    assert_eq!(settled.choices, [Choice::Use(mine[1].clone())]);
    assert_eq!(ids(&settled.surplus), ["r1"]);
    let vanished = plan(&mine, live("203.0.113.3"));
    assert_eq!(vanished.choices, [Choice::Use(mine[0].clone())], "no demand");
}

#[test]
fn an_address_that_no_reservation_has_is_looked_for_again_before_it_is_taken_for_brought() {
    let unknown = plan(&[], want("198.51.100.7"));
    assert!(matches!(unknown.choices[..], [Choice::Brought(_, None)]));
    assert_eq!(unknown.needs(), Needs::Recent);
}

#[test]
fn a_duplicate_on_a_machine_is_preferred_and_never_deleted() {
    let on = |machine: &str| {
        vec![Assignment {
            id: format!("on-{machine}"),
            machine: machine.to_owned(),
        }]
    };
    let mut mine = [
        ready("r1", "203.0.113.1"),
        ready("r2", "203.0.113.2"),
        ready("r3", "203.0.113.3"),
    ];
    mine[1].assignments = on("m1");
    mine[2].assignments = on("m2");
    let plan = plan(&mine, want(""));
    assert_eq!(plan.choices, [Choice::Use(mine[1].clone())]);
    assert_eq!(ids(&plan.surplus), ["r1"]);
}

#[test]
fn a_ready_one_is_preferred_to_one_that_waits_or_was_denied() {
    let mine = [
        reservation("r1", "203.0.113.1", ReservationState::Denied),
        reservation("r2", "", ReservationState::Pending),
        ready("r3", "203.0.113.3"),
    ];
    let plan = plan(&mine, want(""));
    assert_eq!(plan.choices, [Choice::Use(mine[2].clone())]);
    assert_eq!(
        ids(&plan.surplus),
        ["r1"],
        "the one without an address may be another family's"
    );
}

/// E44 (part): one that waits for a person is waited for, and no other is made.
#[test]
fn a_pending_one_is_waited_for() {
    let pending = reservation("r1", "", ReservationState::Pending);
    let plan = plan(std::slice::from_ref(&pending), want(""));
    assert_eq!(
        (plan.choices.clone(), plan.needs()),
        (vec![Choice::Use(pending)], Needs::Recent)
    );
}

#[test]
fn what_a_person_denied_is_not_asked_for_again() {
    let denied = reservation("r1", "", ReservationState::Denied);
    assert_eq!(
        plan(&[denied], want("")).choices,
        [Choice::Refuse(Refusal::Denied("r1".to_owned()))]
    );
}

#[test]
fn an_owner_holds_one_address_of_a_family() {
    let plan = plan(&[ready("r1", "203.0.113.1")], want("198.51.100.9"));
    let held = Some("203.0.113.1".parse().unwrap());
    assert_eq!(plan.choices, [Choice::Refuse(Refusal::AlreadyHolds(held))]);
    assert_eq!((plan.surplus.clone(), plan.needs()), (vec![], Needs::Recent));
}

/// E39: what the user brings is used as it is, whether the project knows it or not; what is another's is not.
#[test]
fn a_brought_address_is_used_unless_it_is_anothers() {
    let address: Prefix = "203.0.113.9".parse().unwrap();
    let bring = |held: &Held| settle(held, &[want("203.0.113.9")], |_| true).choices;
    assert_eq!(bring(&Held::default()), [Choice::Brought(address, None)]);
    let block = ready("block", "203.0.113.8/30");
    let held = Held {
        untagged: vec![block.clone()],
        ..Held::default()
    };
    assert_eq!(bring(&held), [Choice::Brought(address, Some("block".to_owned()))]);
    let held = Held {
        others: vec![block.clone()],
        ..Held::default()
    };
    assert_eq!(
        bring(&held),
        [Choice::Refuse(Refusal::Taken(
            address,
            "block".to_owned(),
            block.tags
        ))]
    );
}

#[test]
fn a_family_that_the_cloud_has_not_is_refused() {
    let wanted = Wanted {
        family: Family::V6,
        address: None,
        in_use: None,
        optional: true,
    };
    let refused = Choice::Refuse(Refusal::Unsupported(Family::V6));
    assert_eq!(plan(&[ready("r1", "203.0.113.1")], wanted).choices, [refused]);
}

fn any_reservation() -> impl Strategy<Value = Reservation> {
    let state = prop_oneof![
        Just(ReservationState::Ready),
        Just(ReservationState::Pending),
        Just(ReservationState::Denied)
    ];
    (0_u8..20, state, any::<bool>(), any::<bool>()).prop_map(|(number, state, addressed, assigned)| {
        let address = if addressed {
            format!("203.0.113.{number}")
        } else {
            String::new()
        };
        let mut reservation = reservation(&format!("r{number:02}"), &address, state);
        if assigned {
            reservation.assignments.push(Assignment {
                id: "a".to_owned(),
                machine: "m".to_owned(),
            });
        }
        reservation
    })
}

proptest! {
    /// Whatever the cloud has: what is used is not deleted, what is deleted is idle, and order does not matter.
    #[test]
    fn what_is_used_is_never_deleted(mine in prop::collection::btree_map(0_u8..20, any_reservation(), 0..6)) {
        let mut mine: Vec<_> = mine
            .into_iter()
            .map(|(key, reservation)| Reservation { id: format!("r{key:02}"), ..reservation })
            .collect();
        let first = plan(&mine, want(""));
        if let [Choice::Use(used)] = &first.choices[..] {
            prop_assert!(!ids(&first.surplus).contains(&used.id.as_str()));
            prop_assert!(used.state != ReservationState::Denied);
        } else {
            prop_assert!(first.surplus.is_empty());
        }
        prop_assert!(first.surplus.iter().all(|surplus| surplus.assignments.is_empty()));
        mine.reverse();
        prop_assert_eq!(plan(&mine, want("")), first);
    }
}

fn former(reservation: Reservation, proven: bool) -> Held {
    Held {
        former: vec![Bequest { reservation, proven }],
        ..Held::default()
    }
}

/// E50: two clusters of one project may have Services of one name, so an older controller's reservation is taken over only where
/// something says that it is this owner's.
#[test]
fn what_an_older_controller_left_needs_a_proof() {
    let (one, other) = (ready("r1", "203.0.113.1"), "203.0.113.9");
    let live = |address: &str, in_use: &str| Wanted {
        in_use: Some(in_use.parse().unwrap()),
        ..want(address)
    };
    let adopted = Choice::Adopt(one.clone());
    for (wanted, proven, expected) in [
        (want(""), false, Choice::Create),
        (want(""), true, adopted.clone()),
        (want("203.0.113.1"), false, adopted.clone()),
        (live("", "203.0.113.1"), false, adopted),
        (live("", other), false, Choice::Create),
        (want(other), true, Choice::Brought(other.parse().unwrap(), None)),
    ] {
        let plan = settle(
            &former(one.clone(), proven),
            std::slice::from_ref(&wanted),
            |_| true,
        );
        assert_eq!(plan.choices, [expected], "{wanted:?}, proven: {proven}");
    }
    let plan = settle(&former(one.clone(), true), &[want("")], |_| true);
    assert_eq!(plan.needs(), Needs::Fresh, "it is a write");
    let mine = Held {
        mine: vec![ready("r2", other)],
        ..former(one, true)
    };
    let plan = settle(&mine, &[want("")], |_| true);
    assert_eq!(
        plan.choices,
        [Choice::Use(ready("r2", other))],
        "ours comes first"
    );
    assert!(plan.surplus.is_empty(), "and what others made is left alone");
}

/// What cannot serve a Service as it is, is not taken over.
#[test]
fn a_block_or_a_refused_one_is_not_taken_over() {
    let block = ready("r1", "203.0.113.0/28");
    let denied = reservation("r2", "203.0.113.1", ReservationState::Denied);
    for left in [block, denied, reservation("r3", "", ReservationState::Pending)] {
        let plan = settle(&former(left, true), &[want("")], |_| true);
        assert_eq!(plan.choices, [Choice::Create]);
    }
}

/// An owner that lets others share makes its reservation theirs; without, it is taken.
#[test]
fn what_is_shared_is_used_and_nothing_is_made() {
    let one = ready("r1", "203.0.113.1");
    let mut held = Held {
        others: vec![one.clone()],
        ..Held::default()
    };
    let plan = settle(&held, &[want("203.0.113.1")], |_| true);
    assert!(matches!(plan.choices[..], [Choice::Refuse(Refusal::Taken(..))]));
    held.shared = vec![one.clone()];
    let plan = settle(&held, &[want("203.0.113.1")], |_| true);
    assert_eq!(
        (plan.choices.clone(), plan.needs()),
        (vec![Choice::Use(one)], Needs::Cached)
    );
    assert_eq!(
        settle(&held, &[want("")], |_| true).choices,
        [Choice::Create],
        "only who asks for the address shares it"
    );
}
