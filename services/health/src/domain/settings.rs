//! How quickly a failure is seen, and how sure one must be.

use std::time::Duration;

/// The numbers that decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Between the beginnings of two probes of one address.
    pub period: Duration,
    /// Until a probe counts as missed.
    pub timeout: Duration,
    /// Misses in a row that make a failure.
    pub misses: u32,
    /// Answers in a row that end a failure.
    pub recovery: u32,
    /// Between a verdict and the same one again.
    pub dwell: Duration,
    /// How long a failure must last where we may be the ones who are cut off (see [`super::Monitor`]).
    pub doubt: Duration,
}

impl Default for Settings {
    /// Detected within 2.3 s; see [`Settings::detection`].
    fn default() -> Self {
        Self {
            period: Duration::from_millis(500),
            timeout: Duration::from_millis(800),
            misses: 3,
            recovery: 2,
            dwell: Duration::from_secs(10),
            doubt: Duration::from_secs(10),
        }
    }
}

impl Settings {
    /// The longest time from a failure to its detection: up to one period until the first probe after it, a period between each two,
    /// one timeout.
    pub fn detection(&self) -> Duration {
        self.period.saturating_mul(self.misses) + self.timeout
    }

    /// For how long an outcome says how things are: until the next one must have come.
    pub fn interval(&self) -> Duration {
        self.period + self.timeout
    }
}
