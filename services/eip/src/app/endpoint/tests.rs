mod simulation;

use futures::FutureExt as _;
use groundplane_cloud::testing::{EndpointCall as Asked, EndpointFault, FakeCloud, FakeEndpoint};
use groundplane_core::{ErrorKind, Kinded as _};

use super::*;

/// A process with the endpoint, and the machines `a`, `b` and `c`.
struct Bench {
    fake: FakeEndpoint,
    api: ApiEndpoint,
    context: Context,
}

fn machine(name: &str) -> ProviderId {
    format!("fake://{name}").parse().unwrap()
}

/// A process of its own in front of the same cloud.
fn process(fake: &FakeEndpoint) -> (ApiEndpoint, Context) {
    let clouds = FakeCloud::new();
    clouds.set_endpoint(Some(fake));
    let cloud = clouds.cloud();
    let context = Context::new();
    (ApiEndpoint::new(&cloud, &context), context)
}

fn fake(atomic: bool) -> FakeEndpoint {
    let fake = FakeEndpoint::new("203.0.113.9".parse().unwrap(), atomic);
    for name in ["a", "b", "c"] {
        fake.add_machine(&machine(name));
    }
    fake
}

impl Bench {
    fn new() -> Self {
        let fake = fake(false);
        let (api, context) = process(&fake);
        Self { fake, api, context }
    }

    fn wish(&self, to: &str, decided_on: Option<&EndpointAssignment>) -> Wish {
        Wish {
            address: self.fake.address(),
            to: machine(to),
            decided_on: decided_on.map(|one| one.id.clone()),
        }
    }

    async fn move_to(&self, to: &str, decided_on: Option<&EndpointAssignment>) -> Result<Moved, EipError> {
        self.api.move_to(self.wish(to, decided_on)).await
    }

    /// Names of the machines that hold it.
    fn holders(&self) -> Vec<String> {
        let held = self.fake.assignments();
        held.into_iter().map(|one| one.machine.id().to_owned()).collect()
    }

    fn metric(&self, line: &str) -> bool {
        self.context
            .metrics
            .encode()
            .unwrap()
            .lines()
            .any(|row| row == line)
    }
}

fn reason(result: Result<Moved, EipError>) -> (ErrorKind, &'static str) {
    let error = result.unwrap_err();
    (error.kind(), error.reason())
}

/// E69 at the level of this service: what was decided on is removed first, then it is assigned, in three calls.
#[tokio::test(start_paused = true)]
async fn a_move_takes_away_then_gives() {
    let bench = Bench::new();
    let old = bench.fake.assign_by_hand(&machine("a"));
    let moved = bench.move_to("b", Some(&old)).await.unwrap();
    assert_eq!((moved.calls, moved.unchanged), (3, false));
    assert!(moved.gap.is_some());
    let counts: Vec<_> = bench
        .fake
        .history()
        .iter()
        .map(|change| change.assignments.len())
        .collect();
    assert_eq!(counts, [1, 0, 1]);
    assert_eq!(bench.fake.assignments()[0].id, moved.assignment);
    assert!(bench.metric("groundplane_eip_endpoint_moves_total{outcome=\"moved\"} 1"));
    let again = bench.move_to("b", Some(&old)).await.unwrap();
    let expected = Moved {
        calls: 1,
        gap: None,
        unchanged: true,
        ..moved
    };
    assert_eq!(again, expected, "repeated, it finds what it did");
}

#[tokio::test(start_paused = true)]
async fn the_ids_that_a_machine_has_are_one_machine() {
    let bench = Bench::new();
    let old = bench.fake.assign_by_hand(&machine("a"));
    let wish = |to: &str| Wish {
        to: to.parse().unwrap(),
        ..bench.wish("a", Some(&old))
    };
    assert!(bench.api.move_to(wish("old://a")).await.unwrap().unchanged);
    assert_eq!(bench.fake.calls(Asked::Unassign), 0);
    let error = reason(bench.api.move_to(wish("aws:///eu/i-1")).await);
    assert_eq!(error, (ErrorKind::Invalid, "INVALID_FIELD"));
}

