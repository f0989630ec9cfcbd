//! What was asked through the proxy, and what became of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::call::Call;
use super::fault::Fault;

/// One request.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What it asked.
    pub call: Call,
    /// What went wrong on purpose.
    pub fault: Option<Fault>,
    /// What the API server answered; `None`: nothing yet, or it was never asked.
    pub status: Option<u16>,
}

/// Requests in the order in which they came. Cheap to clone; all clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    entries: Arc<Mutex<Vec<Entry>>>,
}

impl Journal {
    pub(super) fn note(&self, call: Call, fault: Option<Fault>) -> usize {
        let mut entries = self.entries.lock();
        entries.push(Entry {
            call,
            fault,
            status: None,
        });
        entries.len() - 1
    }

    pub(super) fn answered(&self, number: usize, status: u16) {
        if let Some(entry) = self.entries.lock().get_mut(number) {
            entry.status = Some(status);
        }
    }

    /// How many there are: the point to which [`Journal::since`] goes back.
    pub fn len(&self) -> usize {
        self.entries.lock().len()
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Those that came after the first `from`.
    pub fn since(&self, from: usize) -> Vec<Entry> {
        self.entries.lock().get(from..).unwrap_or_default().to_vec()
    }

    /// Those for which `keep` says so.
    pub fn count(&self, keep: impl Fn(&Entry) -> bool) -> usize {
        self.entries.lock().iter().filter(|entry| keep(entry)).count()
    }

    /// How many there are of each verb and resource, `patch services/status`, of those that came after the first `from`.
    pub fn summary(&self, from: usize) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for entry in self.since(from) {
            *counts.entry(entry.call.to_string()).or_default() += 1;
        }
        counts
    }
}
