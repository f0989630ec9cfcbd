//! Follows the objects of one kind, for as long as the process lives, whatever the API server does.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use groundplane_runtime::Backoff;
use kube::Api;
use kube::api::ListParams;
use kube::runtime::watcher::{self, Event};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::index::{Change, Index};
use super::objects::{Key, Seen, Slim};

/// Objects a page: 500 nodes of 10 KB are 5 MB of JSON, held once.
const PAGE: u32 = 500;

/// The API server ends a watch after this long, in seconds; it is then taken up where it was. Also how long a connection can be
/// dead before that is noticed.
const WATCH_SECONDS: u32 = 120;

/// A page of a list takes no longer than this.
const LIST_PATIENCE: Duration = Duration::from_secs(60);

/// So long without a failure and without an event, after a failure.
const SILENCE: Duration = Duration::from_secs(5);

/// Pauses after failures: soon, since an API server that comes back finds us waiting.
const PAUSES: Backoff = Backoff {
    first: Duration::from_millis(200),
    longest: Duration::from_secs(5),
};

/// Told of each change, in order. Must not block.
pub(crate) type OnChange<T> = Arc<dyn Fn(&Change<T>) + Send + Sync>;

/// What to follow.
pub(crate) struct Scope<T: Slim> {
    /// The API of the namespace, or of all.
    pub(crate) api: Api<Seen<T>>,
    /// The namespace; empty: all.
    pub(crate) namespace: Arc<str>,
    /// Label selector; empty: all.
    pub(crate) selector: String,
    /// Only these are of interest.
    pub(crate) wanted: fn(&str, &Key) -> bool,
    /// What `wanted` is given beside the key.
    pub(crate) prefix: String,
}

/// Feeds `index` until the process stops.
pub(crate) async fn follow<T: Slim>(
    scope: Scope<T>,
    index: Index<T>,
    on_change: OnChange<T>,
    stopping: CancellationToken,
) {
    let mut follower = Follower {
        scope,
        index,
        on_change,
        first: true,
        failures: 0,
        pending: None,
    };
    while !stopping.is_cancelled() {
        tokio::select! {
            () = stopping.cancelled() => return,
            () = follower.list_and_watch() => {}
        }
    }
}

struct Follower<T: Slim> {
    scope: Scope<T>,
    index: Index<T>,
    on_change: OnChange<T>,
    /// Has nothing been listed yet?
    first: bool,
    failures: u32,
    /// What was listed so far; `None` outside of a list.
    pending: Option<Vec<T>>,
}

impl<T: Slim> Follower<T> {
    /// Returns when the list has to begin anew.
    async fn list_and_watch(&mut self) {
        let mut config = watcher::Config::default().page_size(PAGE).timeout(WATCH_SECONDS);
        if !self.scope.selector.is_empty() {
            config = config.labels(&self.scope.selector);
        }
        self.pending = Some(Vec::new());
        let mut stream = std::pin::pin!(watcher::watcher(self.scope.api.clone(), config));
        loop {
            // The watcher bounds a watch, but not a list.
            let next = if self.pending.is_none() && self.failures > 0 {
                let Ok(next) = tokio::time::timeout(SILENCE, stream.next()).await else {
                    self.probe().await;
                    continue;
                };
                next
            } else if self.pending.is_some() {
                match tokio::time::timeout(LIST_PATIENCE, stream.next()).await {
                    Ok(next) => next,
                    Err(_) => return self.failed(&format!("no answer within {LIST_PATIENCE:?}")).await,
                }
            } else {
                stream.next().await
            };
            match next {
                Some(Ok(event)) => self.take(event),
                Some(Err(error)) => {
                    self.failed(&error).await;
                    // The watcher itself would ask for the same version for ever.
                    if is_forgotten(&error) {
                        return;
                    }
                }
                None => return,
            }
        }
    }

    fn take(&mut self, event: Event<Seen<T>>) {
        match event {
            Event::Init => self.pending = Some(Vec::new()),
            Event::InitApply(seen) => {
                if self.wanted(&seen.object) {
                    self.pending.get_or_insert_default().push(seen.object);
                }
            }
            Event::InitDone => {
                let listed = self.pending.take().unwrap_or_default();
                let count = listed.len();
                for change in self.index.reset(&self.scope.namespace, listed, self.first) {
                    (self.on_change)(&change);
                }
                if std::mem::take(&mut self.first) {
                    info!(
                        kind = T::KIND,
                        namespace = &*self.scope.namespace,
                        count,
                        "listed"
                    );
                } else {
                    debug!(
                        kind = T::KIND,
                        namespace = &*self.scope.namespace,
                        count,
                        "listed again"
                    );
                }
                self.works();
            }
            Event::Apply(seen) => {
                self.works();
                if self.wanted(&seen.object)
                    && let Some(change) = self.index.apply(seen.object)
                {
                    (self.on_change)(&change);
                }
            }
            Event::Delete(seen) => {
                self.works();
                if let Some(change) = self.index.delete(&seen.object) {
                    (self.on_change)(&change);
                }
            }
        }
    }

    fn wanted(&self, object: &T) -> bool {
        (self.scope.wanted)(&self.scope.prefix, object.key())
    }

    /// After a failure, a watch that works and has nothing to tell looks like one that does not: ask for something.
    async fn probe(&mut self) {
        let one = ListParams::default().limit(1).match_any();
        match tokio::time::timeout(SILENCE, self.scope.api.list(&one)).await {
            Ok(Ok(_)) => self.works(),
            Ok(Err(error)) => debug!(kind = T::KIND, %error, "API server does not answer yet"),
            Err(_) => debug!(kind = T::KIND, "API server does not answer yet"),
        }
    }

    fn works(&mut self) {
        if std::mem::take(&mut self.failures) > 0 {
            info!(
                kind = T::KIND,
                namespace = &*self.scope.namespace,
                "following again"
            );
        }
        self.index.works(&self.scope.namespace);
    }

    async fn failed(&mut self, error: &(dyn std::fmt::Display + Sync)) {
        self.index.broke(&self.scope.namespace);
        let pause = PAUSES.pause(self.failures);
        self.failures += 1;
        warn!(kind = T::KIND, namespace = &*self.scope.namespace, %error, ?pause, "cannot follow");
        tokio::time::sleep(pause).await;
    }
}

/// Was the watch refused, rather than ended, because the API server has no history back to the version that it was to begin at?
fn is_forgotten(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(kube::Error::Api(status)) if status.code == 410)
}

#[cfg(test)]
mod tests;
