//! Released addresses rest before they are given again.

use pretty_assertions::assert_eq;

use super::*;

/// Oldest first, and only when nothing else is left and its time is over.
#[test]
fn a_released_address_rests_and_the_one_that_rested_longest_is_given_first() {
    let mut ledger = ledger(&[pool("a", &["10.0.0.1-10.0.0.3"])]);
    for name in ["a", "b"] {
        give(&mut ledger, &ask(name, &[v4()]), at(0)).unwrap();
    }
    release(&mut ledger, "b", at(10));
    release(&mut ledger, "a", at(20));
    assert_eq!(
        give(&mut ledger, &ask("c", &[v4()]), at(1000)).unwrap(),
        ["10.0.0.3/32"],
        "never used comes first"
    );
    let next = ask("d", &[v4()]);
    assert_eq!(
        ledger.plan_allocate(&next, at(309)).unwrap_err().reason(),
        "POOL_EXHAUSTED"
    );
    let status = &ledger.pools(at(309))[0];
    assert_eq!((status.used, status.free, status.cooling), (1, 0, 2));
    assert_eq!(ledger.next_ripe(at(309)), Some(at(310)));
    assert_eq!(ledger.ripened(at(309), at(310)).len(), 1);
    assert_eq!(ledger.ripened(at(310), at(311)).len(), 0);
    let status = &ledger.pools(at(310))[0];
    assert_eq!((status.used, status.free, status.cooling), (1, 1, 1));
    assert_eq!(give(&mut ledger, &next, at(400)).unwrap(), ["10.0.0.2/32"]);
    assert_eq!(
        give(&mut ledger, &ask("e", &[v4()]), at(400)).unwrap(),
        ["10.0.0.1/32"]
    );
}

#[test]
fn a_cooling_address_is_given_to_who_asks_for_it_by_name() {
    let mut ledger = ledger(&[pool("a", &["10.0.0.1-10.0.0.3"])]);
    give(&mut ledger, &ask("a", &[v4()]), at(0)).unwrap();
    release(&mut ledger, "a", at(1));
    let exact = ask("a", &[Want::Exact(prefix("10.0.0.1"))]);
    assert_eq!(give(&mut ledger, &exact, at(2)).unwrap(), ["10.0.0.1/32"]);
}

#[test]
fn the_rest_of_a_cooling_block_goes_on_resting() {
    let mut ledger = ledger(&[pool("a", &["10.0.0.0-10.0.0.3"])]);
    let block = ask(
        "block",
        &[Want::Any {
            family: Family::V4,
            length: 30,
        }],
    );
    give(&mut ledger, &block, at(0)).unwrap();
    release(&mut ledger, "block", at(1));
    give(&mut ledger, &ask("b", &[Want::Exact(prefix("10.0.0.1"))]), at(2)).unwrap();
    let any = ask("c", &[v4()]);
    assert_eq!(
        ledger.plan_allocate(&any, at(3)).unwrap_err().reason(),
        "POOL_EXHAUSTED"
    );
    let status = &ledger.pools(at(3))[0];
    assert_eq!((status.used, status.free, status.cooling), (1, 0, 3));
    assert_eq!(give(&mut ledger, &any, at(301)).unwrap(), ["10.0.0.0/32"]);
}

#[test]
fn a_pool_that_never_ends_does_not_remember_everything() {
    let mut ledger = ledger(&[pool("a", &["2001:db8::/64"])]);
    let (ask, network) = (ask("web", &[v6()]), NetworkName::default());
    let release = ReleaseAsk {
        owner: owner("web"),
        uid: "".into(),
        network: network.clone(),
        prefixes: Vec::new(),
    };
    for second in 0..66_500 {
        for change in ledger.plan_allocate(&ask, at(second)).unwrap().changes {
            ledger.apply(&change);
        }
        for change in ledger.plan_release(&release, at(second)).changes {
            ledger.apply(&change);
        }
    }
    assert_eq!(ledger.networks[&network].cooling.len(), 65_536);
    ledger.check().unwrap();
}

#[test]
fn without_a_cooldown_an_address_is_free_at_once() {
    let mut ledger = Ledger::new(SignedDuration::ZERO);
    put(&mut ledger, &[pool("a", &["10.0.0.1"])]);
    give(&mut ledger, &ask("a", &[v4()]), at(0)).unwrap();
    release(&mut ledger, "a", at(0));
    assert_eq!(
        give(&mut ledger, &ask("b", &[v4()]), at(0)).unwrap(),
        ["10.0.0.1/32"]
    );
}

#[test]
fn a_block_is_made_of_addresses_that_cooled_down() {
    let mut ledger = ledger(&[pool("a", &["10.0.0.0-10.0.0.3"])]);
    for name in ["a", "b", "c", "d"] {
        give(&mut ledger, &ask(name, &[v4()]), at(0)).unwrap();
    }
    for name in ["a", "b", "c", "d"] {
        release(&mut ledger, name, at(1));
    }
    let block = ask(
        "x",
        &[Want::Any {
            family: Family::V4,
            length: 31,
        }],
    );
    assert_eq!(
        ledger.plan_allocate(&block, at(2)).unwrap_err().reason(),
        "POOL_EXHAUSTED"
    );
    assert_eq!(give(&mut ledger, &block, at(400)).unwrap(), ["10.0.0.0/31"]);
    release(&mut ledger, "x", at(500));
    assert_eq!(
        give(&mut ledger, &ask("y", &[v4()]), at(900)).unwrap(),
        ["10.0.0.2/32"]
    );
}
