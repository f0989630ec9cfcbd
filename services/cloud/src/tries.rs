//! How often a call to a cloud is made, and how long it rests in between: the same for every driver.

use std::time::Duration;

use groundplane_runtime::Backoff;
use tokio::time::Instant;

use crate::CloudError;

/// Tries of a call that may be repeated, the first included.
const MOST: u32 = 3;
const PAUSES: Backoff = Backoff {
    first: Duration::from_millis(200),
    longest: Duration::from_secs(2),
};

/// The tries of one call.
#[derive(Debug, Default)]
pub(crate) struct Tries {
    failed: u32,
}

impl Tries {
    /// The number of the try that is next, from 1.
    pub(crate) fn number(&self) -> u32 {
        self.failed + 1
    }

    /// One failed, which may be repeated: how long to rest before the next. `None`: it was the last, or there is no time for another
    /// before `deadline`.
    pub(crate) fn rest(&mut self, error: &CloudError, deadline: Instant) -> Option<Duration> {
        let pause = PAUSES.pause(self.failed);
        self.failed += 1;
        let pause = pause.max(error.retry_after.unwrap_or_default());
        (self.failed < MOST && Instant::now() + pause < deadline).then_some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CloudErrorKind;

    #[tokio::test(start_paused = true)]
    async fn the_third_try_is_the_last_and_none_begins_too_late() {
        let late = Instant::now() + Duration::from_secs(60);
        let mut error = CloudError::new(CloudErrorKind::Unavailable, "list", "away");
        let mut tries = Tries::default();
        assert!(tries.rest(&error, late).unwrap() <= Duration::from_millis(200));
        assert!(tries.rest(&error, late).unwrap() <= Duration::from_millis(400));
        assert_eq!((tries.number(), tries.rest(&error, late)), (3, None));
        error.retry_after = Some(Duration::from_secs(59));
        assert_eq!(Tries::default().rest(&error, late), error.retry_after);
        error.retry_after = Some(Duration::from_secs(60));
        assert_eq!(Tries::default().rest(&error, late), None);
    }
}
