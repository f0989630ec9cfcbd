//! The use cases. One ledger, one writer.
//!
//! ```text
//! call ──► lock { decide, apply, queue } ──► committer thread: one transaction for all that wait ──► publish ──► answers
//! ```
//!
//! The ledger runs ahead of the store by what is being written. So whatever was read from it, a refusal included, is answered
//! only when everything decided before is durable: nobody ever learns of what a crash or a full disk could undo.
//!
//! Lock: `Shared::state`, held for one decision (microseconds) and for publishing one batch; never across an await.

mod committer;
mod error;
mod log;
mod watch;

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use groundplane_core::{Clock, ClusterId, NetworkName, Owner, PoolId, PoolSource, Revision};
use groundplane_runtime::{Component, Context};
use jiff::Timestamp;
use parking_lot::{Condvar, Mutex};
use tokio::sync::{Notify, oneshot, watch as latest};
use tracing::{info, warn};

use crate::domain::{
    Adoption, AdoptionRequest, Allocation, Ask, Change, Explanation, Key, Ledger, MoveAsk, Plan, PoolConfig,
    PoolStatus, Record, ReleaseAsk,
};
use crate::metrics::Metrics;
use crate::ports::{Loaded, Store, StoreError};
use committer::{Job, Queue};
use log::EventLog;

pub use error::IpamError;
pub(crate) use log::{Entry, Event};
pub(crate) use watch::{Told, Watch};

/// An allocation, and the pool that it belongs to today.
pub(crate) type Placed = (Arc<Allocation>, Option<PoolId>);

/// Who the store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoreIdentity {
    /// Made once with the store.
    pub id: String,
    /// `redb` or `memory`.
    pub kind: &'static str,
}

/// What the lock guards.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) ledger: Ledger,
    /// To the committer.
    queue: Queue,
    /// Jobs that were queued and not settled.
    pending: usize,
    adopted: HashSet<ClusterId>,
    log: EventLog,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) state: Mutex<State>,
    /// Wakes the committer.
    work: Condvar,
    /// Wakes watches.
    news: latest::Sender<()>,
    /// Wakes who waits for addresses to cool down.
    cooled: Notify,
    metrics: Metrics,
    component: Component,
}

impl Shared {
    fn published(&self) {
        self.news.send_replace(());
        self.cooled.notify_one();
    }
}

/// ipam, over its store. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(crate) struct App {
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
    store: Arc<StoreIdentity>,
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

