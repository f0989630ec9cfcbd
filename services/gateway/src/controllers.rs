//! The controllers, and what runs each of them.
//!
//! ```text
//! watch ──wake──► Queue ──next──► worker: Controller::reconcile ──Outcome──► Queue
//!                   ▲
//!   every 30 s: Controller::due (pure, from the cache)       every 5 min: Controller::all
//! ```
//!
//! A worker takes a key only while we lead. What a replica that does not lead is woken for waits in its queue, once a key.

pub(crate) mod bgp;
mod brake;
pub(crate) mod endpoint;
pub(crate) mod metallb;
pub(crate) mod node;
pub(crate) mod reclaim;
pub(crate) mod service;

use std::sync::Arc;

use groundplane_runtime::Tasks;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tracing::{Instrument as _, debug, info_span};

use crate::announcers::{Backend, Nobody};
use crate::cluster::WriteError;
use crate::cluster::objects::Key;
use crate::config::{Announcer, Config};
use crate::gateway::Gateway;
use crate::queue::{Outcome, Queue};

/// Brings the objects of one kind to where they should be, one at a time each.
pub(crate) trait Controller: Send + Sync + 'static {
    /// Kind of its objects, for logs and traces.
    const KIND: &'static str;

    /// Its queue.
    fn queue(&self) -> &Queue;
    /// Brings one object to where it should be. Never called twice at a time for the same object.
    fn reconcile(&self, key: &Key) -> impl Future<Output = Outcome> + Send;
    /// Objects on which [`Controller::reconcile`] would act, by what the cache holds: no call, no write.
    fn due(&self) -> Vec<Key>;
    /// Objects whose other half, in the cloud, is to be looked at every now and then.
    fn all(&self) -> Vec<Key>;
}

/// What the announcer of the configuration has behind it.
pub(crate) fn backend(config: &Config) -> Arc<dyn Backend> {
    match config.announcer {
        Announcer::Metallb | Announcer::MetallbConfigmap => Arc::new(metallb::Metallb::new(config)),
        Announcer::KubeVip | Announcer::Empty => Arc::new(Nobody),
    }
}

/// Runs a controller until the process stops.
pub(crate) fn run<C: Controller>(controller: C, gateway: &Arc<Gateway>, tasks: &Tasks) {
    let controller = Arc::new(controller);
    for _ in 0..gateway.config.concurrency {
        tasks.spawn("worker", work(Arc::clone(&controller), Arc::clone(gateway)));
    }
    tasks.spawn("resync", resync(controller, Arc::clone(gateway)));
}

/// One worker. A reconcile that has begun when the process stops is finished: each of its calls is bounded.
async fn work<C: Controller>(controller: Arc<C>, gateway: Arc<Gateway>) {
    let queue = controller.queue();
    loop {
        let next = async {
            gateway.cluster.leader.acquired().await;
            queue.next().await
        };
        let key = tokio::select! {
            biased;
            () = gateway.stopping.cancelled() => return,
            key = next => key,
        };
        if !gateway.cluster.leader.is_leader() {
            // Lost while we waited for work. Whoever leads now sees the object, too.
            queue.done(&key, Outcome::Done);
            continue;
        }
        let span = info_span!(
            parent: None,
            "reconcile",
            controller = queue.name(),
            k8s.kind = C::KIND,
            k8s.namespace = &*key.namespace,
            k8s.name = &*key.name,
            trace_id = tracing::field::Empty,
        );
        groundplane_runtime::telemetry::trace::record_id(&span);
        let outcome = controller.reconcile(&key).instrument(span).await;
        gateway.metrics.count(queue.name(), outcome);
        queue.done(&key, outcome);
    }
}

/// Looks for drift, in each term anew.
async fn resync<C: Controller>(controller: Arc<C>, gateway: Arc<Gateway>) {
    let term = async {
        loop {
            gateway.cluster.nodes.index.synced().await;
            gateway.cluster.services.index.synced().await;
            gateway.cluster.leader.acquired().await;
            tokio::select! {
                () = gateway.cluster.leader.lost() => {}
                () = tick(&*controller, &gateway) => {}
            }
        }
    };
    tokio::select! {
        () = gateway.stopping.cancelled() => {}
        () = term => {}
    }
}

async fn tick<C: Controller>(controller: &C, gateway: &Gateway) {
    let now = Instant::now();
    let mut cluster = interval_at(now, gateway.config.resync.0);
    let mut cloud = interval_at(now, gateway.config.cloud_resync.0);
    cluster.set_missed_tick_behavior(MissedTickBehavior::Delay);
    cloud.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let (what, keys) = tokio::select! {
            _ = cluster.tick() => ("cluster", controller.due()),
            _ = cloud.tick() => ("cloud", controller.all()),
        };
        if !keys.is_empty() {
            debug!(
                controller = controller.queue().name(),
                what,
                count = keys.len(),
                "resync"
            );
        }
        for key in keys {
            controller.queue().offer(key);
        }
    }
}

/// How a reconcile ends whose write failed.
pub(crate) fn after_write(error: &WriteError) -> Outcome {
    match error {
        WriteError::Conflict(_) => Outcome::Conflict,
        // The watch will say so.
        WriteError::Gone(_) | WriteError::NotLeader => Outcome::Done,
        _ => Outcome::Failed(std::time::Duration::ZERO),
    }
}
