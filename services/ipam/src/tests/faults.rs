//! Restarts, and stores that fail.

use std::sync::Arc;

use groundplane_core::Revision;
use parking_lot::{Condvar, Mutex};
use pretty_assertions::assert_eq;
use tokio::sync::Notify;

use super::*;
use crate::StartError;
use crate::domain::Change;
use crate::ports::{Loaded, StoreError};

/// A store that fails on demand, and that can be made to wait.
#[derive(Debug)]
struct Fragile {
    inner: MemoryStore,
    error: Arc<Mutex<Option<StoreError>>>,
    gate: Arc<Gate>,
}

/// Holds a commit up.
#[derive(Debug, Default)]
struct Gate {
    closed: Mutex<bool>,
    opened: Condvar,
    /// Told when a commit stands before the gate.
    waiting: Notify,
}

impl Gate {
    fn pass(&self) {
        let mut closed = self.closed.lock();
        while *closed {
            self.waiting.notify_one();
            self.opened.wait(&mut closed);
        }
    }

    fn close(&self, closed: bool) {
        *self.closed.lock() = closed;
        self.opened.notify_all();
    }
}

impl Store for Fragile {
    fn kind(&self) -> &'static str {
        "memory"
    }

    fn load(&mut self) -> Result<Loaded, StoreError> {
        self.inner.load()
    }

    fn commit(&mut self, revision: Revision, changes: &[&Change]) -> Result<(), StoreError> {
        self.gate.pass();
        let error = self.error.lock().clone();
        error.map_or_else(|| self.inner.commit(revision, changes), Err)
    }
}

struct Handles {
    error: Arc<Mutex<Option<StoreError>>>,
    gate: Arc<Gate>,
}

async fn fragile(pools: &[PoolConfig]) -> (Ipam, Handles) {
    let (error, gate) = (Arc::new(Mutex::new(None)), Arc::new(Gate::default()));
    let store = Fragile {
        inner: MemoryStore::new(),
        error: Arc::clone(&error),
        gate: Arc::clone(&gate),
    };
    let mut ipam = Ipam::over(Box::new(store), pools).await;
    ipam.adopt(Vec::new()).await;
    (ipam, Handles { error, gate })
}

/// Refused, nothing changed, and it goes on by itself once there is room.
#[tokio::test]
async fn a_store_that_cannot_write_refuses_and_recovers_without_a_restart() {
    let (mut ipam, handles) = fragile(&[pool("a", &["192.0.2.0/24"])]).await;
    ipam.allocate("web", &["v4"]).await.unwrap();
    *handles.error.lock() = Some(StoreError::Unavailable("no space left on device".into()));
    for _ in 0..2 {
        let error = ipam.allocate("api", &["v4"]).await.unwrap_err();
        assert_eq!(
            (error.kind, error.reason.as_str()),
            (ErrorKind::Unavailable, "STORE_UNAVAILABLE")
        );
        assert!(error.message.contains("no space left"), "{error}");
        assert_eq!(refusal(ipam.release("web").await).1, "STORE_UNAVAILABLE");
    }
    assert_eq!(
        ipam.health().serving("groundplane.ipam.v1.IpamService"),
        Some(false)
    );
    assert_eq!(
        ipam.holder("192.0.2.1").await.as_deref(),
        Some("web"),
        "what is known is told"
    );
    assert_eq!(
        ipam.holder("192.0.2.2").await,
        None,
        "what was refused did not happen"
    );
    *handles.error.lock() = None;
    // Nobody has to try for it to notice.
    ipam.health().ready().await;
    assert_eq!(ipam.allocate("api", &["v4"]).await.unwrap(), ["192.0.2.2/32"]);
    assert_eq!(ipam.release("web").await.unwrap(), 1);
    ipam.stop().await;
}

#[tokio::test]
async fn a_damaged_store_says_so() {
    let (mut ipam, handles) = fragile(&[pool("a", &["192.0.2.0/24"])]).await;
    *handles.error.lock() = Some(StoreError::Corrupt("page 7".into()));
    let error = ipam.allocate("api", &["v4"]).await;
    assert_eq!(refusal(error), (ErrorKind::Corrupt, "STORE_CORRUPT".to_owned()));
    ipam.stop().await;
}

