//! What every store must do, run against each of them; and what only a file can suffer.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use groundplane_core::{Owner, Revision};
use jiff::Timestamp;
use parking_lot::Mutex;
use pretty_assertions::assert_eq;
use redb::StorageBackend;
use redb::backends::InMemoryBackend;

use super::memory::MemoryStore;
use super::redb::RedbStore;
use crate::domain::{Allocation, Change, Cooling, Key, Record};
use crate::ports::{Store, StoreError};

fn key(network: &str, prefix: &str) -> Key {
    Key {
        network: network.parse().unwrap(),
        prefix: prefix.parse().unwrap(),
    }
}

fn held(key: &Key, name: &str, revision: u64) -> Record {
    let owner = Owner::service(
        "east".parse().unwrap(),
        "default".parse().unwrap(),
        name.parse().unwrap(),
    );
    let source = groundplane_core::PoolSource("file".parse().unwrap());
    Record::Held(Arc::new(Allocation {
        key: key.clone(),
        owner: Arc::new(owner),
        uid: "1-2-3".into(),
        pool: Some(Arc::new(groundplane_core::PoolId {
            source,
            namespace: None,
            name: "a".parse().unwrap(),
        })),
        since: Timestamp::from_millisecond(1_234_567_891).unwrap(),
        revision: Revision(revision),
    }))
}

fn cooling(revision: u64) -> Record {
    Record::Cooling(Cooling {
        released: Timestamp::from_second(77).unwrap(),
        revision: Revision(revision),
    })
}

fn change(key: &Key, old: Option<Record>, new: Option<Record>, revision: u64) -> Change {
    Change {
        key: key.clone(),
        old,
        new,
        revision: Revision(revision),
    }
}

/// Closes a store, and opens it again.
type Again<'a> = &'a dyn Fn(Box<dyn Store>) -> Box<dyn Store>;

/// The contract. `again` gives the same store as a new process would find it; `None` where it forgets.
fn store_contract(mut store: Box<dyn Store>, again: Option<Again<'_>>) {
    let empty = store.load().unwrap();
    assert_eq!((empty.revision, empty.records.len()), (Revision(0), 0));
    assert!(!empty.id.is_empty());

    let (a, b, c) = (
        key("default", "10.0.0.1"),
        key("default", "2001:db8::/64"),
        key("blue", "10.0.0.1"),
    );
    let first = [
        change(&a, None, Some(held(&a, "web", 1)), 1),
        change(&b, None, Some(held(&b, "api", 2)), 2),
        change(&c, None, Some(held(&c, "web", 3)), 3),
        change(&a, Some(held(&a, "web", 1)), Some(cooling(4)), 4),
    ];
    store
        .commit(Revision(4), &first.iter().collect::<Vec<_>>())
        .unwrap();
    let expected = vec![
        (c.clone(), held(&c, "web", 3)),
        (a.clone(), cooling(4)),
        (b.clone(), held(&b, "api", 2)),
    ];
    let loaded = store.load().unwrap();
    assert_eq!((loaded.revision, &loaded.records), (Revision(4), &expected));

    // The second change does not start from what is stored, so the first is not made either.
    let torn = [
        change(&b, Some(held(&b, "api", 2)), None, 5),
        change(&a, Some(held(&a, "web", 1)), None, 6),
    ];
    assert!(matches!(
        store.commit(Revision(6), &torn.iter().collect::<Vec<_>>()),
        Err(StoreError::Corrupt(_))
    ));
    let taken = change(&a, None, Some(held(&a, "other", 7)), 7);
    assert!(matches!(
        store.commit(Revision(7), &[&taken]),
        Err(StoreError::Corrupt(_))
    ));
    let loaded = store.load().unwrap();
    assert_eq!((loaded.revision, &loaded.records), (Revision(4), &expected));

    store.commit(Revision(9), &[]).unwrap();
    store
        .commit(Revision(10), &[&change(&a, Some(cooling(4)), None, 10)])
        .unwrap();
    let Some(again) = again else { return };
    let loaded = again(store).load().unwrap();
    assert_eq!((loaded.id, loaded.revision), (empty.id, Revision(10)));
    assert_eq!(loaded.records, [expected[0].clone(), expected[2].clone()]);
}

#[test]
fn memory_keeps_the_contract() {
    store_contract(Box::new(MemoryStore::new()), None);
}

/// A disk that keeps its bytes when the database is closed, and that can be full.
#[derive(Debug, Clone, Default)]
struct Disk {
    bytes: Arc<InMemoryBackend>,
    faults: Arc<Mutex<Faults>>,
}

#[derive(Debug, Default)]
struct Faults {
    full: bool,
    /// Writes go through, and the caller hears of an error all the same.
    deaf: bool,
}

impl Disk {
    fn open(&self) -> RedbStore {
        let disk = self.clone();
        let open = move || redb::Database::builder().create_with_backend(disk.clone());
        RedbStore::with("test disk".to_owned(), Box::new(open)).unwrap()
    }

    fn checked(&self) -> io::Result<()> {
        let faults = self.faults.lock();
        if faults.full {
            Err(io::Error::from(io::ErrorKind::StorageFull))
        } else {
            Ok(())
        }
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        self.bytes.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.bytes.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.checked()?;
        self.bytes.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.checked()?;
        self.bytes.sync_data()?;
        if self.faults.lock().deaf {
            Err(io::Error::other("no answer"))
        } else {
            Ok(())
        }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.checked()?;
        self.bytes.write(offset, data)
    }
}

#[test]
fn redb_in_memory_keeps_the_contract() {
    let disk = Disk::default();
    let again = |store: Box<dyn Store>| -> Box<dyn Store> {
        drop(store);
        Box::new(disk.open())
    };
    store_contract(Box::new(disk.open()), Some(&again));
}

