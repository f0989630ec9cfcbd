use super::*;
use crate::endpoint::Observation;

const STEP: Duration = Duration::from_millis(500);

fn candidate(node: &str) -> Candidate {
    Candidate {
        node: node.to_owned(),
        provider_id: format!("cloud://{node}"),
        address: "10.0.0.1:6443".parse().unwrap(),
        cordoned: false,
        deleting: false,
    }
}

fn held(by: &str, assignment: &str) -> Holding {
    Holding {
        address: "192.0.2.1".parse().unwrap(),
        held: Some((format!("cloud://{by}"), assignment.to_owned())),
        others: Vec::new(),
    }
}

fn nobody() -> Holding {
    Holding {
        held: None,
        ..held("", "")
    }
}

fn saw(node: &str, ready: bool) -> Observation {
    Observation {
        node: node.to_owned(),
        ready,
        misses: u32::from(!ready) * 3,
        detail: String::new(),
        age: Duration::ZERO,
        took: Duration::ZERO,
    }
}

fn dead(decider: &Decider, verdict: u64, to: &str) -> Report {
    Report {
        move_to: Some(to.to_owned()),
        why: Some(Why::Dead),
        reason: "timed out".to_owned(),
        detected_after: Duration::from_secs(2),
        revision: decider.revision,
        verdict,
        observations: vec![saw("", false), saw("a", false), saw("b", true), saw("c", true)],
    }
}

fn well(decider: &Decider) -> Report {
    Report {
        move_to: None,
        why: None,
        observations: vec![saw("", true), saw("a", true), saw("b", true)],
        ..dead(decider, 0, "")
    }
}

fn settings(node: &str) -> Settings {
    Settings {
        node: node.to_owned(),
        port: Some(6443),
        step: STEP,
        refresh: Duration::from_secs(60),
        own_addresses_only: false,
    }
}

/// An agent of rank 0, on a cluster of three, whose endpoint `a` holds.
fn agent(now: Instant) -> Decider {
    let names = ["b", "c"];
    let quickest = names
        .into_iter()
        .find(|node| {
            rank(
                "192.0.2.1".parse().unwrap(),
                ["a", "b", "c"].into_iter(),
                Some("a"),
                node,
            ) == 0
        })
        .unwrap();
    agent_on(quickest, now)
}

fn agent_on(node: &str, now: Instant) -> Decider {
    let mut decider = Decider::new(settings(node), None, now);
    assert_eq!(decider.tick(now), [Effect::Read]);
    decider.was_read(Ok(held("a", "1")), now);
    let effects = decider.set_candidates(["a", "b", "c"].map(candidate).to_vec());
    assert!(matches!(
        &effects[..],
        [Effect::Remember, Effect::Ask(question)] if question.holder.as_deref() == Some("a") && !question.holder_unknown
    ));
    decider.stream(true);
    decider.hear(well(&decider), now);
    // It was read a while ago.
    decider.looked = None;
    decider
}

fn order(to: &str, assignment: Option<&str>) -> Effect {
    Effect::Move(Order {
        address: "192.0.2.1".parse().unwrap(),
        to: format!("cloud://{to}"),
        assignment: assignment.map(str::to_owned),
    })
}

/// A dead holder: the verdict, a fresh read, the move, and a read after it.
#[test]
fn a_verdict_leads_to_one_move_of_what_was_read() {
    let now = Instant::now();
    let mut decider = agent(now);
    let effects = decider.hear(dead(&decider, 1, "b"), now);
    assert_eq!(
        effects,
        [Effect::Read, Effect::Judged],
        "the read for the first miss is on its way"
    );
    assert_eq!(
        decider.was_read(Ok(held("a", "1")), now),
        [Effect::Read],
        "it began before the wait was over"
    );
    assert_eq!(decider.was_read(Ok(held("a", "1")), now), [order("b", Some("1"))]);
    assert_eq!(
        decider.hear(dead(&decider, 1, "b"), now),
        [],
        "said again, and in work"
    );
    let effects = decider.was_moved(&Ok(()), now + STEP);
    assert!(matches!(&effects[..], [Effect::Tell(record), Effect::Read]
        if record.moved && record.from == "a" && record.to == "b" && record.took == STEP));
    let effects = decider.was_read(Ok(held("b", "2")), now);
    assert!(matches!(&effects[..], [Effect::Ask(question)] if question.holder.as_deref() == Some("b")));
    assert_eq!(
        decider.hear(dead(&agent(now), 1, "b"), now),
        [],
        "said before it heard of the move"
    );
}

