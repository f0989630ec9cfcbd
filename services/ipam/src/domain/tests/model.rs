//! Random operations against a naive model: a list of who holds what.

use std::collections::BTreeMap;

use groundplane_core::{AddressRange, Family, NetworkName, Prefix};
use jiff::Timestamp;
use pretty_assertions::assert_eq;
use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Any { who: u8, v6: bool, length: u8 },
    Exact { who: u8, last: u8 },
    Release { who: u8 },
    Move { from: u8, to: u8 },
    Pass { seconds: i64 },
    Adopt { who: u8, last: u8 },
    Pools { second: bool, exclude: u8 },
    Undo { who: u8 },
}

fn step() -> impl Strategy<Value = Step> {
    let who = 0_u8..12;
    prop_oneof![
        6 => (who.clone(), any::<bool>(), 0_u8..3).prop_map(|(who, v6, length)| Step::Any { who, v6, length }),
        2 => (who.clone(), 0_u8..20).prop_map(|(who, last)| Step::Exact { who, last }),
        5 => who.clone().prop_map(|who| Step::Release { who }),
        1 => (who.clone(), who.clone()).prop_map(|(from, to)| Step::Move { from, to }),
        2 => (0_i64..200).prop_map(|seconds| Step::Pass { seconds }),
        1 => (who.clone(), 0_u8..20).prop_map(|(who, last)| Step::Adopt { who, last }),
        1 => (any::<bool>(), 0_u8..16).prop_map(|(second, exclude)| Step::Pools { second, exclude }),
        1 => who.prop_map(|who| Step::Undo { who }),
    ]
}

/// Who holds what, and what was released when.
#[derive(Default)]
struct Model {
    held: BTreeMap<Prefix, String>,
    released: BTreeMap<u128, Timestamp>,
}

impl Model {
    fn overlaps(&self, range: AddressRange) -> bool {
        self.held.keys().any(|held| held.range().overlaps(range))
    }

    fn note(&mut self, changes: &[Change]) {
        for change in changes {
            let prefix = change.key.prefix;
            if let Some(Record::Held(_)) = &change.old {
                self.held.remove(&prefix).expect("what was held is known");
            }
            match &change.new {
                Some(Record::Held(held)) => {
                    assert!(!self.overlaps(prefix.range()), "{prefix} is held twice");
                    self.held.insert(prefix, held.owner.name.to_string());
                }
                Some(Record::Cooling(cooling)) if prefix.family() == Family::V4 => {
                    for number in prefix.range().first()..=prefix.range().last() {
                        self.released.insert(number, cooling.released);
                    }
                }
                _ => {}
            }
        }
    }
}

fn pools(second: bool, exclude: u8) -> Vec<PoolConfig> {
    let mut first = pool("first", &["10.0.0.0-10.0.0.15", "2001:db8::/120"]);
    first.exclude = vec![format!("10.0.0.{exclude}")];
    first.reserved = vec!["10.0.0.14-10.0.0.15".to_owned()];
    let mut all = vec![first];
    if second {
        all.push(pool("second", &["10.0.0.16-10.0.0.19"]));
    }
    all
}

struct Run {
    ledger: Ledger,
    model: Model,
    now: Timestamp,
}

impl Run {
    fn make(&mut self, changes: &[Change]) {
        for change in changes {
            self.ledger.apply(change);
        }
        self.model.note(changes);
    }

    fn step(&mut self, step: &Step) {
        let name = |who: &u8| format!("s{who}");
        match step {
            Step::Any { who, v6, length } => {
                let family = if *v6 { Family::V6 } else { Family::V4 };
                let want = Want::Any {
                    family,
                    length: family.bits() - length,
                };
                self.allocate(&ask(&name(who), &[want]));
            }
            Step::Exact { who, last } => {
                let want = Want::Exact(prefix(&format!("10.0.0.{last}")));
                self.allocate(&ask(&name(who), &[want]));
            }
            Step::Release { who } => {
                let network = NetworkName::default();
                let ask = ReleaseAsk {
                    owner: owner(&name(who)),
                    uid: "".into(),
                    network,
                    prefixes: Vec::new(),
                };
                let plan = self.ledger.plan_release(&ask, self.now);
                self.make(&plan.changes);
                assert!(!self.model.held.values().any(|holder| *holder == name(who)));
            }
            Step::Move { from, to } => {
                let network = NetworkName::default();
                let (from, to) = (owner(&name(from)), owner(&name(to)));
                if let Ok(plan) = self.ledger.plan_move(&MoveAsk {
                    from,
                    to,
                    to_uid: "".into(),
                    network,
                }) {
                    self.make(&plan.changes);
                }
            }
            Step::Pass { seconds } => self.now += SignedDuration::from_secs(*seconds),
            Step::Adopt { who, last } => self.adopt(&name(who), *last),
            Step::Pools { second, exclude } => {
                put(&mut self.ledger, &pools(*second, *exclude));
            }
            Step::Undo { who } => {
                let before = self.ledger.networks.clone();
                if let Ok(plan) = self
                    .ledger
                    .plan_allocate(&ask(&name(who), &[v4(), v6()]), self.now)
                {
                    for change in &plan.changes {
                        self.ledger.apply(change);
                    }
                    for change in plan.changes.iter().rev() {
                        self.ledger.apply(&change.reversed());
                    }
                    assert_eq!(self.ledger.networks, before);
                }
            }
        }
    }

