//! The one thread that writes: it takes all decisions that wait, and makes them durable together.
//!
//! Decisions are sent in the order in which they were applied to the ledger, under its lock. A batch that fails takes
//! everything sent after it down with it, since later decisions were made on top of earlier ones: all of them are taken back
//! from the ledger, last first, before anybody is told.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use groundplane_core::Revision;
use tokio::sync::oneshot;
use tracing::{error, info};

use super::Shared;
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

/// Writes until every sender is gone.
pub(super) fn run(shared: &Arc<Shared>, mut store: Box<dyn Store>, jobs: &Receiver<Job>) {
    let mut failed = false;
    loop {
        let first = if failed {
            match jobs.recv_timeout(PROBE) {
                Ok(job) => Some(job),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        } else {
            match jobs.recv() {
                Ok(job) => Some(job),
                Err(_) => return,
            }
        };
        let mut batch: Vec<Job> = first.into_iter().collect();
        while let Some(job) = (batch.len() < LARGEST_BATCH)
            .then(|| jobs.try_recv().ok())
            .flatten()
        {
            batch.push(job);
        }
        let result = write(shared, &mut *store, &batch, failed);
        tell(shared, &result, &mut failed);
        settle(shared, batch, &result, jobs);
    }
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
fn settle(shared: &Shared, mut batch: Vec<Job>, result: &Result<(), StoreError>, jobs: &Receiver<Job>) {
    {
        let mut state = shared.state.lock();
        if result.is_ok() {
            state.publish(&batch);
        } else {
            batch.extend(jobs.try_iter());
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