impl App {
    /// Starts over what was loaded from `store`, and writes to it until the context's tasks have ended.
    pub(crate) fn start(
        store: Box<dyn Store>,
        loaded: Loaded,
        cooldown: jiff::SignedDuration,
        component: Component,
        context: &Context,
    ) -> std::io::Result<Self> {
        let identity = StoreIdentity {
            id: loaded.id,
            kind: store.kind(),
        };
        let (records, revision) = (loaded.records.len(), loaded.revision);
        let ledger = Ledger::load(cooldown, revision, loaded.records.into_iter());
        info!(store = %identity.id, kind = identity.kind, %revision, records, "store loaded");
        let log = EventLog::new(ledger.revision());
        let state = State {
            ledger,
            queue: Queue::new(),
            pending: 0,
            adopted: HashSet::new(),
            log,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            work: Condvar::new(),
            news: latest::Sender::new(()),
            cooled: Notify::new(),
            metrics: context.metrics.register(Metrics::register),
            component,
        });
        let (ended, end) = oneshot::channel::<()>();
        let writer = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("ipam-store".to_owned())
            .spawn(move || {
                committer::run(&writer, store);
                drop(ended);
            })?;
        let (tasks, closing) = (context.tasks.clone(), Arc::clone(&shared));
        context.tasks.spawn_last("ipam-store", async move {
            tasks.settled().await;
            closing.state.lock().queue.close();
            closing.work.notify_one();
            // Ends with an error, by being dropped; either way the store is closed.
            end.await.unwrap_or_default();
        });
        let app = Self {
            shared,
            clock: Arc::clone(&context.clock),
            store: Arc::new(identity),
        };
        context.tasks.spawn(
            "ipam-cooldown",
            watch::announce_ripe(app.clone(), context.tasks.token()),
        );
        Ok(app)
    }

    /// The state that metrics are read from.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Decides under the lock, and answers once everything that the answer rests on is durable.
    async fn decide<T>(
        &self,
        decide: impl FnOnce(&mut State, Timestamp) -> Result<Decided<T>, IpamError>,
    ) -> Result<T, IpamError> {
        let now = self.now();
        let (outcome, durable, wakes) = {
            let mut state = self.shared.state.lock();
            let (outcome, changes, advances) = match decide(&mut state, now) {
                Ok(decided) => (Ok(decided.answer), decided.changes, decided.advances),
                Err(error) => (Err(error), Vec::new(), false),
            };
            let durable = state.send(changes, advances)?;
            (outcome, durable, state.queue.wakes())
        };
        if wakes {
            self.shared.work.notify_one();
        }
        if let Some(durable) = durable {
            durable.await.map_err(|_| IpamError::Stopping)??;
        }
        outcome
    }

    /// Gives the owner addresses.
    pub(crate) async fn allocate(&self, ask: &Ask) -> Result<(Vec<Placed>, Plan), IpamError> {
        let result = self
            .decide(|state, now| {
                state.adopted(&ask.owner.cluster)?;
                let plan = state.ledger.plan_allocate(ask, now)?;
                let (answer, changes) = state.carry_out(plan);
                Ok(Decided {
                    answer,
                    changes,
                    advances: false,
                })
            })
            .await;
        self.shared.metrics.allocated(&result);
        result
    }

    /// Takes addresses back.
    pub(crate) async fn release(&self, ask: &ReleaseAsk) -> Result<Vec<Placed>, IpamError> {
        self.decide(|state, now| {
            state.adopted(&ask.owner.cluster)?;
            let plan = state.ledger.plan_release(ask, now);
            let ((answer, _), changes) = state.carry_out(plan);
            Ok(Decided {
                answer,
                changes,
                advances: false,
            })
        })
        .await
    }

    /// Hands addresses over.
    pub(crate) async fn hand_over(&self, ask: &MoveAsk) -> Result<Vec<Placed>, IpamError> {
        self.decide(|state, _| {
            state.adopted(&ask.from.cluster)?;
            state.adopted(&ask.to.cluster)?;
            let plan = state.ledger.plan_move(ask)?;
            let ((answer, _), changes) = state.carry_out(plan);
            Ok(Decided {
                answer,
                changes,
                advances: false,
            })
        })
        .await
    }

    /// What this owner holds.
    pub(crate) async fn held_by(
        &self,
        network: &NetworkName,
        owner: &Owner,
    ) -> Result<Vec<Placed>, IpamError> {
        self.decide(|state, _| Ok(state.read(state.placed(state.ledger.held_by(network, owner)))))
            .await
    }

    /// Who holds this address.
    pub(crate) async fn holder(
        &self,
        network: &NetworkName,
        address: IpAddr,
    ) -> Result<Option<Placed>, IpamError> {
        self.decide(|state, _| {
            let held = state.ledger.holder(network, address).into_iter().collect();
            Ok(state.read(state.placed(held).pop()))
        })
        .await
    }

    /// At most `most` allocations behind `after` that `wanted` says yes to, and the revision.
    pub(crate) async fn list(
        &self,
        after: Option<&Key>,
        most: usize,
        wanted: impl Fn(&Allocation) -> bool,
    ) -> Result<(Vec<Placed>, Revision), IpamError> {
        self.decide(|state, _| {
            let found = state
                .ledger
                .allocations(after)
                .filter(|held| wanted(held))
                .take(most)
                .cloned()
                .collect();
            Ok(state.read((state.placed(found), state.ledger.revision())))
        })
        .await
    }

    /// Replaces the pools of a source. Pools live in memory: their sources tell them again after a restart.
    pub(crate) fn put_pools(
        &self,
        source: &PoolSource,
        revision: u64,
        pools: &[PoolConfig],
    ) -> Result<Revision, IpamError> {
        let now = self.now();
        let revision = {
            let mut state = self.shared.state.lock();
            let outcome = state.ledger.put_pools(source, revision, pools)?;
            for id in &outcome.changed {
                if let Some(status) = state.ledger.pool_status(id, now) {
                    info!(pool = %id, total = %status.total, draining = status.draining, "pool");
                    let freed = !status.draining;
                    state.log.push_of_pool(Event::Pool(Box::new(status)));
                    if freed {
                        state.log.push_of_pool(Event::Freed(id.clone()));
                    }
                }
            }
            for id in outcome.gone {
                info!(pool = %id, "pool is gone");
                state.log.push_of_pool(Event::PoolGone(id));
            }
            state.log.newest()
        };
        self.shared.published();
        Ok(revision)
    }

    /// Every pool with how it is used, and the revision.
    pub(crate) async fn pools(&self) -> Result<(Vec<PoolStatus>, Revision), IpamError> {
        self.decide(|state, now| Ok(state.read((state.ledger.pools(now), state.ledger.revision()))))
            .await
    }

    /// Why an owner has, or would not get, an address.
    pub(crate) async fn explain(&self, ask: &Ask) -> Result<(Explanation, Vec<Placed>), IpamError> {
        self.decide(|state, now| {
            let explanation = state.ledger.explain(ask, now);
            let held = state.placed(explanation.held.clone());
            Ok(state.read((explanation, held)))
        })
        .await
    }

    /// Takes over what a cluster's objects hold, and serves the cluster from then on. `trusted` is the store that the
    /// cluster trusts, empty for any; `seen` the highest revision of it that it has seen.
    pub(crate) async fn adopt(
        &self,
        mut request: AdoptionRequest,
        trusted: &str,
        seen: Revision,
    ) -> Result<(Adoption, Vec<Placed>, Revision), IpamError> {
        if !trusted.is_empty() && trusted != self.store.id {
            return Err(IpamError::UnknownStore {
                ours: self.store.id.clone(),
                theirs: trusted.to_owned(),
            });
        }
        let cluster = request.cluster.clone();
        let answer = self
            .decide(|state, now| {
                let again = state.adopted.contains(&request.cluster);
                request.newer = again.then_some(seen);
                let ours = state.ledger.revision();
                let behind = !trusted.is_empty() && seen > ours;
                if behind {
                    warn!(%ours, %seen, "the cluster has seen a later revision: the store was restored from a backup");
                    // What the cluster remembers must not repeat itself.
                    state.ledger.advance(seen);
                }
                let mut adoption = state.ledger.adopt(&request, now);
                let changes = std::mem::take(&mut adoption.changes);
                let evicted = state.placed(adoption.evicted.clone());
                let revision = state.ledger.revision();
                Ok(Decided { answer: (adoption, evicted, revision), changes, advances: behind })
            })
            .await?;
        self.shared.state.lock().adopted.insert(cluster.clone());
        let adoption = &answer.0;
        for lost in adoption.evicted.iter().chain(&adoption.superseded) {
            warn!(%cluster, prefix = %lost.key.prefix, owner = %lost.owner, "record gave way to a live status");
        }
        info!(%cluster, adopted = adoption.adopted, conflicts = adoption.conflicts.len(),
            uncovered = adoption.uncovered.len(), evicted = adoption.evicted.len(), "adopted");
        Ok(answer)
    }

    /// Identity and revision of the store.
    pub(crate) fn store(&self) -> (&StoreIdentity, Revision) {
        (&self.store, self.shared.state.lock().log.newest())
    }
}