/// Nobody learns of a decision before it is durable: not its owner's retry, not a reader, not who is refused because of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_durable_yet_is_told_to_nobody() {
    let (ipam, handles) = fragile(&[pool("a", &["192.0.2.1"])]).await;
    handles.gate.close(true);
    let spawn = |name: &'static str| {
        let mut client = ipam.client.clone();
        let (send, receive) = tokio::sync::oneshot::channel();
        ipam.context.tasks.spawn("test", async move {
            send.send(client.allocate(request(name, &["v4"])).await).unwrap();
        });
        receive
    };
    let first = spawn("web");
    // The decision is made, and hangs in the store.
    handles.gate.waiting.notified().await;
    let mut others = [spawn("web"), spawn("api")];
    let by = Some(pb::lookup_request::By::Address("192.0.2.1".to_owned()));
    let lookup = pb::LookupRequest {
        by,
        ..Default::default()
    };
    let (mut reader, (send, mut look)) = (ipam.client.clone(), tokio::sync::oneshot::channel());
    ipam.context.tasks.spawn("test", async move {
        send.send(reader.lookup(lookup).await).unwrap();
    });
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert!(others.iter_mut().all(|other| other.try_recv().is_err()) && look.try_recv().is_err());
    *handles.error.lock() = Some(StoreError::Unavailable("gone".into()));
    handles.gate.close(false);
    for answer in std::iter::once(first).chain(others) {
        let error: RpcError = answer.await.unwrap().unwrap_err().into();
        assert_eq!(error.reason, "STORE_UNAVAILABLE");
    }
    if let Ok(answer) = look.await.unwrap() {
        assert_eq!(
            answer.into_inner().allocations,
            [],
            "it came after the failure, and sees nothing of it"
        );
    }
    *handles.error.lock() = None;
    ipam.health().ready().await;
    let mut ipam = ipam;
    assert_eq!(ipam.allocate("api", &["v4"]).await.unwrap(), ["192.0.2.1/32"]);
    ipam.stop().await;
}

/// What was acknowledged is there after a restart, cooldowns included, and the pool is not mixed up.
#[tokio::test]
async fn a_restart_forgets_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ipam.redb");
    let pools = [pool("a", &["192.0.2.1-192.0.2.3", "2001:db8::/64"])];
    let mut ipam = Ipam::in_file(&path, &pools).await;
    ipam.adopt(Vec::new()).await;
    ipam.allocate("web", &["v4", "v6"]).await.unwrap();
    for name in ["b", "a"] {
        ipam.allocate(name, &["v4"]).await.unwrap();
    }
    ipam.clock.advance(jiff::SignedDuration::from_secs(1));
    ipam.release("a").await.unwrap();
    ipam.clock.advance(jiff::SignedDuration::from_secs(1));
    ipam.release("b").await.unwrap();
    let before = ipam.store().await;
    ipam.stop().await;

    let mut ipam = Ipam::in_file(&path, &pools).await;
    assert_eq!(ipam.store().await, before);
    ipam.adopt(Vec::new()).await;
    assert_eq!(
        ipam.allocate("web", &["v4", "v6"]).await.unwrap(),
        ["192.0.2.1/32", "2001:db8::1/128"]
    );
    let resting = ipam.allocate("c", &["v4"]).await;
    assert_eq!(
        refusal(resting).1,
        "POOL_EXHAUSTED",
        "both released addresses rest"
    );
    ipam.clock.advance(jiff::SignedDuration::from_secs(303));
    assert_eq!(
        ipam.allocate("c", &["v4"]).await.unwrap(),
        ["192.0.2.3/32"],
        "`a` was released first"
    );
    ipam.stop().await;
}

#[tokio::test]
async fn a_start_is_refused_with_every_reason() {
    let (context, _) = context();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ipam.redb");
    let bad = [pool("a", &["192.0.2.0/24", "x"]), pool("", &["192.0.2.7"])];
    let error = start(in_file(&path, &bad), &context).await.unwrap_err();
    assert!(
        matches!(&error, StartError::Config(problems) if problems.len() == 2),
        "{error}"
    );
    assert!(
        error.to_string().starts_with("pools[0].addresses[1]: "),
        "{error}"
    );
    assert!(!path.exists());

    std::fs::write(&path, "nonsense".repeat(2000)).unwrap();
    let error = start(in_file(&path, &[]), &context).await.unwrap_err();
    assert!(
        matches!(error, StartError::Store(StoreError::Corrupt(_))),
        "{error}"
    );
    assert!(error.to_string().contains("ipam.redb"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), "nonsense".repeat(2000).as_bytes());
}
