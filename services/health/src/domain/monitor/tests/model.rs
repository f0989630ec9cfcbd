//! Any sequence of events against the invariants, and regular probes against the bound.

use proptest::prelude::*;

use super::*;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

#[derive(Clone, Debug)]
enum Op {
    Wait(u64),
    /// Beyond the names: the endpoint.
    Probe(usize, Sign),
    Change {
        cordoned: u8,
        deleting: u8,
        refused: u8,
        holder: usize,
    },
}

fn sign() -> impl Strategy<Value = Sign> {
    prop_oneof![3 => Just(Sign::Ready), 2 => Just(Sign::Alive), 3 => Just(Sign::Silent)]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (0..1500_u64).prop_map(Op::Wait),
        20 => (0..=NAMES.len(), sign()).prop_map(|(target, sign)| Op::Probe(target, sign)),
        1 => (0..16_u8, 0..16_u8, 0..16_u8, 0..NAMES.len() + 2).prop_map(|(cordoned, deleting, refused, holder)| Op::Change {
            // Rather few of them.
            cordoned: cordoned & deleting,
            deleting: deleting & (cordoned >> 1) & !cordoned,
            refused: refused & (cordoned | deleting),
            holder,
        }),
    ]
}

fn named(bits: u8) -> Vec<&'static str> {
    let set = NAMES
        .iter()
        .enumerate()
        .filter(|(index, _)| bits & (1 << index) != 0);
    set.map(|(_, name)| *name).collect()
}

fn holder(index: usize) -> Holder {
    match NAMES.get(index) {
        Some(name) => Holder::Node(node(name)),
        None if index == NAMES.len() => Holder::Nobody,
        None => Holder::Unknown,
    }
}

/// What is known, kept apart from the monitor.
#[derive(Default)]
struct Truth {
    last: BTreeMap<NodeName, (Sign, Instant)>,
    endpoint: Option<Sign>,
    /// Misses of the holder since it was ready last or began to hold.
    holder_misses: u32,
}

impl Truth {
    fn is_ready(&self, node: &NodeName) -> bool {
        self.last.get(node).is_some_and(|(sign, _)| *sign == Sign::Ready)
    }

    fn heard(&self, now: Instant) -> usize {
        let interval = Settings::default().interval();
        let heard =
            |(sign, at): &&(Sign, Instant)| *sign != Sign::Silent && now.duration_since(*at) <= interval;
        self.last.values().filter(heard).count()
    }

    /// The invariants.
    fn check(&self, world: &World) -> Result<(), TestCaseError> {
        let (decision, situation) = (world.monitor.decision(), world.monitor.situation());
        let Some(target) = &decision.move_to else {
            return Ok(());
        };
        let candidate = situation.candidates.get(target);
        prop_assert!(candidate.is_some_and(|candidate| !candidate.deleting));
        prop_assert!(self.is_ready(target), "never to a machine that is not ready");
        let (_, at) = self.last[target];
        prop_assert!(world.now.duration_since(at) <= Settings::default().interval());
        if candidate.is_some_and(|candidate| candidate.refused) {
            let works = matches!(decision.cause, Some(Cause::Cordoned | Cause::Deleting));
            prop_assert!(!works, "it is left for one that was refused, though it works");
            let better = situation.candidates.iter().find(|(name, other)| {
                let holds = situation.holder == Holder::Node((*name).clone());
                let (_, at) = self.last.get(name).copied().unwrap_or((Sign::Silent, world.now));
                let fresh = world.now.duration_since(at) <= Settings::default().interval();
                !other.refused && !other.deleting && !holds && self.is_ready(name) && fresh
            });
            prop_assert_eq!(better, None, "there is one that was not refused");
        }
        let Holder::Node(held) = &situation.holder else {
            return Ok(());
        };
        prop_assert_ne!(held, target);
        let candidate = situation.candidates[held];
        let to_leave = candidate.cordoned || candidate.deleting;
        prop_assert!(
            to_leave || !self.is_ready(held),
            "never while the holder is ready"
        );
        if decision.cause == Some(Cause::Dead) {
            prop_assert!(self.holder_misses > 0);
            let few = self.heard(world.now) * 2 <= NAMES.len();
            prop_assert!(
                !few || self.endpoint != Some(Sign::Ready),
                "cut off, and the endpoint answers"
            );
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_events_breaks_an_invariant(ops in prop::collection::vec(op(), 1..200)) {
        let mut world = World::held_by(&NAMES, Holder::Node(node("a")));
        let mut truth = Truth::default();
        for op in ops {
            match op {
                Op::Wait(millis) => world.now += Duration::from_millis(millis),
                Op::Probe(target, sign) => {
                    let name = NAMES.get(target).copied();
                    match name {
                        None => truth.endpoint = Some(sign),
                        Some(name) => {
                            truth.last.insert(node(name), (sign, world.now));
                            if world.monitor.situation().holder == Holder::Node(node(name)) {
                                truth.holder_misses = if sign == Sign::Ready { 0 } else { truth.holder_misses + 1 };
                            }
                        }
                    }
                    world.probed(name, sign);
                    truth.check(&world)?;
                }
                Op::Change { cordoned, deleting, refused, holder } => {
                    let [cordoned, deleting, refused] = [cordoned, deleting, refused].map(named);
                    let to = refusing(&NAMES, &cordoned, &deleting, &refused, self::holder(holder));
                    if world.monitor.situation().holder != to.holder {
                        truth.holder_misses = 0;
                        truth.endpoint = None;
                    }
                    world.monitor.step(Event::Changed(to), world.now);
                    truth.check(&world)?;
                }
            }
        }
    }

    /// Probes go at their period, each address at a time of its own. A holder that dies is left within the bound, and not before; a
    /// minority that dies with it changes nothing.
    #[test]
    fn a_death_is_seen_within_the_bound(
        phases in prop::array::uniform5(0..500_u64),
        dies in 3000..6000_u64,
        silent in any::<bool>(),
        masked in any::<bool>(),
    ) {
        let settings = Settings::default();
        let mut world = World::held_by(&NAMES, Holder::Node(node("a")));
        let mut probes: Vec<(u64, Option<&str>, Sign)> = Vec::new();
        for (index, phase) in phases.iter().enumerate() {
            let name = NAMES.get(index).copied();
            let mortal = name == Some("a") || (name.is_none() && !masked);
            for begins in (0..20).map(|round| phase + round * 500) {
                let dead = mortal && begins >= dies;
                probes.push(match (dead, silent) {
                    (false, _) => (begins, name, Sign::Ready),
                    (true, false) => (begins, name, Sign::Alive),
                    (true, true) => (begins + 800, name, Sign::Silent),
                });
            }
        }
        probes.sort_by_key(|(ends, ..)| *ends);
        let start = world.now;
        let mut verdict = None;
        for (ends, name, sign) in probes {
            world.now = start + Duration::from_millis(ends);
            world.probed(name, sign);
            if verdict.is_none() && world.move_to().is_some() {
                verdict = Some(ends);
            }
        }
        let verdict = verdict.expect("a verdict");
        prop_assert!(verdict > dies);
        prop_assert!(u128::from(verdict - dies) <= settings.detection().as_millis(), "{verdict} - {dies}");
    }
}
