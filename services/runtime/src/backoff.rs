//! How long to wait before something is tried again.

use std::time::Duration;

/// Pauses that double, with jitter: each is between half of its nominal length and all of it, so that what failed together
/// does not come back together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Nominal length of the first pause.
    pub first: Duration,
    /// Nominal length that is never exceeded.
    pub longest: Duration,
}

impl Backoff {
    /// The pause after `failures` earlier ones in a row.
    pub fn pause(self, failures: u32) -> Duration {
        self.nominal(failures).mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    /// The same without jitter, for decisions that must be the same each time.
    pub fn nominal(self, failures: u32) -> Duration {
        let factor = 2_u32.saturating_pow(failures);
        self.first.saturating_mul(factor).min(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S18: 5, 10, 20, 40, 80, 160, 300 s.
    #[test]
    fn pauses_double_up_to_the_longest() {
        let backoff = Backoff {
            first: Duration::from_secs(5),
            longest: Duration::from_secs(300),
        };
        let nominal: Vec<u64> = (0..8)
            .map(|failures| backoff.nominal(failures).as_secs())
            .collect();
        assert_eq!(nominal, [5, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(backoff.nominal(u32::MAX).as_secs(), 300);
    }

    #[test]
    fn a_pause_is_at_least_half_of_its_nominal_length_and_never_longer() {
        let backoff = Backoff {
            first: Duration::from_secs(8),
            longest: Duration::from_secs(8),
        };
        for _ in 0..1000 {
            let pause = backoff.pause(3);
            assert!(
                (Duration::from_secs(4)..=Duration::from_secs(8)).contains(&pause),
                "{pause:?}"
            );
        }
    }
}
