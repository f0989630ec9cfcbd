//! Does what the election says, against the API server.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::time::Duration;

use groundplane_core::{Clock as _, SystemClock};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, info, warn};

use super::election::{Election, Event, Next, Record};
use super::{LeaseConfig, Standing};
use crate::Tasks;

/// A released lease lasts this long, for those who read durations and not holders.
const RELEASED_SECONDS: i32 = 1;

/// Keeps one lease.
pub(super) struct Keeper {
    api: Api<Lease>,
    config: LeaseConfig,
    election: Election,
    annotations: watch::Receiver<BTreeMap<String, String>>,
    /// May we take part?
    allowed: watch::Receiver<bool>,
    /// Keys that we wrote: removed from the lease when they are gone from `annotations`.
    written: BTreeSet<String>,
    publish: watch::Sender<Standing>,
    /// Of the last write.
    mark: Timestamp,
    /// Do we believe ourselves the leader? For the log alone.
    leading: bool,
}

impl Keeper {
    pub(super) fn new(
        client: kube::Client,
        config: LeaseConfig,
        annotations: watch::Receiver<BTreeMap<String, String>>,
        allowed: watch::Receiver<bool>,
        publish: watch::Sender<Standing>,
    ) -> Self {
        Self {
            api: Api::namespaced(client, &config.namespace),
            election: Election::new(config.identity.clone(), config.duration, config.retry),
            config,
            annotations,
            allowed,
            written: BTreeSet::new(),
            publish,
            mark: Timestamp::UNIX_EPOCH,
            leading: false,
        }
    }

    /// Takes part until the process stops, then lets go of the lease.
    pub(super) async fn run(mut self, tasks: &Tasks) {
        let stopping = tasks.token();
        let mut event = Event::Tick;
        let mut allowed = self.allowed.clone();
        loop {
            if !*allowed.borrow_and_update() {
                self.abstain();
                tokio::select! {
                    biased;
                    () = stopping.cancelled() => break,
                    () = becomes(&mut allowed, true) => {}
                }
                event = Event::Tick;
            }
            let next = self.election.step(event, Instant::now());
            self.tell();
            // A write that is cut off here may still succeed; letting go is then refused, and the lease runs out.
            let work = self.perform(next);
            event = tokio::select! {
                biased;
                () = stopping.cancelled() => break,
                () = becomes(&mut allowed, false) => Event::Failed,
                event = work => event,
            };
        }
        self.leave(tasks).await;
    }

    /// Does not lead any more. The lease is left as it is: a write of ours may still be on its way.
    fn abstain(&mut self) {
        self.election.resign(Instant::now());
        self.tell();
    }

    /// Publishes the standing, and logs when it turns.
    fn tell(&mut self) {
        let standing = self.election.standing();
        let leading = standing.valid_until.is_some_and(|until| Instant::now() < until);
        if leading != self.leading {
            self.leading = leading;
            let LeaseConfig {
                namespace,
                name,
                identity,
                ..
            } = &self.config;
            let transitions = standing.transitions;
            if leading {
                info!(namespace, name, identity, transitions, "leading");
            } else {
                warn!(namespace, name, identity, "not leading any more");
            }
        }
        self.publish.send_if_modified(|before| {
            let changed = *before != standing;
            *before = standing;
            changed
        });
    }

    async fn perform(&mut self, next: Next) -> Event {
        // Two tries fit between a renewal and the one after it.
        let patience = self.config.duration / 5;
        let begun = Instant::now();
        match next {
            Next::Pause(until) => {
                sleep_until(until).await;
                Event::Tick
            }
            Next::Read => {
                let call = self.api.get_opt(&self.config.name);
                match within(patience, call).await {
                    Ok(lease) => Event::Read(lease.map(record)),
                    Err(error) => failed("read", &error),
                }
            }
            Next::Create { transitions } => {
                let mark = self.mark();
                self.election.attempt(mark, begun);
                let lease = self.fresh(transitions, mark);
                let parameters = PostParams::default();
                self.written = lease
                    .metadata
                    .annotations
                    .iter()
                    .flatten()
                    .map(|(key, _)| key.clone())
                    .collect();
                settle(
                    "create",
                    within(patience, self.api.create(&parameters, &lease)).await,
                    begun,
                )
            }
            Next::Write { version, transitions } => {
                let mark = self.mark();
                self.election.attempt(mark, begun);
                let patch = self.renewal(&version, transitions, mark);
                let parameters = PatchParams::default();
                let patch = Patch::Merge(patch);
                let call = self.api.patch(&self.config.name, &parameters, &patch);
                settle("renew", within(patience, call).await, begun)
            }
        }
    }

    /// What the next write is known by: the time, and never that of a write before, wherever the clock goes. As the API server keeps it,
    /// in whole microseconds.
    fn mark(&mut self) -> Timestamp {
        let next = self.mark.as_microsecond() + 1;
        let mark = Timestamp::from_microsecond(wall_clock().as_microsecond().max(next));
        self.mark = mark.unwrap_or(self.mark);
        self.mark
    }

