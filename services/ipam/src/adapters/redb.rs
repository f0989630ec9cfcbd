//! The embedded store: one redb file.
//!
//! A commit is one redb transaction with an fsync. After an I/O error redb must be opened anew, and the last commit may or
//! may not be on disk; its caller was told that it is not. So the batch in doubt is remembered, and where the file turns out
//! to have it, it is taken back before anything else is written.

use std::fmt;
use std::io;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};

use groundplane_core::Revision;
use redb::{Database, DatabaseError, ReadableDatabase as _, ReadableTable as _, TableDefinition};
use tracing::{info, warn};
use uuid::Uuid;

use super::stored::{key_bytes, read_key, read_record, read_revision, record_bytes};
use crate::domain::Change;
use crate::ports::{Loaded, Store, StoreError};

const RECORDS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");
const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
const META_FORMAT: &str = "format";
const META_ID: &str = "id";
const META_REVISION: &str = "revision";
/// Layout of the tables.
const FORMAT: &[u8] = b"1";

/// The ledger holds everything in memory and the store is read at start only, so pages need little cache.
const CACHE: usize = 8 * 1024 * 1024;

/// Opens the database, now and after an error.
type Open = Box<dyn Fn() -> Result<Database, DatabaseError> + Send>;

/// A batch of which nobody knows whether it was written.
#[derive(Debug)]
struct Doubt {
    revision: Revision,
    undo: Vec<Change>,
}

/// A store in a file.
pub(crate) struct RedbStore {
    name: String,
    open: Open,
    database: Option<Database>,
    doubt: Option<Doubt>,
}

impl RedbStore {
    /// Opens the file, and makes it where it is not there. A file that cannot be read is an error, and stays as it is.
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let name = format!("`{}`", path.display());
        let prepared = prepare(path);
        prepared.map_err(|error| StoreError::Unavailable(format!("{name}: {error}").into()))?;
        let path = PathBuf::from(path);
        let open = move || Database::builder().set_cache_size(CACHE).create(&path);
        Self::with(name, Box::new(open))
    }

    /// Opens what `open` gives, which is called again after errors. `name` stands for it in messages.
    pub(crate) fn with(name: String, open: Open) -> Result<Self, StoreError> {
        let mut store = Self {
            name,
            open,
            database: None,
            doubt: None,
        };
        store.guarded(|store| {
            let database = store.connect()?;
            initialise(&database).map_err(|error| store.error(error))?;
            store.database = Some(database);
            Ok(())
        })?;
        Ok(store)
    }

    fn connect(&self) -> Result<Database, StoreError> {
        (self.open)().map_err(|error| self.error(error))
    }

    fn error(&self, error: impl Into<redb::Error>) -> StoreError {
        let error = error.into();
        let text = || format!("{}: {error}", self.name).into();
        match &error {
            redb::Error::DatabaseAlreadyOpen => StoreError::InUse(self.name.as_str().into()),
            redb::Error::Io(cause) if cause.kind() == io::ErrorKind::InvalidData => {
                StoreError::Corrupt(text())
            }
            redb::Error::Io(cause) if cause.kind() == io::ErrorKind::UnexpectedEof => {
                StoreError::Corrupt(text())
            }
            redb::Error::Io(_)
            | redb::Error::PreviousIo
            | redb::Error::DatabaseClosed
            | redb::Error::LockPoisoned(_) => StoreError::Unavailable(text()),
            _ => StoreError::Corrupt(text()),
        }
    }

    fn corrupt(&self, text: impl fmt::Display) -> StoreError {
        StoreError::Corrupt(format!("{}: {text}", self.name).into())
    }

    /// redb asserts what it reads; a damaged file must not take the process down with it.
    fn guarded<T>(&mut self, act: impl FnOnce(&mut Self) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let Ok(result) = std::panic::catch_unwind(AssertUnwindSafe(|| act(self))) else {
            self.database = None;
            return Err(self.corrupt("it cannot be read"));
        };
        result
    }

    fn read(&self) -> Result<Loaded, StoreError> {
        let database = self
            .database
            .as_ref()
            .ok_or_else(|| StoreError::Unavailable("not open".into()))?;
        let transaction = database.begin_read().map_err(|error| self.error(error))?;
        let meta = transaction.open_table(META).map_err(|error| self.error(error))?;
        let id = meta.get(META_ID).map_err(|error| self.error(error))?;
        let id = id.ok_or_else(|| self.corrupt("it has no id"))?;
        let revision = meta.get(META_REVISION).map_err(|error| self.error(error))?;
        let revision = revision.map_or(Ok(Revision(0)), |bytes| parse_revision(bytes.value()));
        let table = transaction
            .open_table(RECORDS)
            .map_err(|error| self.error(error))?;
        let mut records = Vec::new();
        for entry in table.iter().map_err(|error| self.error(error))? {
            let (key, value) = entry.map_err(|error| self.error(error))?;
            let key = read_key(key.value()).map_err(|error| self.corrupt(error))?;
            let record = read_record(&key, value.value()).map_err(|error| self.corrupt(error))?;
            records.push((key, record));
        }
        let id = String::from_utf8_lossy(id.value()).into_owned();
        Ok(Loaded {
            id,
            revision: revision.map_err(|error| self.corrupt(error))?,
            records,
        })
    }

    /// Opens the file again after an error, and takes back what was in doubt.
    fn recover(&mut self) -> Result<(), StoreError> {
        if self.database.is_none() {
            self.database = Some(self.connect()?);
            info!(store = %self.name, "opened again");
        }
        let Some(doubt) = &self.doubt else { return Ok(()) };
        let stored = self.read()?.revision;
        if stored >= doubt.revision {
            let undo: Vec<&Change> = doubt.undo.iter().collect();
            let written = self.write(stored, &undo);
            if written.is_err() {
                self.database = None;
            }
            written?;
            warn!(store = %self.name, "a batch that failed had been written, and was taken back");
        }
        self.doubt = None;
        Ok(())
    }

    fn write(&self, revision: Revision, changes: &[&Change]) -> Result<(), StoreError> {
        let database = self
            .database
            .as_ref()
            .ok_or_else(|| StoreError::Unavailable("not open".into()))?;
        let transaction = database.begin_write().map_err(|error| self.error(error))?;
        {
            let mut records = transaction
                .open_table(RECORDS)
                .map_err(|error| self.error(error))?;
            for change in changes {
                self.put(&mut records, change)?;
            }
            let mut meta = transaction.open_table(META).map_err(|error| self.error(error))?;
            let bytes = revision.0.to_be_bytes();
            meta.insert(META_REVISION, bytes.as_slice())
                .map_err(|error| self.error(error))?;
        }
        transaction.commit().map_err(|error| self.error(error))
    }

    fn put(&self, records: &mut redb::Table<'_, &[u8], &[u8]>, change: &Change) -> Result<(), StoreError> {
        let key = key_bytes(&change.key);
        let before = match &change.new {
            Some(record) => {
                let value = record_bytes(record).map_err(|error| self.corrupt(error))?;
                records.insert(key.as_slice(), value.as_slice())
            }
            None => records.remove(key.as_slice()),
        };
        let before = before.map_err(|error| self.error(error))?;
        let found = before.map(|bytes| read_revision(bytes.value())).transpose();
        let found = found.map_err(|error| self.corrupt(error))?;
        if found == change.old.as_ref().map(crate::domain::Record::revision) {
            return Ok(());
        }
        // The transaction is dropped, which undoes it.
        Err(self.corrupt(format!(
            "the record of {} is not the expected one",
            change.key.prefix
        )))
    }
}