/// What a decision says and did.
struct Decided<T> {
    answer: T,
    changes: Vec<Change>,
    /// Write the revision, though nothing changed.
    advances: bool,
}

impl State {
    fn adopted(&self, cluster: &ClusterId) -> Result<(), IpamError> {
        if self.adopted.contains(cluster) {
            Ok(())
        } else {
            Err(IpamError::Adopting(cluster.clone()))
        }
    }

    #[allow(
        clippy::unused_self,
        reason = "reads as what it is: a decision that only reads"
    )]
    fn read<T>(&self, answer: T) -> Decided<T> {
        Decided {
            answer,
            changes: Vec::new(),
            advances: false,
        }
    }

    fn carry_out(&mut self, mut plan: Plan) -> ((Vec<Placed>, Plan), Vec<Change>) {
        let changes = std::mem::take(&mut plan.changes);
        for change in &changes {
            self.ledger.apply(change);
        }
        let placed = self.placed(std::mem::take(&mut plan.allocations));
        ((placed, plan), changes)
    }

    fn placed(&self, allocations: Vec<Arc<Allocation>>) -> Vec<Placed> {
        let place = |allocation: Arc<Allocation>| {
            let pool = self.ledger.pool_of(&allocation.key).cloned();
            (allocation, pool)
        };
        allocations.into_iter().map(place).collect()
    }

    /// Queues a decision for the committer, and says what to wait for; nothing, where all is durable.
    fn send(
        &mut self,
        changes: Vec<Change>,
        advances: bool,
    ) -> Result<Option<oneshot::Receiver<Result<(), StoreError>>>, IpamError> {
        if changes.is_empty() && !advances && self.pending == 0 {
            return Ok(None);
        }
        let (reply, durable) = oneshot::channel();
        let job = Job {
            changes,
            revision: self.ledger.revision(),
            advances,
            reply,
        };
        if let Err(job) = self.queue.push(job) {
            for change in job.changes.iter().rev() {
                self.ledger.apply(&change.reversed());
            }
            return Err(IpamError::Stopping);
        }
        self.pending += 1;
        Ok(Some(durable))
    }

    /// Tells watches what became durable.
    fn publish(&mut self, batch: &[Job]) {
        for change in batch.iter().flat_map(|job| &job.changes) {
            self.publish_change(change);
        }
        if let Some(revision) = batch.iter().map(|job| job.revision).max() {
            self.log.advance(revision);
        }
        // Only what is durable may end a pool.
        if self.pending == batch.len() {
            for id in self.ledger.end_drained() {
                info!(pool = %id, "pool is gone");
                self.log.push_of_pool(Event::PoolGone(id));
            }
        }
    }

    fn publish_change(&mut self, change: &Change) {
        let pool = self.ledger.pool_of(&change.key).cloned();
        let held = |record: &Option<Record>| match record {
            Some(Record::Held(held)) => Some(Arc::clone(held)),
            _ => None,
        };
        let (before, after) = (held(&change.old), held(&change.new));
        if let Some(before) =
            before.filter(|before| after.as_ref().is_none_or(|after| after.owner != before.owner))
        {
            // Each event that is not the last of its revision bears the one before, so that a resume repeats it.
            let revision = if after.is_some() {
                Revision(change.revision.0 - 1)
            } else {
                change.revision
            };
            self.log.push(revision, Event::Released(before, pool.clone()));
            let freed = self
                .ledger
                .giving_pool(&change.key)
                .filter(|_| change.new.is_none());
            if let Some(pool) = freed.cloned() {
                self.log.push_of_pool(Event::Freed(pool));
            }
        }
        if let Some(after) = after {
            self.log.push(change.revision, Event::Allocated(after, pool));
        }
    }
}
