//! Several processes that move the endpoint at the same time, against a cloud that fails in every way, killed at any instant. Seeded,
//! in paused time.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use futures::future::join_all;
use pretty_assertions::assert_eq;

use super::*;

/// A small generator (splitmix64), so that a seed is a run.
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    fn millis(&mut self, most: u64) -> Duration {
        Duration::from_millis(self.below(most))
    }

    fn fault(&mut self) -> EndpointFault {
        use CloudErrorKind::{Denied, RateLimited, Timeout, Unauthenticated, Unavailable};
        let kind = [Timeout, Unavailable, RateLimited][usize::try_from(self.below(3)).unwrap()];
        match self.below(16) {
            0..3 => EndpointFault::before(kind),
            3..6 => EndpointFault::after(kind),
            6 => EndpointFault::hang(),
            7 => EndpointFault::hang_after(),
            8..11 => EndpointFault::late(kind, self.millis(20_000)),
            11..14 => EndpointFault::slow(self.millis(3_000)),
            14 => EndpointFault::before(Unauthenticated),
            _ => EndpointFault::before(Denied),
        }
    }
}

/// What happened in a run, by name: a simulation in which it never comes to something proves nothing of it.
type Tally = RefCell<BTreeMap<&'static str, u32>>;

fn count(tally: &Tally, what: &'static str) {
    *tally.borrow_mut().entry(what).or_default() += 1;
}

/// What the movers of a run wanted.
#[derive(Default)]
struct Wanted {
    decided_on: BTreeSet<String>,
    targets: BTreeSet<ProviderId>,
}

struct World<'a> {
    seed: u64,
    fake: FakeEndpoint,
    atomic: bool,
    wanted: RefCell<Wanted>,
    tally: &'a Tally,
}

/// `d` is not there.
const TARGETS: [&str; 4] = ["a", "b", "c", "d"];

impl World<'_> {
    /// A process: reads, decides, moves, dies, starts again.
    async fn mover(&self, number: u64) {
        let mut random = Random(self.seed ^ (number + 1).wrapping_mul(0x5851_f42d_4c95_7f2d));
        for _ in 0..4 {
            let (api, _context) = process(&self.fake);
            let inner = api.need().unwrap();
            sleep(random.millis(400) / 100 * 50).await;
            let Ok(seen) = inner.read().await else { continue };
            let targets = if random.percent(10) {
                &TARGETS[..]
            } else {
                &TARGETS[..3]
            };
            let to = machine(targets[usize::try_from(random.below(targets.len() as u64)).unwrap()]);
            let decided_on = seen.assignments.first().map(|one| one.id.clone());
            {
                let mut wanted = self.wanted.borrow_mut();
                wanted.decided_on.extend(decided_on.clone());
                wanted.targets.insert(to.clone());
            }
            let wish = Wish {
                address: seen.address,
                to,
                decided_on,
            };
            sleep(random.millis(300)).await;
            let leaves = Instant::now() + random.millis(12_000);
            let work = inner.carry_out(wish.clone(), || Instant::now() < leaves);
            if random.percent(30) {
                match timeout(random.millis(4_000), work).await {
                    Ok(result) => self.judge(&wish, result),
                    Err(_) => count(self.tally, "killed"),
                }
            } else {
                self.judge(&wish, work.await);
            }
        }
    }

    /// Is an answer true?
    fn judge(&self, wish: &Wish, result: Result<Moved, EndpointError>) {
        let reason = match result {
            Ok(moved) => {
                let history = self.fake.history();
                let is_it = |one: &EndpointAssignment| one.id == moved.assignment && one.machine == wish.to;
                assert!(
                    history.iter().any(|change| change.assignments.iter().any(is_it)),
                    "seed {}: {moved:?} never was",
                    self.seed
                );
                if moved.unchanged { "unchanged" } else { "moved" }
            }
            Err(error) => error.reason(),
        };
        count(self.tally, reason);
    }

    fn check(&self) {
        let (seed, history, wanted) = (self.seed, self.fake.history(), self.wanted.borrow());
        let (mut before, mut held): (Option<&EndpointAssignment>, BTreeSet<&ProviderId>) = Default::default();
        for change in &history {
            assert!(
                change.assignments.len() <= 1,
                "seed {seed}: two hold it: {change:?}"
            );
            let now = change.assignments.first();
            // In one step it is taken from whoever has it.
            if let Some(old) = before.filter(|_| !self.atomic) {
                assert!(
                    wanted.decided_on.contains(&old.id),
                    "seed {seed}: nobody decided on {old:?}"
                );
            }
            if let Some(new) = now {
                let fair =
                    before.is_none() && held.contains(&new.machine) || wanted.targets.contains(&new.machine);
                assert!(
                    fair || held.is_empty(),
                    "seed {seed}: nobody wanted it there: {new:?}"
                );
                held.insert(&new.machine);
            } else {
                count(self.tally, "gaps");
            }
            before = now;
        }
    }
}

