//! Calls that are worth repeating: with jitter, as long as the kind of failure allows it and time is left.

use std::future::Future;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable as _};
use parking_lot::Mutex;
use tonic::{Response, Status};
use tracing::debug;

use super::RpcError;

/// How long, and how often, a call is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// All tries and the pauses between them take no longer than this.
    pub total: Duration,
    /// The first pause; each one after it is up to twice as long, with jitter.
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
    let last = Mutex::new(None);
    let pauses = ExponentialBuilder::default()
        .with_jitter()
        .with_min_delay(policy.first_pause)
        .with_max_delay(policy.longest_pause)
        .without_max_times();
    let tries = (|| {
        let call = attempt();
        async { call.await.map(Response::into_inner).map_err(RpcError::from) }
    })
    .retry(pauses)
    .when(|error: &RpcError| error.kind.is_retryable())
    .adjust(|error: &RpcError, pause| {
        pause.map(|pause| error.retry_after.map_or(pause, |after| after.max(pause)))
    })
    .notify(|error: &RpcError, pause| {
        debug!(reason = error.reason, error = %error, ?pause, "call is repeated");
        *last.lock() = Some(error.clone());
    });
    let Ok(result) = tokio::time::timeout(policy.total, tries).await else {
        let last = last.lock().take();
        return Err(last.unwrap_or_else(|| RpcError::timeout(format!("no answer within {:?}", policy.total))));
    };
    result
}

#[cfg(test)]
mod tests;
