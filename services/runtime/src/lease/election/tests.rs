use proptest::prelude::*;

use super::*;

const DURATION: Duration = Duration::from_secs(15);
const RETRY: Duration = Duration::from_secs(2);

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn candidate(identity: &str) -> Election {
    Election::new(identity.to_owned(), DURATION, RETRY)
}

fn held_by(holder: &str, version: &str) -> Record {
    Record {
        version: version.to_owned(),
        holder: holder.to_owned(),
        duration: DURATION,
        transitions: 4,
        renewed: None,
        annotations: BTreeMap::from([("by".to_owned(), holder.to_owned())]),
    }
}

fn write(version: &str, transitions: i64) -> Next {
    Next::Write {
        version: version.to_owned(),
        transitions,
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_not_there_is_created() {
    let (now, mut a) = (Instant::now(), candidate("a"));
    assert_eq!(a.step(Event::Tick, now), Next::Read);
    assert_eq!(a.step(Event::Read(None), now), Next::Create { transitions: 1 });
    let record = Record {
        transitions: 1,
        ..held_by("a", "1")
    };
    assert_eq!(
        a.step(Event::Written(record, now), now + secs(1)),
        Next::Pause(now + secs(3))
    );
    assert_eq!(
        a.standing().valid_until,
        Some(now + DURATION * 3 / 4),
        "counted from the write's start"
    );
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_at_once() {
    let (now, mut a) = (Instant::now(), candidate("a"));
    assert_eq!(a.step(Event::Read(Some(held_by("", "7"))), now), write("7", 5));
}

#[tokio::test(start_paused = true)]
async fn a_held_lease_is_taken_only_after_it_was_unchanged_for_its_whole_duration() {
    let (now, mut a) = (Instant::now(), candidate("a"));
    assert_eq!(
        a.step(Event::Read(Some(held_by("b", "7"))), now),
        Next::Pause(now + RETRY)
    );
    let later = now + secs(14);
    assert_eq!(
        a.step(Event::Read(Some(held_by("b", "8"))), later),
        Next::Pause(later + RETRY),
        "renewed"
    );
    let late = later + secs(14);
    assert_eq!(
        a.step(Event::Read(Some(held_by("b", "8"))), late),
        Next::Pause(later + secs(15))
    );
    assert_eq!(a.step(Event::Tick, later + secs(15)), Next::Read);
    assert_eq!(
        a.step(Event::Read(Some(held_by("b", "8"))), later + secs(15)),
        write("8", 5)
    );
}

#[tokio::test(start_paused = true)]
async fn a_longer_duration_of_its_holder_is_respected() {
    let (now, mut a) = (Instant::now(), candidate("a"));
    let record = Record {
        duration: secs(60),
        ..held_by("b", "7")
    };
    a.step(Event::Read(Some(record.clone())), now);
    let then = now + secs(59);
    assert_eq!(
        a.step(Event::Read(Some(record.clone())), then),
        Next::Pause(now + secs(60))
    );
    assert_eq!(a.step(Event::Read(Some(record)), now + secs(60)), write("7", 5));
}

#[tokio::test(start_paused = true)]
async fn a_holder_renews_and_tries_again_when_a_renewal_fails() {
    let (now, mut a) = (Instant::now(), candidate("a"));
    a.step(Event::Read(None), now);
    a.step(Event::Written(held_by("a", "1"), now), now);
    let then = now + secs(3);
    assert_eq!(a.step(Event::Tick, then), write("1", 4));
    assert_eq!(a.step(Event::Failed, then), Next::Pause(then + DURATION / 20));
    assert_eq!(
        a.step(Event::Tick, then + secs(1)),
        Next::Read,
        "it may have been written or not"
    );
    assert_eq!(
        a.step(Event::Read(Some(held_by("a", "2"))), then + secs(1)),
        write("2", 4),
        "the same term"
    );
}

#[tokio::test(start_paused = true)]
async fn a_holder_whose_time_is_up_begins_a_new_term() {
    let (now, mut a) = (Instant::now(), candidate("a"));
    a.step(Event::Written(held_by("a", "1"), now), now);
    let late = now + secs(12);
    assert_eq!(a.step(Event::Tick, late), Next::Read);
    assert_eq!(a.step(Event::Read(Some(held_by("a", "1"))), late), write("1", 5));
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_reads_another_name_stops_at_once() {
    let (now, mut a) = (Instant::now(), candidate("a"));
    a.step(Event::Written(held_by("a", "1"), now), now);
    assert_eq!(a.step(Event::Refused, now + secs(3)), Next::Read);
    a.step(Event::Read(Some(held_by("b", "2"))), now + secs(3));
    assert_eq!(a.standing().valid_until, None);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_is_not_taken_while_its_holder_may_trust_it() {
    let (now, mut a) = (Instant::now(), candidate("a"));
    a.step(Event::Read(Some(held_by("b", "7"))), now);
    assert_eq!(
        a.step(Event::Read(None), now + secs(1)),
        Next::Pause(now + secs(3))
    );
    assert_eq!(
        a.step(Event::Read(None), now + secs(15)),
        Next::Create { transitions: 5 }
    );
}

#[tokio::test(start_paused = true)]
async fn annotations_of_the_holder_before_survive_our_own_writes() {
    let (now, mut a) = (Instant::now(), candidate("a"));
    let inherited = |a: &Election| a.standing().annotations["by"].clone();
    a.step(Event::Read(Some(held_by("", "7"))), now);
    assert_eq!(inherited(&a), "");
    // The write has its effect, but its answer is lost.
    a.step(Event::Failed, now);
    a.step(Event::Read(Some(held_by("a", "8"))), now);
    assert_eq!(inherited(&a), "");
    a.step(Event::Written(held_by("a", "9"), now), now);
    assert_eq!(inherited(&a), "");
    a.step(Event::Read(Some(held_by("b", "10"))), now);
    assert_eq!(inherited(&a), "b");
}

#[tokio::test(start_paused = true)]
async fn only_what_is_surely_ours_is_released() {
    let (now, mut a) = (Instant::now(), candidate("a"));
    assert_eq!(a.resign(now), None);
    a.step(Event::Written(held_by("a", "1"), now), now);
    assert_eq!(a.resign(now + secs(1)), Some(("1".to_owned(), 4)));
    a.step(Event::Written(held_by("a", "2"), now), now);
    assert_eq!(a.resign(now + secs(12)), None, "too late");
    a.step(Event::Written(held_by("a", "3"), now), now);
    a.step(Event::Failed, now + secs(1));
    assert_eq!(a.resign(now + secs(2)), None, "unknown outcome");
}

fn mark(number: i64) -> Timestamp {
    Timestamp::from_microsecond(number).unwrap()
}

/// A lease of ours that was written with this mark.
fn marked(version: &str, number: i64) -> Record {
    Record {
        renewed: Some(mark(number)),
        ..held_by("a", version)
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_whose_answer_is_lost_counts_from_before_it_was_sent() {
    let (now, mut a) = (Instant::now(), candidate("a"));
    a.step(Event::Written(marked("1", 1), now), now);
    let mut sent = now;
    // Each write has its effect, and each answer is lost: for as long as that goes on, it stays holder.
    for number in 2..20 {
        sent += secs(4);
        a.attempt(mark(number), sent);
        let after = sent + secs(3);
        assert_eq!(a.step(Event::Failed, after), Next::Pause(after + DURATION / 20));
        assert_eq!(a.step(Event::Tick, after + DURATION / 20), Next::Read);
        let read = sent + secs(4);
        let next = a.step(Event::Read(Some(marked(&number.to_string(), number))), read);
        assert_eq!(next, Next::Pause(read), "the next renewal is due");
        assert_eq!(a.standing().valid_until, Some(sent + DURATION * 3 / 4));
        assert_eq!(a.standing().transitions, 4, "the same term");
        assert_eq!(a.step(Event::Tick, read), write(&number.to_string(), 4));
    }
    assert_eq!(a.resign(sent + secs(4)), Some(("19".to_owned(), 4)));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_taken_without_an_answer_is_known_for_ones_own() {
    let (now, mut a) = (Instant::now(), candidate("a"));
    assert_eq!(a.step(Event::Read(Some(held_by("", "7"))), now), write("7", 5));
    a.attempt(mark(1), now);
    // The API server applied it at once, and refuses what a client sent again by itself.
    assert_eq!(a.step(Event::Refused, now + secs(1)), Next::Read);
    let taken = Record {
        transitions: 5,
        ..marked("8", 1)
    };
    a.step(Event::Read(Some(taken)), now + secs(1));
    let standing = a.standing();
    assert_eq!(
        (standing.valid_until, standing.transitions),
        (Some(now + DURATION * 3 / 4), 5)
    );
    assert_eq!(standing.annotations["by"], "", "as the one before left them");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_shows_no_write_of_ours_renews_nothing() {
    let (now, mut a) = (Instant::now(), candidate("a"));
    a.attempt(mark(1), now);
    a.step(Event::Written(marked("1", 1), now), now);
    let until = a.standing().valid_until;
    // This one never arrived. That somebody wrote an annotation changes the version, and not the mark.
    a.attempt(mark(2), now + secs(3));
    a.step(Event::Failed, now + secs(6));
    assert_eq!(
        a.step(Event::Read(Some(marked("2", 1))), now + secs(7)),
        Next::Pause(now + secs(7))
    );
    assert_eq!(a.standing().valid_until, until, "from the write that it shows");
    // Another process of our name, before a restart: its marks are none of ours.
    assert_eq!(
        a.step(Event::Read(Some(marked("3", 9))), now + secs(8)),
        write("3", 4)
    );
    assert_eq!(a.standing().valid_until, until);
    // Too late: what it shows keeps nobody holder.
    assert_eq!(
        a.step(Event::Read(Some(marked("2", 2))), now + secs(15)),
        write("2", 5)
    );
    assert_eq!(a.standing().valid_until, None);
}

/// The API server, its clients, and a network that delays and loses what it likes.
struct World {
    now: Instant,
    lease: Option<Record>,
    version: u64,
    /// What happens, in order of time; the number tells apart what happens at once.
    queue: BTreeMap<(Instant, u64), (usize, Happening)>,
    number: u64,
    candidates: Vec<Election>,
    /// The call whose answer each candidate awaits.
    awaited: Vec<u64>,
    /// Delays there and back in milliseconds, and whether the answer is lost.
    network: std::iter::Cycle<std::vec::IntoIter<(u64, u64, bool)>>,
    takeovers: usize,
    /// Are answers to writes lost?
    mute: bool,
}

#[derive(Clone, Debug)]
enum Happening {
    /// A request arrives at the API server.
    Arrival {
        request: Next,
        begun: Instant,
        mark: Timestamp,
        back: Duration,
        lost: bool,
        call: u64,
    },
    /// The candidate learns the outcome of its call, unless it waits for it no longer.
    Outcome { event: Event, call: u64 },
}

impl World {
    fn new(candidates: usize, network: Vec<(u64, u64, bool)>) -> Self {
        let mut world = Self {
            now: Instant::now(),
            lease: None,
            version: 0,
            queue: BTreeMap::new(),
            number: 0,
            candidates: (0..candidates).map(|who| candidate(&who.to_string())).collect(),
            awaited: vec![0; candidates],
            network: network.into_iter().cycle(),
            takeovers: 0,
            mute: false,
        };
        for who in 0..candidates {
            world.plan(
                world.now,
                who,
                Happening::Outcome {
                    event: Event::Tick,
                    call: 0,
                },
            );
        }
        world
    }

    fn plan(&mut self, at: Instant, who: usize, happening: Happening) {
        self.number += 1;
        self.queue.insert((at, self.number), (who, happening));
    }

    fn run(&mut self, length: Duration) {
        let end = self.now + length;
        while let Some(next) = self.queue.first_entry() {
            let (at, _) = *next.key();
            if at > end {
                break;
            }
            let (who, happening) = next.remove();
            self.now = at;
            match happening {
                Happening::Arrival {
                    request,
                    begun,
                    mark,
                    back,
                    lost,
                    call,
                } => {
                    let unheard = self.mute && request != Next::Read;
                    let event = self.serve(who, request, begun, mark);
                    if !(lost || unheard) {
                        self.plan(at + back, who, Happening::Outcome { event, call });
                    }
                }
                Happening::Outcome { event, call } if self.awaited[who] == call => self.act(who, event),
                Happening::Outcome { .. } => {}
            }
        }
        self.now = end;
    }

    /// What the API server does with a request.
    fn serve(&mut self, who: usize, request: Next, begun: Instant, mark: Timestamp) -> Event {
        let (expected, transitions) = match request {
            Next::Write { version, transitions } => (Some(version), transitions),
            Next::Create { transitions } => (None, transitions),
            Next::Read | Next::Pause(_) => return Event::Read(self.lease.clone()),
        };
        if self.lease.as_ref().map(|record| record.version.clone()) != expected {
            return Event::Refused;
        }
        self.version += 1;
        let record = Record {
            transitions,
            renewed: Some(mark),
            ..held_by(&who.to_string(), &self.version.to_string())
        };
        self.lease = Some(record.clone());
        Event::Written(record, begun)
    }

    /// Lets a candidate act, and checks what is promised.
    fn act(&mut self, who: usize, event: Event) {
        let before = self.candidates[who].standing().transitions;
        let next = self.candidates[who].step(event, self.now);
        let leaders = self.leaders();
        assert!(leaders.len() <= 1, "{leaders:?} trust themselves at once");
        let term = self.candidates[who].standing().transitions;
        if leaders == [who] && term != before {
            self.takeovers += 1;
            let others = self
                .candidates
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != who);
            for (_, other) in others {
                assert!(other.standing().transitions < term, "terms grow");
            }
        }
        self.number += 1;
        let call = self.number;
        self.awaited[who] = call;
        let (there, back, lost) = self.network.next().unwrap();
        let (there, back) = (Duration::from_millis(there), Duration::from_millis(back));
        match next {
            // A process may also be late.
            Next::Pause(until) => {
                self.plan(
                    until + there / 4,
                    who,
                    Happening::Outcome {
                        event: Event::Tick,
                        call,
                    },
                );
            }
            request => {
                let begun = self.now;
                let mark = mark(i64::try_from(call).unwrap());
                if request != Next::Read {
                    self.candidates[who].attempt(mark, begun);
                }
                self.plan(
                    begun + there,
                    who,
                    Happening::Arrival {
                        request,
                        begun,
                        mark,
                        back,
                        lost,
                        call,
                    },
                );
                let patience = begun + DURATION / 5;
                self.plan(
                    patience,
                    who,
                    Happening::Outcome {
                        event: Event::Failed,
                        call,
                    },
                );
            }
        }
    }

    fn leaders(&self) -> Vec<usize> {
        let valid = |candidate: &Election| {
            candidate
                .standing()
                .valid_until
                .is_some_and(|until| self.now < until)
        };
        (0..self.candidates.len())
            .filter(|who| valid(&self.candidates[*who]))
            .collect()
    }
}

#[tokio::test(start_paused = true)]
async fn without_trouble_one_leads_and_stays() {
    let mut world = World::new(3, vec![(5, 5, false)]);
    world.run(secs(600));
    assert_eq!(world.leaders().len(), 1);
    assert_eq!(world.takeovers, 1);
}

/// Every write arrives, and of no write does an answer: one leads all the same, and goes on to.
#[tokio::test(start_paused = true)]
async fn one_leads_though_no_write_is_ever_answered() {
    let mut world = World::new(3, vec![(5, 5, false)]);
    world.mute = true;
    world.run(secs(60));
    let [leader] = world.leaders()[..] else {
        panic!("nobody leads")
    };
    for _ in 0..540 {
        world.run(secs(1));
        assert_eq!(world.leaders(), [leader]);
    }
    assert_eq!(world.takeovers, 1);
}

#[tokio::test(start_paused = true)]
async fn when_the_leader_is_gone_another_takes_over() {
    let mut world = World::new(2, vec![(5, 5, false)]);
    world.run(secs(60));
    let [dead] = world.leaders()[..] else {
        panic!("nobody leads")
    };
    world.awaited[dead] = u64::MAX;
    world.run(secs(60));
    assert_eq!(world.leaders(), [1 - dead]);
    assert_eq!(world.takeovers, 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Delays up to twice the lease, requests that arrive after their sender gave up, lost answers, late processes.
    #[test]
    fn two_never_lead_at_once(
        candidates in 2_usize..4,
        network in prop::collection::vec(
            (prop_oneof![4 => 0_u64..500, 1 => 0_u64..30_000], prop_oneof![4 => 0_u64..500, 1 => 0_u64..30_000], prop::bool::weighted(0.2)),
            1..60,
        ),
    ) {
        World::new(candidates, network).run(secs(1_800));
    }
}
