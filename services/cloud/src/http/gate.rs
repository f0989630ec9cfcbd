//! The rate limit of a cloud, as it tells us of it: one gate for all calls of a driver.

use std::sync::Arc;
use std::time::Duration;

use groundplane_core::Clock;
use http::HeaderMap;
use http::header::RETRY_AFTER;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;

/// However long the cloud says: a wrong clock on either side must not stop us for hours.
const LONGEST: Duration = Duration::from_secs(60);
/// After a 429 that does not say how long.
const UNTOLD: Duration = Duration::from_secs(1);

/// Closed until a time, or open.
pub(super) struct Gate {
    opens: Mutex<Option<Instant>>,
    clock: Arc<dyn Clock>,
}

impl Gate {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            opens: Mutex::new(None),
            clock,
        }
    }

    /// When it opens; `None`: it is open.
    pub(super) fn opens(&self) -> Option<Instant> {
        self.opens.lock().filter(|opens| *opens > Instant::now())
    }

    /// Closes where an answer says that the limit is used up, and says for how long.
    pub(super) fn heed(&self, status: u16, headers: &HeaderMap) -> Option<Duration> {
        let limited = status == 429;
        let used_up = number(headers, "x-ratelimit-remaining") == Some(0);
        if !limited && !used_up {
            return None;
        }
        let pause = retry_after(headers)
            .filter(|_| limited)
            .or_else(|| self.until_reset(headers))
            .or_else(|| limited.then_some(UNTOLD))?
            .min(LONGEST);
        let opens = Instant::now() + pause;
        let mut gate = self.opens.lock();
        *gate = Some(gate.map_or(opens, |already| already.max(opens)));
        Some(pause)
    }

    fn until_reset(&self, headers: &HeaderMap) -> Option<Duration> {
        let reset = Timestamp::from_second(number(headers, "x-ratelimit-reset")?).ok()?;
        Duration::try_from(reset.duration_since(self.clock.now())).ok()
    }
}

/// `Retry-After` in seconds, at most [`LONGEST`]. Its other form, a date, is of no use where clocks differ.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = u64::try_from(number(headers, RETRY_AFTER.as_str())?).ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST))
}

fn number(headers: &HeaderMap, name: &str) -> Option<i64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}
