//! Every call that reached the sandbox, in order: how tests count what was asked of a cloud. Headers, and so
//! tokens, are never recorded; request bodies are, a BGP password among them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::ident::ProjectId;

/// One call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Its place in the journal, from 0.
    pub sequence: u64,
    /// The project of the token, else of the path.
    pub project: Option<ProjectId>,
    /// `GET`, `POST` …
    pub method: String,
    /// The route below `/metal/v1` or `/v1`, such as `/projects/{pid}/ips`; `-` where there is none.
    pub route: String,
    /// Path and query, as they came.
    pub path: String,
    /// The status that was sent. `None`: under way, hanging, or the connection was dropped.
    pub status: Option<u16>,
    /// The fault that was injected.
    pub fault: Option<String>,
    /// Until the answer was ready, in microseconds. `None`: under way, or the client left.
    pub duration_us: Option<u64>,
    /// The request's body: JSON, or else text.
    pub body: Option<Value>,
}

impl Entry {
    /// Did it ask for a change?
    pub fn is_write(&self) -> bool {
        self.method != "GET" && self.method != "HEAD"
    }
}

#[derive(Debug)]
struct Log {
    entries: VecDeque<Entry>,
    next: u64,
    capacity: usize,
}

impl Log {
    fn position(&self, sequence: u64) -> usize {
        let first = self.next - self.entries.len() as u64;
        usize::try_from(sequence.saturating_sub(first)).unwrap_or(usize::MAX)
    }
}

/// The journal, of all projects or of one. Clones share the same log.
#[derive(Clone, Debug)]
pub struct Journal {
    log: Arc<Mutex<Log>>,
    changes: watch::Sender<u64>,
    project: Option<ProjectId>,
}

impl Journal {
    pub(crate) fn new(capacity: usize) -> Self {
        let log = Log {
            entries: VecDeque::new(),
            next: 0,
            capacity: capacity.max(1),
        };
        Self {
            log: Arc::new(Mutex::new(log)),
            changes: watch::Sender::new(0),
            project: None,
        }
    }

    /// The same journal, showing one project only.
    #[must_use]
    pub fn of(&self, project: ProjectId) -> Self {
        Self {
            project: Some(project),
            ..self.clone()
        }
    }

    /// The sequence that the next call will have: where `since` should start.
    pub fn mark(&self) -> u64 {
        self.log.lock().next
    }

    /// The calls from `mark` on. What the journal has forgotten is missing.
    pub fn since(&self, mark: u64) -> Vec<Entry> {
        self.select(mark, |_| true)
    }

    /// The calls from `mark` on to one route, such as `POST /projects/{pid}/ips`.
    pub fn calls(&self, mark: u64, method: &str, route: &str) -> Vec<Entry> {
        self.select(mark, |entry| entry.method == method && entry.route == route)
    }

    /// The calls from `mark` on that asked for a change.
    pub fn writes(&self, mark: u64) -> Vec<Entry> {
        self.select(mark, Entry::is_write)
    }

    /// How many calls there were from `mark` on.
    pub fn total(&self, mark: u64) -> usize {
        let log = self.log.lock();
        log.entries
            .iter()
            .skip(log.position(mark))
            .filter(|entry| self.shows(entry))
            .count()
    }

    /// How many calls from `mark` on each route got; keys are such as `GET /projects/{pid}/ips`.
    pub fn counts(&self, mark: u64) -> BTreeMap<String, u64> {
        let log = self.log.lock();
        let mut counts = BTreeMap::new();
        for entry in log
            .entries
            .iter()
            .skip(log.position(mark))
            .filter(|entry| self.shows(entry))
        {
            *counts
                .entry(format!("{} {}", entry.method, entry.route))
                .or_default() += 1;
        }
        counts
    }

    /// Waits until a call from `mark` on satisfies `wanted`, and returns it. Never returns where none does: put
    /// a timeout around it.
    pub async fn wait_for(&self, mark: u64, wanted: impl Fn(&Entry) -> bool) -> Entry {
        let mut changes = self.changes.subscribe();
        loop {
            changes.borrow_and_update();
            if let Some(entry) = self.select(mark, &wanted).into_iter().next() {
                return entry;
            }
            if changes.changed().await.is_err() {
                // `self` holds a sender, so the channel cannot close while we are here.
                std::future::pending::<()>().await;
            }
        }
    }

