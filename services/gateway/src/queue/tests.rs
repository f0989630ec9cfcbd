use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn key(name: &str) -> Key {
    Key::cluster_wide(name)
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn a_key_is_there_once() {
    let (mut state, now) = (State::default(), Instant::now());
    state.wake(key("a"), now);
    state.wake(key("a"), now);
    assert_eq!(state.next(now), Some(key("a")));
    assert_eq!(state.next(now), None);
}

#[test]
fn a_key_that_is_woken_while_it_is_worked_on_comes_once_more_and_not_before() {
    let (mut state, now) = (State::default(), Instant::now());
    state.wake(key("a"), now);
    state.next(now);
    state.wake(key("a"), now);
    assert_eq!(state.next(now), None);
    state.done(&key("a"), Outcome::Done, now);
    assert_eq!(state.next(now), Some(key("a")));
    state.done(&key("a"), Outcome::Done, now);
    assert_eq!(state.next(now), None);
}

/// S18: failures wait longer and longer, success forgets them.
#[test]
fn failures_wait_longer_and_success_forgets_them() {
    let (mut state, mut now) = (State::default(), Instant::now());
    let mut pauses = Vec::new();
    state.wake(key("a"), now);
    for _ in 0..8 {
        assert_eq!(state.next(now), Some(key("a")));
        state.done(&key("a"), Outcome::Failed(Duration::ZERO), now);
        let due = state.due().unwrap();
        pauses.push(due - now);
        now = due;
    }
    for (pause, nominal) in pauses.iter().zip([5, 10, 20, 40, 80, 160, 300, 300]) {
        assert!(
            *pause >= seconds(nominal) / 2 && *pause <= seconds(nominal),
            "{pauses:?}"
        );
    }
    state.next(now);
    state.done(&key("a"), Outcome::Done, now);
    state.wake(key("a"), now);
    state.next(now);
    state.done(&key("a"), Outcome::Failed(Duration::ZERO), now);
    assert!(state.due().unwrap() - now <= seconds(5));
}

#[test]
fn a_service_that_asks_for_patience_gets_it() {
    let (mut state, now) = (State::default(), Instant::now());
    state.wake(key("a"), now);
    state.next(now);
    state.done(&key("a"), Outcome::Failed(seconds(60)), now);
    assert_eq!(state.due(), Some(now + seconds(60)));
}

/// N30: lost races are tried again promptly, however many.
#[test]
fn conflicts_are_tried_again_promptly() {
    let (mut state, mut now) = (State::default(), Instant::now());
    let start = now;
    state.wake(key("a"), now);
    for _ in 0..19 {
        state.next(now);
        state.done(&key("a"), Outcome::Conflict, now);
        now = state.due().unwrap();
    }
    assert!(now - start < seconds(10));
}

/// S18: what conflicts for ever is no race. It is tried ever more rarely, like what fails, until it succeeds.
#[test]
fn endless_conflicts_wait_longer_and_longer() {
    let (mut state, mut now) = (State::default(), Instant::now());
    let mut pauses = Vec::new();
    state.wake(key("a"), now);
    for _ in 0..28 {
        state.next(now);
        state.done(&key("a"), Outcome::Conflict, now);
        let due = state.due().unwrap();
        pauses.push(due - now);
        now = due;
    }
    for (pause, nominal) in pauses[20..].iter().zip([5, 10, 20, 40, 80, 160, 300, 300]) {
        assert!(
            *pause >= seconds(nominal) / 2 && *pause <= seconds(nominal),
            "{pauses:?}"
        );
    }
    state.next(now);
    state.done(&key("a"), Outcome::Done, now);
    state.wake(key("a"), now);
    state.next(now);
    state.done(&key("a"), Outcome::Conflict, now);
    assert!(state.due().unwrap() - now <= Duration::from_millis(20));
}

#[test]
fn a_parked_key_waits_for_its_reason() {
    let (mut state, now) = (State::default(), Instant::now());
    for name in ["a", "b"] {
        state.wake(key(name), now);
        state.next(now);
    }
    state.done(&key("a"), Outcome::Parked("pool public is full"), now);
    state.done(&key("b"), Outcome::Parked("pool other is full"), now);
    state.unpark("pool public is full", now);
    assert_eq!(state.next(now), Some(key("a")));
    assert_eq!(state.next(now), None);
    assert_eq!(
        state.waits(&key("b"), now),
        Some(Waits::Reason("pool other is full"))
    );
    // A change of the object itself wakes it, too, and its reason is forgotten.
    state.wake(key("b"), now);
    assert_eq!(state.next(now), Some(key("b")));
    state.done(&key("b"), Outcome::Done, now);
    state.unpark("pool other is full", now);
    assert_eq!(state.next(now), None);
    assert_eq!(state.depth(now).waiting, 0);
}

#[test]
fn an_offer_leaves_keys_alone_that_wait() {
    let (mut state, now) = (State::default(), Instant::now());
    state.wake(key("a"), now);
    state.next(now);
    state.done(&key("a"), Outcome::Failed(Duration::ZERO), now);
    state.offer(key("a"), now);
    assert_eq!(state.next(now), None);
    state.offer(key("b"), now);
    assert_eq!(state.next(now), Some(key("b")));
}

#[test]
fn depth_tells_the_oldest() {
    let (mut state, now) = (State::default(), Instant::now());
    state.wake(key("a"), now);
    state.wake(key("b"), now + seconds(5));
    let depth = state.depth(now + seconds(7));
    assert_eq!((depth.ready, depth.oldest), (2, seconds(7)));
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_sleeps_is_woken_by_work_and_by_time() {
    let queue = Queue::new("test");
    let (taken, ()) = tokio::join!(queue.next(), async { queue.wake(key("a")) });
    assert_eq!(taken, key("a"));
    queue.done(&taken, Outcome::After(seconds(60)));
    assert_eq!(queue.next().await, key("a"));
}

#[tokio::test]
async fn two_workers_share_what_comes_at_once() {
    let queue = Queue::new("test");
    let both = async { tokio::join!(queue.next(), queue.next()) };
    let (taken, ()) = tokio::join!(both, async {
        queue.wake(key("a"));
        queue.wake(key("b"));
    });
    assert_eq!(
        BTreeSet::from([taken.0, taken.1]),
        BTreeSet::from([key("a"), key("b")])
    );
}

#[derive(Clone, Debug)]
enum Step {
    Wake(u8),
    Offer(u8),
    Next,
    Done(usize, Outcome),
    Unpark(&'static str),
    Pass(u64),
}

fn outcomes() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        Just(Outcome::Done),
        Just(Outcome::Conflict),
        (0..100_u64).prop_map(|n| Outcome::After(seconds(n))),
        (0..100_u64).prop_map(|n| Outcome::Failed(seconds(n))),
        prop_oneof![Just("x"), Just("y")].prop_map(Outcome::Parked),
    ]
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..5_u8).prop_map(Step::Wake),
        (0..5_u8).prop_map(Step::Offer),
        Just(Step::Next),
        (0..5_usize, outcomes()).prop_map(|(n, outcome)| Step::Done(n, outcome)),
        prop_oneof![Just("x"), Just("y")].prop_map(Step::Unpark),
        (0..400_u64).prop_map(Step::Pass),
    ]
}

