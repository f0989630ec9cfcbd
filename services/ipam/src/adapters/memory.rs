//! A store that forgets when the process ends: for tests and trials.

use std::collections::BTreeMap;

use groundplane_core::Revision;
use uuid::Uuid;

use crate::domain::{Change, Key, Record};
use crate::ports::{Loaded, Store, StoreError};

/// Keeps records in memory.
#[derive(Debug)]
pub(crate) struct MemoryStore {
    id: String,
    revision: Revision,
    records: BTreeMap<Key, Record>,
}

impl MemoryStore {
    /// An empty store with an id of its own.
    pub(crate) fn new() -> Self {
        Self {
            id: Uuid::new_v4().to_string(),
            revision: Revision::default(),
            records: BTreeMap::new(),
        }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Store for MemoryStore {
    fn kind(&self) -> &'static str {
        "memory"
    }

    fn load(&mut self) -> Result<Loaded, StoreError> {
        let records = self
            .records
            .iter()
            .map(|(key, record)| (key.clone(), record.clone()))
            .collect();
        Ok(Loaded {
            id: self.id.clone(),
            revision: self.revision,
            records,
        })
    }

    fn commit(&mut self, revision: Revision, changes: &[&Change]) -> Result<(), StoreError> {
        for (done, change) in changes.iter().enumerate() {
            let stored = self.records.get(&change.key).map(Record::revision);
            if stored != change.old.as_ref().map(Record::revision) {
                for undone in changes.iter().take(done).rev() {
                    self.put(&undone.reversed());
                }
                return Err(StoreError::Corrupt(
                    format!("the record of {} is not the expected one", change.key.prefix).into(),
                ));
            }
            self.put(change);
        }
        self.revision = self.revision.max(revision);
        Ok(())
    }
}

impl MemoryStore {
    fn put(&mut self, change: &Change) {
        match &change.new {
            Some(record) => self.records.insert(change.key.clone(), record.clone()),
            None => self.records.remove(&change.key),
        };
    }
}
