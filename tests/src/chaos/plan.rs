//! What people do and what goes wrong in a run, and when. A seed is a plan.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;

use crate::world::CloudApi;

/// Who is told of addresses, so that machines answer to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announcer {
    /// Nobody.
    Nobody,
    /// kube-vip.
    KubeVip,
    /// MetalLB by its custom resources, among which are people's own.
    Metallb,
    /// MetalLB by its `ConfigMap`, in which people's own entries are.
    MetallbConfigMap,
}

impl Announcer {
    /// Its name in groundplane's configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nobody => "empty",
            Self::KubeVip => "kube-vip",
            Self::Metallb => "metallb",
            Self::MetallbConfigMap => "metallb-configmap",
        }
    }

    /// Is it MetalLB, in one of its forms?
    #[must_use]
    pub fn is_metallb(self) -> bool {
        matches!(self, Self::Metallb | Self::MetallbConfigMap)
    }
}

/// One thing that happens. Services and machines are meant by number. What makes no sense at the moment is left out: whoever carries a
/// plan out says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Somebody makes a Service of type `LoadBalancer`.
    Create(usize),
    /// Somebody deletes a Service.
    Delete(usize),
    /// A Service is of type `ClusterIP` from now on, or of type `LoadBalancer` again.
    Flip(usize),
    /// Somebody takes the finalizer of a Service away by hand, and deletes it: nobody can give its address back but a reclaim.
    Abandon(usize),
    /// Somebody writes an annotation of their own to a Service.
    Touch(usize),
    /// A machine is ordered, and its node registers.
    Join(usize),
    /// A machine is given back while its node is still there.
    Lose(usize),
    /// A node is ready, or not, though its machine lives.
    Ready(usize, bool),
    /// A machine is switched off, or on again.
    Power(usize, bool),
    /// Somebody writes an annotation of their own to a node.
    Mark(usize),
    /// Somebody changes their own entries of MetalLB's configuration; the number says how they are from then on.
    Edit(u32),
    /// The gateway that leads is killed; it starts again a while later.
    KillLeader,
    /// Every service that is no gateway is killed.
    KillServices,
    /// Whoever makes the n-th step of a write from now on is killed at it: before it, or after.
    KillAt(u32),
    /// The gateway that leads does not reach the API server for a while.
    CutOff(Scale),
    /// The gateway that leads is told nothing new by its watches for a while, though all else works: its cache is stale.
    Stale(Scale),
    /// So many of a thousand calls to the API server go wrong.
    Api(u32),
    /// So many of a thousand calls to the cloud go wrong.
    Cloud(u32),
    /// No more than so many addresses can be reserved; `None`: any number.
    Quota(Option<usize>),
    /// The wall clock jumps by so many seconds.
    Clock(i32),
}

impl Action {
    /// What it is called where it is counted.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::Create(_) => "Service made",
            Self::Delete(_) => "Service deleted",
            Self::Flip(_) => "Service of another type",
            Self::Abandon(_) => "finalizer taken away",
            Self::Touch(_) => "Service annotated",
            Self::Join(_) => "machine ordered",
            Self::Lose(_) => "machine given back",
            Self::Ready(_, true) => "node ready",
            Self::Ready(_, false) => "node not ready",
            Self::Power(_, true) => "machine on",
            Self::Power(_, false) => "machine off",
            Self::Mark(_) => "node annotated",
            Self::Edit(_) => "MetalLB's configuration edited",
            Self::KillLeader => "leader killed",
            Self::KillServices => "services killed",
            Self::KillAt(_) => "kill at a step set",
            Self::CutOff(_) => "leader cut off",
            Self::Stale(_) => "leader's cache stale",
            Self::Api(_) => "API faults set",
            Self::Cloud(_) => "cloud faults set",
            Self::Quota(Some(_)) => "quota set",
            Self::Quota(None) => "quota lifted",
            Self::Clock(seconds) if seconds < 0 => "clock set back",
            Self::Clock(_) => "clock set forward",
        }
    }

    /// All that plans have, as it is counted.
    pub const KINDS: [&str; 24] = [
        "Service made",
        "Service deleted",
        "Service of another type",
        "finalizer taken away",
        "Service annotated",
        "machine ordered",
        "machine given back",
        "node ready",
        "node not ready",
        "machine on",
        "machine off",
        "node annotated",
        "MetalLB's configuration edited",
        "leader killed",
        "services killed",
        "kill at a step set",
        "leader cut off",
        "leader's cache stale",
        "API faults set",
        "cloud faults set",
        "quota set",
        "quota lifted",
        "clock set back",
        "clock set forward",
    ];
}

/// A part of the time in which things go wrong: thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scale(pub u32);

impl Scale {
    /// That part of `whole`.
    #[must_use]
    pub fn of(self, whole: Duration) -> Duration {
        whole * self.0 / 1_000
    }
}

