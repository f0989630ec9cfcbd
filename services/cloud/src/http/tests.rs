use groundplane_core::FixedClock;
use groundplane_sandbox::{Action, FaultRule, Project, ProjectOptions, Sandbox};
use jiff::Timestamp;
use prometheus_client::registry::Registry;
use serde_json::Value;

use super::*;
use crate::testing::overheard::Log;

/// Seconds since the epoch at which these tests happen.
const NOW: i64 = 1_000_000;
const ROUTE: &str = "/projects/{pid}/devices";

struct Bench {
    http: Http,
    project: Project,
    _token: tempfile::NamedTempFile,
    _sandbox: Sandbox,
}

impl Bench {
    async fn new(concurrency: usize) -> Self {
        let sandbox = Sandbox::start().await;
        let project = sandbox.project(ProjectOptions::default());
        let token = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(token.path(), project.token()).unwrap();
        let options = HttpOptions {
            driver: "test",
            base_url: project.base_url().to_owned(),
            token_header: HeaderName::from_static("x-auth-token"),
            token_prefix: "",
            errors: ErrorBodies::Texts,
            token: SecretFile::new(token.path()),
            token_field: "token",
            hidden: Vec::new(),
            deadline: Duration::from_secs(20),
            concurrency,
        };
        let clock = Arc::new(FixedClock::new(Timestamp::from_second(NOW).unwrap()));
        let metrics = HttpMetrics::register(&mut Registry::default());
        let http = Http::new(options, metrics, clock).unwrap();
        Self {
            http,
            project,
            _token: token,
            _sandbox: sandbox,
        }
    }

    fn call(&self, method: Method) -> Call {
        Call::new(
            "list",
            method,
            ROUTE,
            format!("/projects/{}/devices", self.project.id()),
        )
    }

    async fn get(&self) -> Result<Value, CloudError> {
        self.http.read(&self.call(Method::GET)).await
    }

    fn fault(&self, action: Action, first: u64) {
        self.project
            .fault(FaultRule::on("GET", ROUTE, action).first(first));
    }

    fn calls(&self) -> usize {
        self.project.journal().calls(0, "GET", ROUTE).len()
    }
}

#[tokio::test]
async fn a_read_is_tried_three_times_and_not_more() {
    let bench = Bench::new(4).await;
    bench.fault(Action::status(500), 2);
    bench.get().await.unwrap();
    assert_eq!(bench.calls(), 3);
    bench.fault(Action::status(503), 3);
    assert_eq!(bench.get().await.unwrap_err().kind, CloudErrorKind::Unavailable);
    assert_eq!(bench.calls(), 6);
}

/// `--log debug` tells of each try what was asked and what came back: no query, no body, no token.
#[tokio::test]
async fn each_call_is_told_to_whoever_looks_closely() {
    let bench = Bench::new(4).await;
    bench.fault(Action::status(500), 1);
    bench.fault(Action::DropBefore, 2);
    let (log, _listening) = Log::begin();
    let call = bench.call(Method::GET).query("search", "hunter2");
    let _: Value = bench.http.read(&call).await.unwrap();
    let text = log.text();
    let told: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("called the cloud"))
        .collect();
    let answers = [Some("status=500"), None, Some("status=200")];
    assert_eq!(told.len(), answers.len(), "{told:?}");
    for (line, status) in told.iter().zip(answers) {
        let path = format!("method=GET path=\"/projects/{}/devices\"", bench.project.id());
        assert!(line.contains(&path) && line.contains("milliseconds="), "{line}");
        match status {
            Some(status) => assert!(line.contains(status), "{line}"),
            None => assert!(!line.contains("status="), "{line}"),
        }
        assert!(
            !line.contains("hunter2") && !line.contains(bench.project.token()),
            "{line}"
        );
    }
}

#[tokio::test]
async fn what_will_not_pass_is_not_tried_again() {
    let bench = Bench::new(4).await;
    for (index, status) in [400, 401, 403, 404, 422].into_iter().enumerate() {
        bench.project.clear_faults();
        bench.fault(Action::status(status), 1);
        bench.get().await.unwrap_err();
        assert_eq!(bench.calls(), index + 1, "{status}");
    }
}