async fn run(seed: u64, atomic: bool, tally: &Tally) {
    let mut random = Random(seed);
    let fake = fake(atomic);
    if random.percent(70) {
        fake.assign_by_hand(&machine("a"));
    }
    let chance = [0, 10, 30, 60][usize::try_from(random.below(4)).unwrap()];
    let mut faults = random.clone();
    fake.choose_faults(Some(move |_| faults.percent(chance).then(|| faults.fault())));
    let world = World {
        seed,
        fake: fake.clone(),
        atomic,
        wanted: RefCell::default(),
        tally,
    };
    let movers = 3 + random.below(3);
    join_all((0..movers).map(|number| world.mover(number))).await;
    world.check();

    // Faults stop, and what is under way arrives.
    fake.choose_faults(None::<fn(Asked) -> Option<EndpointFault>>);
    sleep(Duration::from_secs(60)).await;
    let (api, _context) = process(&fake);
    let found = api.get().await.unwrap().endpoint;
    if found.assignments.is_empty() {
        count(tally, "left with nobody");
    }
    let to = machine(TARGETS[usize::try_from(random.below(3)).unwrap()]);
    let decided_on = found.assignments.first().map(|one| one.id.clone());
    {
        let mut wanted = world.wanted.borrow_mut();
        wanted.decided_on.extend(decided_on.clone());
        wanted.targets.insert(to.clone());
    }
    let wish = Wish {
        address: found.address,
        to: to.clone(),
        decided_on,
    };
    let moved = api.move_to(wish).await.unwrap();
    let holders = fake.assignments();
    assert_eq!(holders.len(), 1, "seed {seed}");
    assert_eq!(
        (&holders[0].id, &holders[0].machine),
        (&moved.assignment, &to),
        "seed {seed}"
    );
    world.check();
}

/// E69, E78 turned round: never two assignments at any instant, nothing removed that nobody decided on, and exactly one assignment once
/// the faults have stopped and somebody wants it.
async fn simulate(atomic: bool, expected: &[&str]) {
    let tally = Tally::default();
    for seed in 0..5_000 {
        run(seed, atomic, &tally).await;
    }
    let tally = tally.into_inner();
    for what in expected {
        assert!(
            tally.get(what).is_some_and(|count| *count >= 20),
            "{what}: {tally:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn of_many_movers_one_wins_where_it_is_taken_away_first() {
    let expected = [
        "moved",
        "unchanged",
        "killed",
        "gaps",
        "left with nobody",
        "ENDPOINT_CHANGED",
        "MACHINE_NOT_FOUND",
        "CLOUD_UNAVAILABLE",
        "CLOUD_DENIED",
    ];
    simulate(false, &expected).await;
}

#[tokio::test(start_paused = true)]
async fn of_many_movers_one_wins_where_it_moves_in_one_step() {
    let expected = [
        "moved",
        "unchanged",
        "killed",
        "ENDPOINT_CHANGED",
        "MACHINE_NOT_FOUND",
        "CLOUD_UNAVAILABLE",
    ];
    simulate(true, &expected).await;
}
