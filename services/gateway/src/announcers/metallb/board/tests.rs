use std::time::Duration;

use pretty_assertions::assert_eq;

use super::*;

fn ips(text: &[&str]) -> Vec<IpAddr> {
    text.iter().map(|text| text.parse().unwrap()).collect()
}

fn key(name: &str) -> Key {
    Key::namespaced("default", name)
}

fn round(board: &Board, placed: &[&str], complete: bool) -> Vec<Key> {
    let generation = board.wishes(1, |_, _| true).generation;
    board.written(Round {
        generation,
        term: 1,
        placed: ips(placed).into_iter().collect(),
        complete,
        refused: BTreeMap::new(),
    })
}

fn full() -> Trouble {
    Trouble {
        reason: "AnnouncerFull",
        message: "full".to_owned(),
    }
}

#[test]
fn a_service_waits_until_its_addresses_are_there() {
    let board = Board::default();
    let (web, addresses) = (key("web"), ips(&["192.0.2.7"]));
    assert_eq!(board.place(&web, "u", &addresses, 1), (Seat::Waits, true));
    assert!(!board.is_placed(&web, "u", &addresses, 1));
    assert!(round(&board, &["192.0.2.8"], true).is_empty());
    assert_eq!(round(&board, &["192.0.2.7"], true), std::slice::from_ref(&web));
    assert_eq!(board.place(&web, "u", &addresses, 1), (Seat::Placed, false));
    assert!(board.is_placed(&web, "u", &addresses, 1));
    // Another leader may have changed it since.
    assert_eq!(board.place(&web, "u", &addresses, 2).0, Seat::Waits);
    // And a second Service at the same address has nothing to wait for, but is news.
    assert_eq!(
        board.place(&key("more"), "u", &addresses, 1),
        (Seat::Placed, true)
    );
}

#[test]
fn what_was_said_during_a_round_is_not_settled_by_it() {
    let board = Board::default();
    let (web, addresses) = (key("web"), ips(&["192.0.2.7"]));
    board.place(&web, "u", &addresses, 1);
    round(&board, &["192.0.2.7"], true);
    let before = board.wishes(1, |_, _| true).generation;
    assert!(!board.withdraw(&web, "u", 1));
    let late = Round {
        generation: before,
        term: 1,
        complete: true,
        ..Round::default()
    };
    assert!(board.written(late).is_empty());
    assert!(!board.withdraw(&web, "u", 1), "the round had not heard of it");
    assert_eq!(round(&board, &[], true), std::slice::from_ref(&web));
    assert!(board.withdraw(&web, "u", 1));
}

#[test]
fn a_round_that_could_not_remove_lets_nobody_go() {
    let board = Board::default();
    let web = key("web");
    board.place(&web, "u", &ips(&["192.0.2.7"]), 1);
    assert!(!board.withdraw(&web, "u", 1));
    assert!(round(&board, &[], false).is_empty());
    assert!(!board.withdraw(&web, "u", 1));
    assert_eq!(round(&board, &[], true), std::slice::from_ref(&web));
    assert!(board.withdraw(&web, "u", 1));
    assert!(!board.withdraw(&web, "u", 2), "another leader looks first");
    // One that comes back is wanted again.
    assert_eq!(board.place(&web, "u", &ips(&["192.0.2.7"]), 1).0, Seat::Waits);
}

#[test]
fn trouble_is_told_once_and_goes_with_its_cause() {
    let board = Board::default();
    let (web, addresses) = (key("web"), ips(&["192.0.2.7"]));
    board.place(&web, "u", &addresses, 1);
    assert_eq!(board.failed(full(), 1), std::slice::from_ref(&web));
    assert_eq!(board.place(&web, "u", &addresses, 1).0, Seat::Trouble(full()));
    assert!(board.failed(full(), 1).is_empty(), "it knows");
    assert_eq!(round(&board, &["192.0.2.7"], true), std::slice::from_ref(&web));
    assert_eq!(board.place(&web, "u", &addresses, 1).0, Seat::Placed);
}