#[tokio::test]
async fn a_rate_limit_that_passes_in_time_is_waited_for() {
    let bench = Bench::new(4).await;
    bench.fault(Action::too_many_requests(Some(1), None), 1);
    let begun = Instant::now();
    bench.get().await.unwrap();
    assert!(
        begun.elapsed() >= Duration::from_secs(1),
        "not before the cloud said"
    );
    assert_eq!(bench.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_gate_opens_when_the_cloud_says_and_not_before() {
    for (status, headers, pause) in [
        (429, &[("retry-after", "7")][..], Some(7)),
        (429, &[("x-ratelimit-reset", "1000030")], Some(30)),
        (429, &[("retry-after", "86400")], Some(60)),
        (429, &[], Some(1)),
        (
            200,
            &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1000009")],
            Some(9),
        ),
        (
            200,
            &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "999000")],
            None,
        ),
        (
            200,
            &[("x-ratelimit-remaining", "1"), ("x-ratelimit-reset", "1000009")],
            None,
        ),
        (503, &[("retry-after", "7")], None),
    ] {
        let gate = Gate::new(Arc::new(FixedClock::new(Timestamp::from_second(NOW).unwrap())));
        let pairs = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let pause = pause.map(Duration::from_secs);
        assert_eq!(gate.heed(status, &pairs.collect()), pause, "{status} {headers:?}");
        assert_eq!(gate.opens(), pause.map(|pause| Instant::now() + pause));
        tokio::time::advance(pause.unwrap_or_default()).await;
        assert_eq!(gate.opens(), None);
    }
}

#[tokio::test]
async fn a_rate_limit_that_outlasts_the_deadline_fails_at_once_and_holds_all_calls_back() {
    let bench = Bench::new(4).await;
    bench.fault(Action::too_many_requests(None, Some(NOW + 3600)), 1);
    for _ in 0..3 {
        let error = bench.get().await.unwrap_err();
        assert_eq!(error.kind, CloudErrorKind::RateLimited, "{error}");
        let after = error.retry_after.unwrap();
        assert!(
            after > Duration::from_secs(30) && after <= Duration::from_secs(60),
            "bounded: {after:?}"
        );
    }
    assert_eq!(bench.calls(), 1, "only the first was sent");
}

#[tokio::test]
async fn no_more_calls_run_at_once_than_there_are_slots() {
    let bench = Bench::new(2).await;
    bench.project.fault(FaultRule::on("GET", ROUTE, Action::Hang));
    let calls = futures::future::join_all((0..5).map(|_| bench.get()));
    let journal = bench.project.journal();
    tokio::select! {
        _ = calls => panic!("they hang"),
        () = async {
            journal.wait_for(0, |entry| entry.sequence == 1).await;
            // A third would have been sent by now: give it every chance to.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        } => {}
    }
    assert_eq!(bench.calls(), 2);
}

#[test]
fn both_shapes_of_error_bodies_are_read() {
    let call = Call::new("x", Method::GET, "/x", "/x");
    for (status, body, kind, message) in [
        (
            422,
            r#"{"errors":["a","b"]}"#,
            CloudErrorKind::Refused,
            "HTTP 422: a; b",
        ),
        (
            404,
            r#"{"error":"Not found"}"#,
            CloudErrorKind::NotFound,
            "HTTP 404: Not found",
        ),
        (404, "404 page not found", CloudErrorKind::Unavailable, "HTTP 404"),
        (404, "{}", CloudErrorKind::Unavailable, "HTTP 404"),
        (
            422,
            r#"{"errors":["IP quota exceeded"]}"#,
            CloudErrorKind::QuotaExceeded,
            "HTTP 422: IP quota exceeded",
        ),
        (
            422,
            r#"{"errors":["Address has already been taken"]}"#,
            CloudErrorKind::AlreadyExists,
            "HTTP 422: Address has already been taken",
        ),
        (302, "", CloudErrorKind::Refused, "HTTP 302"),
        (504, "<html>", CloudErrorKind::Unavailable, "HTTP 504"),
    ] {
        let error = classify::refusal(&call, status, body.as_bytes(), ErrorBodies::Texts, &str::to_owned);
        assert_eq!((error.kind, error.message.as_str()), (kind, message));
    }
}

proptest::proptest! {
    /// Whatever the cloud says, it is an error with a bounded text.
    #[test]
    fn any_refusal_becomes_an_error(status in 300_u16..600, body in proptest::collection::vec(proptest::num::u8::ANY, 0..400)) {
        let call = Call::new("x", Method::GET, "/x", "/x");
        for shape in [ErrorBodies::Texts, ErrorBodies::Coded] {
            let error = classify::refusal(&call, status, &body, shape, &str::to_owned);
            proptest::prop_assert!(error.message.len() < 2000);
        }
    }
}
