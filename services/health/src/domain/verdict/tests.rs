use pretty_assertions::assert_eq;

use super::*;

const PERIOD: Duration = Duration::from_millis(500);

/// A monitor of three candidates, held by `a`, and a clock.
struct World {
    monitor: Monitor,
    now: Instant,
}

fn node(name: &str) -> NodeName {
    name.parse().unwrap()
}

fn candidates(cordoned: &[&str], deleting: &[&str]) -> BTreeMap<NodeName, Candidate> {
    let candidate = |name: &str| Candidate {
        cordoned: cordoned.contains(&name),
        deleting: deleting.contains(&name),
    };
    ["a", "b", "c"]
        .iter()
        .map(|name| (node(name), candidate(name)))
        .collect()
}

impl World {
    fn new() -> Self {
        let now = Instant::now();
        let mut monitor = Monitor::new(Settings::default(), now);
        assert_eq!(
            monitor.step(Event::Changed(candidates(&[], &[]), Some(node("a"))), now),
            None
        );
        Self { monitor, now }
    }

    /// One period: the candidates named are ready, the others are not, then the endpoint is probed.
    fn period(&mut self, ready: &[&str], endpoint: bool) -> Option<Verdict> {
        self.now += PERIOD;
        let told = ["a", "b", "c"].map(|name| self.tell(Event::Ready(node(name), ready.contains(&name))));
        let endpoint = self.tell(Event::Endpoint(endpoint));
        told.into_iter().flatten().chain(endpoint).next()
    }

    fn tell(&mut self, event: Event) -> Option<Verdict> {
        self.monitor.step(event, self.now)
    }

    fn changed(&mut self, cordoned: &[&str], deleting: &[&str], holder: &str) -> Option<Verdict> {
        self.tell(Event::Changed(candidates(cordoned, deleting), Some(node(holder))))
    }
}

fn to(verdict: Option<Verdict>) -> Option<String> {
    verdict.map(|verdict| verdict.move_to.to_string())
}

/// E69 (part): three misses in a row, and the first ready candidate shall hold it.
#[test]
fn three_misses_in_a_row_move_the_endpoint_to_a_ready_candidate() {
    let mut world = World::new();
    assert_eq!(world.period(&["a", "b", "c"], true), None);
    assert_eq!(world.period(&["c"], false), None);
    assert_eq!(world.period(&["c"], false), None);
    let verdict = world.period(&["c"], false).unwrap();
    assert_eq!((verdict.move_to, verdict.detected_after), (node("c"), PERIOD * 3));
}

#[test]
fn misses_that_are_not_in_a_row_move_nothing() {
    let mut world = World::new();
    for round in 0..20 {
        assert_eq!(world.period(&["a", "b"], round % 3 == 2), None);
    }
}

/// E70: with nobody ready there is no verdict, and there is one as soon as somebody is.
#[test]
fn nobody_ready_moves_nothing() {
    let mut world = World::new();
    for _ in 0..10 {
        assert_eq!(world.period(&[], false), None);
    }
    assert_eq!(
        to(world.tell(Event::Ready(node("b"), true))),
        Some("b".to_owned())
    );
}

#[test]
fn a_candidate_that_was_ready_long_ago_is_not_chosen() {
    let mut world = World::new();
    world.period(&["b"], true);
    world.now += PERIOD * 10;
    for _ in 0..3 {
        assert_eq!(world.tell(Event::Endpoint(false)), None);
    }
}

#[test]
fn a_verdict_is_repeated_only_after_the_dwell_and_the_first_never_waits() {
    let mut world = World::new();
    let dwell = Settings::default().dwell;
    let verdicts: Vec<_> = (0..30_u32)
        .filter(|_| world.period(&["b"], false).is_some())
        .collect();
    let again = 2 + u32::try_from(dwell.as_millis() / PERIOD.as_millis()).unwrap();
    assert_eq!(verdicts, [2, again]);
}

#[test]
fn another_holder_starts_the_counting_again() {
    let mut world = World::new();
    world.period(&["b", "c"], false);
    world.period(&["b", "c"], false);
    assert_eq!(world.changed(&[], &[], "b"), None);
    assert_eq!(world.period(&["b", "c"], false), None);
    assert_eq!(world.period(&["b", "c"], false), None);
    assert_eq!(to(world.period(&["b", "c"], false)), Some("c".to_owned()));
}

/// E71: a holder that is cordoned or deleted is left before it fails, for one that is to stay.
#[test]
fn a_holder_that_is_to_leave_is_left_for_one_that_stays() {
    let mut world = World::new();
    world.period(&["a", "b", "c"], true);
    assert_eq!(to(world.changed(&["a", "b"], &[], "a")), Some("c".to_owned()));
    let mut world = World::new();
    world.period(&["a", "b"], true);
    assert_eq!(
        world.changed(&["a", "b"], &[], "a"),
        None,
        "the holder works, and `b` is to leave, too"
    );
    assert_eq!(world.changed(&["b"], &["a"], "a"), None);
    world.period(&["b"], false);
    world.period(&["b"], false);
    assert_eq!(
        to(world.period(&["b"], false)),
        Some("b".to_owned()),
        "better than none"
    );
}

#[test]
fn a_holder_that_works_and_is_cordoned_is_judged_once_in_a_dwell() {
    let mut world = World::new();
    world.period(&["a", "b"], true);
    assert!(world.changed(&["a"], &[], "a").is_some());
    assert_eq!((0..19).find_map(|_| world.period(&["a", "b"], true)), None);
    assert!(world.period(&["a", "b"], true).is_some());
}

#[test]
fn the_dwell_of_a_failure_that_went_away_does_not_delay_the_next() {
    let mut world = World::new();
    for _ in 0..2 {
        assert_eq!(world.period(&["b"], false), None);
        assert_eq!(world.period(&["b"], false), None);
        assert!(world.period(&["b"], false).is_some());
        assert_eq!(world.period(&["a", "b"], true), None);
    }
}
