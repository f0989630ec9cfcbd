//! The peers of each machine, as last told, and when to ask again.
//!
//! A machine is *unknown* until the cloud was asked or its node said what it had before (*seeded*). Both get a time at which the cloud
//! is asked: seeds at a random time within the interval, so that a restart does not ask for every machine at once; answers one interval
//! later. An answer without peers is no answer: sessions take a while, and each call asks again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use groundplane_cloud::Neighbors;
use groundplane_core::ProviderId;

/// What is known of a machine.
#[derive(Clone, Debug)]
pub(crate) struct Peering {
    pub(crate) node: String,
    pub(crate) neighbors: Neighbors,
    /// It rests on what the node had, and the cloud was not asked.
    pub(crate) unverified: bool,
    due: Instant,
    /// When somebody asked last.
    wanted: Instant,
}

/// What a call has to do.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Answer with this.
    Answer(Peering),
    /// Ask the cloud; if it does not answer, this was good.
    Ask(Option<Peering>),
}

/// All machines that were asked for.
#[derive(Debug)]
pub(crate) struct Known {
    machines: BTreeMap<ProviderId, Peering>,
    refresh: Duration,
    swept: Instant,
}

impl Known {
    pub(crate) fn new(refresh: Duration, now: Instant) -> Self {
        Self {
            machines: BTreeMap::new(),
            refresh,
            swept: now,
        }
    }

    /// What to do for `machine`. `seed` is what its node had; `None` where that must not be trusted. `luck` is uniform in 0..1.
    pub(crate) fn step(
        &mut self,
        machine: &ProviderId,
        node: &str,
        seed: Option<Neighbors>,
        luck: f64,
        now: Instant,
    ) -> Step {
        self.sweep(now);
        if let Some(peering) = self.machines.get_mut(machine) {
            peering.wanted = now;
            node.clone_into(&mut peering.node);
            let good = !peering.neighbors.peers.is_empty();
            return match good {
                true if now < peering.due => Step::Answer(peering.clone()),
                true => Step::Ask(Some(peering.clone())),
                false => Step::Ask(None),
            };
        }
        match seed {
            Some(neighbors) if !neighbors.peers.is_empty() => {
                let due = now + self.refresh.mul_f64(luck.clamp(0.0, 1.0));
                let peering = Peering {
                    node: node.to_owned(),
                    neighbors,
                    unverified: true,
                    due,
                    wanted: now,
                };
                self.machines.insert(machine.clone(), peering.clone());
                Step::Answer(peering)
            }
            _ => Step::Ask(None),
        }
    }

    /// The cloud answered.
    pub(crate) fn told(
        &mut self,
        machine: &ProviderId,
        node: &str,
        neighbors: Neighbors,
        now: Instant,
    ) -> Peering {
        let due = now + self.refresh;
        let peering = Peering {
            node: node.to_owned(),
            neighbors,
            unverified: false,
            due,
            wanted: now,
        };
        self.machines.insert(machine.clone(), peering.clone());
        peering
    }

    /// The cloud did not answer: what was good stays, and is asked for again after `pause`.
    pub(crate) fn postpone(&mut self, machine: &ProviderId, pause: Duration, now: Instant) {
        if let Some(peering) = self.machines.get_mut(machine) {
            peering.due = now + pause;
        }
    }

    /// The machine is gone.
    pub(crate) fn forget(&mut self, machine: &ProviderId) {
        self.machines.remove(machine);
    }

    /// Every machine that is known, in order.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&ProviderId, &Peering)> {
        self.machines.iter()
    }

    /// Forgets machines that nobody asked for in two intervals; looks once an interval.
    fn sweep(&mut self, now: Instant) {
        if now.duration_since(self.swept) < self.refresh {
            return;
        }
        self.swept = now;
        let longest = self.refresh * 2;
        self.machines
            .retain(|_, peering| now.duration_since(peering.wanted) < longest);
    }
}

#[cfg(test)]
mod tests {
    use groundplane_cloud::Peer;

    use super::*;