#[test]
fn one_that_does_not_fit_in_is_told_alone() {
    let board = Board::default();
    let (web, more) = (key("web"), key("more"));
    board.place(&web, "u", &ips(&["192.0.2.7"]), 1);
    board.place(&more, "u", &ips(&["192.0.2.8"]), 1);
    let mut woken = board.written(Round {
        generation: 2,
        term: 1,
        placed: ips(&["192.0.2.7"]).into_iter().collect(),
        complete: true,
        refused: [(more.clone(), full())].into(),
    });
    woken.sort();
    assert_eq!(woken, [more.clone(), web.clone()]);
    assert_eq!(board.place(&web, "u", &ips(&["192.0.2.7"]), 1).0, Seat::Placed);
    assert_eq!(
        board.place(&more, "u", &ips(&["192.0.2.8"]), 1).0,
        Seat::Trouble(full())
    );
}

#[test]
fn peers_of_an_earlier_term_are_not_known() {
    let board = Board::default();
    let node = Key::cluster_wide("n");
    assert!(board.learn(&node, Peers::Exactly(Vec::new()), 1));
    assert!(!board.learn(&node, Peers::Exactly(Vec::new()), 1));
    assert_eq!(board.peers(&node, 1), Peers::Exactly(Vec::new()));
    assert_eq!(board.peers(&node, 2), Peers::Unknown);
    board.retain_nodes(|_| false);
    assert_eq!(board.peers(&node, 1), Peers::Unknown);
}

#[test]
fn what_cannot_be_said_is_refused() {
    let settings = |peer_mode, advertisement| Settings {
        peer_mode,
        advertisement,
        hold_time: Duration::from_secs(30),
    };
    let native = settings(PeerMode::Native, Advertisement::Bgp);
    let (four, six) = (ips(&["192.0.2.7"]), ips(&["2001:db8::7"]));
    let both = [four.clone(), six.clone()].concat();
    assert!(refused(&four, &native, false).is_none());
    assert!(refused(&six, &native, false).unwrap().message.contains("IPv6"));
    assert!(refused(&both, &native, false).is_some());
    assert!(refused(&both, &settings(PeerMode::Frr, Advertisement::Bgp), false).is_none());
    assert!(refused(&both, &settings(PeerMode::Native, Advertisement::L2), false).is_none());
    assert!(refused(&both, &settings(PeerMode::Native, Advertisement::L2), true).is_some());
    assert!(refused(&six, &settings(PeerMode::Frr, Advertisement::Bgp), true).is_some());
}

/// A leader that comes back knows nothing of what Services wanted when it led before: another one may have taken an address away since, and
/// given it to somebody else, or have let one in that was leaving then.
#[test]
fn what_was_wanted_in_an_earlier_term_counts_no_more() {
    let board = Board::default();
    let (web, goes, addresses) = (key("web"), key("goes"), ips(&["192.0.2.7"]));
    board.place(&web, "u", &addresses, 1);
    assert!(!board.withdraw(&goes, "u", 1));
    round(&board, &["192.0.2.7"], true);
    assert!(board.is_placed(&web, "u", &addresses, 1) && board.withdraw(&goes, "u", 1));
    assert!(!board.is_placed(&web, "u", &addresses, 3));
    assert!(!board.withdraw(&goes, "u", 3), "it may be in again");
    let mut wishes = board.wishes(3, |_, _| true);
    assert_eq!(wishes.services, [(goes.clone(), BTreeSet::new())].into());
    assert_eq!(
        wishes.outdated,
        std::slice::from_ref(&web),
        "it has to say it again"
    );
    assert_eq!(board.place(&web, "u", &addresses, 3), (Seat::Waits, true));
    wishes = board.wishes(3, |_, _| true);
    assert_eq!(wishes.services[&web], addresses.into_iter().collect());
    assert!(wishes.outdated.is_empty());
}

/// Neither does what was refused, or what failed.
#[test]
fn trouble_of_an_earlier_term_is_over() {
    let board = Board::default();
    let (web, more, addresses) = (key("web"), key("more"), ips(&["192.0.2.7"]));
    board.place(&web, "u", &addresses, 1);
    board.written(Round {
        generation: 1,
        term: 1,
        refused: [(web.clone(), full())].into(),
        ..Round::default()
    });
    assert_eq!(board.place(&web, "u", &addresses, 1).0, Seat::Trouble(full()));
    assert_eq!(board.place(&web, "u", &addresses, 3).0, Seat::Waits);
    board.place(&more, "u", &addresses, 3);
    assert_eq!(board.failed(full(), 3).len(), 2);
    assert_eq!(board.place(&more, "u", &addresses, 3).0, Seat::Trouble(full()));
    assert_eq!(board.place(&more, "u", &addresses, 4).0, Seat::Waits);
}
