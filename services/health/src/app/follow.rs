//! Probes one address, once a period, for as long as it is watched.

use std::net::SocketAddr;
use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::FuturesOrdered;
use groundplane_core::NodeName;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Inner, now};
use crate::domain::Outcome;
use crate::ports::Probe;

/// What is probed: a candidate, or (`None`) the endpoint.
pub(super) type Target = (Option<NodeName>, SocketAddr);

/// An outcome on its way.
#[derive(Debug)]
pub(super) struct Probed {
    pub(super) target: Target,
    pub(super) outcome: Outcome,
    pub(super) ended: std::time::Instant,
}

/// Begins to probe; ends when what is returned is dropped.
///
/// A probe begins every period, whether the one before it ended or not: else a timeout that is longer than the period would delay the
/// detection. Outcomes are told in the order in which probes began, so that a late miss is not taken for a fresh one.
pub(super) fn follow<P: Probe>(inner: &Arc<Inner<P>>, target: Target, to: mpsc::Sender<Probed>) -> DropGuard {
    let stop = inner.tasks.token().child_token();
    let probing = probing(Arc::clone(inner), target, to, stop.clone());
    inner.tasks.spawn("probe", probing);
    stop.drop_guard()
}

async fn probing<P: Probe>(
    inner: Arc<Inner<P>>,
    target: Target,
    to: mpsc::Sender<Probed>,
    stop: CancellationToken,
) {
    let address = target.1;
    let probe = || async {
        let outcome = inner.probe.probe(address).await;
        (outcome, now())
    };
    let mut ticks = tokio::time::interval(inner.settings.period);
    // After a pause of the whole machine, there is nothing to catch up with.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut running = FuturesOrdered::new();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            Some((outcome, ended)) = running.next() => {
                inner.metrics.probed(target.0.is_none(), &outcome);
                let probed = Probed { target: target.clone(), outcome, ended };
                if to.send(probed).await.is_err() {
                    return;
                }
            }
            _ = ticks.tick() => running.push_back(probe()),
        }
    }
}