    const REFRESH: Duration = Duration::from_secs(3600);

    fn neighbors(peer: &str) -> Neighbors {
        let peer = Peer {
            address: peer.parse().unwrap(),
            asn: 65530,
            local_asn: 65000,
            source: None,
            password: None,
            multihop: true,
            port: None,
        };
        Neighbors {
            peers: vec![peer],
            private_network: None,
            gateway: None,
        }
    }

    fn machine(number: usize) -> ProviderId {
        format!("equinixmetal://m{number}").parse().unwrap()
    }

    fn start() -> (Known, Instant) {
        let now = Instant::now();
        (Known::new(REFRESH, now), now)
    }

    fn asks(step: &Step) -> bool {
        matches!(step, Step::Ask(_))
    }

    #[test]
    fn a_machine_that_nobody_knows_is_asked_for() {
        let (mut known, now) = start();
        assert!(asks(&known.step(&machine(1), "n1", None, 0.5, now)));
        assert!(asks(&known.step(
            &machine(1),
            "n1",
            Some(Neighbors::default()),
            0.5,
            now
        )));
    }

    #[test]
    fn a_seed_answers_until_its_time_and_is_marked_until_it_was_checked() {
        let (mut known, now) = start();
        let Step::Answer(peering) = known.step(&machine(1), "n1", Some(neighbors("192.0.2.1")), 0.5, now)
        else {
            panic!("the seed answers");
        };
        assert!(peering.unverified);
        assert!(!asks(&known.step(
            &machine(1),
            "n1",
            None,
            0.5,
            now + REFRESH / 3
        )));
        let later = now + REFRESH / 2;
        assert!(matches!(
            known.step(&machine(1), "n1", None, 0.5, later),
            Step::Ask(Some(_))
        ));
        assert!(
            !known
                .told(&machine(1), "n1", neighbors("192.0.2.1"), later)
                .unverified
        );
        assert!(!asks(&known.step(
            &machine(1),
            "n1",
            None,
            0.5,
            later + REFRESH / 2
        )));
        assert!(asks(&known.step(&machine(1), "n1", None, 0.5, later + REFRESH)));
    }

    #[test]
    fn seeds_of_many_machines_are_checked_spread_over_the_interval() {
        let (mut known, now) = start();
        for number in 0..100_u32 {
            let seed = Some(neighbors("192.0.2.1"));
            known.step(
                &machine(number as usize),
                "n",
                seed,
                f64::from(number) / 100.0,
                now,
            );
        }
        let due = |known: &mut Known, at| {
            (0..100)
                .filter(|n| asks(&known.step(&machine(*n), "n", None, 0.0, at)))
                .count()
        };
        assert_eq!(due(&mut known, now + REFRESH / 10), 11);
        assert_eq!(due(&mut known, now + REFRESH / 2), 51);
    }

    /// E32: an answer without peers is asked for again at once, and never kept as the truth.
    #[test]
    fn no_peers_are_no_answer() {
        let (mut known, now) = start();
        known.told(&machine(1), "n1", Neighbors::default(), now);
        assert!(matches!(
            known.step(&machine(1), "n1", None, 0.5, now),
            Step::Ask(None)
        ));
    }

    #[test]
    fn what_was_good_stays_while_the_cloud_is_away() {
        let (mut known, now) = start();
        known.told(&machine(1), "n1", neighbors("192.0.2.1"), now);
        let later = now + REFRESH;
        known.postpone(&machine(1), Duration::from_secs(60), later);
        assert!(!asks(&known.step(&machine(1), "n1", None, 0.5, later)));
        assert!(asks(&known.step(
            &machine(1),
            "n1",
            None,
            0.5,
            later + Duration::from_secs(60)
        )));
    }

    #[test]
    fn machines_that_nobody_asks_for_are_forgotten() {
        let (mut known, now) = start();
        known.told(&machine(1), "n1", neighbors("192.0.2.1"), now);
        known.step(&machine(2), "n2", None, 0.5, now + REFRESH * 2);
        assert_eq!(known.all().count(), 0);
    }
}