#[test]
fn redb_on_disk_keeps_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/folder/ipam.redb");
    let again = |store: Box<dyn Store>| -> Box<dyn Store> {
        drop(store);
        Box::new(RedbStore::open(&path).unwrap())
    };
    store_contract(Box::new(RedbStore::open(&path).unwrap()), Some(&again));
}

/// What a killed process leaves: the file as it is, not closed.
#[test]
fn a_commit_survives_a_process_that_never_closes_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("ipam.redb"), folder.path().join("copy.redb"));
    let mut store = RedbStore::open(&path).unwrap();
    let id = store.load().unwrap().id;
    for number in 1..=50_u64 {
        let key = key("default", &format!("10.0.0.{number}"));
        store
            .commit(
                Revision(number),
                &[&change(&key, None, Some(held(&key, "web", number)), number)],
            )
            .unwrap();
        fs::copy(&path, &copy).unwrap();
        let loaded = RedbStore::open(&copy).unwrap().load().unwrap();
        assert_eq!(
            (&loaded.id, loaded.revision, loaded.records.len() as u64),
            (&id, Revision(number), number)
        );
    }
}

/// Nothing is written, and it goes on when there is room again, without a restart.
#[test]
fn a_full_disk_refuses_and_recovers() {
    let disk = Disk::default();
    let mut store = disk.open();
    let (a, b) = (key("default", "10.0.0.1"), key("default", "10.0.0.2"));
    store
        .commit(Revision(1), &[&change(&a, None, Some(held(&a, "web", 1)), 1)])
        .unwrap();
    disk.faults.lock().full = true;
    let second = change(&b, None, Some(held(&b, "api", 2)), 2);
    for _ in 0..3 {
        assert!(matches!(
            store.commit(Revision(2), &[&second]),
            Err(StoreError::Unavailable(_))
        ));
    }
    disk.faults.lock().full = false;
    assert_eq!(store.load().unwrap().records, [(a.clone(), held(&a, "web", 1))]);
    store.commit(Revision(2), &[&second]).unwrap();
    assert_eq!(store.load().unwrap().records.len(), 2);
}

#[test]
fn a_commit_that_failed_and_was_written_all_the_same_is_taken_back() {
    let disk = Disk::default();
    let mut store = disk.open();
    let (a, b) = (key("default", "10.0.0.1"), key("default", "10.0.0.2"));
    store
        .commit(Revision(1), &[&change(&a, None, Some(held(&a, "web", 1)), 1)])
        .unwrap();
    disk.faults.lock().deaf = true;
    let lost = [
        change(&a, Some(held(&a, "web", 1)), None, 2),
        change(&b, None, Some(held(&b, "api", 3)), 3),
    ];
    assert!(store.commit(Revision(3), &[&lost[0], &lost[1]]).is_err());
    disk.faults.lock().deaf = false;
    // The caller believes that nothing happened, and goes on from there.
    store
        .commit(
            Revision(4),
            &[&change(&a, Some(held(&a, "web", 1)), Some(cooling(4)), 4)],
        )
        .unwrap();
    assert_eq!(store.load().unwrap().records, [(a, cooling(4))]);
}

fn refused(path: &Path) -> StoreError {
    let before = fs::read(path).unwrap();
    let error = RedbStore::open(path)
        .and_then(|mut store| store.load())
        .unwrap_err();
    assert_eq!(fs::read(path).unwrap(), before, "the file is kept as it is");
    assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    error
}

/// Refused and named, kept, never made anew.
#[test]
fn a_damaged_file_is_refused_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ipam.redb");
    fs::write(
        &path,
        b"this is no database, and longer than its header would be".repeat(200),
    )
    .unwrap();
    assert!(matches!(refused(&path), StoreError::Corrupt(_)));

    fs::remove_file(&path).unwrap();
    let mut store = RedbStore::open(&path).unwrap();
    let keys: Vec<_> = (0..200)
        .map(|number| key("default", &format!("10.0.0.{number}")))
        .collect();
    let changes: Vec<_> = keys
        .iter()
        .map(|key| change(key, None, Some(held(key, "web", 1)), 1))
        .collect();
    store
        .commit(Revision(1), &changes.iter().collect::<Vec<_>>())
        .unwrap();
    drop(store);
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() / 3]).unwrap();
    assert!(
        matches!(refused(&path), StoreError::Corrupt(_)),
        "{:?}",
        refused(&path)
    );
}

#[test]
fn a_file_in_use_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ipam.redb");
    let mut first = RedbStore::open(&path).unwrap();
    let error = RedbStore::open(&path).unwrap_err();
    assert!(matches!(error, StoreError::InUse(_)), "{error}");
    assert!(error.to_string().contains("ipam.redb"), "{error}");
    first.load().unwrap();
}

#[test]
fn a_record_of_a_later_format_is_not_guessed_at() {
    let disk = Disk::default();
    drop(disk.open());
    let table: redb::TableDefinition<'_, &[u8], &[u8]> = redb::TableDefinition::new("records");
    let database = redb::Database::builder()
        .create_with_backend(disk.clone())
        .unwrap();
    let transaction = database.begin_write().unwrap();
    let mut bytes = b"default\0\x04".to_vec();
    bytes.extend_from_slice(&u128::from(0x0a00_0001_u32).to_be_bytes());
    bytes.push(32);
    let value: &[u8] = b"\x02\0\0\0\0\0\0\0\x01{}";
    transaction
        .open_table(table)
        .unwrap()
        .insert(bytes.as_slice(), value)
        .unwrap();
    transaction.commit().unwrap();
    drop(database);
    let error = disk.open().load().unwrap_err();
    assert!(
        error.to_string().contains("10.0.0.1/32 has format Some(2)"),
        "{error}"
    );
}
