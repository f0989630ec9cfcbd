//! What people do and what goes wrong in a run, and when. A seed is a plan.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;

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
    /// The gateway that leads is killed; it starts again a while later.
    KillLeader,
    /// Every service that is no gateway is killed.
    KillServices,
    /// Whoever makes the n-th step of a write from now on is killed at it: before it, or after.
    KillAt(u32),
    /// The gateway that leads does not reach the API server for a while.
    CutOff(Scale),
    /// So many of a thousand calls to the API server go wrong.
    Api(u32),
    /// So many of a thousand calls to the cloud go wrong.
    Cloud(u32),
    /// No more than so many addresses can be reserved; `None`: any number.
    Quota(Option<usize>),
    /// The wall clock jumps by so many seconds.
    Clock(i32),
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
        let mut plan = Self {
            seed,
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
        match random.u32(..100) {
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
            _ => Action::Clock(random.i32(-86_400..86_400)),
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
            services,
            machines,
            first,
            events,
        } = self;
        writeln!(
            f,
            "seed {seed}: {services} Services, {first} at first, {machines} machines"
        )?;
        for (at, action) in events {
            writeln!(f, "  at {:>4} of 1000  {action:?}", at.0)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_plan_and_another_seed_another() {
        assert_eq!(Plan::new(7), Plan::new(7));
        assert_ne!(Plan::new(7), Plan::new(8));
    }

    #[test]
    fn plans_do_everything_that_can_be_done() {
        let all: Vec<Action> = (0..200)
            .flat_map(|seed| Plan::new(seed).events)
            .map(|(_, action)| action)
            .collect();
        let has = |test: fn(&Action) -> bool| assert!(all.iter().any(test));
        has(|action| matches!(action, Action::Abandon(_)));
        has(|action| matches!(action, Action::KillAt(_)));
        has(|action| matches!(action, Action::CutOff(_)));
        has(|action| matches!(action, Action::Clock(seconds) if *seconds < 0));
        has(|action| matches!(action, Action::Quota(Some(_))));
        has(|action| matches!(action, Action::Api(rate) if *rate > 400));
        for seed in 0..200 {
            let plan = Plan::new(seed);
            assert!(plan.events.is_sorted_by_key(|(at, _)| *at));
            assert!(plan.first <= plan.services);
        }
    }
}
