use parking_lot::Mutex;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;
use crate::cluster::objects::NodeObject;
use crate::testing::FakeApi;

fn node(name: &str, version: u64, provider_id: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "uid": name, "resourceVersion": version.to_string() },
        "spec": { "providerID": provider_id },
    })
}

fn list(version: u64, items: &[Value], next: &str) -> String {
    json!({
        "apiVersion": "v1", "kind": "NodeList",
        "metadata": { "resourceVersion": version.to_string(), "continue": next }, "items": items,
    })
    .to_string()
}

fn events(events: &[(&str, Value)]) -> String {
    let line = |(kind, object): &(&str, Value)| json!({ "type": kind, "object": object }).to_string() + "\n";
    events.iter().map(line).collect()
}

fn gone() -> Value {
    json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old" })
}

/// A watch over an API server that answers what it was told, and the changes that it tells of.
struct Followed {
    index: Index<NodeObject>,
    changes: mpsc::UnboundedReceiver<(String, bool)>,
    stopping: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Followed {
    fn start(api: &FakeApi, prefix: &str) -> Self {
        let (tell, changes) = mpsc::unbounded_channel();
        let (index, stopping) = (Index::new(1), CancellationToken::new());
        let tell = Mutex::new(tell);
        let on_change: OnChange<NodeObject> = Arc::new(move |change: &Change<NodeObject>| {
            tell.lock()
                .send((change.key.to_string(), change.after.is_some()))
                .unwrap();
        });
        let scope = Scope {
            api: Api::all(api.client()),
            namespace: "".into(),
            selector: String::new(),
            wanted: |prefix: &str, key: &Key| key.name.starts_with(prefix),
            prefix: prefix.to_owned(),
        };
        #[allow(clippy::disallowed_methods, reason = "a test awaits its task itself")]
        let task = tokio::spawn(follow(scope, index.clone(), on_change, stopping.clone()));
        Self {
            index,
            changes,
            stopping,
            task,
        }
    }

    async fn next(&mut self) -> (String, bool) {
        self.changes.recv().await.unwrap()
    }

    async fn stop(self) {
        self.stopping.cancel();
        self.task.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn pages_are_listed_and_changes_are_told() {
    let api = FakeApi::default();
    api.stream(200, list(5, &[node("a", 1, "")], "more"));
    api.stream(200, list(5, &[node("b", 2, ""), node("other", 2, "")], ""));
    api.stream(
        200,
        events(&[
            ("MODIFIED", node("a", 6, "x")),
            ("MODIFIED", node("b", 7, "")), // a heartbeat
            ("ADDED", node("other2", 8, "")),
            ("DELETED", node("b", 9, "")),
        ]),
    );
    let mut followed = Followed::start(&api, "");
    let mut first = vec![
        followed.next().await,
        followed.next().await,
        followed.next().await,
    ];
    first.sort();
    assert_eq!(
        first,
        [("a".into(), true), ("b".into(), true), ("other".into(), true)]
    );
    assert_eq!(followed.next().await, ("a".into(), true));
    assert_eq!(followed.next().await, ("other2".into(), true));
    assert_eq!(followed.next().await, ("b".into(), false));
    assert!(followed.index.is_synced());
    followed.stop().await;
}

#[tokio::test(start_paused = true)]
async fn only_what_is_wanted_is_kept() {
    let api = FakeApi::default();
    api.stream(200, list(5, &[node("test-a", 1, ""), node("b", 2, "")], ""));
    api.stream(
        200,
        events(&[("ADDED", node("c", 6, "")), ("ADDED", node("test-d", 7, ""))]),
    );
    let mut followed = Followed::start(&api, "test-");
    assert_eq!(followed.next().await, ("test-a".into(), true));
    assert_eq!(followed.next().await, ("test-d".into(), true));
    assert_eq!(followed.index.len(), 2);
    followed.stop().await;
}

/// API server away, 5xx, half a page, 410: it is followed again, and what changed meanwhile is told.
#[tokio::test(start_paused = true)]
async fn failures_are_outlived() {
    let api = FakeApi::default();
    api.stream(503, "{}");
    api.stream(200, "{\"kind\":\"NodeList\",\"items\":[{\"metada");
    api.stream(200, list(5, &[node("a", 1, ""), node("b", 1, "")], ""));
    api.stream(500, "not even JSON");
    api.stream(200, events(&[("ERROR", gone())]));
    api.stream(200, list(9, &[node("b", 8, "y"), node("c", 7, "")], ""));
    let mut followed = Followed::start(&api, "");
    let mut first = vec![followed.next().await, followed.next().await];
    first.sort();
    assert_eq!(first, [("a".into(), true), ("b".into(), true)]);
    let mut second = vec![
        followed.next().await,
        followed.next().await,
        followed.next().await,
    ];
    second.sort();
    assert_eq!(
        second,
        [("a".into(), false), ("b".into(), true), ("c".into(), true)]
    );
    assert_eq!(followed.index.age(), Duration::ZERO);
    followed.stop().await;
}

/// A watch that is refused with 410, instead of being told so in its stream, is begun with a list, too.
#[tokio::test(start_paused = true)]
async fn a_watch_that_is_refused_as_too_old_is_begun_with_a_list() {
    let api = FakeApi::default();
    api.stream(200, list(5, &[node("a", 1, "")], ""));
    api.stream(410, gone().to_string());
    api.stream(200, list(9, &[node("b", 8, "")], ""));
    let mut followed = Followed::start(&api, "");
    assert_eq!(followed.next().await, ("a".into(), true));
    let mut second = vec![followed.next().await, followed.next().await];
    second.sort();
    assert_eq!(second, [("a".into(), false), ("b".into(), true)]);
    followed.stop().await;
}

/// A list that hangs is begun anew.
#[tokio::test(start_paused = true)]
async fn a_list_that_hangs_is_begun_anew() {
    let api = FakeApi::default();
    // Nothing is scripted: the first list hangs.
    let mut followed = Followed::start(&api, "");
    tokio::time::sleep(LIST_PATIENCE / 2).await;
    assert_eq!(api.calls(), ["GET /api/v1/nodes"]);
    api.stream(200, list(5, &[node("a", 1, "")], ""));
    assert_eq!(followed.next().await, ("a".into(), true));
    followed.stop().await;
}

/// A watch that broke once and has nothing to tell since is not taken for broken for ever.
#[tokio::test(start_paused = true)]
async fn a_quiet_watch_is_not_a_broken_one() {
    let api = FakeApi::default();
    api.stream(200, list(5, &[node("a", 1, "")], ""));
    api.stream(503, "{}");
    // The watch that is quiet, and the question whether anybody is there.
    api.silence();
    api.stream(200, list(6, &[node("a", 1, "")], ""));
    let mut followed = Followed::start(&api, "");
    assert_eq!(followed.next().await, ("a".into(), true));
    for broken in [true, false] {
        while (followed.index.age() > Duration::ZERO) != broken {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    assert_eq!(api.calls().len(), 4);
    followed.stop().await;
}
