use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt as _;
use groundplane_core::FixedClock;
use jiff::SignedDuration;
use tokio::sync::{Notify, mpsc};

use super::*;
use crate::{Reservation, ReservationState};

type Listed = Result<Vec<Reservation>, CloudError>;

/// A loader whose reads begin and end when the test says so.
struct Bench {
    inventory: Inventory<Reservation>,
    clock: Arc<FixedClock>,
    begun: mpsc::UnboundedReceiver<()>,
    answers: Arc<Mutex<VecDeque<Listed>>>,
    go: Arc<Notify>,
    reads: Arc<AtomicUsize>,
    tasks: Tasks,
}

impl Bench {
    fn new() -> Self {
        let clock = Arc::new(FixedClock::new(Timestamp::UNIX_EPOCH));
        let (told, begun) = mpsc::unbounded_channel();
        let answers = Arc::new(Mutex::new(VecDeque::new()));
        let (go, reads, tasks) = (
            Arc::new(Notify::new()),
            Arc::new(AtomicUsize::new(0)),
            Tasks::new(),
        );
        let inventory = Inventory::new(
            {
                let (answers, go, reads) = (Arc::clone(&answers), Arc::clone(&go), Arc::clone(&reads));
                move || {
                    let (answers, go, told) = (Arc::clone(&answers), Arc::clone(&go), told.clone());
                    reads.fetch_add(1, Ordering::SeqCst);
                    async move {
                        told.send(()).unwrap();
                        go.notified().await;
                        answers.lock().pop_front().unwrap()
                    }
                    .boxed()
                }
            },
            Arc::new(Arc::clone(&clock)),
            tasks.clone(),
        );
        Self {
            inventory,
            clock,
            begun,
            answers,
            go,
            reads,
            tasks,
        }
    }

    fn ask(&self) -> tokio::task::JoinHandle<Answer<Reservation>> {
        let inventory = self.inventory.clone();
        spawn(async move { inventory.fresh().await })
    }

    async fn begins(&mut self) {
        self.begun.recv().await.unwrap();
    }

    fn answer(&self, answer: Result<Vec<Reservation>, CloudError>) {
        self.answers.lock().push_back(answer);
        self.go.notify_one();
    }

    fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "a caller of the test, which it awaits or aborts itself"
)]
fn spawn<F: Future<Output: Send> + Send + 'static>(future: F) -> tokio::task::JoinHandle<F::Output> {
    tokio::spawn(future)
}

fn item(id: &str, tags: &[&str]) -> Reservation {
    Reservation {
        id: id.to_owned(),
        prefix: None,
        state: ReservationState::Ready,
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        assignments: Vec::new(),
        usable: true,
    }
}

fn ids(snapshot: &[Reservation]) -> Vec<&str> {
    let mut ids: Vec<_> = snapshot.iter().map(|item| item.id.as_str()).collect();
    ids.sort_unstable();
    ids
}

fn found<'a>(snapshot: &'a Snapshot<Reservation>, key: &str) -> Vec<&'a str> {
    let mut ids: Vec<_> = snapshot.find(key).map(|item| item.id.as_str()).collect();
    ids.sort_unstable();
    ids
}

fn away() -> CloudError {
    CloudError::new(CloudErrorKind::Unavailable, "list", "away")
}

#[tokio::test]
async fn a_thousand_callers_at_once_cost_one_read() {
    let mut bench = Bench::new();
    let all = spawn({
        let inventory = bench.inventory.clone();
        async move {
            let callers = (0..1000).map(|_| inventory.fresh());
            futures::future::join_all(callers).await
        }
    });
    bench.begins().await;
    bench.answer(Ok(vec![item("a", &[])]));
    for answer in all.await.unwrap() {
        assert_eq!(ids(&answer.unwrap()), ["a"]);
    }
    assert_eq!(bench.reads(), 1);
}