    /// A lease that did not exist.
    fn fresh(&mut self, transitions: i64, mark: Timestamp) -> Lease {
        let now = MicroTime(mark);
        Lease {
            metadata: ObjectMeta {
                name: Some(self.config.name.clone()),
                namespace: Some(self.config.namespace.clone()),
                annotations: Some(self.annotations.borrow_and_update().clone()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.config.identity.clone()),
                lease_duration_seconds: Some(seconds(self.config.duration)),
                acquire_time: Some(now.clone()),
                renew_time: Some(now),
                lease_transitions: Some(i32::try_from(transitions).unwrap_or(i32::MAX)),
                ..LeaseSpec::default()
            }),
        }
    }

    /// A renewal, or a taking over. `resourceVersion` makes the API server refuse it if the lease has changed.
    fn renewal(&mut self, version: &str, transitions: i64, mark: Timestamp) -> Value {
        let wanted = self.annotations.borrow_and_update().clone();
        let mut annotations: BTreeMap<String, Option<String>> =
            self.written.iter().map(|key| (key.clone(), None)).collect();
        self.written = wanted.keys().cloned().collect();
        annotations.extend(wanted.into_iter().map(|(key, value)| (key, Some(value))));
        let now = MicroTime(mark);
        let mut spec = json!({
            "holderIdentity": self.config.identity,
            "leaseDurationSeconds": seconds(self.config.duration),
            "leaseTransitions": transitions,
            "renewTime": now,
        });
        if self.election.standing().transitions != transitions {
            spec["acquireTime"] = json!(now);
        }
        json!({ "metadata": { "resourceVersion": version, "annotations": annotations }, "spec": spec })
    }

    /// Stops leading; when nobody in the process can act on it any more, lets go, so that another need not wait.
    async fn leave(mut self, tasks: &Tasks) {
        let held = self.election.standing().valid_until;
        let resigned = self.election.resign(Instant::now());
        self.tell();
        let (Some((version, transitions)), Some(until)) = (resigned, held) else {
            return;
        };
        // Later than that it is free by itself.
        if tokio::time::timeout_at(until, tasks.settled()).await.is_err() {
            debug!("tasks still run; the lease runs out by itself");
            return;
        }
        let patch = Patch::Merge(json!({
            "metadata": { "resourceVersion": version },
            "spec": {
                "holderIdentity": "",
                "leaseDurationSeconds": RELEASED_SECONDS,
                "leaseTransitions": transitions,
                "renewTime": MicroTime(wall_clock()),
            },
        }));
        let parameters = PatchParams::default();
        let call = self.api.patch(&self.config.name, &parameters, &patch);
        match within(self.config.duration / 5, call).await {
            Ok(_) => info!(name = self.config.name, "lease released"),
            Err(error) => debug!(%error, "lease not released; it runs out by itself"),
        }
    }
}

/// Waits until it says so. Where nobody can say anything any more: for ever.
async fn becomes(allowed: &mut watch::Receiver<bool>, what: bool) {
    if allowed.wait_for(|allowed| *allowed == what).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Why a call did not succeed.
#[derive(Debug, thiserror::Error)]
enum CallError {
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    #[error(transparent)]
    Kube(#[from] kube::Error),
}

impl CallError {
    /// The lease is not what we thought: changed (409), gone (404), or there already (409).
    fn is_refusal(&self) -> bool {
        matches!(self, Self::Kube(kube::Error::Api(status)) if matches!(status.code, 404 | 409))
    }
}

/// A call of the kube client retries by itself for much longer than a lease lasts.
async fn within<T>(
    patience: Duration,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, CallError> {
    match timeout(patience, call).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(CallError::Timeout(patience)),
    }
}

fn settle(what: &'static str, result: Result<Lease, CallError>, begun: Instant) -> Event {
    match result {
        Ok(lease) => Event::Written(record(lease), begun),
        Err(error) if error.is_refusal() => {
            debug!(what, %error, "lease has changed");
            Event::Refused
        }
        Err(error) => failed(what, &error),
    }
}

fn failed(what: &'static str, error: &CallError) -> Event {
    warn!(what, %error, "lease");
    Event::Failed
}

fn record(lease: Lease) -> Record {
    let spec = lease.spec.unwrap_or_default();
    let seconds = spec
        .lease_duration_seconds
        .and_then(|seconds| u64::try_from(seconds).ok());
    Record {
        version: lease.metadata.resource_version.unwrap_or_default(),
        holder: spec.holder_identity.unwrap_or_default(),
        duration: Duration::from_secs(seconds.unwrap_or(0)),
        transitions: spec.lease_transitions.unwrap_or(0).into(),
        renewed: spec.renew_time.map(|time| time.0),
        annotations: lease.metadata.annotations.unwrap_or_default(),
    }
}

/// Whole seconds, at least one.
fn seconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_secs().max(1)).unwrap_or(i32::MAX)
}

/// For people who read the lease; how long it lasts does not depend on it.
fn wall_clock() -> Timestamp {
    SystemClock.now()
}

#[cfg(test)]
mod tests;