/// E78: several assignments are told, and nothing is touched.
#[tokio::test(start_paused = true)]
async fn several_holders_are_left_to_a_person() {
    let bench = Bench::new();
    let first = bench.fake.assign_by_hand(&machine("a"));
    bench.fake.assign_by_hand(&machine("b"));
    assert_eq!(bench.api.get().await.unwrap().endpoint.assignments.len(), 2);
    for to in ["a", "c"] {
        let error = reason(bench.move_to(to, Some(&first)).await);
        assert_eq!(error, (ErrorKind::Precondition, "ENDPOINT_SHARED"));
    }
    assert_eq!(bench.holders(), ["a", "b"]);
    assert_eq!(
        (bench.fake.calls(Asked::Unassign), bench.fake.calls(Asked::Assign)),
        (0, 0)
    );
}

/// E79: no reservation with the tag.
#[tokio::test(start_paused = true)]
async fn an_endpoint_that_is_not_there_is_told() {
    let bench = Bench::new();
    for (kind, expected) in [
        (
            CloudErrorKind::NotFound,
            (ErrorKind::NotFound, "ENDPOINT_NOT_FOUND"),
        ),
        (
            CloudErrorKind::Refused,
            (ErrorKind::Precondition, "ENDPOINT_AMBIGUOUS"),
        ),
        (
            CloudErrorKind::Unavailable,
            (ErrorKind::Unavailable, "CLOUD_UNAVAILABLE"),
        ),
    ] {
        bench.fake.set_unreadable(Some((kind, "as told")));
        assert_eq!(reason(bench.move_to("a", None).await), expected);
        let error = bench.api.get().await.unwrap_err();
        assert_eq!((error.kind(), error.reason()), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_decision_on_what_is_past_moves_nothing() {
    let bench = Bench::new();
    let old = bench.fake.assign_by_hand(&machine("a"));
    bench.move_to("b", Some(&old)).await.unwrap();
    for decided_on in [Some(&old), None] {
        let error = reason(bench.move_to("c", decided_on).await);
        assert_eq!(error, (ErrorKind::Conflict, "ENDPOINT_CHANGED"));
    }
    assert_eq!(bench.holders(), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn calls_without_an_answer_are_finished_within_the_move() {
    use groundplane_cloud::CloudErrorKind::{Timeout, Unavailable};
    for (asked, fault) in [
        (Asked::Unassign, EndpointFault::before(Unavailable)),
        (Asked::Unassign, EndpointFault::after(Unavailable)),
        (Asked::Unassign, EndpointFault::hang()),
        (Asked::Unassign, EndpointFault::hang_after()),
        (
            Asked::Unassign,
            EndpointFault::late(Timeout, Duration::from_secs(1)),
        ),
        (Asked::Assign, EndpointFault::before(Unavailable)),
        (Asked::Assign, EndpointFault::after(Timeout)),
        (Asked::Assign, EndpointFault::hang()),
        (Asked::Assign, EndpointFault::hang_after()),
        (
            Asked::Assign,
            EndpointFault::late(Timeout, Duration::from_secs(1)),
        ),
    ] {
        let bench = Bench::new();
        let old = bench.fake.assign_by_hand(&machine("a"));
        bench.fake.fault(asked, fault);
        let moved = bench.move_to("b", Some(&old)).await.unwrap();
        assert!(!moved.unchanged && moved.gap.is_some(), "{asked:?} {fault:?}");
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(bench.holders(), ["b"], "{asked:?} {fault:?}");
        assert!(
            bench
                .fake
                .history()
                .iter()
                .all(|change| change.assignments.len() <= 1)
        );
    }
}

/// The machine is none of the cloud's: known only when it was taken away, so it goes back, and is not taken away again for that.
#[tokio::test(start_paused = true)]
async fn a_target_that_is_not_there_leaves_it_where_it_was() {
    let bench = Bench::new();
    let old = bench.fake.assign_by_hand(&machine("a"));
    let error = reason(bench.move_to("gone", Some(&old)).await);
    assert_eq!(error, (ErrorKind::NotFound, "MACHINE_NOT_FOUND"));
    assert_eq!(bench.holders(), ["a"]);
    let back = bench.fake.assignments().remove(0);
    let error = reason(bench.move_to("gone", Some(&back)).await);
    assert_eq!(error, (ErrorKind::NotFound, "MACHINE_NOT_FOUND"));
    assert_eq!(bench.fake.calls(Asked::Unassign), 1, "not taken away again");
    assert!(
        !bench.move_to("b", Some(&back)).await.unwrap().unchanged,
        "others can have it"
    );
    tokio::time::advance(BAR).await;
    bench.fake.add_machine(&machine("gone"));
    let held = bench.fake.assignments().remove(0);
    bench.move_to("gone", Some(&held)).await.unwrap();
    assert_eq!(bench.holders(), ["gone"], "it may come to be there");
}

/// The caller goes away between removal and assignment: the move is finished all the same.
#[tokio::test(start_paused = true)]
async fn a_move_outlives_its_caller_once_the_address_is_with_nobody() {
    let bench = Bench::new();
    let old = bench.fake.assign_by_hand(&machine("a"));
    bench
        .fake
        .fault(Asked::Assign, EndpointFault::slow(Duration::from_secs(2)));
    bench
        .fake
        .fault(Asked::Assign, EndpointFault::before(CloudErrorKind::Unavailable));
    let left = timeout(Duration::from_secs(1), bench.move_to("b", Some(&old))).await;
    assert!(left.is_err());
    assert_eq!(bench.fake.assignments(), [], "taken away, not given yet");
    bench.context.tasks.drain(Duration::from_secs(60)).await.unwrap();
    assert_eq!(bench.holders(), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_begun_for_a_caller_that_has_left() {
    let bench = Bench::new();
    let old = bench.fake.assign_by_hand(&machine("a"));
    bench
        .fake
        .fault(Asked::Read, EndpointFault::slow(Duration::from_secs(2)));
    let left = timeout(Duration::from_secs(1), bench.move_to("b", Some(&old))).await;
    assert!(left.is_err());
    bench.context.tasks.drain(Duration::from_secs(60)).await.unwrap();
    assert_eq!(bench.holders(), ["a"]);
    assert_eq!(bench.fake.calls(Asked::Unassign), 0);
}

#[tokio::test(start_paused = true)]
async fn nobody_goes_on_for_ever() {
    let bench = Bench::new();
    let old = bench.fake.assign_by_hand(&machine("a"));
    let down = |call| (call == Asked::Assign).then(|| EndpointFault::before(CloudErrorKind::Unavailable));
    bench.fake.choose_faults(Some(down));
    let left = timeout(Duration::from_secs(5), bench.move_to("b", Some(&old))).await;
    assert!(left.is_err());
    let began = Instant::now();
    bench.context.tasks.drain(Duration::from_secs(600)).await.unwrap();
    assert!(
        began.elapsed() <= FINISH + ANSWER,
        "bounded by {FINISH:?}, in paused time"
    );
    assert_eq!(bench.fake.assignments(), []);
    bench
        .fake
        .choose_faults(None::<fn(Asked) -> Option<EndpointFault>>);
    let (other, _context) = process(&bench.fake);
    let moved = other.move_to(bench.wish("b", Some(&old))).await.unwrap();
    assert!(!moved.unchanged, "the next one finishes it");
    assert_eq!(bench.holders(), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn moves_of_a_process_wait_for_each_other() {
    let bench = Bench::new();
    let old = bench.fake.assign_by_hand(&machine("a"));
    bench
        .fake
        .fault(Asked::Assign, EndpointFault::slow(Duration::from_secs(1)));
    let mut first = Box::pin(bench.move_to("b", Some(&old)));
    assert!((&mut first).now_or_never().is_none());
    let second = bench.move_to("b", Some(&old));
    let (first, second) = tokio::join!(first, second);
    assert_eq!(
        (first.unwrap().unchanged, second.unwrap().unchanged),
        (false, true)
    );
    assert_eq!(bench.fake.calls(Asked::Unassign), 1);
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_moves_in_one_step_leaves_no_gap() {
    let fake = fake(true);
    let (api, _context) = process(&fake);
    let old = fake.assign_by_hand(&machine("a"));
    let wish = Wish {
        address: fake.address(),
        to: machine("b"),
        decided_on: Some(old.id),
    };
    fake.fault(Asked::Reassign, EndpointFault::after(CloudErrorKind::Timeout));
    let moved = api.move_to(wish).await.unwrap();
    assert_eq!((moved.gap, moved.unchanged, moved.calls), (None, false, 3));
    assert!(fake.history().iter().all(|change| change.assignments.len() == 1));
}

#[tokio::test]
async fn without_an_endpoint_there_is_nothing_to_move() {
    let api = ApiEndpoint::new(&FakeCloud::new().cloud(), &Context::new());
    let error = api.get().await.unwrap_err();
    assert_eq!(
        (error.kind(), error.reason()),
        (ErrorKind::Precondition, "ENDPOINT_NOT_CONFIGURED")
    );
}