/// An agent waits for those before it, and does nothing once one of them has moved it.
#[test]
fn a_rank_waits_and_sees_what_the_one_before_it_did() {
    let now = Instant::now();
    let node = if agent(now).settings.node == "b" { "c" } else { "b" };
    let mut decider = agent_on(node, now);
    decider.hear(dead(&decider, 1, "b"), now);
    decider.was_read(Ok(held("a", "1")), now);
    assert_eq!(decider.tick(now + STEP / 2), []);
    assert_eq!(decider.tick(now + STEP), [Effect::Read]);
    let effects = decider.was_read(Ok(held("b", "2")), now + STEP);
    assert!(matches!(&effects[..], [Effect::Ask(_)]), "{effects:?}");
    assert_eq!(decider.tick(now + STEP * 2), []);
}

#[test]
fn a_verdict_that_was_withdrawn_or_came_by_a_stream_that_is_cut_moves_nothing() {
    let now = Instant::now();
    for cut in [false, true] {
        let mut decider = agent(now);
        decider.hear(dead(&decider, 1, "b"), now);
        if cut {
            decider.stream(false);
        } else {
            decider.hear(well(&decider), now);
        }
        decider.was_read(Ok(held("a", "1")), now);
        assert_eq!(decider.was_read(Ok(held("a", "1")), now), []);
        assert_eq!(decider.tick(now + STEP), []);
    }
}

/// E78: nothing is moved while several hold it, and it is told.
#[test]
fn several_holders_are_a_problem_for_people() {
    let now = Instant::now();
    let mut decider = agent(now);
    decider.hear(dead(&decider, 1, "b"), now);
    let several = Holding {
        others: vec!["cloud://c".to_owned()],
        ..held("a", "1")
    };
    decider.was_read(Ok(several.clone()), now);
    assert!(
        decider
            .was_read(Ok(several), now)
            .iter()
            .all(|effect| !matches!(effect, Effect::Move(_)))
    );
    assert!(decider.problem().unwrap().contains("several machines"));
}

/// E79: a tag that is missing is told, and asked for again only after a while; it heals by itself.
#[test]
fn an_endpoint_that_cannot_be_read_is_a_problem_that_passes() {
    let now = Instant::now();
    let mut decider = Decider::new(settings("b"), None, now);
    decider.tick(now);
    assert_eq!(
        decider.was_read(Err(Failure::Refused("no such tag".to_owned())), now),
        []
    );
    assert!(decider.problem().unwrap().contains("no such tag"));
    assert_eq!(decider.tick(now + Duration::from_secs(59)), []);
    assert_eq!(decider.tick(now + Duration::from_secs(60)), [Effect::Read]);
    decider.was_read(Ok(held("a", "1")), now);
    assert_eq!(decider.problem(), None);
}

/// E67: nobody holds it: it is given away on what was read.
#[test]
fn an_endpoint_that_nobody_holds_is_given_away() {
    let now = Instant::now();
    let mut decider = agent(now);
    // The order is another one where nobody holds it.
    decider.settings.step = Duration::ZERO;
    decider.next_read = now;
    decider.tick(now);
    decider.was_read(Ok(nobody()), now);
    let report = Report {
        why: Some(Why::Unheld),
        ..dead(&decider, 2, "c")
    };
    assert_eq!(decider.hear(report, now), [Effect::Judged, Effect::Read]);
    let effects = decider.was_read(Ok(nobody()), now);
    assert_eq!(effects, [order("c", None)]);
}