    fn shows(&self, entry: &Entry) -> bool {
        self.project.is_none() || entry.project == self.project
    }

    fn select(&self, mark: u64, wanted: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        let log = self.log.lock();
        let rows = log.entries.iter().skip(log.position(mark));
        rows.filter(|entry| self.shows(entry) && wanted(entry))
            .cloned()
            .collect()
    }

    /// Notes that a call arrived.
    pub(crate) fn begin(&self, mut entry: Entry) -> Open {
        let sequence = {
            let mut log = self.log.lock();
            entry.sequence = log.next;
            log.next += 1;
            if log.entries.len() >= log.capacity {
                log.entries.pop_front();
            }
            let sequence = entry.sequence;
            log.entries.push_back(entry);
            sequence
        };
        self.changed();
        Open {
            journal: self.clone(),
            sequence,
            since: Instant::now(),
        }
    }

    fn change(&self, sequence: u64, edit: impl FnOnce(&mut Entry)) {
        {
            let mut log = self.log.lock();
            let position = log.position(sequence);
            // An entry that was forgotten in the meantime must not be mistaken for its successor.
            if let Some(entry) = log
                .entries
                .get_mut(position)
                .filter(|entry| entry.sequence == sequence)
            {
                edit(entry);
            }
        }
        self.changed();
    }

    fn changed(&self) {
        self.changes.send_modify(|version| *version += 1);
    }
}

/// A call that is under way.
#[derive(Debug)]
pub(crate) struct Open {
    journal: Journal,
    sequence: u64,
    since: Instant,
}

impl Open {
    /// A fault was chosen.
    pub(crate) fn fault(&self, name: &str) {
        self.journal
            .change(self.sequence, |entry| entry.fault = Some(name.to_owned()));
    }

    /// The answer is ready; no status where none will be sent.
    pub(crate) fn finish(self, status: Option<u16>) {
        let duration = u64::try_from(self.since.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.journal.change(self.sequence, |entry| {
            entry.status = status;
            entry.duration_us = Some(duration);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(method: &str, project: Option<ProjectId>) -> Entry {
        Entry {
            sequence: 0,
            project,
            method: method.to_owned(),
            route: "/x".to_owned(),
            path: "/metal/v1/x".to_owned(),
            status: None,
            fault: None,
            duration_us: None,
            body: None,
        }
    }

    #[test]
    fn a_full_journal_forgets_the_oldest_and_never_mixes_up_entries() {
        let journal = Journal::new(2);
        let first = journal.begin(entry("GET", None));
        let second = journal.begin(entry("POST", None));
        journal.begin(entry("DELETE", None)).finish(Some(204));
        first.finish(Some(500));
        second.finish(Some(201));
        let left: Vec<_> = journal
            .since(0)
            .into_iter()
            .map(|e| (e.sequence, e.status))
            .collect();
        assert_eq!(left, [(1, Some(201)), (2, Some(204))]);
        assert_eq!(journal.since(2).len(), 1);
        assert_eq!(journal.since(journal.mark()).len(), 0);
    }

    #[test]
    fn a_journal_of_one_project_shows_no_other() {
        let journal = Journal::new(10);
        let (a, b) = (
            ProjectId::from(uuid::Uuid::from_u128(1)),
            ProjectId::from(uuid::Uuid::from_u128(2)),
        );
        journal.begin(entry("GET", Some(a))).finish(Some(200));
        journal.begin(entry("POST", Some(a))).finish(Some(201));
        journal.begin(entry("GET", Some(b))).finish(Some(200));
        let of_a = journal.of(a);
        assert_eq!((of_a.total(0), of_a.writes(0).len(), journal.total(0)), (2, 1, 3));
        assert_eq!(
            of_a.counts(0),
            BTreeMap::from([("GET /x".to_owned(), 1), ("POST /x".to_owned(), 1)])
        );
        assert_eq!(journal.calls(1, "GET", "/x").len(), 1);
    }
}
