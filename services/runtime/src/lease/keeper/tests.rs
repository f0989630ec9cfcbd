use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use pretty_assertions::assert_eq;
use tower_test::mock::{Handle, SendResponse};

use super::*;
use crate::lease::{self, Leadership};

type ApiServer = Handle<Request<Body>, Response<Body>>;

struct Fixture {
    api: ApiServer,
    leadership: Leadership,
    annotations: watch::Sender<BTreeMap<String, String>>,
    tasks: Tasks,
}

fn fixture() -> Fixture {
    let (service, api) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
    let client = kube::Client::new(service, "default");
    let (annotations, follow) = watch::channel(BTreeMap::from([("store".to_owned(), "s1".to_owned())]));
    let tasks = Tasks::new();
    let leadership = lease::start(client, LeaseConfig::new("ns", "groundplane", "a"), follow, &tasks);
    Fixture {
        api,
        leadership,
        annotations,
        tasks,
    }
}

async fn expect(api: &mut ApiServer, method: Method) -> (Value, SendResponse<Response<Body>>) {
    let (request, answer) = api.next_request().await.expect("a request");
    let (head, body) = request.into_parts();
    assert_eq!(head.method, method);
    assert!(
        head.uri
            .path()
            .starts_with("/apis/coordination.k8s.io/v1/namespaces/ns/leases"),
        "{}",
        head.uri
    );
    let bytes = body.collect_bytes().await.unwrap();
    (
        if bytes.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&bytes).unwrap()
        },
        answer,
    )
}

fn lease(version: &str, holder: &str, transitions: i64) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "groundplane", "namespace": "ns", "resourceVersion": version,
                      "annotations": { "store": holder } },
        "spec": { "holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": transitions },
    })
}

fn ok(body: &Value) -> Response<Body> {
    Response::new(Body::from(serde_json::to_vec(body).unwrap()))
}

fn refusal(code: u16, reason: &str) -> Response<Body> {
    let status =
        json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code });
    let mut response = ok(&status);
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

/// The next call reads the lease, and sees this.
async fn shows(api: &mut ApiServer, lease: &Value) {
    let (_, answer) = expect(api, Method::GET).await;
    answer.send_response(ok(lease));
}

#[tokio::test(start_paused = true)]
async fn a_free_lease_is_taken_renewed_with_annotations_and_released_last() {
    let Fixture {
        mut api,
        leadership,
        annotations,
        tasks,
    } = fixture();
    assert!(!leadership.is_leader());
    shows(&mut api, &lease("7", "", 4)).await;
    let (body, answer) = expect(&mut api, Method::PATCH).await;
    assert_eq!(
        body["metadata"],
        json!({ "resourceVersion": "7", "annotations": { "store": "s1" } })
    );
    assert_eq!(body["spec"]["holderIdentity"], "a");
    assert_eq!(body["spec"]["leaseTransitions"], 5);
    assert!(body["spec"]["acquireTime"].is_string());
    answer.send_response(ok(&lease("8", "a", 5)));
    leadership.acquired().await;
    assert_eq!(leadership.transitions(), 5);
    assert_eq!(
        leadership.lease_annotations()["store"],
        "",
        "as the one before us left them"
    );

    annotations
        .send(BTreeMap::from([("revision".to_owned(), "9".to_owned())]))
        .unwrap();
    let (body, answer) = expect(&mut api, Method::PATCH).await;
    assert_eq!(
        body["metadata"],
        json!({ "resourceVersion": "8", "annotations": { "store": null, "revision": "9" } })
    );
    assert_eq!(body["spec"].get("acquireTime"), None);
    let renewed = leadership.valid_until();
    answer.send_response(ok(&lease("9", "a", 5)));
    leadership
        .standing
        .clone()
        .wait_for(|standing| standing.valid_until > renewed)
        .await
        .unwrap();

    let (finish, finished) = tokio::sync::oneshot::channel::<()>();
    tasks.spawn("writer", async move { finished.await.unwrap() });
    tasks.token().cancel();
    leadership.lost().await;
    finish.send(()).unwrap();
    let (body, answer) = expect(&mut api, Method::PATCH).await;
    assert_eq!(body["metadata"]["resourceVersion"], "9");
    assert_eq!(body["spec"]["holderIdentity"], "");
    answer.send_response(ok(&lease("10", "", 5)));
    tasks.drain(Duration::from_secs(1)).await.unwrap();
}