    fn allocate(&mut self, ask: &Ask) {
        let want = ask.wanted[0].want;
        match self.ledger.plan_allocate(ask, self.now) {
            Ok(plan) => {
                let given = plan.allocations[0].key.prefix;
                if let (Want::Any { .. }, Family::V4, false) = (want, given.family(), plan.changes.is_empty())
                {
                    let range = given.range();
                    for number in range.first()..=range.last() {
                        let rested = self
                            .model
                            .released
                            .get(&number)
                            .is_none_or(|at| *at + COOLDOWN <= self.now);
                        assert!(rested, "{given} was given before its time");
                    }
                    assert!(
                        !range.overlaps("10.0.0.14-10.0.0.15".parse().unwrap()),
                        "{given} is reserved"
                    );
                }
                self.make(&plan.changes);
                assert_eq!(self.model.held[&given], ask.owner.name.as_str());
            }
            Err(Refusal::Taken { prefix, .. }) => assert!(self.model.overlaps(prefix.range())),
            Err(_) => {}
        }
    }

    fn adopt(&mut self, who: &str, last: u8) {
        let holding = Holding {
            owner: owner(who),
            uid: "".into(),
            network: NetworkName::default(),
            prefixes: vec![prefix(&format!("10.0.0.{last}"))],
        };
        let request = AdoptionRequest {
            cluster: "east".parse().unwrap(),
            holdings: vec![holding],
            kinds: [groundplane_core::OwnerKind::Service].into(),
            newer: None,
        };
        let adoption = self.ledger.adopt(&request, self.now);
        self.model.note(&adoption.changes);
        assert_eq!(adoption.conflicts, [], "nobody else is alive");
    }

    fn check(&self) {
        self.ledger.check().unwrap();
        let held: BTreeMap<_, _> = self
            .ledger
            .allocations(None)
            .map(|held| (held.key.prefix, held.owner.name.to_string()))
            .collect();
        assert_eq!(held, self.model.held);
        for pool in self.ledger.pools(self.now) {
            assert_eq!(pool.free + pool.used + pool.cooling, pool.total, "{pool:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn no_address_has_two_holders_and_nothing_gets_lost(steps in prop::collection::vec(step(), 1..60)) {
        let mut run = Run { ledger: ledger(&pools(true, 3)), model: Model::default(), now: at(0) };
        for step in &steps {
            run.step(step);
            run.check();
        }
    }

    #[test]
    fn a_block_is_aligned_and_within_what_is_free(
        ranges in prop::collection::vec((0_u128..500, 0_u128..40), 1..12),
        bits in 0_u32..6,
    ) {
        let mut set = FreeSet::new();
        let mut naive = std::collections::BTreeSet::new();
        for (index, (first, length)) in ranges.iter().enumerate() {
            let (first, last) = (*first, first + length);
            if index % 3 == 2 {
                let removed = (first..=last).filter(|number| naive.remove(number)).count();
                prop_assert_eq!(set.remove(first, last), removed as u128);
            } else {
                naive.extend(first..=last);
                set.insert(first, last);
            }
            prop_assert_eq!(set.count(), naive.len() as u128);
            prop_assert_eq!(set.first(), naive.first().copied());
            let size = 1_u128 << bits;
            let block = (0..600 / size).map(|block| block * size);
            let mut block = block.filter(|start| (*start..start + size).all(|number| naive.contains(&number)));
            prop_assert_eq!(set.first_block(bits), block.next());
        }
    }
}
