//! A watch that is not begun in time has failed: its connection was taken, and nobody answers there.
//!
//! The read timeout cannot tell, since a watch may rightly be silent for as long as it lasts.

use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::Request;
use tower::{BoxError, Service};

/// From the request of a watch to the head of its answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bounds the begin of watches. Other requests have bounds of their own.
#[derive(Clone, Debug)]
pub(super) struct Promptly<S>(pub(super) S);

impl<S, B> Service<Request<B>> for Promptly<S>
where
    S: Service<Request<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let watches = is_watch(request.uri().query().unwrap_or_default());
        let answer = self.0.call(request);
        async move {
            if !watches {
                return answer.await.map_err(Into::into);
            }
            match tokio::time::timeout(PATIENCE, answer).await {
                Ok(answer) => answer.map_err(Into::into),
                Err(_) => Err(format!("the watch was not begun within {PATIENCE:?}").into()),
            }
        }
        .boxed()
    }
}

fn is_watch(query: &str) -> bool {
    query
        .split('&')
        .any(|pair| matches!(pair, "watch=true" | "watch=1"))
}

#[cfg(test)]
mod tests {
    use tower::service_fn;

    use super::*;

    async fn ask(uri: &'static str, after: Duration) -> Result<(), String> {
        let slow = service_fn(move |_: Request<()>| async move {
            tokio::time::sleep(after).await;
            Ok::<(), BoxError>(())
        });
        let request = Request::builder().uri(uri).body(()).unwrap();
        Promptly(slow)
            .call(request)
            .await
            .map_err(|error| error.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_nobody_begins_fails_and_a_slow_list_does_not() {
        let long = PATIENCE * 2;
        let error = ask("/api/v1/nodes?&watch=true&timeoutSeconds=120", long)
            .await
            .unwrap_err();
        assert!(error.contains("not begun"), "{error}");
        assert_eq!(ask("/api/v1/nodes?&watch=true", PATIENCE / 2).await, Ok(()));
        assert_eq!(ask("/api/v1/nodes?limit=500", long).await, Ok(()));
        assert_eq!(
            ask("/api/v1/nodes?labelSelector=watch%3Dtrue", long).await,
            Ok(())
        );
    }
}
