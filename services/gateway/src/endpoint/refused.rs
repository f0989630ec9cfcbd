//! Machines to which the cloud did not give the endpoint.
//!
//! `health` chooses, and knows nothing of the cloud: it would name the same machine again and again, and on a cloud that takes an address
//! away before it gives it, each try would leave nobody with it for a moment. So it is told of them, names another, and leaves a holder
//! that works where it is. What keeps a machine from the endpoint seldom ends soon (it is of another region, say): who was refused again
//! after its time is passed over for twice as long.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::candidate::Candidate;

/// How long a machine is passed over, the first time.
const FIRST: Duration = Duration::from_secs(5 * 60);

/// And no longer than this.
const LONGEST: Duration = Duration::from_secs(6 * 60 * 60);

#[derive(Clone, Copy, Debug)]
struct Refusal {
    until: Instant,
    /// Is it passed over?
    stands: bool,
    /// How often it has been, in a row.
    times: u32,
}

/// Who was refused, by provider id.
#[derive(Debug, Default)]
pub(super) struct Refused(BTreeMap<String, Refusal>);

impl Refused {
    /// The cloud did not give it to this machine.
    pub(super) fn note(&mut self, provider_id: &str, now: Instant) {
        let refusal = self.0.entry(provider_id.to_owned()).or_insert(Refusal {
            until: now,
            stands: false,
            times: 0,
        });
        if !refusal.stands {
            refusal.times = refusal.times.saturating_add(1);
        }
        let factor = 2_u32.saturating_pow(refusal.times.saturating_sub(1));
        refusal.stands = true;
        refusal.until = now + FIRST.saturating_mul(factor).min(LONGEST);
    }

    /// This machine holds it: whatever was in the way is no more.
    pub(super) fn holds(&mut self, provider_id: &str) {
        self.0.remove(provider_id);
    }

    /// Passes over no more whose time is over; true where there were some.
    pub(super) fn forgive(&mut self, now: Instant) -> bool {
        let mut some = false;
        for refusal in self.0.values_mut().filter(|one| one.stands && one.until <= now) {
            refusal.stands = false;
            some = true;
        }
        some
    }

    /// Is it passed over?
    pub(super) fn has(&self, candidate: &Candidate) -> bool {
        self.0
            .get(&candidate.provider_id)
            .is_some_and(|refusal| refusal.stands)
    }

    /// The nodes of those that are passed over.
    pub(super) fn nodes(&self, candidates: &[Candidate]) -> BTreeSet<String> {
        let over = candidates.iter().filter(|candidate| self.has(candidate));
        over.map(|candidate| candidate.node.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(node: &str) -> Candidate {
        Candidate {
            node: node.to_owned(),
            provider_id: format!("cloud://{node}"),
            address: "10.0.0.1:6443".parse().unwrap(),
            cordoned: false,
            deleting: false,
        }
    }

    fn passed_over(refused: &Refused) -> Vec<String> {
        refused
            .nodes(&["a", "b", "c"].map(candidate))
            .into_iter()
            .collect()
    }

    #[test]
    fn a_refused_machine_is_passed_over_for_a_while_and_each_time_for_longer() {
        let start = Instant::now();
        let mut refused = Refused::default();
        assert_eq!(passed_over(&refused), [""; 0]);
        refused.note("cloud://b", start);
        refused.note("cloud://b", start + FIRST / 2);
        assert_eq!(passed_over(&refused), ["b"]);
        let mut now = start + FIRST / 2;
        assert!(!refused.forgive(start + FIRST), "it was refused again meanwhile");
        let mut times = Vec::new();
        for _ in 0..9 {
            let since = now;
            while !refused.forgive(now) {
                now += Duration::from_secs(60);
            }
            assert_eq!(passed_over(&refused), [""; 0]);
            times.push((now - since).as_secs() / 60);
            refused.note("cloud://b", now);
        }
        assert_eq!(times, [5, 10, 20, 40, 80, 160, 320, 360, 360]);
    }

    #[test]
    fn who_got_it_after_all_begins_anew() {
        let now = Instant::now();
        let mut refused = Refused::default();
        for one in ["cloud://b", "cloud://c"] {
            refused.note(one, now);
        }
        assert!(refused.forgive(now + FIRST));
        refused.note("cloud://b", now + FIRST);
        refused.holds("cloud://b");
        assert_eq!(passed_over(&refused), [""; 0]);
        refused.note("cloud://b", now);
        assert!(refused.forgive(now + FIRST), "the first time again");
    }
}
