//! Machines that the list lacks, each read by its id.
//!
//! A list is of one project, and a token may see others, too: that an id is not in the list does not prove that the machine is gone.
//!
//! Invariants: that a machine does not exist is told to who wants it fresh only by a read that began after they came. Everybody who asks
//! for one machine at a time shares a read. A machine that is there, and a cloud that does not say, are not asked for again for
//! [`KEPT`]: neither can end in a deletion.
//!
//! Locks: one for the table, held for lookups; one a machine, held across its read, which is what makes the read one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use groundplane_cloud::{CloudError, CloudErrorKind, Machine, MachineSource};
use groundplane_core::{Clock, ProviderId};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;

/// How long an answer is good. Nodes that are not ready are looked at every 5 s: a call for each second look.
const KEPT: Duration = Duration::from_secs(10);

/// What the cloud said of one machine.
#[derive(Clone)]
struct Answer {
    began: Instant,
    read_at: Timestamp,
    /// `None`: it does not exist.
    said: Result<Option<Machine>, CloudError>,
}

impl Answer {
    fn is_young(&self, now: Instant) -> bool {
        now.duration_since(self.began) < KEPT
    }

    /// Is it an answer to a question that came at `arrived`?
    fn serves(&self, fresh: bool, arrived: Instant) -> bool {
        let proves = matches!(self.said, Ok(None));
        self.began >= arrived || (self.is_young(arrived) && !(fresh && proves))
    }
}

/// The last answer about a machine. The mutex is held across the read.
type Row = Arc<tokio::sync::Mutex<Option<Answer>>>;

/// What was read of machines beyond the list. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(super) struct Unlisted {
    source: Arc<dyn MachineSource>,
    clock: Arc<dyn Clock>,
    rows: Arc<Mutex<HashMap<ProviderId, Row>>>,
}

impl Unlisted {
    pub(super) fn new(source: Arc<dyn MachineSource>, clock: Arc<dyn Clock>) -> Self {
        Self {
            source,
            clock,
            rows: Arc::default(),
        }
    }

    /// The machine and when it was read; `None`: it does not exist.
    ///
    /// # Errors
    /// Whatever the cloud says but that. Never `NotFound`.
    pub(super) async fn read(
        &self,
        id: &ProviderId,
        fresh: bool,
    ) -> Result<Option<(Machine, Timestamp)>, CloudError> {
        let arrived = Instant::now();
        let row = self.row(id);
        let mut last = row.lock().await;
        let answer = match &*last {
            Some(answer) if answer.serves(fresh, arrived) => answer.clone(),
            _ => {
                let answer = self.ask(id).await;
                // Who comes next may have better luck.
                let passes = answer.said.as_ref().is_err_and(is_passing);
                *last = (!passes).then(|| answer.clone());
                answer
            }
        };
        Ok(answer.said?.map(|machine| (machine, answer.read_at)))
    }

    async fn ask(&self, id: &ProviderId) -> Answer {
        let (began, read_at) = (Instant::now(), self.clock.now());
        let said = match self.source.get(id).await {
            Ok(machine) if machine.id.id() == id.id() => Ok(Some(machine)),
            Ok(other) => Err(CloudError::new(
                CloudErrorKind::Unavailable,
                format!("read machine {id}"),
                format!("the answer is about {}", other.id),
            )),
            Err(error) if error.is(CloudErrorKind::NotFound) => Ok(None),
            Err(error) => Err(error),
        };
        Answer { began, read_at, said }
    }

    /// The row of a machine. Rows that say nothing any more go where a new one comes.
    fn row(&self, id: &ProviderId) -> Row {
        let mut rows = self.rows.lock();
        if let Some(row) = rows.get(id) {
            return Arc::clone(row);
        }
        let now = Instant::now();
        rows.retain(|_, row| {
            row.try_lock().map_or(true, |last| {
                last.as_ref().is_some_and(|answer| answer.is_young(now))
            })
        });
        Arc::clone(rows.entry(id.clone()).or_default())
    }
}

/// May the same question have another answer a moment later?
fn is_passing(error: &CloudError) -> bool {
    !matches!(
        error.kind,
        CloudErrorKind::Denied | CloudErrorKind::Unauthenticated | CloudErrorKind::Refused
    )
}