proptest! {
    /// Never is a key given out twice at a time; none that was woken is lost; numbers add up.
    #[test]
    fn keys_are_exclusive_and_never_lost(steps in prop::collection::vec(steps(), 0..200)) {
        let (mut state, mut now) = (State::default(), Instant::now());
        let mut running: Vec<Key> = Vec::new();
        let mut owed: BTreeSet<Key> = BTreeSet::new();
        let take = |state: &mut State, now, running: &mut Vec<Key>, owed: &mut BTreeSet<Key>| {
            let taken = state.next(now);
            if let Some(taken) = &taken {
                prop_assert!(!running.contains(taken), "{taken} was given out twice");
                owed.remove(taken);
                running.push(taken.clone());
            }
            Ok(taken.is_some())
        };
        for step in steps {
            match step {
                Step::Wake(n) => {
                    let key = key(&n.to_string());
                    state.wake(key.clone(), now);
                    owed.insert(key);
                }
                Step::Offer(n) => state.offer(key(&n.to_string()), now),
                Step::Next => { take(&mut state, now, &mut running, &mut owed)?; }
                Step::Done(n, outcome) => if n < running.len() {
                    let key = running.swap_remove(n);
                    state.done(&key, outcome, now);
                },
                Step::Unpark(reason) => state.unpark(reason, now),
                Step::Pass(n) => now += seconds(n),
            }
            let depth = state.depth(now);
            prop_assert_eq!(depth.running, running.len());
        }
        for key in running.drain(..) {
            state.done(&key, Outcome::Done, now);
        }
        while take(&mut state, now, &mut running, &mut owed)? {}
        prop_assert!(owed.is_empty(), "lost: {owed:?}");
        for key in running.drain(..) {
            state.done(&key, Outcome::Done, now);
        }
        // What waits for a time comes when that time has come.
        now += seconds(1000);
        while take(&mut state, now, &mut running, &mut owed)? {}
        prop_assert_eq!(state.depth(now).waiting, 0);
    }
}
