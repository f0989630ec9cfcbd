//! The task that watches one endpoint.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch as channel};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::DropGuard;
use tracing::{debug, info, warn};

use super::follow::{Probed, Target, follow};
use super::{Asked, Inner, LINGER, Observation, Report, now};
use crate::domain::{Change, Event, Monitor, Observed, Sign, Step, Turn};
use crate::ports::Probe;

/// Between two reports that only say what was observed, where something turned.
const SOON: Duration = Duration::from_secs(1);
/// The same, where nothing did: ages and durations.
const LATER: Duration = Duration::from_secs(5);
/// Outcomes on their way; more than probes can run at a time is of no use.
const QUEUE: usize = 64;

/// One watch.
pub(super) struct Watch<P> {
    inner: Arc<Inner<P>>,
    endpoint: SocketAddr,
    requests: channel::Receiver<Asked>,
    told: Arc<channel::Sender<Option<Arc<Report>>>>,
    monitor: Monitor,
    revision: u64,
    probing: BTreeMap<Target, DropGuard>,
    /// When the next report is due that is not urgent.
    due: Instant,
    /// Since when nobody follows.
    alone: Option<Instant>,
}

impl<P: Probe> Watch<P> {
    pub(super) fn new(
        inner: Arc<Inner<P>>,
        endpoint: SocketAddr,
        requests: channel::Receiver<Asked>,
        told: Arc<channel::Sender<Option<Arc<Report>>>>,
    ) -> Self {
        Self {
            monitor: Monitor::new(inner.settings, endpoint, now()),
            inner,
            endpoint,
            requests,
            told,
            revision: 0,
            probing: BTreeMap::new(),
            due: Instant::now() + LATER,
            alone: None,
        }
    }

    pub(super) async fn run(mut self) {
        info!(endpoint = %self.endpoint, "watching");
        let stop = self.inner.tasks.token();
        let (send, mut outcomes) = mpsc::channel(QUEUE);
        let mut ticks = tokio::time::interval(Duration::from_secs(1));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.take_request(&send);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                changed = self.requests.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.take_request(&send);
                }
                Some(probed) = outcomes.recv() => self.take_outcome(probed),
                () = tokio::time::sleep_until(self.due) => self.tell(),
                _ = ticks.tick() => if self.is_over() {
                    info!(endpoint = %self.endpoint, "watching no more");
                    return;
                },
            }
        }
    }

    fn take_request(&mut self, send: &mpsc::Sender<Probed>) {
        let asked = self.requests.borrow_and_update().clone();
        self.alone = None;
        self.revision = asked.revision;
        let mut wanted = Vec::new();
        if !asked.situation.own_addresses_only {
            wanted.push((None, self.endpoint));
        }
        let candidates = asked.situation.candidates.iter();
        wanted.extend(candidates.map(|(node, candidate)| (Some(node.clone()), candidate.address)));
        self.probing.retain(|target, _| wanted.contains(target));
        for target in wanted {
            let inner = &self.inner;
            self.probing
                .entry(target)
                .or_insert_with_key(|target| follow(inner, target.clone(), send.clone()));
        }
        let before = self.monitor.situation().holder.clone();
        if before != asked.situation.holder {
            info!(endpoint = %self.endpoint, holder = ?asked.situation.holder, "holder");
        }
        let now = now();
        let step = self.monitor.step(Event::Changed(asked.situation), now);
        self.take_step(&step, now);
        // A request is always answered, so that its caller knows that it was heard.
        self.tell();
    }

    fn take_outcome(&mut self, probed: Probed) {
        if !self.probing.contains_key(&probed.target) {
            return;
        }
        let Probed {
            target: (node, _),
            outcome,
            ended,
        } = probed;
        let before = self.sign(node.as_ref());
        let turned = before != Some(outcome.sign);
        let event = Event::Probed {
            node: node.clone(),
            outcome,
            ended,
        };
        let now = now();
        let step = self.monitor.step(event, now);
        self.log_turn(step.turn.as_ref());
        let changed = self.take_step(&step, now);
        if changed || step.turn.as_ref().is_some_and(|turn| is_urgent(turn.change)) {
            self.tell();
        } else if turned {
            self.due = self.due.min(Instant::now() + SOON);
        }
    }

    /// Logs and counts what was decided; true where it has to be told.
    fn take_step(&self, step: &Step, now: std::time::Instant) -> bool {
        let Some(decision) = &step.decision else {
            return false;
        };
        let endpoint = self.endpoint;
        match (&decision.move_to, decision.cause) {
            (Some(_), _) if decision.at < now => {}
            (Some(node), Some(cause)) => {
                self.inner.metrics.judged(cause);
                let after = decision.detected_after;
                warn!(%endpoint, move_to = %node, %cause, ?after, reason = decision.reason, "verdict: the endpoint should move");
            }
            _ if decision.reason.is_empty() => info!(%endpoint, "the endpoint is well"),
            _ => warn!(%endpoint, reason = decision.reason, "the endpoint stays where it is"),
        }
        true
    }

    fn log_turn(&self, turn: Option<&Turn>) {
        let Some(Turn { node, change }) = turn else {
            return;
        };
        let endpoint = self.endpoint;
        let observed = self
            .monitor
            .observed()
            .find(|observed| observed.node == node.as_ref());
        let detail = observed
            .map(|observed| observation(&observed).detail)
            .unwrap_or_default();
        let what = node.as_ref().map_or("endpoint", |node| node.as_str());
        match change {
            Change::Missing => info!(%endpoint, what, detail, "misses"),
            Change::Failed => warn!(%endpoint, what, detail, "failed"),
            Change::Answers => debug!(%endpoint, what, "answers again"),
            Change::Recovered => info!(%endpoint, what, "recovered"),
        }
    }

    fn sign(&self, node: Option<&groundplane_core::NodeName>) -> Option<Sign> {
        self.monitor
            .observed()
            .find(|observed| observed.node == node)
            .and_then(|observed| observed.tally.sign())
    }

    fn tell(&mut self) {
        self.due = Instant::now() + LATER;
        let report = Report {
            revision: self.revision,
            decision: self.monitor.decision().clone(),
            observations: self
                .monitor
                .observed()
                .map(|observed| observation(&observed))
                .collect(),
        };
        self.told.send_replace(Some(Arc::new(report)));
    }

    /// Has nobody followed for so long that the watch ends?
    fn is_over(&mut self) -> bool {
        if self.told.receiver_count() > 0 {
            self.alone = None;
            return false;
        }
        let since = *self.alone.get_or_insert_with(Instant::now);
        since.elapsed() >= LINGER && self.inner.close(self.endpoint)
    }
}

/// A first miss is told at once: whoever hears it looks who holds the endpoint, before a verdict depends on that.
fn is_urgent(change: Change) -> bool {
    match change {
        Change::Missing | Change::Failed => true,
        Change::Answers | Change::Recovered => false,
    }
}

fn observation(observed: &Observed<'_>) -> Observation {
    let last = observed.tally.last();
    Observation {
        node: observed.node.map(ToString::to_string).unwrap_or_default(),
        address: observed.address,
        sign: observed.tally.sign(),
        misses: observed.tally.misses(),
        detail: last
            .map(|(outcome, _)| outcome.detail.clone())
            .unwrap_or_default(),
        probed: last.map(|(outcome, ended)| (ended, outcome.took)),
    }
}