/// A move that ended without an answer may have taken the endpoint away: it goes on at once, by us.
#[test]
fn a_gap_that_we_may_have_made_is_closed_by_us() {
    let now = Instant::now();
    let mut decider = agent(now);
    decider.hear(dead(&decider, 1, "b"), now);
    decider.was_read(Ok(held("a", "1")), now);
    decider.was_read(Ok(held("a", "1")), now);
    let effects = decider.was_moved(&Err(Failure::Unanswered("500".to_owned())), now);
    assert!(matches!(&effects[..], [Effect::Tell(record)] if !record.moved));
    let soon = decider.deadline().unwrap();
    assert_eq!(soon, now + FIRST_PAUSE);
    assert_eq!(decider.tick(soon), [Effect::Read]);
    let effects = decider.was_read(Ok(nobody()), soon);
    assert_eq!(effects.last(), Some(&order("b", None)));
}

/// A target that died while a move to it hung is given nothing: nobody has the endpoint, `health` hears of it, and names another.
#[test]
fn a_gap_is_not_closed_with_a_machine_that_died_meanwhile() {
    let now = Instant::now();
    let mut decider = agent(now);
    decider.hear(dead(&decider, 1, "b"), now);
    decider.was_read(Ok(held("a", "1")), now);
    decider.was_read(Ok(held("a", "1")), now);
    let observations = vec![saw("", false), saw("a", false), saw("b", false), saw("c", true)];
    let report = Report {
        observations,
        ..dead(&decider, 2, "c")
    };
    assert_eq!(decider.hear(report, now), [], "the move is on its way");
    decider.was_moved(&Err(Failure::Unanswered("hung".to_owned())), now);
    let soon = decider.deadline().unwrap();
    assert_eq!(decider.tick(soon), [Effect::Read]);
    let effects = decider.was_read(Ok(nobody()), soon);
    assert!(
        matches!(&effects[..], [Effect::Ask(question)] if question.holder.is_none() && !question.holder_unknown),
        "{effects:?}"
    );
    let report = Report {
        why: Some(Why::Unheld),
        ..dead(&decider, 3, "c")
    };
    assert_eq!(decider.hear(report, soon), [Effect::Judged, Effect::Read]);
    let effects = decider.was_read(Ok(nobody()), soon);
    assert_eq!(effects, [order("c", None)]);
}

/// A lost race: read, and nothing more until there is another verdict.
#[test]
fn after_a_lost_race_the_next_verdict_is_waited_for() {
    let now = Instant::now();
    let mut decider = agent(now);
    decider.hear(dead(&decider, 1, "b"), now);
    decider.was_read(Ok(held("a", "1")), now);
    decider.was_read(Ok(held("a", "1")), now);
    let effects = decider.was_moved(&Err(Failure::Changed("it is not there".to_owned())), now);
    assert!(
        matches!(&effects[..], [Effect::Tell(record), Effect::Read] if record.outcome == "lost the race")
    );
    assert_eq!(decider.was_read(Ok(held("a", "1")), now), []);
    assert_eq!(decider.hear(dead(&decider, 1, "b"), now), []);
    let effects = decider.hear(dead(&decider, 2, "b"), now);
    assert!(effects.contains(&Effect::Judged), "{effects:?}");
}

/// The nodes of whom `health` is told that they were refused; `None`: it is told nothing.
fn told_refused(effects: &[Effect]) -> Option<Vec<&str>> {
    effects.iter().find_map(|effect| match effect {
        Effect::Ask(question) => Some(question.refused.iter().map(String::as_str).collect()),
        _ => None,
    })
}