/// The plan of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Decides everything.
    pub seed: u64,
    /// Whose machines and addresses they are.
    pub cloud: CloudApi,
    /// Who is told of addresses.
    pub announcer: Announcer,
    /// How many Services there are at most.
    pub services: usize,
    /// How many machines there are at most; all of them at first.
    pub machines: usize,
    /// How many of the Services there are at first.
    pub first: usize,
    /// What happens, in order.
    pub events: Vec<(Scale, Action)>,
}

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let services = random.usize(3..=10);
        let machines = random.usize(2..=5);
        let announcers = [
            Announcer::Nobody,
            Announcer::Metallb,
            Announcer::KubeVip,
            Announcer::MetallbConfigMap,
        ];
        let turn = usize::try_from((seed + seed / 4) % 4).unwrap_or_default();
        let mut plan = Self {
            seed,
            // By turns, so that a few runs in a row have each, and none always beside the same other.
            cloud: if (seed / 2).is_multiple_of(2) {
                CloudApi::Equinix
            } else {
                CloudApi::Cherry
            },
            announcer: announcers[turn],
            services,
            machines,
            first: random.usize(0..=services),
            events: Vec::new(),
        };
        // Something is wrong almost all the time.
        for begin in [0, 350, 700] {
            let at = Scale(begin + random.u32(..250));
            plan.events.push((at, Action::Api(rate(&mut random))));
            let at = Scale(begin + random.u32(..250));
            plan.events.push((at, Action::Cloud(rate(&mut random))));
        }
        for _ in 0..random.usize(12..40) {
            let at = Scale(random.u32(..1_000));
            let action = plan.draw(&mut random);
            plan.events.push((at, action));
            // People who change their minds at once meet what is only half done.
            if let Action::Create(service) = action
                && random.bool()
            {
                let at = Scale(at.0 + random.u32(1..80));
                let action = match random.u32(..3) {
                    0 => Action::Flip(service),
                    _ => Action::Delete(service),
                };
                plan.events.push((at, action));
            }
        }
        plan.events.sort_by_key(|(at, _)| *at);
        plan
    }

    fn draw(&self, random: &mut Rng) -> Action {
        let service = random.usize(..self.services);
        let machine = random.usize(..self.machines);
        match random.u32(..112) {
            0..22 => Action::Create(service),
            22..34 => Action::Delete(service),
            34..42 => Action::Flip(service),
            42..45 => Action::Abandon(service),
            45..50 => Action::Touch(service),
            50..55 => Action::Join(machine),
            55..61 => Action::Lose(machine),
            61..69 => Action::Ready(machine, random.bool()),
            69..73 => Action::Power(machine, random.bool()),
            73..77 => Action::Mark(machine),
            77..81 => Action::KillLeader,
            81..84 => Action::KillServices,
            84..91 => Action::KillAt(random.u32(1..12)),
            91..95 => Action::CutOff(Scale(random.u32(50..400))),
            95..98 => Action::Quota(random.bool().then(|| random.usize(..=self.services))),
            98..101 => Action::Clock(random.i32(-86_400..86_400)),
            101..105 => Action::Stale(Scale(random.u32(50..300))),
            _ if self.announcer.is_metallb() => Action::Edit(random.u32(..32)),
            _ => Action::Flip(service),
        }
    }
}

/// How many of a thousand calls go wrong: none, some, or most.
fn rate(random: &mut Rng) -> u32 {
    match random.u32(..4) {
        0 => 0,
        1 => random.u32(20..100),
        2 => random.u32(100..400),
        _ => random.u32(400..900),
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seed,
            cloud,
            announcer,
            services,
            machines,
            first,
            events,
        } = self;
        writeln!(
            f,
            "seed {seed}: {services} Services, {first} at first, {machines} machines of {cloud:?}, announcer {}",
            announcer.name()
        )?;
        for (at, action) in events {
            writeln!(f, "  at {:>4} of 1000  {action:?}", at.0)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_is_a_plan_and_another_seed_another() {
        assert_eq!(Plan::new(7), Plan::new(7));
        assert_ne!(Plan::new(7), Plan::new(8));
    }

    #[test]
    fn plans_do_everything_that_can_be_done() {
        let kinds = |seeds: std::ops::Range<u64>| -> BTreeSet<&str> {
            let events = seeds.flat_map(|seed| Plan::new(seed).events);
            events.map(|(_, action)| action.kind()).collect()
        };
        assert_eq!(kinds(0..200), BTreeSet::from(Action::KINDS));
        // So do the few that are run for real every day.
        assert_eq!(kinds(0..10), BTreeSet::from(Action::KINDS));
        for seed in 0..200 {
            let plan = Plan::new(seed);
            assert!(plan.events.is_sorted_by_key(|(at, _)| *at));
            assert!(plan.first <= plan.services);
        }
        let has = |cloud, announcer| {
            let plans = (0..10).map(Plan::new);
            let fits = |plan: &Plan| plan.cloud == cloud && plan.announcer == announcer;
            plans.into_iter().any(|plan| fits(&plan))
        };
        for cloud in [CloudApi::Equinix, CloudApi::Cherry] {
            assert!(has(cloud, Announcer::MetallbConfigMap), "{cloud:?}");
        }
        assert!(has(CloudApi::Equinix, Announcer::Metallb) && has(CloudApi::Cherry, Announcer::Nobody));
    }
}
