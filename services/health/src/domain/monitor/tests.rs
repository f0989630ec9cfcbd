use pretty_assertions::assert_eq;

use super::*;
use crate::domain::{Outcome, Sign};

mod model;

const PERIOD: Duration = Duration::from_millis(500);
const DWELL: Duration = Duration::from_secs(10);

/// In the order in which they are taken for this endpoint, as [`rank`] has it.
const ENDPOINT: &str = "192.0.2.1:6443";

fn node(name: &str) -> NodeName {
    name.parse().unwrap()
}

/// The names in the order in which they are taken.
fn ranked(names: &[&'static str]) -> Vec<&'static str> {
    let mut names = names.to_vec();
    names.sort_by_key(|name| rank(ENDPOINT.parse().unwrap(), &node(name)));
    names
}

fn outcome(sign: Sign) -> Outcome {
    Outcome {
        sign,
        detail: if sign == Sign::Ready { "" } else { "it hurts" }.to_owned(),
        took: Duration::from_millis(1),
    }
}

/// A monitor of `a`, `b` and `c`, held by `a`, and a clock.
struct World {
    monitor: Monitor,
    now: Instant,
    names: Vec<&'static str>,
}

fn situation(names: &[&'static str], cordoned: &[&str], deleting: &[&str], holder: Holder) -> Situation {
    refusing(names, cordoned, deleting, &[], holder)
}

fn refusing(
    names: &[&'static str],
    cordoned: &[&str],
    deleting: &[&str],
    refused: &[&str],
    holder: Holder,
) -> Situation {
    let candidate = |(index, name): (usize, &&'static str)| {
        let candidate = Candidate {
            address: format!("10.0.0.{}:6443", index + 1).parse().unwrap(),
            cordoned: cordoned.contains(name),
            deleting: deleting.contains(name),
            refused: refused.contains(name),
        };
        (node(name), candidate)
    };
    Situation {
        candidates: names.iter().enumerate().map(candidate).collect(),
        holder,
        own_addresses_only: false,
    }
}

impl World {
    fn new() -> Self {
        Self::held_by(&["a", "b", "c"], Holder::Node(node("a")))
    }

    fn held_by(names: &[&'static str], holder: Holder) -> Self {
        let now = Instant::now();
        let mut monitor = Monitor::new(Settings::default(), ENDPOINT.parse().unwrap(), now);
        monitor.step(Event::Changed(situation(names, &[], &[], holder)), now);
        Self {
            monitor,
            now,
            names: names.to_vec(),
        }
    }

    /// One period: every address is probed, candidates first. `signs` names those that are not ready.
    fn period(&mut self, endpoint: Sign, signs: &[(&str, Sign)]) -> Option<Decision> {
        self.now += PERIOD;
        let mut told = None;
        for name in self.names.clone() {
            let found = signs.iter().find(|(other, _)| *other == name);
            told = self
                .probed(Some(name), found.map_or(Sign::Ready, |(_, sign)| *sign))
                .or(told);
        }
        self.probed(None, endpoint).or(told)
    }

    fn probed(&mut self, name: Option<&str>, sign: Sign) -> Option<Decision> {
        let event = Event::Probed {
            node: name.map(node),
            outcome: outcome(sign),
            ended: self.now,
        };
        self.monitor.step(event, self.now).decision
    }

    fn changed(&mut self, cordoned: &[&str], deleting: &[&str], holder: &str) -> Option<Decision> {
        let holder = Holder::Node(node(holder));
        let event = Event::Changed(situation(&self.names, cordoned, deleting, holder));
        self.monitor.step(event, self.now).decision
    }

    /// The cloud refuses it to these; `a` holds it.
    fn refused(&mut self, cordoned: &[&str], refused: &[&str]) -> Option<Decision> {
        let told = refusing(&self.names, cordoned, &[], refused, Holder::Node(node("a")));
        self.monitor.step(Event::Changed(told), self.now).decision
    }

    /// `a` is silent for this many periods, and the endpoint with it. What was decided, each time that it was.
    fn dead(&mut self, periods: usize) -> Vec<Decision> {
        let signs = [("a", Sign::Silent)];
        (0..periods)
            .filter_map(|_| self.period(Sign::Silent, &signs))
            .collect()
    }

    fn move_to(&self) -> Option<String> {
        self.monitor.decision().move_to.as_ref().map(ToString::to_string)
    }

    fn reason(&self) -> &str {
        &self.monitor.decision().reason
    }
}

/// E69 (part): three misses in a row of the holder, and the first ready candidate shall hold it.
#[test]
fn three_misses_in_a_row_move_the_endpoint_to_a_ready_candidate() {
    let mut world = World::new();
    assert_eq!(world.period(Sign::Ready, &[]), None);
    let verdicts = world.dead(3);
    let [verdict] = &verdicts[..] else {
        panic!("{verdicts:?}")
    };
    assert_eq!(verdict.move_to, Some(node(ranked(&["b", "c"])[0])));
    assert_eq!(
        (verdict.cause, verdict.detected_after),
        (Some(Cause::Dead), PERIOD * 3)
    );
    assert_eq!(
        verdict.reason,
        "a, which holds the endpoint, missed 3 probes in a row (it hurts)"
    );
}

#[test]
fn misses_that_are_not_in_a_row_move_nothing() {
    let mut world = World::new();
    for round in 0..20 {
        let sign = if round % 3 == 2 { Sign::Ready } else { Sign::Silent };
        assert_eq!(world.period(sign, &[("a", sign)]), None);
    }
}

/// The first row but one of the table: the way to the address is broken, and its holder is well.
#[test]
fn the_endpoint_stays_while_its_holder_is_ready() {
    let mut world = World::new();
    for _ in 0..100 {
        world.period(Sign::Silent, &[]);
        assert_eq!(world.move_to(), None);
    }
    assert!(
        world.reason().contains("a, which holds it, is ready"),
        "{}",
        world.reason()
    );
}

/// The last row: kube-proxy leads the endpoint's address to any API server that is healthy, so a dead holder looks alive through it.
#[test]
fn a_holder_that_died_is_left_though_another_answers_in_its_place() {
    let mut world = World::new();
    world.period(Sign::Ready, &[]);
    for _ in 0..3 {
        world.period(Sign::Ready, &[("a", Sign::Silent)]);
    }
    assert!(world.move_to().is_some());
    assert!(
        world.reason().contains("the endpoint still answers"),
        "{}",
        world.reason()
    );
}

/// The last row, for an agent that starts while it is so: it cannot know that its way to the holder ever worked.
#[test]
fn a_holder_that_was_never_ready_while_the_endpoint_answers_is_doubted_for_a_while() {
    let mut world = World::new();
    let began = world.now;
    while world.move_to().is_none() {
        world.period(Sign::Ready, &[("a", Sign::Silent)]);
    }
    let waited = world.now.duration_since(began);
    assert!(waited >= Settings::default().doubt, "{waited:?}");
}

/// An agent that is cut off alone hears itself and nobody else.
#[test]
fn an_agent_that_hears_no_majority_waits_and_says_so() {
    let mut world = World::new();
    world.period(Sign::Ready, &[]);
    let cut_off = [("a", Sign::Silent), ("b", Sign::Silent)];
    for _ in 0..10 {
        world.period(Sign::Silent, &cut_off);
        assert_eq!(world.move_to(), None);
    }
    assert!(
        world.reason().contains("only 1 of 3 candidates"),
        "{}",
        world.reason()
    );
    // Its API server became unready, since it lost its etcd: nobody to move to, however long it lasts.
    let lost = [("a", Sign::Silent), ("b", Sign::Silent), ("c", Sign::Alive)];
    for _ in 0..100 {
        world.period(Sign::Silent, &lost);
        assert_eq!(world.move_to(), None);
    }
}

/// The same with an endpoint that answers: then nothing but our own view is wrong.
#[test]
fn without_a_majority_an_endpoint_that_answers_stays_for_ever() {
    let mut world = World::new();
    world.period(Sign::Ready, &[]);
    for _ in 0..1000 {
        world.period(Sign::Ready, &[("a", Sign::Silent), ("b", Sign::Silent)]);
        assert_eq!(world.move_to(), None);
    }
}

/// Where a majority is really gone, and one is ready nevertheless, it gets the endpoint in the end.
#[test]
fn a_candidate_that_stays_ready_without_a_majority_gets_it_after_the_doubt() {
    let mut world = World::new();
    world.period(Sign::Ready, &[]);
    for _ in 0..30 {
        world.period(Sign::Silent, &[("a", Sign::Silent), ("b", Sign::Silent)]);
    }
    assert_eq!(world.move_to().as_deref(), Some("c"));
}

/// A refusal is heard: the machine is there, and so are we.
#[test]
fn a_refusal_proves_that_we_are_not_cut_off() {
    let mut world = World::held_by(&["a", "b"], Holder::Node(node("a")));
    world.period(Sign::Ready, &[]);
    for _ in 0..3 {
        world.period(Sign::Alive, &[("a", Sign::Alive)]);
    }
    assert_eq!(world.move_to().as_deref(), Some("b"));
}

/// E70: with nobody ready there is no verdict, and there is one as soon as somebody is.
#[test]
fn nobody_ready_moves_nothing() {
    let mut world = World::new();
    let all = ["a", "b", "c"].map(|name| (name, Sign::Alive));
    for _ in 0..10 {
        world.period(Sign::Alive, &all);
        assert_eq!(world.move_to(), None);
    }
    assert!(
        world.reason().ends_with("no candidate is ready"),
        "{}",
        world.reason()
    );
    assert_eq!(world.monitor.decision().cause, Some(Cause::Dead));
    let verdict = world.probed(Some("b"), Sign::Ready).unwrap();
    assert_eq!(verdict.move_to, Some(node("b")));
}

#[test]
fn a_candidate_that_was_ready_long_ago_is_not_chosen() {
    let mut world = World::new();
    world.period(Sign::Ready, &[]);
    world.now += PERIOD * 10;
    for _ in 0..3 {
        world.probed(Some("a"), Sign::Alive);
        assert_eq!(world.move_to(), None);
    }
}

#[test]
fn a_candidate_that_failed_and_just_came_back_is_taken_only_where_no_other_is() {
    let [first, second] = ranked(&["b", "c"])[..] else {
        panic!()
    };
    let mut world = World::new();
    for _ in 0..3 {
        world.period(Sign::Ready, &[(first, Sign::Alive)]);
    }
    world.period(Sign::Ready, &[(first, Sign::Alive), ("a", Sign::Alive)]);
    world.period(Sign::Ready, &[(first, Sign::Alive), ("a", Sign::Alive)]);
    world.probed(Some(first), Sign::Ready);
    world.probed(Some("a"), Sign::Alive);
    assert_eq!(world.move_to().as_deref(), Some(second));
    world.probed(Some(second), Sign::Alive);
    assert_eq!(
        world.move_to().as_deref(),
        Some(first),
        "better than none, and at once"
    );
}

#[test]
fn a_verdict_is_repeated_only_after_the_dwell_and_the_first_never_waits() {
    let mut world = World::new();
    world.period(Sign::Ready, &[]);
    let verdicts = world.dead(30);
    let at: Vec<_> = verdicts.iter().map(|verdict| verdict.at).collect();
    let [first, again] = at[..] else {
        panic!("{verdicts:?}")
    };
    assert_eq!(again.duration_since(first), DWELL);
}

/// The machine that was named died, too: the next one is named without delay.
#[test]
fn a_verdict_never_names_a_machine_that_is_ready_no_more() {
    let [first, second] = ranked(&["b", "c"])[..] else {
        panic!()
    };
    let mut world = World::new();
    world.period(Sign::Ready, &[]);
    world.dead(3);
    assert_eq!(world.move_to().as_deref(), Some(first));
    world.probed(Some(first), Sign::Alive);
    assert_eq!(world.move_to().as_deref(), Some(second));
    world.probed(Some(second), Sign::Alive);
    assert_eq!(world.move_to(), None);
}

#[test]
fn a_holder_that_comes_back_keeps_the_endpoint() {
    let mut world = World::new();
    world.period(Sign::Ready, &[]);
    assert_eq!(world.dead(3).len(), 1);
    let withdrawn = world.probed(Some("a"), Sign::Ready).unwrap();
    assert_eq!((withdrawn.move_to, withdrawn.cause), (None, None));
}

/// Another agent was quicker: its choice is not undone, and the old holder's return moves nothing back.
#[test]
fn another_holder_starts_the_counting_again() {
    let mut world = World::new();
    world.period(Sign::Ready, &[]);
    world.dead(3);
    let withdrawn = world.changed(&[], &[], "b").unwrap();
    assert_eq!(withdrawn.move_to, None);
    for round in 0..50 {
        let flapping = if round % 5 < 4 { Sign::Silent } else { Sign::Ready };
        world.period(Sign::Ready, &[("a", flapping)]);
        assert_eq!(world.move_to(), None);
    }
    for missed in 1..=3 {
        world.period(Sign::Silent, &[("b", Sign::Silent)]);
        assert_eq!(
            world.move_to().is_some(),
            missed == 3,
            "no dwell for a new holder"
        );
    }
}

/// Somebody gave it to a machine that had failed before: that one has three probes, too.
#[test]
fn a_new_holder_is_not_judged_by_what_it_did_before() {
    let mut world = World::new();
    for _ in 0..5 {
        world.period(Sign::Ready, &[("b", Sign::Alive)]);
    }
    world.changed(&[], &[], "b");
    for missed in 1..=3 {
        assert_eq!(world.move_to(), None, "after {missed}");
        world.period(Sign::Alive, &[("b", Sign::Alive)]);
    }
    assert!(world.move_to().is_some());
}

/// E67: nobody holds it, so a ready candidate shall, at once.
#[test]
fn an_endpoint_that_nobody_holds_goes_to_the_first_candidate_that_is_ready() {
    let mut world = World::held_by(&["a", "b", "c"], Holder::Nobody);
    assert_eq!(world.move_to(), None);
    assert!(world.probed(Some("a"), Sign::Alive).is_none());
    let verdict = world.probed(Some("b"), Sign::Ready).unwrap();
    assert_eq!(
        (verdict.move_to, verdict.cause),
        (Some(node("b")), Some(Cause::Unheld))
    );
}

/// E78 (part): a machine that we do not know holds it. Its own address is not known either, so the endpoint's probes decide.
#[test]
fn an_unknown_holder_is_judged_by_the_endpoint_alone() {
    for holder in [Holder::Unknown, Holder::Node(node("elsewhere"))] {
        let mut world = World::held_by(&["a", "b", "c"], holder);
        for _ in 0..10 {
            world.period(Sign::Ready, &[]);
            assert_eq!(world.move_to(), None);
        }
        for _ in 0..3 {
            assert_eq!(world.move_to(), None);
            world.period(Sign::Silent, &[]);
        }
        assert_eq!(world.move_to().as_deref(), Some(ranked(&["a", "b", "c"])[0]));
    }
}

/// E71: a holder that is cordoned or deleted is left before it fails, for one that is to stay.
#[test]
fn a_holder_that_is_to_leave_is_left_for_one_that_stays() {
    let mut world = World::new();
    world.period(Sign::Ready, &[]);
    let verdict = world.changed(&["a", "b"], &[], "a").unwrap();
    assert_eq!(
        (verdict.move_to, verdict.cause),
        (Some(node("c")), Some(Cause::Cordoned))
    );
    let verdict = world.changed(&["b"], &["a"], "a").unwrap();
    assert_eq!(
        (verdict.move_to, verdict.cause),
        (Some(node("c")), Some(Cause::Deleting))
    );
    assert_eq!(world.changed(&[], &[], "a").unwrap().move_to, None);
}

/// E71 (part): it works, so it is not moved onto one that is to leave as well, nor onto one that is not ready.
#[test]
fn a_holder_that_is_to_leave_stays_where_no_other_is_to_stay() {
    let mut world = World::held_by(&["a", "b"], Holder::Node(node("a")));
    world.period(Sign::Ready, &[]);
    world.changed(&["a", "b"], &[], "a");
    assert_eq!(world.move_to(), None);
    assert!(
        world.reason().contains("no other candidate"),
        "{}",
        world.reason()
    );
    world.changed(&["a"], &[], "a");
    world.period(Sign::Ready, &[("b", Sign::Alive)]);
    assert_eq!(world.move_to(), None);
    world.changed(&["b"], &["a"], "a");
    world.period(Sign::Alive, &[("a", Sign::Alive)]);
    world.period(Sign::Alive, &[("a", Sign::Alive)]);
    assert_eq!(world.move_to(), None);
    world.period(Sign::Alive, &[("a", Sign::Alive)]);
    assert_eq!(
        world.move_to().as_deref(),
        Some("b"),
        "cordoned is better than dead"
    );
}

#[test]
fn one_that_is_being_deleted_is_never_chosen() {
    let mut world = World::held_by(&["a", "b"], Holder::Node(node("a")));
    world.changed(&[], &["b"], "a");
    world.period(Sign::Ready, &[]);
    for _ in 0..50 {
        world.period(Sign::Alive, &[("a", Sign::Alive)]);
        assert_eq!(world.move_to(), None);
    }
}

/// E69: one to which the cloud does not give it is not named again: the next one is, at once. Where all were refused, they are named in
/// turns, each for as long as a verdict stands: a dead holder has nothing to lose.
#[test]
fn where_one_is_refused_the_next_is_named_and_where_all_are_they_take_turns() {
    let [first, second] = ranked(&["b", "c"])[..] else {
        panic!()
    };
    let mut world = World::new();
    world.period(Sign::Ready, &[]);
    world.dead(3);
    assert_eq!(world.move_to().as_deref(), Some(first));
    let verdict = world.refused(&[], &[first]).unwrap();
    assert_eq!(verdict.move_to, Some(node(second)));
    for _ in 0..50 {
        world.dead(1);
        assert_eq!(world.move_to().as_deref(), Some(second));
    }
    world.refused(&[], &[first, second]);
    let mut named = Vec::new();
    for decision in world.dead(61) {
        named.push((decision.move_to, decision.at));
    }
    let turns: Vec<_> = named
        .iter()
        .filter_map(|(to, _)| to.as_ref())
        .map(NodeName::as_str)
        .collect();
    assert!(turns.len() >= 3, "{turns:?}");
    assert!(turns.windows(2).all(|pair| pair[0] != pair[1]), "{turns:?}");
    assert!(
        named.windows(2).all(|pair| pair[1].1 - pair[0].1 >= DWELL),
        "{named:?}"
    );
}

/// E71: each try may cost a holder that works the endpoint for a moment, so it is left only for one that was not refused.
#[test]
fn a_holder_that_works_is_never_left_for_one_that_was_refused() {
    let mut world = World::new();
    world.period(Sign::Ready, &[]);
    world.refused(&["a"], &["b", "c"]);
    for _ in 0..100 {
        world.period(Sign::Ready, &[]);
        assert_eq!(world.move_to(), None);
    }
    assert!(world.reason().contains("did not give it"), "{}", world.reason());
    let verdict = world.refused(&["a"], &["b"]).unwrap();
    assert_eq!(
        (verdict.move_to, verdict.cause),
        (Some(node("c")), Some(Cause::Cordoned))
    );
    world.refused(&["a"], &["b", "c"]);
    assert_eq!(world.move_to(), None);
    world.dead(3);
    assert!(world.move_to().is_some(), "it works no more");
}

#[test]
fn a_machine_with_another_address_is_another_machine() {
    let mut world = World::new();
    world.period(Sign::Ready, &[]);
    world.dead(2);
    let mut other = situation(&world.names, &[], &[], Holder::Node(node("a")));
    if let Some(candidate) = other.candidates.get_mut(&node("a")) {
        candidate.address = "10.0.0.99:6443".parse().unwrap();
    }
    world.monitor.step(Event::Changed(other), world.now);
    world.dead(2);
    assert_eq!(world.move_to(), None);
    world.dead(1);
    assert!(world.move_to().is_some());
}

/// Whoever looks at the reason sees the count grow; whoever follows is not told each time.
#[test]
fn a_count_that_grows_is_no_news() {
    let mut world = World::new();
    let all = ["a", "b", "c"].map(|name| (name, Sign::Alive));
    let told = (0..100).filter(|_| world.period(Sign::Alive, &all).is_some());
    assert_eq!(told.count(), 1);
}

/// E73: where machines carry the endpoint's address themselves, it is not asked, and its holder's own address decides, at once.
#[test]
fn a_holder_is_judged_by_its_own_address_alone_where_that_is_wanted() {
    let mut world = World::new();
    let told = Situation {
        own_addresses_only: true,
        ..situation(&world.names, &[], &[], Holder::Node(node("a")))
    };
    world.monitor.step(Event::Changed(told.clone()), world.now);
    let seen: Vec<_> = world.monitor.observed().map(|one| one.node.cloned()).collect();
    assert_eq!(seen, ["a", "b", "c"].map(|name| Some(node(name))));
    // The endpoint answers from wherever it is asked, and nobody listens. Its holder was never ready before our eyes.
    for _ in 0..2 {
        world.period(Sign::Ready, &[("a", Sign::Silent)]);
        assert_eq!(world.move_to(), None);
    }
    world.period(Sign::Ready, &[("a", Sign::Silent)]);
    assert!(world.move_to().is_some(), "{}", world.reason());
    // Of a holder that is no candidate, nothing is known.
    let told = Situation {
        holder: Holder::Unknown,
        ..told
    };
    world.monitor.step(Event::Changed(told), world.now);
    assert_eq!(world.move_to(), None);
    assert!(world.reason().contains("not probed"), "{}", world.reason());
}