/// E69, E90: a machine to which the cloud does not give it, being of another region, is passed over: `health` hears of it, and names
/// another. After a while it is a candidate like the others, and so it is once it has got the endpoint after all.
#[test]
fn a_machine_that_is_refused_is_passed_over_for_a_while() {
    let now = Instant::now();
    let mut decider = agent(now);
    decider.hear(dead(&decider, 1, "b"), now);
    decider.was_read(Ok(held("a", "1")), now);
    decider.was_read(Ok(held("a", "1")), now);
    let effects = decider.was_moved(&Err(Failure::Unfit("of another region".to_owned())), now);
    assert_eq!(told_refused(&effects), Some(vec!["b"]));
    assert!(effects.contains(&Effect::Read), "{effects:?}");
    assert!(decider.was_refused(&candidate("b")) && !decider.was_refused(&candidate("c")));
    decider.was_read(Ok(held("a", "1")), now);
    decider.hear(dead(&decider, 2, "c"), now);
    assert_eq!(decider.was_read(Ok(held("a", "1")), now), [order("c", Some("1"))]);
    decider.was_moved(&Ok(()), now);
    let effects = decider.was_read(Ok(held("c", "2")), now);
    assert_eq!(told_refused(&effects), Some(vec!["b"]));
    let later = now + Duration::from_secs(600);
    assert_eq!(decider.tick(later), [Effect::Read]);
    let effects = decider.was_read(Ok(held("c", "2")), later);
    assert_eq!(told_refused(&effects), Some(Vec::new()));
}

/// What says nothing of the machine marks none: the cloud is away, the race is lost, or nobody would get it.
#[test]
fn a_machine_is_passed_over_only_for_what_it_is_itself() {
    for failure in [
        Failure::Changed("it is not there".to_owned()),
        Failure::Unanswered("503".to_owned()),
        Failure::Refused("who are you".to_owned()),
    ] {
        let now = Instant::now();
        let mut decider = agent(now);
        decider.hear(dead(&decider, 1, "b"), now);
        decider.was_read(Ok(held("a", "1")), now);
        decider.was_read(Ok(held("a", "1")), now);
        let effects = decider.was_moved(&Err(failure.clone()), now);
        assert_eq!(told_refused(&effects), None, "{failure:?}");
        assert!(!decider.was_refused(&candidate("b")), "{failure:?}");
    }
}

/// The holder has it still, and by another assignment: another agent took it away for the same machine, and had to give it back. It is
/// not tried a second time.
#[test]
fn what_another_agent_was_refused_is_not_tried_again() {
    let now = Instant::now();
    let node = if agent(now).settings.node == "b" { "c" } else { "b" };
    let mut decider = agent_on(node, now);
    let report = Report {
        why: Some(Why::Leaving),
        ..dead(&decider, 1, "b")
    };
    decider.hear(report, now);
    decider.was_read(Ok(held("a", "1")), now);
    assert_eq!(decider.tick(now + STEP), [Effect::Read]);
    let effects = decider.was_read(Ok(held("a", "2")), now + STEP);
    assert_eq!(told_refused(&effects), Some(vec!["b"]), "{effects:?}");
    assert!(
        effects.iter().all(|effect| !matches!(effect, Effect::Move(_))),
        "{effects:?}"
    );
    // Another machine has it: that one was quicker, and nobody was refused.
    let mut decider = agent_on(node, now);
    decider.hear(dead(&decider, 1, "b"), now);
    decider.was_read(Ok(held("a", "1")), now);
    decider.tick(now + STEP);
    let effects = decider.was_read(Ok(held("b", "2")), now + STEP);
    assert_eq!(told_refused(&effects), Some(Vec::new()));
}

