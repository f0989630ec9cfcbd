//! Watches: a snapshot and then every change, in order and without a gap; and the clock by which addresses cool down.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use groundplane_core::{PoolId, Revision};
use jiff::SignedDuration;
use tokio::sync::watch as latest;
use tokio_util::sync::CancellationToken;

use super::log::{Cursor, Entry, Event};
use super::{App, IpamError};

/// Changes that are read from the log at once.
const READ: usize = 256;

/// How often is looked for what cooled down, where anything cools: at most, and at least, since clocks jump.
const SOONEST_LOOK: SignedDuration = SignedDuration::from_millis(100);
const LATEST_LOOK: Duration = Duration::from_secs(1);

/// What a watch tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// A part of the snapshot, or a change.
    Event(Entry),
    /// The snapshot is complete.
    Synced(Revision),
}

/// One watch. Give it to [`Watch::next`] again and again.
#[derive(Debug)]
pub(crate) struct Watch {
    app: App,
    pools_only: bool,
    ready: VecDeque<Told>,
    cursor: Cursor,
    /// Allocations up to here are in the snapshot.
    seen: Revision,
    news: latest::Receiver<()>,
    stopping: CancellationToken,
}

impl App {
    /// Watches everything behind `from`; from 0, beginning with a snapshot. Ends when `stopping` is cancelled.
    pub(crate) async fn watch(
        &self,
        from: Revision,
        pools_only: bool,
        stopping: CancellationToken,
    ) -> Result<Watch, IpamError> {
        let news = self.shared.news.subscribe();
        let (cursor, seen, ready) = if from == Revision(0) {
            self.decide(|state, now| {
                let (cursor, seen) = (state.log.end(), state.ledger.revision());
                let event = |event| {
                    Told::Event(Entry {
                        revision: seen,
                        event,
                    })
                };
                let mut ready: VecDeque<_> = state
                    .ledger
                    .pools(now)
                    .into_iter()
                    .map(|pool| event(Event::Pool(Box::new(pool))))
                    .collect();
                if !pools_only {
                    let held = state.placed(state.ledger.allocations(None).cloned().collect());
                    ready.extend(
                        held.into_iter()
                            .map(|(held, pool)| event(Event::Allocated(held, pool))),
                    );
                }
                ready.push_back(Told::Synced(seen));
                Ok(state.read((cursor, seen, ready)))
            })
            .await?
        } else {
            let state = self.shared.state.lock();
            (
                state.log.resume(from)?,
                Revision(0),
                VecDeque::from([Told::Synced(from)]),
            )
        };
        Ok(Watch {
            app: self.clone(),
            pools_only,
            ready,
            cursor,
            seen,
            news,
            stopping,
        })
    }
}

impl Watch {
    /// What comes next; waits for it. `None` when the process stops.
    pub(crate) async fn next(&mut self) -> Option<Result<Told, IpamError>> {
        loop {
            if let Some(told) = self.ready.pop_front() {
                return Some(Ok(told));
            }
            // Marked as seen before the log is read, so that nothing falls between.
            self.news.borrow_and_update();
            if let Err(error) = self.read() {
                return Some(Err(error));
            }
            if !self.ready.is_empty() {
                continue;
            }
            tokio::select! {
                biased;
                () = self.stopping.cancelled() => return None,
                changed = self.news.changed() => changed.ok()?,
            }
        }
    }

    fn read(&mut self) -> Result<(), IpamError> {
        let now = self.app.now();
        let state = self.app.shared.state.lock();
        let (entries, cursor) = state.log.read(self.cursor, READ)?;
        self.cursor = cursor;
        let mut filled: BTreeSet<PoolId> = BTreeSet::new();
        for entry in entries {
            let of_allocation = matches!(entry.event, Event::Allocated(..) | Event::Released(..));
            if of_allocation && entry.revision <= self.seen {
                continue;
            }
            if of_allocation && self.pools_only {
                filled.extend(entry.event.pool().cloned());
            } else {
                self.ready.push_back(Told::Event(entry));
            }
        }
        // However much was allocated, a pool is told of once.
        let revision = state.log.newest();
        let statuses = filled.iter().filter_map(|id| state.ledger.pool_status(id, now));
        let events = statuses.map(|status| Entry {
            revision,
            event: Event::Pool(Box::new(status)),
        });
        self.ready.extend(events.map(Told::Event));
        Ok(())
    }
}

/// Tells watches of pools in which addresses cooled down, as that happens.
pub(super) async fn announce_ripe(app: App, stopping: CancellationToken) {
    let mut last = app.now();
    loop {
        let now = app.now();
        let next = {
            let mut state = app.shared.state.lock();
            let ripened = state.ledger.ripened(last, now);
            let any = !ripened.is_empty();
            for pool in ripened {
                state.log.push_of_pool(Event::Freed(pool));
            }
            if any {
                app.shared.news.send_replace(());
            }
            state.ledger.next_ripe(now)
        };
        last = now;
        let pause = next.map(|next| next.duration_since(now).max(SOONEST_LOOK));
        let pause = pause.map(|pause| Duration::try_from(pause).unwrap_or(LATEST_LOOK).min(LATEST_LOOK));
        tokio::select! {
            () = stopping.cancelled() => return,
            () = app.shared.cooled.notified(), if pause.is_none() => {}
            () = tokio::time::sleep(pause.unwrap_or(LATEST_LOOK)), if pause.is_some() => {}
        }
    }
}
