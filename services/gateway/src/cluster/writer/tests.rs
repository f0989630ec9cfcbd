use pretty_assertions::assert_eq;
use serde_json::json;
use tokio::sync::watch;

use super::*;
use crate::cluster::objects::NodeObject;
use crate::testing::{FakeApi, settled_node};

const PATIENCE: Duration = Duration::from_secs(10);

fn writer(api: &FakeApi, valid: Option<Duration>) -> (Writer, watch::Sender<Option<Instant>>) {
    let leads = watch::Sender::new(valid.map(|valid| Instant::now() + valid));
    let leader = Leader::given(leads.subscribe());
    (
        Writer::new(api.client(), leader, PATIENCE, WriteMetrics::default()),
        leads,
    )
}

fn patch() -> Patch<Value> {
    Patch::Merge(json!({ "metadata": { "labels": { "a": "b" } } }))
}

#[tokio::test(start_paused = true)]
async fn who_does_not_lead_sends_nothing() {
    let api = FakeApi::default();
    let (writer, _leads) = writer(&api, None);
    let result = writer
        .patch::<NodeObject>(&Key::cluster_wide("n"), Part::Main, &patch())
        .await;
    assert!(matches!(result, Err(WriteError::NotLeader)));
    assert!(api.calls().is_empty());
}

/// A call ends before the decision that it carries out becomes invalid, even if the call could take longer.
#[tokio::test(start_paused = true)]
async fn no_call_outlives_the_lease() {
    for (valid, ends) in [
        (Duration::from_secs(3), Duration::from_secs(3)),
        (PATIENCE * 2, PATIENCE),
    ] {
        let api = FakeApi::default();
        api.hang("PATCH");
        let (writer, _leads) = writer(&api, Some(valid));
        let begun = Instant::now();
        let result = writer
            .patch::<NodeObject>(&Key::cluster_wide("n"), Part::Main, &patch())
            .await;
        assert!(matches!(result, Err(WriteError::Timeout)));
        // Time is simulated, so this is exact.
        assert_eq!(begun.elapsed().as_secs(), ends.as_secs());
    }
}

#[tokio::test(start_paused = true)]
async fn answers_are_told_apart() {
    for (code, reason) in [
        (401, "API_DENIED"),
        (403, "API_DENIED"),
        (404, "API_NOT_FOUND"),
        (409, "API_CONFLICT"),
        (422, "API_REFUSED"),
        (429, "API_UNAVAILABLE"),
        (500, "API_UNAVAILABLE"),
        (504, "API_TIMEOUT"),
    ] {
        let api = FakeApi::default();
        api.fail("PATCH", code, 1);
        let (writer, _leads) = writer(&api, Some(PATIENCE));
        let key = Key::cluster_wide("n");
        let error = writer
            .patch::<NodeObject>(&key, Part::Status, &patch())
            .await
            .unwrap_err();
        assert_eq!(error.reason(), reason, "{code}");
        assert_eq!(
            api.calls(),
            ["PATCH /api/v1/nodes/n/status"],
            "{code}: never repeated by itself"
        );
    }
}

/// A node is deleted only as it was read.
#[tokio::test(start_paused = true)]
async fn a_deletion_names_what_was_read() {
    let api = FakeApi::default();
    let (writer, _leads) = writer(&api, Some(PATIENCE));
    let read: NodeObject =
        serde_json::from_value(api.put("/api/v1/nodes", settled_node("n", "False"))).unwrap();
    let changed = api.put("/api/v1/nodes", api.get("/api/v1/nodes/n").unwrap());
    assert!(matches!(writer.delete(&read).await, Err(WriteError::Conflict(_))));
    let read: NodeObject = serde_json::from_value(changed).unwrap();
    writer.delete(&read).await.unwrap();
    assert_eq!(api.get("/api/v1/nodes/n"), None);
}