/// While an older controller runs, which moves it too, nothing is moved, and it is told; a move under way is not waited for. Once that
/// one has stopped, the verdict that stands is carried out.
#[test]
fn an_older_controller_that_runs_is_given_way_to() {
    let now = Instant::now();
    let mut decider = agent(now);
    assert_eq!(decider.set_rival(Some("one runs".to_owned()), now), []);
    assert_eq!(decider.problem(), Some("one runs"));
    assert_eq!(
        decider.hear(dead(&decider, 1, "b"), now),
        [Effect::Read],
        "probes go on"
    );
    decider.was_read(Ok(held("a", "1")), now);
    for later in 1..20 {
        let now = now + STEP * later;
        assert_eq!(decider.hear(dead(&decider, later.into(), "b"), now), []);
        assert_eq!(decider.tick(now), []);
    }
    let effects = decider.set_rival(None, now);
    assert_eq!(effects, [Effect::Judged, Effect::Read]);
    assert_eq!(decider.problem(), None);
    assert_eq!(decider.was_read(Ok(held("a", "1")), now), [order("b", Some("1"))]);
    assert_eq!(
        decider.set_rival(Some("one runs".to_owned()), now),
        [Effect::Abandon]
    );
    // It comes while the endpoint is read for a move.
    let mut decider = agent(now);
    decider.hear(dead(&decider, 1, "b"), now);
    decider.was_read(Ok(held("a", "1")), now);
    decider.set_rival(Some("one runs".to_owned()), now);
    assert_eq!(decider.was_read(Ok(held("a", "1")), now), []);
}

/// E74: where nobody says, the endpoint's port is that of the machines' API servers.
#[test]
fn the_port_follows_the_machines() {
    let now = Instant::now();
    let mut told = settings("b");
    told.port = None;
    let mut decider = Decider::new(told, "192.0.2.1".parse().ok(), now);
    assert_eq!(decider.endpoint(), None, "nobody is known yet");
    let on = |port: u16| {
        ["a", "b", "c"].map(|node| Candidate {
            address: SocketAddr::new([10, 0, 0, 1].into(), port),
            ..candidate(node)
        })
    };
    for port in [7443, 8443] {
        let effects = decider.set_candidates(on(port).to_vec());
        let Some(Effect::Ask(question)) = effects.last() else {
            panic!("{effects:?}")
        };
        assert_eq!(question.endpoint, SocketAddr::new([192, 0, 2, 1].into(), port));
    }
}

/// E71, E84: a holder whose node is gone is on its way out, for as long as it holds the endpoint. E68: another's changes nothing.
#[test]
fn the_machine_of_a_node_that_is_gone_is_left() {
    let now = Instant::now();
    let mut decider = agent(now);
    let effects = decider.set_candidates(["a", "b"].map(candidate).to_vec());
    assert!(matches!(&effects[..], [Effect::Remember, Effect::Ask(question)]
        if question.candidates.iter().all(|candidate| !candidate.deleting)));
    decider.set_candidates(vec![candidate("b"), candidate("c")]);
    let gone = decider
        .candidates()
        .iter()
        .find(|candidate| candidate.node == "a");
    assert!(gone.unwrap().deleting);
    decider.next_read = now;
    decider.tick(now);
    decider.was_read(Ok(held("b", "2")), now);
    decider.set_candidates(vec![candidate("b"), candidate("c")]);
    assert_eq!(decider.candidates().len(), 2);
    assert_eq!(
        decider.set_candidates(Vec::new()),
        [],
        "nobody at all is not believed"
    );
    assert_eq!(decider.candidates().len(), 2);
}