/// Whoever may not take part asks nothing; whoever may not any more does not lead from that moment on, and leaves the lease as it is.
#[tokio::test(start_paused = true)]
async fn a_lease_is_taken_and_kept_only_while_it_is_allowed() {
    let (service, mut api) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
    let client = kube::Client::new(service, "default");
    let (allow, allowed) = watch::channel(false);
    let (_annotations, follow) = watch::channel(BTreeMap::new());
    let (tasks, config) = (Tasks::new(), LeaseConfig::new("ns", "groundplane", "a"));
    let leadership = lease::start_while(client, config, follow, allowed, &tasks);
    let asked = timeout(Duration::from_secs(3600), api.next_request()).await;
    assert!(asked.is_err(), "asked without leave");

    allow.send_replace(true);
    shows(&mut api, &lease("7", "", 4)).await;
    let (_, answer) = expect(&mut api, Method::PATCH).await;
    answer.send_response(ok(&lease("8", "a", 5)));
    leadership.acquired().await;

    allow.send_replace(false);
    leadership.lost().await;
    let asked = timeout(Duration::from_secs(3600), api.next_request()).await;
    assert!(asked.is_err(), "asked without leave");

    allow.send_replace(true);
    shows(&mut api, &lease("8", "a", 5)).await;
    let (body, answer) = expect(&mut api, Method::PATCH).await;
    assert_eq!(body["spec"]["leaseTransitions"], 6);
    answer.send_response(ok(&lease("9", "a", 6)));
    leadership.acquired().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_race_is_read_again() {
    let Fixture {
        mut api,
        leadership,
        annotations: _annotations,
        tasks: _tasks,
    } = fixture();
    expect(&mut api, Method::GET)
        .await
        .1
        .send_response(refusal(404, "NotFound"));
    let (body, answer) = expect(&mut api, Method::POST).await;
    assert_eq!(body["spec"]["leaseTransitions"], 1);
    answer.send_response(refusal(409, "AlreadyExists"));
    shows(&mut api, &lease("1", "b", 1)).await;
    // `b` holds it: nothing but reads until it has run out.
    shows(&mut api, &lease("1", "b", 1)).await;
    assert!(!leadership.is_leader());
}

#[tokio::test(start_paused = true)]
async fn leadership_ends_by_itself_when_the_api_server_is_silent() {
    let Fixture {
        mut api,
        leadership,
        annotations: _annotations,
        tasks: _tasks,
    } = fixture();
    shows(&mut api, &lease("7", "", 4)).await;
    let (_, answer) = expect(&mut api, Method::PATCH).await;
    answer.send_response(ok(&lease("8", "a", 5)));
    leadership.acquired().await;
    let until = leadership.valid_until().unwrap();
    // Nobody answers any more.
    leadership.lost().await;
    assert!(!leadership.is_leader());
    assert_eq!(Instant::now(), until);
}

/// What a PATCH makes of the lease.
fn patched(version: &str, body: &Value) -> Value {
    let mut lease = lease(version, "a", 5);
    lease["spec"]["renewTime"] = body["spec"]["renewTime"].clone();
    lease
}

/// Every PATCH is applied and no answer comes back: others see the lease renewed, and so must its holder.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_not_answered_is_found_by_reading() {
    let Fixture {
        mut api,
        leadership,
        annotations: _annotations,
        tasks: _tasks,
    } = fixture();
    shows(&mut api, &lease("7", "", 4)).await;
    let mut marks = BTreeSet::new();
    for version in 8..20 {
        let (body, lost) = expect(&mut api, Method::PATCH).await;
        let sent = Instant::now();
        assert_eq!(body["spec"]["leaseTransitions"], 5, "one term");
        assert!(
            marks.insert(body["spec"]["renewTime"].to_string()),
            "a mark of its own"
        );
        assert_eq!(leadership.is_leader(), version > 8, "without a gap");
        let (_, answer) = expect(&mut api, Method::GET).await;
        drop(lost);
        assert_eq!(leadership.is_leader(), version > 8, "without a gap");
        answer.send_response(ok(&patched(&version.to_string(), &body)));
        let until = sent + Duration::from_secs(15) * 3 / 4;
        let mut standing = leadership.standing.clone();
        let counted = standing
            .wait_for(|standing| standing.valid_until == Some(until))
            .await;
        drop(counted.expect("counted from before it was sent"));
    }
}

/// A PATCH that is answered by nobody and was not applied either keeps nobody leading.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_never_arrived_is_not_counted() {
    let Fixture {
        mut api,
        leadership,
        annotations: _annotations,
        tasks: _tasks,
    } = fixture();
    shows(&mut api, &lease("7", "", 4)).await;
    let (first, answer) = expect(&mut api, Method::PATCH).await;
    answer.send_response(ok(&patched("8", &first)));
    leadership.acquired().await;
    let until = leadership.valid_until().unwrap();
    let answering = async {
        loop {
            let (request, answer) = api.next_request().await.unwrap();
            if request.method() == Method::GET {
                answer.send_response(ok(&patched("8", &first)));
            } else {
                answer.send_error("the connection is gone");
            }
        }
    };
    tokio::select! {
        () = answering => {}
        () = leadership.lost() => {}
    }
    assert_eq!(Instant::now(), until);
}
