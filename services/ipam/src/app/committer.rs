//! The one thread that writes: it takes all decisions that wait, and makes them durable together.
//!
//! Decisions are queued in the order in which they were applied to the ledger, under its lock. A batch that fails takes
//! everything queued after it down with it, since later decisions were made on top of earlier ones: all of them are taken
//! back from the ledger, last first, before anybody is told.

use std::sync::Arc;
use std::time::{Duration, Instant};

use groundplane_core::Revision;
use parking_lot::MutexGuard;
use tokio::sync::oneshot;
use tracing::{error, info};

use super::{Shared, State};
use crate::domain::Change;
use crate::ports::{Store, StoreError};

/// Decisions that are written together at most: all that a server works on at once.
const LARGEST_BATCH: usize = 1024;

/// How often a store that failed is tried again, where nobody else tries it.
const PROBE: Duration = Duration::from_millis(500);

/// A decision that waits to become durable.
#[derive(Debug)]
pub(super) struct Job {
    /// What it changed in the ledger; empty for who only waits for what was decided before.
    pub(super) changes: Vec<Change>,
    /// The revision that it made.
    pub(super) revision: Revision,
    /// Write the revision, though nothing changed.
    pub(super) advances: bool,
    /// Who waits.
    pub(super) reply: oneshot::Sender<Result<(), StoreError>>,
}

/// Decisions on their way to the writer.
#[derive(Debug)]
pub(super) struct Queue {
    jobs: Vec<Job>,
    /// Taken in? Not once the process stops.
    open: bool,
    /// Does the writer wait for a job? While it writes it looks by itself.
    idle: bool,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self {
            jobs: Vec::new(),
            open: true,
            idle: false,
        }
    }

    /// Puts a job behind all others; gives it back where none are taken in any more.
    pub(super) fn push(&mut self, job: Job) -> Result<(), Job> {
        if !self.open {
            return Err(job);
        }
        self.jobs.push(job);
        Ok(())
    }

    /// Takes no more in. What is there is still written.
    pub(super) fn close(&mut self) {
        self.open = false;
    }

    /// Must the writer be woken? Says so once.
    pub(super) fn wakes(&mut self) -> bool {
        !self.jobs.is_empty() && std::mem::take(&mut self.idle)
    }

    fn take(&mut self) -> Vec<Job> {
        self.idle = false;
        if self.jobs.len() <= LARGEST_BATCH {
            return std::mem::take(&mut self.jobs);
        }
        self.jobs.drain(..LARGEST_BATCH).collect()
    }
}

/// However the writer ends, nobody waits for it any more.
struct Ending<'a>(&'a Shared);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.queue.close();
        state.queue.jobs.clear();
    }
}

/// Writes until the queue is closed and empty.
pub(super) fn run(shared: &Arc<Shared>, mut store: Box<dyn Store>) {
    let _ending = Ending(shared);
    let mut failed = false;
    while let Some(batch) = next(shared, failed) {
        let result = write(shared, &mut *store, &batch, failed);
        tell(shared, &result, &mut failed);
        settle(shared, batch, &result);
    }
}

/// Waits for decisions; an empty batch is for trying a store that failed.
fn next(shared: &Shared, failed: bool) -> Option<Vec<Job>> {
    let mut state = shared.state.lock();
    let patience = Instant::now() + PROBE;
    while state.queue.jobs.is_empty() {
        if !state.queue.open {
            return None;
        }
        if !wait(shared, &mut state, failed.then_some(patience)) {
            return Some(Vec::new());
        }
    }
    Some(state.queue.take())
}

/// Waits until something is queued or the queue is closed. `false`: the time is up.
fn wait(shared: &Shared, state: &mut MutexGuard<'_, State>, until: Option<Instant>) -> bool {
    state.queue.idle = true;
    match until {
        None => shared.work.wait(state),
        Some(until) => return !shared.work.wait_until(state, until).timed_out(),
    }
    true
}

fn write(shared: &Shared, store: &mut dyn Store, batch: &[Job], failed: bool) -> Result<(), StoreError> {
    let changes: Vec<&Change> = batch.iter().flat_map(|job| &job.changes).collect();
    let advances = batch.iter().any(|job| job.advances);
    if changes.is_empty() && !advances && !failed {
        return Ok(());
    }
    let revision = batch
        .iter()
        .map(|job| job.revision)
        .max()
        .unwrap_or_else(|| shared.state.lock().log.newest());
    let began = Instant::now();
    let result = store.commit(revision, &changes);
    shared
        .metrics
        .committed(changes.len(), began.elapsed(), result.is_ok());
    result
}

/// Says so when the store fails, and when it works again.
fn tell(shared: &Shared, result: &Result<(), StoreError>, failed: &mut bool) {
    match result {
        Ok(()) if *failed => {
            info!("the store writes again");
            shared.component.ready();
        }
        Err(cause) if !*failed => {
            error!(%cause, "the store refuses to write; nothing is given or taken until it does");
            shared.component.not_ready(cause.to_string());
        }
        _ => {}
    }
    *failed = result.is_err();
}

/// Brings the ledger and everybody who waits to where the store is.
fn settle(shared: &Shared, mut batch: Vec<Job>, result: &Result<(), StoreError>) {
    {
        let mut state = shared.state.lock();
        if result.is_ok() {
            state.publish(&batch);
        } else {
            batch.append(&mut state.queue.jobs);
            for change in batch.iter().rev().flat_map(|job| job.changes.iter().rev()) {
                state.ledger.apply(&change.reversed());
            }
        }
        state.pending -= batch.len();
    }
    if result.is_ok() && batch.iter().any(|job| !job.changes.is_empty()) {
        shared.published();
    }
    for job in batch {
        // Who does not wait any more has gone: the decision stands.
        drop(job.reply.send(result.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(revision: u64) -> Job {
        Job {
            changes: Vec::new(),
            revision: Revision(revision),
            advances: false,
            reply: oneshot::channel().0,
        }
    }

    #[test]
    fn the_writer_is_woken_once_and_only_when_it_waits() {
        let mut queue = Queue::new();
        queue.push(job(1)).unwrap();
        assert!(!queue.wakes(), "it is at work and looks by itself");
        queue.take();
        queue.idle = true;
        assert!(!queue.wakes(), "there is nothing to do");
        queue.push(job(2)).unwrap();
        assert!(queue.wakes());
        queue.push(job(3)).unwrap();
        assert!(!queue.wakes(), "it is on its way");
    }

    #[test]
    fn a_closed_queue_gives_back_what_comes_and_keeps_what_is_there() {
        let mut queue = Queue::new();
        queue.push(job(1)).unwrap();
        queue.close();
        assert_eq!(queue.push(job(2)).unwrap_err().revision, Revision(2));
        assert_eq!(queue.take().len(), 1);
    }

    #[test]
    fn a_batch_is_bounded_and_leaves_the_rest_in_order() {
        let mut queue = Queue::new();
        for revision in 0..=LARGEST_BATCH as u64 {
            queue.push(job(revision)).unwrap();
        }
        let batch = queue.take();
        assert_eq!((batch.len(), batch[0].revision), (LARGEST_BATCH, Revision(0)));
        let rest = queue.take();
        assert_eq!(
            rest.iter().map(|job| job.revision.0).collect::<Vec<_>>(),
            [LARGEST_BATCH as u64]
        );
    }
}