/// A world in which everything may happen in any order, with what must never happen.
struct World {
    random: fastrand::Rng,
    now: Instant,
    decider: Decider,
    reading: bool,
    /// What was read last by a read that began after the last order.
    read: Option<Holding>,
    moving: bool,
    live: bool,
    standing: Option<Report>,
    rival: Option<String>,
    cloud: Holding,
    assignments: u32,
    verdict: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let now = Instant::now();
        let mut world = Self {
            random: fastrand::Rng::with_seed(seed),
            now,
            decider: Decider::new(settings("b"), None, now),
            reading: false,
            read: None,
            moving: false,
            live: true,
            standing: None,
            rival: None,
            cloud: held("a", "0"),
            assignments: 0,
            verdict: 0,
        };
        world.decider.stream(true);
        let effects = world.decider.tick(now);
        world.check(effects);
        let effects = world
            .decider
            .set_candidates(["a", "b", "c"].map(candidate).to_vec());
        world.check(effects);
        world
    }

    fn check(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Read => {
                    assert!(!self.reading && !self.moving, "one call at a time");
                    self.reading = true;
                }
                Effect::Move(order) => {
                    assert!(!self.reading && !self.moving, "one call at a time");
                    assert!(self.live, "moved though nobody says so");
                    assert_eq!(self.rival, None, "moved beside an older controller");
                    let read = self.read.clone().expect("moved without a look");
                    assert_eq!(order.assignment, read.held.map(|(_, assignment)| assignment));
                    assert_eq!(read.others, Vec::<String>::new(), "several hold it");
                    if let Some(report) = &self.standing {
                        let to = report.move_to.as_ref();
                        let open = read_is_open(&self.cloud);
                        assert!(to.is_some_and(|to| order.to == format!("cloud://{to}")) || open);
                    }
                    self.moving = true;
                }
                _ => {}
            }
        }
    }

    fn step(&mut self) {
        self.now += Duration::from_millis(self.random.u64(0..400));
        let now = self.now;
        let effects = match self.random.u32(0..40) {
            0 => {
                self.live = self.random.u32(0..4) > 0;
                self.standing = None;
                self.decider.stream(self.live);
                Vec::new()
            }
            1..=6 => self.report(),
            7..=16 if self.reading => {
                self.reading = false;
                let answer = match self.random.u32(0..6) {
                    0 => Err(Failure::Unanswered("away".to_owned())),
                    1 => Err(Failure::Refused("no".to_owned())),
                    _ => Ok(self.cloud.clone()),
                };
                self.read = answer.clone().ok();
                self.decider.was_read(answer, now)
            }
            17..=24 if self.moving => {
                self.moving = false;
                self.read = None;
                let outcome = match self.random.u32(0..4) {
                    0 => Err(Failure::Changed("lost".to_owned())),
                    1 => {
                        self.cloud.held = None;
                        Err(Failure::Unanswered("away".to_owned()))
                    }
                    2 => Err(Failure::Unfit("no".to_owned())),
                    _ => {
                        self.assign();
                        Ok(())
                    }
                };
                self.decider.was_moved(&outcome, now)
            }
            25 => {
                let mut some: Vec<Candidate> = ["a", "b", "c"].map(candidate).to_vec();
                some.retain(|_| self.random.u32(0..8) > 0);
                self.decider.set_candidates(some)
            }
            26 => {
                match self.random.u32(0..4) {
                    0 => self.cloud.held = None,
                    1 => self.cloud.others = vec!["cloud://c".to_owned()],
                    2 => self.cloud.others = Vec::new(),
                    _ => self.assign(),
                }
                Vec::new()
            }
            27 => {
                self.rival = (self.random.u32(0..3) == 0).then(|| "one runs".to_owned());
                self.decider.set_rival(self.rival.clone(), now)
            }
            _ => self.decider.tick(now),
        };
        self.check(effects);
    }

    fn assign(&mut self) {
        self.assignments += 1;
        let node = ["a", "b", "c"][self.random.usize(0..3)];
        self.cloud.held = held(node, &self.assignments.to_string()).held;
    }

    fn report(&mut self) -> Vec<Effect> {
        let move_to = self
            .random
            .bool()
            .then(|| ["a", "b", "c"][self.random.usize(0..3)].to_owned());
        self.verdict += u64::from(self.random.bool());
        let report = Report {
            move_to,
            why: Some(Why::Unheld),
            observations: Vec::new(),
            verdict: self.verdict,
            ..dead(&self.decider, 0, "")
        };
        self.standing = self.live.then(|| report.clone());
        self.decider.hear(report, self.now)
    }
}

fn read_is_open(cloud: &Holding) -> bool {
    cloud.held.is_none()
}

