use pretty_assertions::assert_eq;
use serde_json::json;

use super::*;
use crate::cluster::objects::{NodeObject, ServiceObject};

fn node(name: &str, uid: &str, version: &str, provider_id: &str) -> NodeObject {
    serde_json::from_value(json!({
        "metadata": { "name": name, "uid": uid, "resourceVersion": version },
        "spec": { "providerID": provider_id },
    }))
    .unwrap()
}

fn provider(index: &Index<NodeObject>, name: &str) -> Option<String> {
    index
        .get(&Key::cluster_wide(name))
        .map(|node| node.provider_id.to_string())
}

#[test]
fn a_change_of_what_we_read_is_told_and_a_heartbeat_is_not() {
    let index = Index::new(1);
    assert!(index.apply(node("a", "1", "1", "")).is_some());
    assert!(index.apply(node("a", "1", "2", "")).is_none());
    assert_eq!(&*index.get(&Key::cluster_wide("a")).unwrap().version, "2");
    let change = index.apply(node("a", "1", "3", "x")).unwrap();
    assert_eq!(
        (&*change.before.unwrap().version, &*change.after.unwrap().version),
        ("2", "3")
    );
}

/// The next look sees what the last one wrote, and the watch that comes later wakes nobody.
#[test]
fn our_own_write_is_seen_at_once_and_wakes_nobody() {
    let index = Index::new(1);
    index.apply(node("a", "1", "1", ""));
    index.fold(node("a", "1", "3", "x"));
    assert_eq!(provider(&index, "a").as_deref(), Some("x"));
    assert!(
        index.apply(node("a", "1", "2", "")).is_none(),
        "older than our write"
    );
    assert!(index.apply(node("a", "1", "3", "x")).is_none(), "our write");
    assert_eq!(provider(&index, "a").as_deref(), Some("x"));
    assert!(index.apply(node("a", "1", "4", "y")).is_some());
}

/// Versions are compared as numbers: 9 is older than 10.
#[test]
fn versions_are_numbers() {
    let index = Index::new(1);
    index.apply(node("a", "1", "9", ""));
    index.fold(node("a", "1", "10", "x"));
    assert_eq!(provider(&index, "a").as_deref(), Some("x"));
}

#[test]
fn a_late_answer_brings_nothing_back() {
    let index = Index::new(1);
    index.apply(node("a", "1", "1", ""));
    index.delete(&node("a", "1", "2", ""));
    index.fold(node("a", "1", "3", "x"));
    assert_eq!(provider(&index, "a"), None);
    // Made anew under the same name: an answer about the old one does not replace it.
    index.apply(node("a", "2", "4", "new"));
    index.fold(node("a", "1", "5", "old"));
    assert_eq!(provider(&index, "a").as_deref(), Some("new"));
}

#[test]
fn an_object_made_anew_replaces_the_old_one_whatever_its_version() {
    let index = Index::new(1);
    index.apply(node("a", "1", "9", "same"));
    let change = index.apply(node("a", "2", "3", "same")).unwrap();
    assert_eq!(&*change.after.unwrap().uid, "2");
}

#[test]
fn what_a_list_lacks_is_gone_and_what_it_has_is_compared() {
    let index = Index::new(1);
    for (name, provider_id) in [("a", ""), ("b", ""), ("c", "")] {
        index.apply(node(name, "1", "1", provider_id));
    }
    index.fold(node("c", "1", "9", "ours"));
    let listed = vec![
        node("a", "1", "1", ""),
        node("c", "1", "5", ""),
        node("d", "1", "5", ""),
    ];
    let mut changes: Vec<_> = index
        .reset("", listed, true)
        .into_iter()
        .map(|change| (change.key.to_string(), change.after.is_some()))
        .collect();
    changes.sort();
    assert_eq!(changes, [("b".to_owned(), false), ("d".to_owned(), true)]);
    assert_eq!(
        provider(&index, "c").as_deref(),
        Some("ours"),
        "a list is older than our write"
    );
}

#[test]
fn each_scope_resets_its_own() {
    let service = |namespace: &str| -> ServiceObject {
        serde_json::from_value(
            json!({ "metadata": { "name": "s", "namespace": namespace, "uid": namespace } }),
        )
        .unwrap()
    };
    let index = Index::new(2);
    index.reset("a", vec![service("a")], true);
    assert!(!index.is_synced());
    index.reset("b", vec![service("b")], true);
    assert!(index.is_synced());
    index.reset("a", vec![], false);
    assert_eq!(
        index.all().iter().map(|s| s.key.to_string()).collect::<Vec<_>>(),
        ["b/s"]
    );
}

#[tokio::test(start_paused = true)]
async fn age_counts_from_when_the_first_watch_broke() {
    let index: Index<NodeObject> = Index::new(1);
    let scope: Arc<str> = "".into();
    assert_eq!(index.age(), Duration::ZERO);
    index.broke(&scope);
    tokio::time::advance(Duration::from_secs(7)).await;
    index.broke(&scope);
    assert_eq!(index.age(), Duration::from_secs(7));
    index.works(&scope);
    assert_eq!(index.age(), Duration::ZERO);
}

/// Services are found by the addresses that they have or ask for, whatever way the index learns of a change.
#[test]
fn marks_follow_their_objects() {
    let service = |version: &str, asked: &str, shown: &str| -> ServiceObject {
        serde_json::from_value(json!({
            "metadata": { "name": "web", "namespace": "default", "uid": "u", "resourceVersion": version },
            "spec": { "type": "LoadBalancer", "loadBalancerIP": asked },
            "status": { "loadBalancer": { "ingress": [{ "ip": shown }] } },
        }))
        .unwrap()
    };
    let index = Index::marked(1, crate::domain::service::named);
    let found = |address: &str| index.with_mark(address.parse().unwrap()).len();
    index.apply(service("1", "192.0.2.1", "192.0.2.2"));
    assert_eq!(
        (found("192.0.2.1"), found("192.0.2.2"), found("192.0.2.3")),
        (1, 1, 0)
    );
    index.apply(service("2", "192.0.2.1", "192.0.2.3"));
    assert_eq!(
        (found("192.0.2.1"), found("192.0.2.2"), found("192.0.2.3")),
        (1, 0, 1)
    );
    index.fold(service("3", "", "192.0.2.3"));
    assert_eq!((found("192.0.2.1"), found("192.0.2.3")), (0, 1));
    // Older than that.
    index.apply(service("2", "192.0.2.1", "192.0.2.3"));
    assert_eq!(found("192.0.2.1"), 0);
    index.reset("", vec![service("4", "192.0.2.4", "")], true);
    assert_eq!((found("192.0.2.3"), found("192.0.2.4")), (0, 1));
    index.reset("", Vec::new(), false);
    assert_eq!(found("192.0.2.4"), 0);
    index.apply(service("5", "192.0.2.4", ""));
    index.delete(&service("6", "192.0.2.4", ""));
    assert_eq!(found("192.0.2.4"), 0);
}
