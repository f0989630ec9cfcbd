//! What goes wrong with the API endpoint, its machines and their agents, and when. A seed is a plan.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;

/// How an API server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// It answers, if its store does.
    Well,
    /// `/readyz` says 500.
    Unready,
    /// It takes connections and says nothing.
    Hung,
    /// Nobody listens.
    Stopped,
}

/// One thing that happens. Machines are meant by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// An API server changes.
    Api(usize, Api),
    /// A machine loses power, its agent with it.
    Off(usize),
    /// It has power again, and its agent starts.
    On(usize),
    /// An agent is killed; it starts again a while later.
    Kill(usize),
    /// Whoever takes the n-th step of moves from now on is killed at it: before or after a call.
    KillAt(u32),
    /// The API server changes of whoever holds the endpoint.
    Holder(Api),
    /// The file with the candidates is lost.
    LoseFile(usize),
    /// Machines whose bit differs do not hear each other; `0`: the network is whole.
    Split(u8),
    /// The way between two machines is cut, or mended.
    Cut(usize, usize, bool),
    /// From this machine no packet finds the endpoint, or finds it again.
    Astray(usize, bool),
    /// From this machine no call finds the cloud, or finds it again.
    Cloudless(usize, bool),
    /// So many of a hundred calls to the cloud go wrong.
    Cloud(u8),
    /// The cloud does not answer at all.
    CloudHangs,
    /// It tells who holds the endpoint, and carries out nothing.
    WritesHang,
    /// A person gives the endpoint to a machine, beside whoever has it.
    ByHand(usize),
    /// A person takes it from all.
    TakenByHand,
    /// A node is cordoned, or no longer.
    Cordon(usize, bool),
    /// A node is being deleted, or no longer.
    Deleting(usize, bool),
    /// A node is one of the candidates, or not.
    Listed(usize, bool),
    /// The clocks on the walls of all machines jump by so many seconds.
    Clock(i32),
}

impl Action {
    /// What it is called where it is counted.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::Api(_, Api::Well) => "API server well",
            Self::Api(_, Api::Unready) | Self::Holder(Api::Unready) => "API server not ready",
            Self::Api(_, Api::Hung) | Self::Holder(Api::Hung) => "API server hung",
            Self::Api(_, Api::Stopped) | Self::Holder(Api::Stopped) => "API server stopped",
            Self::Holder(Api::Well) => "the holder's API server well",
            Self::Off(_) => "machine off",
            Self::On(_) => "machine on",
            Self::Kill(_) => "agent killed",
            Self::KillAt(_) => "kill at a step set",
            Self::LoseFile(_) => "file lost",
            Self::Split(_) => "network split or whole",
            Self::Cut(..) => "way cut or mended",
            Self::Astray(..) => "endpoint not found from a machine",
            Self::Cloudless(..) => "cloud not found from a machine",
            Self::Cloud(_) => "cloud faults set",
            Self::CloudHangs => "cloud hangs",
            Self::WritesHang => "cloud hangs in writes",
            Self::ByHand(_) => "given by hand",
            Self::TakenByHand => "taken by hand",
            Self::Cordon(..) => "cordoned or not",
            Self::Deleting(..) => "deleted or not",
            Self::Listed(..) => "a candidate or not",
            Self::Clock(seconds) if seconds < 0 => "clock set back",
            Self::Clock(_) => "clock set forward",
        }
    }

    /// All that happens in runs of [`Plan::new`], as it is counted.
    pub const KINDS: [&str; 22] = [
        "API server well",
        "API server not ready",
        "API server hung",
        "API server stopped",
        "machine off",
        "machine on",
        "agent killed",
        "kill at a step set",
        "file lost",
        "network split or whole",
        "way cut or mended",
        "endpoint not found from a machine",
        "cloud not found from a machine",
        "cloud faults set",
        "cloud hangs",
        "given by hand",
        "taken by hand",
        "cordoned or not",
        "deleted or not",
        "a candidate or not",
        "clock set back",
        "clock set forward",
    ];
}

/// The plan of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Decides everything.
    pub seed: u64,
    /// How many machines there are.
    pub machines: usize,
    /// The cloud moves the address in one step.
    pub atomic: bool,
    /// On each machine, the endpoint's address leads to an API server that works, whoever holds it.
    pub proxied: bool,
    /// That address is therefore not probed.
    pub own_addresses_only: bool,
    /// How long an API server takes to be unready once its store has lost the majority.
    pub grace: Duration,
    /// Who holds it at first.
    pub holder: Option<usize>,
    /// What happens, in order; from the beginning.
    pub events: Vec<(Duration, Action)>,
    /// Machines that stay without power: never so many that the store has no majority.
    pub lost: Vec<usize>,
    /// Machines to which the cloud does not give it, whoever asks.
    pub refused: Vec<usize>,
}