/// Any order of events: one call at a time, no move but of what was read after the wait, by a live stream, while one machine holds it.
#[test]
fn whatever_happens_in_whatever_order_nothing_is_moved_without_reason() {
    let mut moves = 0;
    for seed in 0..2_000 {
        let mut world = World::new(seed);
        for _ in 0..300 {
            let before = world.moving;
            world.step();
            moves += u32::from(world.moving && !before);
        }
    }
    assert!(moves > 1_000, "the world is too quiet to prove anything: {moves}");
}

fn missing(decider: &Decider, nodes: &[&str]) -> Report {
    let saw = |node: &'static str| Observation {
        misses: u32::from(nodes.contains(&node)),
        ..saw(node, !nodes.contains(&node))
    };
    Report {
        observations: ["", "a", "b", "c"].map(saw).to_vec(),
        ..well(decider)
    }
}

/// An agent that was away while the endpoint moved learns of it with the first probe that somebody misses, whoever that is: the machine
/// that holds it in truth is none that it would look at.
#[test]
fn a_first_miss_of_anybody_makes_it_look_who_holds_the_endpoint() {
    let now = Instant::now();
    for lost in ["", "a", "b"] {
        let mut decider = agent(now);
        assert_eq!(
            decider.hear(missing(&decider, &[lost]), now),
            [Effect::Read],
            "{lost}"
        );
        let effects = decider.was_read(Ok(held("b", "2")), now);
        assert!(matches!(&effects[..], [Effect::Ask(question)] if question.holder.as_deref() == Some("b")));
    }
}

/// Looks follow each other no sooner than a second, seldom where they find nothing new, and not never.
#[test]
fn a_machine_that_flaps_costs_few_reads() {
    let start = Instant::now();
    let mut decider = agent(start);
    let mut reads = Vec::new();
    for half in 0..240_u32 {
        let now = start + STEP * half;
        let lost: &[&str] = if half % 2 == 0 { &["b"] } else { &[] };
        let mut effects = decider.hear(missing(&decider, lost), now);
        effects.extend(decider.tick(now));
        for effect in effects {
            assert_eq!(effect, Effect::Read);
            reads.push(now - start);
            decider.was_read(Ok(held("a", "1")), now);
        }
    }
    assert!(
        reads.windows(2).all(|pair| pair[1] >= pair[0] + LOOK),
        "{reads:?}"
    );
    assert!((5..12).contains(&reads.len()), "{reads:?}");
}

/// What is found makes the next look soon again.
#[test]
fn a_look_that_finds_something_is_followed_by_another_soon() {
    let now = Instant::now();
    let mut decider = agent(now);
    assert_eq!(decider.hear(missing(&decider, &["b"]), now), [Effect::Read]);
    decider.was_read(Ok(held("a", "1")), now);
    assert_eq!(decider.hear(missing(&decider, &[]), now), []);
    assert_eq!(decider.deadline(), Some(now + LOOK * 2));
    assert_eq!(decider.tick(now + LOOK * 2), [Effect::Read]);
    decider.was_read(Ok(held("b", "2")), now + LOOK * 2);
    decider.hear(missing(&decider, &["a"]), now + LOOK * 2);
    assert_eq!(decider.deadline(), Some(now + LOOK * 3));
}

/// The holder is well again while a move of it takes its time: nobody waits for that any more, and it is not asked for again.
#[test]
fn a_move_whose_verdict_is_withdrawn_is_abandoned() {
    let now = Instant::now();
    let mut decider = agent(now);
    decider.hear(dead(&decider, 1, "b"), now);
    decider.was_read(Ok(held("a", "1")), now);
    assert_eq!(decider.was_read(Ok(held("a", "1")), now), [order("b", Some("1"))]);
    assert_eq!(decider.hear(well(&decider), now), [Effect::Abandon]);
    let effects = decider.was_moved(&Err(Failure::Unanswered("withdrawn".to_owned())), now);
    assert!(matches!(&effects[..], [Effect::Tell(record)] if !record.moved));
    let soon = now + FIRST_PAUSE;
    assert_eq!(decider.tick(soon), [Effect::Read]);
    assert_eq!(decider.was_read(Ok(held("a", "1")), soon), []);
}
