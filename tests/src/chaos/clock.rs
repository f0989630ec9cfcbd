//! The wall clock of a simulation: its own time, and jumps. What tells how long something takes goes on as before.

use std::sync::atomic::{AtomicI64, Ordering};

use groundplane_core::Clock;
use jiff::Timestamp;
use tokio::time::Instant;

/// When every simulation begins, in milliseconds.
const BEGIN: i64 = 1_800_000_000_000;

/// A clock that can be set.
#[derive(Debug)]
pub struct WallClock {
    began: Instant,
    jumped: AtomicI64,
}

impl WallClock {
    /// One that goes right from now on.
    #[must_use]
    pub fn start() -> Self {
        Self {
            began: Instant::now(),
            jumped: AtomicI64::new(0),
        }
    }

    /// Somebody sets it forward by so many seconds, or back.
    pub fn jump(&self, seconds: i32) {
        self.jumped
            .fetch_add(i64::from(seconds) * 1_000, Ordering::SeqCst);
    }
}

impl Clock for WallClock {
    fn now(&self) -> Timestamp {
        let elapsed = i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX);
        let millis = BEGIN + elapsed + self.jumped.load(Ordering::SeqCst);
        Timestamp::from_millisecond(millis).unwrap_or(Timestamp::UNIX_EPOCH)
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn it_goes_on_from_where_it_was_set() {
        let clock = WallClock::start();
        let before = clock.now();
        clock.jump(-3_600);
        let jumped = clock.now().duration_since(before);
        assert!(jumped < SignedDuration::ZERO, "{jumped}");
        clock.jump(7_200);
        let jumped = clock.now().duration_since(before);
        assert!(jumped >= SignedDuration::from_hours(1), "{jumped}");
    }
}
