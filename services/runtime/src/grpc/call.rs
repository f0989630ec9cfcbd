//! Calls that are worth repeating: with jitter, as long as the kind of failure allows it and time is left.

use std::future::Future;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tonic::{Response, Status};
use tracing::debug;

use super::RpcError;
use crate::Backoff;

/// How long, and how often, a call is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// All tries and the pauses between them take no longer than this.
    pub total: Duration,
    /// The first pause at most; each one after it is up to twice as long, with jitter.
    pub first_pause: Duration,
    /// No pause is longer, unless the server asks for it.
    pub longest_pause: Duration,
}

impl Default for Policy {
    /// 10 s in all: as long as one call may take. Pauses from 50 ms to 2 s.
    fn default() -> Self {
        Self {
            total: Duration::from_secs(10),
            first_pause: Duration::from_millis(50),
            longest_pause: Duration::from_secs(2),
        }
    }
}

/// Calls until it succeeds, fails in a way that repeating does not mend, or the policy's time is up.
///
/// Repeats only kinds that [`groundplane_core::ErrorKind::is_retryable`] allows, so `attempt` must be safe to repeat:
/// a read, or a mutation under its owner. When the time is up the last failure is returned, or a timeout if the first
/// try did not end.
pub async fn call<T, F, Fut>(policy: Policy, attempt: F) -> Result<T, RpcError>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<Response<T>, Status>>,
{
    let mut attempt = attempt;
    let pauses = Backoff {
        first: policy.first_pause,
        longest: policy.longest_pause,
    };
    let mut last = None;
    let tries = async {
        let mut failures = 0;
        loop {
            let error = match attempt().await {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) => RpcError::from(status),
            };
            if !error.kind.is_retryable() {
                return Err(error);
            }
            let pause = pauses.pause(failures).max(error.retry_after.unwrap_or_default());
            debug!(reason = error.reason, error = %error, ?pause, "call is repeated");
            last = Some(error);
            failures += 1;
            sleep(pause).await;
        }
    };
    match timeout(policy.total, tries).await {
        Ok(result) => result,
        Err(_) => {
            Err(last.unwrap_or_else(|| RpcError::timeout(format!("no answer within {:?}", policy.total))))
        }
    }
}

#[cfg(test)]
mod tests;