/// For how long things go wrong.
pub const FAULTS: Duration = Duration::from_secs(30);

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let machines = random.usize(3..=5);
        Self::drawn(seed, machines, random)
    }

    /// The plan of a seed, for so many machines.
    #[must_use]
    pub fn of_machines(seed: u64, machines: usize) -> Self {
        Self::drawn(seed, machines, Rng::with_seed(seed))
    }

    fn drawn(seed: u64, machines: usize, mut random: Rng) -> Self {
        let mut plan = Self {
            seed,
            machines,
            atomic: random.bool(),
            proxied: random.u8(..4) == 0,
            own_addresses_only: false,
            grace: Duration::from_millis(random.u64(200..5_000)),
            holder: (random.u8(..10) < 8).then(|| random.usize(..machines)),
            events: Vec::new(),
            lost: Vec::new(),
            refused: Vec::new(),
        };
        plan.own_addresses_only = plan.proxied && random.bool();
        for _ in 0..random.usize(2..10) {
            let at = millis(&mut random, 500..25_000);
            plan.happens(&mut random, at);
        }
        plan.events.sort_by_key(|(at, _)| *at);
        let mut all: Vec<usize> = (0..machines).collect();
        random.shuffle(&mut all);
        plan.lost = all[..random.usize(..=(machines - 1) / 2)].to_vec();
        plan
    }

    /// The holder fails, in one of all ways, and nothing else does; but for an agent, maybe, that is killed with it.
    #[must_use]
    pub fn crash(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed ^ 0x5851_f42d_4c95_7f2d);
        let mut plan = Self::new(seed);
        let holder = random.usize(..plan.machines);
        let at = millis(&mut random, 5_000..15_000);
        let fault = match random.u8(..5) {
            0 => Action::Off(holder),
            1 => Action::Split(1 << holder),
            2 => Action::Api(holder, Api::Hung),
            3 => Action::Api(holder, Api::Unready),
            _ => Action::Api(holder, Api::Stopped),
        };
        plan.holder = Some(holder);
        plan.events = vec![(at, fault)];
        plan.lost.clear();
        let other = (holder + random.usize(1..plan.machines)) % plan.machines;
        if random.bool() {
            plan.events.push((at, Action::Kill(other)));
        }
        plan
    }

    /// Only the holder of the beginning.
    fn held(seed: u64, salt: u64) -> (Rng, Self, usize) {
        let mut random = Rng::with_seed(seed ^ salt);
        let mut plan = Self::new(seed);
        let holder = random.usize(..plan.machines);
        plan.holder = Some(holder);
        plan.events.clear();
        plan.lost.clear();
        (random, plan, holder)
    }

    /// The holder misses probes; a person gives the endpoint to another machine, which then misses some, too, but too few.
    #[must_use]
    pub fn handover(seed: u64) -> Self {
        let (mut random, mut plan, holder) = Self::held(seed, 0x2545_f491_4f6c_dd1d);
        let next = (holder + random.usize(1..plan.machines)) % plan.machines;
        let fails = millis(&mut random, 3_000..6_000);
        let given = fails + millis(&mut random, 200..1_800);
        let stumbles = given + millis(&mut random, 0..1_500);
        let stands = stumbles + millis(&mut random, 300..1_300);
        let well = stands + millis(&mut random, 0..8_000);
        plan.events = vec![
            (fails, Action::Api(holder, Api::Unready)),
            (given, Action::TakenByHand),
            (given, Action::ByHand(next)),
            (stumbles, Action::Api(next, Api::Unready)),
            (stands, Action::Api(next, Api::Well)),
            (well, Action::Api(holder, Api::Well)),
        ];
        plan
    }

    /// The holder fails, and the cloud hangs when it should be taken from it; both are well again, the holder first.
    #[must_use]
    pub fn relapse(seed: u64) -> Self {
        let (mut random, mut plan, holder) = Self::held(seed, 0x9e6c_63d0_876a_3f00);
        let fails = millis(&mut random, 2_000..5_000);
        let hangs = fails + millis(&mut random, 0..900);
        let stands = fails + millis(&mut random, 3_000..14_000);
        let answers = hangs + millis(&mut random, 15_000..24_000);
        plan.events = vec![
            (fails, Action::Api(holder, Api::Unready)),
            (hangs, Action::WritesHang),
            (stands, Action::Api(holder, Api::Well)),
            (answers, Action::Cloud(0)),
        ];
        plan.events.sort_by_key(|(at, _)| *at);
        plan
    }

    /// The holder works, and is to go; the cloud gives the endpoint to few of the others, or to none.
    #[must_use]
    pub fn refusal(seed: u64) -> Self {
        let (mut random, mut plan, holder) = Self::held(seed, 0x1b87_3593_cc9e_2d51);
        let at = millis(&mut random, 2_000..5_000);
        let leave = [Action::Cordon(holder, true), Action::Deleting(holder, true)];
        plan.events = vec![(at, leave[random.usize(..2)])];
        let mut others: Vec<usize> = (0..plan.machines).filter(|one| *one != holder).collect();
        random.shuffle(&mut others);
        let some = random.usize(1..=others.len());
        plan.refused = others[..some].to_vec();
        plan
    }

    /// One thing goes wrong, and, most of the time, is mended.
    fn happens(&mut self, random: &mut Rng, at: Duration) {
        let one = random.usize(..self.machines);
        let other = random.usize(..self.machines);
        let end = (at + millis(random, 200..20_000)).min(FAULTS);
        let mut both = |first: Action, last: Action| self.events.extend([(at, first), (end, last)]);
        match random.u8(..38) {
            0..3 => both(Action::Off(one), Action::On(one)),
            3..5 => both(Action::Api(one, Api::Hung), Action::Api(one, Api::Well)),
            5..7 => both(Action::Api(one, Api::Unready), Action::Api(one, Api::Well)),
            7 => both(Action::Api(one, Api::Stopped), Action::Api(one, Api::Well)),
            8..10 => self.flaps(random, one, at, end),
            10 => {
                for machine in 0..self.machines {
                    self.events
                        .extend([(at, Action::Off(machine)), (end, Action::On(machine))]);
                }
            }
            11..14 => both(
                Action::Split(random.u8(1..(1 << self.machines) - 1)),
                Action::Split(0),
            ),
            14 => both(Action::Cut(one, other, true), Action::Cut(one, other, false)),
            15 => both(Action::Astray(one, true), Action::Astray(one, false)),
            16 => both(Action::Cloudless(one, true), Action::Cloudless(one, false)),
            17..20 => both(Action::Cloud(random.u8(10..80)), Action::Cloud(0)),
            20 => both(Action::CloudHangs, Action::Cloud(0)),
            21 => both(Action::ByHand(one), Action::TakenByHand),
            22 => self.events.push((at, Action::TakenByHand)),
            23 => both(Action::Cordon(one, true), Action::Cordon(one, false)),
            24 => both(Action::Deleting(one, true), Action::Deleting(one, false)),
            25 => both(Action::Listed(one, false), Action::Listed(one, true)),
            26 => self
                .events
                .extend([(at, Action::LoseFile(one)), (at, Action::Kill(one))]),
            27 => self.events.push((at, Action::Kill(one))),
            28 => self.events.push((at, Action::KillAt(random.u32(1..8)))),
            29..31 => self.events.push((at, Action::Clock(random.i32(-86_400..86_400)))),
            _ => {
                let bad = [Api::Unready, Api::Hung, Api::Stopped][random.usize(..3)];
                self.events.push((at, Action::Holder(bad)));
                if random.bool() {
                    self.events.push((at, Action::KillAt(random.u32(1..8))));
                }
            }
        }
    }

    fn flaps(&mut self, random: &mut Rng, machine: usize, begin: Duration, end: Duration) {
        let mut at = begin;
        while at < end {
            let bad = [Api::Unready, Api::Hung, Api::Stopped][random.usize(..3)];
            self.events.push((at, Action::Api(machine, bad)));
            at += millis(random, 200..2_500);
            self.events
                .push((at.min(FAULTS), Action::Api(machine, Api::Well)));
            at += millis(random, 200..2_500);
        }
    }
}

fn millis(random: &mut Rng, range: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(random.u64(range))
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seed,
            machines,
            atomic,
            proxied,
            own_addresses_only,
            grace,
            holder,
            events,
            lost,
            refused,
        } = self;
        writeln!(
            f,
            "seed {seed}: {machines} machines, atomic {atomic}, proxied {proxied}, own addresses only {own_addresses_only}, grace {grace:?}, held by {holder:?}, refused to {refused:?}"
        )?;
        for (at, action) in events {
            writeln!(f, "  {:>8.3} s  {action:?}", at.as_secs_f64())?;
        }
        write!(
            f,
            "  {:>8.3} s  faults end; {lost:?} stay without power",
            FAULTS.as_secs_f64()
        )
    }
}