#[tokio::test]
async fn who_asks_while_a_read_runs_gets_the_next_one_and_shares_it() {
    let mut bench = Bench::new();
    let first = bench.ask();
    bench.begins().await;
    let late = spawn({
        let inventory = bench.inventory.clone();
        async move { futures::future::join(inventory.fresh(), inventory.fresh()).await }
    });
    tokio::task::yield_now().await;
    assert_eq!(bench.inventory.inner.state.lock().queued.len(), 2);
    bench.answer(Ok(vec![item("old", &[])]));
    assert_eq!(ids(&first.await.unwrap().unwrap()), ["old"]);
    bench.begins().await;
    bench.answer(Ok(vec![item("new", &[])]));
    let (one, two) = late.await.unwrap();
    assert_eq!(
        (ids(&one.unwrap()), ids(&two.unwrap())),
        (vec!["new"], vec!["new"])
    );
    assert_eq!(bench.reads(), 2);
}

/// Reads that follow each other without a pause begin apart, so that more share one; who comes alone waits for nobody.
#[tokio::test(start_paused = true)]
async fn reads_without_a_pause_begin_apart() {
    let mut bench = Bench::new();
    let first = bench.ask();
    bench.begins().await;
    let began = Instant::now();
    let second = bench.ask();
    tokio::task::yield_now().await;
    bench.answer(Ok(vec![item("a", &[])]));
    first.await.unwrap().unwrap();
    let third = bench.ask();
    bench.begins().await;
    assert_eq!(began.elapsed(), GAP);
    bench.answer(Ok(vec![item("b", &[])]));
    for asked in [second, third] {
        assert_eq!(ids(&asked.await.unwrap().unwrap()), ["b"]);
    }
    assert_eq!(bench.reads(), 2);
    let alone = bench.ask();
    bench.begins().await;
    assert_eq!(began.elapsed(), GAP);
    bench.answer(Ok(vec![]));
    alone.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_error_reaches_every_waiter_and_the_snapshot_stays() {
    let mut bench = Bench::new();
    let first = bench.ask();
    bench.begins().await;
    bench.answer(Ok(vec![item("a", &[])]));
    first.await.unwrap().unwrap();
    let (one, two) = (bench.ask(), bench.ask());
    bench.begins().await;
    bench.answer(Err(away()));
    for asked in [one, two] {
        assert_eq!(
            asked.await.unwrap().unwrap_err().kind,
            CloudErrorKind::Unavailable
        );
    }
    assert_eq!(bench.reads(), 2, "the two shared the read that failed");
    assert_eq!(ids(&bench.inventory.cached().unwrap()), ["a"]);
}

#[tokio::test]
async fn a_caller_that_goes_away_does_not_end_the_read_of_the_others() {
    let mut bench = Bench::new();
    let first = bench.ask();
    bench.begins().await;
    let inventory = bench.inventory.clone();
    let second = spawn(async move { inventory.get(Duration::from_secs(60)).await });
    tokio::task::yield_now().await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    bench.answer(Ok(vec![item("a", &[])]));
    assert_eq!(ids(&second.await.unwrap().unwrap()), ["a"]);
    assert_eq!(bench.reads(), 1, "a running read is young enough to be joined");
}

#[tokio::test]
async fn a_write_is_not_lost_to_a_read_that_began_before_it() {
    let mut bench = Bench::new();
    let first = bench.ask();
    bench.begins().await;
    bench.answer(Ok(vec![item("a", &[]), item("b", &[])]));
    first.await.unwrap().unwrap();
    let second = bench.ask();
    bench.begins().await;
    bench.inventory.put(item("c", &["t"]));
    bench.inventory.remove("a");
    bench
        .inventory
        .update(|items| items.retain(|item| item.id != "b"));
    assert_eq!(ids(&bench.inventory.cached().unwrap()), ["c"], "at once");
    bench.answer(Ok(vec![item("a", &[]), item("b", &[])]));
    assert_eq!(ids(&second.await.unwrap().unwrap()), ["c"], "and after the read");
    let third = bench.ask();
    bench.begins().await;
    bench.answer(Ok(vec![item("b", &[])]));
    assert_eq!(ids(&third.await.unwrap().unwrap()), ["b"], "a later read decides");
}

/// However the wall clock jumps: an old list that looked young could tell of a machine that is another one by now.
#[tokio::test(start_paused = true)]
async fn age_decides_whether_the_cache_serves() {
    let mut bench = Bench::new();
    let first = bench.ask();
    bench.begins().await;
    bench.answer(Ok(vec![]));
    first.await.unwrap().unwrap();
    tokio::time::advance(Duration::from_secs(60)).await;
    bench.clock.advance(SignedDuration::from_secs(-59));
    assert_eq!(bench.inventory.age(), Some(Duration::from_secs(60)));
    bench.inventory.get(Duration::from_secs(60)).await.unwrap();
    assert_eq!(bench.reads(), 1);
    let inventory = bench.inventory.clone();
    let stale = spawn(async move { inventory.get(Duration::from_secs(59)).await });
    bench.begins().await;
    bench.answer(Ok(vec![]));
    stale.await.unwrap().unwrap();
    for hours in [-24, 48] {
        bench.clock.advance(SignedDuration::from_hours(hours));
        bench.inventory.get(Duration::from_secs(59)).await.unwrap();
    }
    assert_eq!(bench.reads(), 2);
}

#[tokio::test]
async fn a_read_ends_with_the_process() {
    let mut bench = Bench::new();
    let asked = bench.ask();
    bench.begins().await;
    bench.tasks.token().cancel();
    assert_eq!(
        asked.await.unwrap().unwrap_err().kind,
        CloudErrorKind::Unavailable
    );
    bench.tasks.drain(Duration::from_secs(60)).await.unwrap();
}

#[tokio::test]
async fn a_write_copies_nothing_while_nobody_holds_the_snapshot() {
    let mut bench = Bench::new();
    let first = bench.ask();
    bench.begins().await;
    bench.answer(Ok(vec![item("a", &[])]));
    drop(first.await.unwrap().unwrap());
    let place = || Arc::as_ptr(&bench.inventory.cached().unwrap());
    let before = place();
    for number in 0..1000 {
        let id = format!("i{number}");
        assert_eq!(
            bench.inventory.peek(|snapshot| found(snapshot, "t").len()),
            Some(number)
        );
        bench.inventory.put(item(&id, &["t"]));
    }
    assert_eq!(place(), before);
    let held = bench.inventory.cached();
    bench.inventory.remove("a");
    assert_ne!(place(), before, "copied once, for whoever holds it");
    assert_eq!(held.unwrap().len(), 1001);
}

#[test]
fn a_snapshot_that_somebody_holds_does_not_change() {
    let mut current = Arc::new(Snapshot::new(vec![item("a", &["t"])], Timestamp::UNIX_EPOCH));
    let held = Arc::clone(&current);
    assert_eq!(found(&held, "t"), ["a"]);
    Arc::make_mut(&mut current).put(item("b", &["t"]));
    assert_eq!(
        (found(&held, "t"), found(&current, "t")),
        (vec!["a"], vec!["a", "b"])
    );
}

proptest::proptest! {
    /// Whatever is put, removed and looked up, the kept index finds what a scan finds.
    #[test]
    fn the_index_finds_what_a_scan_finds(
        steps in proptest::collection::vec((0_u8..4, 0_u8..6, proptest::collection::vec(0_u8..4, 0..3)), 1..60)
    ) {
        let mut snapshot = Snapshot::new(Vec::new(), Timestamp::UNIX_EPOCH);
        for (step, id, tags) in steps {
            let tags: Vec<String> = tags.iter().map(|tag| format!("t{tag}")).collect();
            let id = format!("i{id}");
            match step {
                0 => snapshot.remove(&id),
                1 => snapshot.change(|items: &mut Vec<Reservation>| items.retain(|item| item.id != id)),
                _ => snapshot.put(item(&id, &tags.iter().map(String::as_str).collect::<Vec<_>>())),
            }
            for key in ["t0", "t1", "t2", "t3", "i0", "i1", "i2", "i3", "i4", "i5"] {
                let scan: Vec<_> = snapshot.iter().filter(|item| item.id == key || item.tags.iter().any(|t| t == key)).cloned().collect();
                proptest::prop_assert_eq!(found(&snapshot, key), ids(&scan));
            }
        }
    }
}