impl fmt::Debug for RedbStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedbStore")
            .field("name", &self.name)
            .field("doubt", &self.doubt)
            .finish_non_exhaustive()
    }
}

impl Store for RedbStore {
    fn kind(&self) -> &'static str {
        "redb"
    }

    fn load(&mut self) -> Result<Loaded, StoreError> {
        self.guarded(|store| {
            store.recover()?;
            store.read()
        })
    }

    fn commit(&mut self, revision: Revision, changes: &[&Change]) -> Result<(), StoreError> {
        self.guarded(|store| {
            store.recover()?;
            let written = store.write(revision, changes);
            if matches!(written, Err(StoreError::Unavailable(_))) {
                // redb writes no more once it failed.
                store.database = None;
                let undo = changes.iter().rev().map(|change| change.reversed()).collect();
                store.doubt = Some(Doubt { revision, undo }).filter(|doubt| !doubt.undo.is_empty());
            }
            written
        })
    }
}

fn parse_revision(bytes: &[u8]) -> Result<Revision, String> {
    let bytes = bytes
        .try_into()
        .map_err(|_| "its revision is malformed".to_owned())?;
    Ok(Revision(u64::from_be_bytes(bytes)))
}

/// Makes the tables and the id of a new store. One that has an id is left alone.
fn initialise(database: &Database) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        transaction.open_table(RECORDS)?;
        let mut meta = transaction.open_table(META)?;
        let format = meta.get(META_FORMAT)?.map(|format| format.value().to_vec());
        match format {
            Some(format) if format == FORMAT => return Ok(()),
            Some(format) => {
                let format = String::from_utf8_lossy(&format).into_owned();
                return Err(redb::Error::Corrupted(format!(
                    "its format is `{format}`, which this version cannot read"
                )));
            }
            None => {}
        }
        meta.insert(META_FORMAT, FORMAT)?;
        meta.insert(META_ID, Uuid::new_v4().to_string().as_bytes())?;
        meta.insert(META_REVISION, 0_u64.to_be_bytes().as_slice())?;
    }
    transaction.commit()?;
    Ok(())
}

/// Makes the file's folder, and the file where it is not there. redb fills a new file bit by bit, and one that it did not finish, on a full
/// disk say, would be taken for a damaged store ever after: so the file gets its name when it is whole.
fn prepare(path: &Path) -> Result<(), redb::Error> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or_else(|| Path::new("."));
    std::fs::create_dir_all(folder)?;
    if !path.exists() {
        let fresh = folder.join(format!(".new-{}.redb", Uuid::new_v4()));
        let made = make(&fresh).and_then(|()| Ok(name(&fresh, path)?));
        // Whether it was made or not, that name is of no use any more.
        drop(std::fs::remove_file(&fresh));
        made?;
        std::fs::File::open(folder)?.sync_all()?;
    }
    Ok(())
}

/// An empty store in a file of its own.
fn make(path: &Path) -> Result<(), redb::Error> {
    initialise(&Database::builder().set_cache_size(CACHE).create(path)?)?;
    std::fs::File::open(path)?.sync_all()?;
    Ok(())
}

/// Gives the file the name of the store, unless somebody was faster: then theirs is the store.
fn name(fresh: &Path, path: &Path) -> io::Result<()> {
    match std::fs::hard_link(fresh, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        // A file system without links: the store is made in its place.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied
            ) =>
        {
            Ok(())
        }
        linked => linked,
    }
}
