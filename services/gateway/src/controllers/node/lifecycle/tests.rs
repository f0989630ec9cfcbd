use std::time::Duration;

use groundplane_proto::instances::v1::Machine;
use pretty_assertions::assert_eq;
use serde_json::json;
use tokio::time::advance;

use super::*;
use crate::cluster::objects::Key;
use crate::config::Config;
use crate::testing::{World, fresh_node, rpc_error, settled_node};

fn monitor(world: &World) -> Monitor {
    Monitor::new(&world.gateway)
}

fn machine(power: PowerState) -> Machine {
    Machine {
        power: power.into(),
        ..Machine::default()
    }
}

fn absent() -> Result<Machine, RpcError> {
    Err(rpc_error(ErrorKind::NotFound, "MACHINE_NOT_FOUND"))
}

fn unavailable() -> Result<Machine, RpcError> {
    Err(rpc_error(ErrorKind::Unavailable, "CLOUD_UNAVAILABLE"))
}

/// C1 to C6, C9, C11, E18, E18b, E20: what each answer does to a node, by what the node says of itself.
#[tokio::test]
async fn every_answer_and_what_it_does() {
    let off = || Ok(machine(PowerState::Off));
    let on = || Ok(machine(PowerState::On));
    let delete = "DELETE /api/v1/nodes/n";
    let patch = "PATCH /api/v1/nodes/n";
    let foreign = || Err(rpc_error(ErrorKind::Precondition, "FOREIGN"));
    let other_not_found = || Err(rpc_error(ErrorKind::NotFound, "NOT_FOUND"));
    for (ready, answer, expected) in [
        ("False", absent(), Some(delete)),   // C1, E18
        ("False", unavailable(), None),      // C2, E20
        ("False", on(), None),               // C3
        ("Unknown", absent(), Some(delete)), // C4, C9
        ("Unknown", on(), None),             // C4
        ("True", absent(), None),            // C5, E18b
        ("False", off(), Some(patch)),       // C6, E19
        ("", absent(), Some(delete)),        // C11: no condition at all
        ("", off(), Some(patch)),            // C11
        ("False", foreign(), None),          // E22
        ("False", other_not_found(), None),  // a NOT_FOUND that is not the cloud's word
    ] {
        let case = format!("{ready} {answer:?}");
        let world = World::new(Config::default());
        let mut node = settled_node("n", ready);
        if ready.is_empty() {
            node["status"]["conditions"] = json!([]);
        }
        world.node(node);
        world.instances.answer("n", answer);
        monitor(&world).round().await;
        assert_eq!(
            world.api.calls(),
            expected.into_iter().collect::<Vec<_>>(),
            "{case}"
        );
        let asked = world.instances.asked();
        if ready == "True" {
            assert!(asked.is_empty(), "C5: a ready node is not asked for");
        } else {
            assert!(asked[0].fresh, "only a fresh answer counts");
        }
    }
}

/// C1: the event comes with the deletion.
#[tokio::test]
async fn a_deletion_is_told() {
    let mut world = World::new(Config::default());
    world.node(settled_node("n", "False"));
    world.instances.answer("n", absent());
    monitor(&world).round().await;
    assert_eq!(world.events.take(), [("n".to_owned(), "DeletingNode")]);
    assert_eq!(world.api.get("/api/v1/nodes/n"), None);
}

/// C8, E19: the taint goes when the node is ready again, whatever the cloud says.
#[tokio::test]
async fn a_ready_node_loses_the_shutdown_taint() {
    let world = World::new(Config::default());
    let mut node = settled_node("n", "True");
    node["spec"]["taints"] =
        json!([{ "key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule" }]);
    let key = world.node(node);
    monitor(&world).round().await;
    assert_eq!(world.api.calls(), ["PATCH /api/v1/nodes/n"]);
    assert!(world.gateway.cluster.nodes.get(&key).unwrap().taints.is_empty());
    monitor(&world).round().await;
    assert!(world.api.calls().is_empty());
}

/// C12: a deletion that fails is told, and tried again in the next round.
#[tokio::test]
async fn a_deletion_that_fails_is_tried_again() {
    let mut world = World::new(Config::default());
    world.node(settled_node("n", "False"));
    world.instances.answer("n", absent());
    world.api.fail("DELETE", 500, 1);
    monitor(&world).round().await;
    let reasons: Vec<_> = world
        .events
        .take()
        .into_iter()
        .map(|(_, reason)| reason)
        .collect();
    assert_eq!(reasons, ["DeletingNode", "DeletingNodeFailed"]);
    assert!(world.api.get("/api/v1/nodes/n").is_some());
    monitor(&world).round().await;
    assert_eq!(world.api.get("/api/v1/nodes/n"), None);
}

/// A node that changed since it was judged is not deleted: it may have come back.
#[tokio::test]
async fn a_node_that_changed_is_judged_again() {
    let world = World::new(Config::default());
    world.node(settled_node("n", "False"));
    let mut back = world.api.get("/api/v1/nodes/n").unwrap();
    back["status"]["conditions"] = json!([{ "type": "Ready", "status": "True" }]);
    world.api.put("/api/v1/nodes", back);
    world.instances.answer("n", absent());
    monitor(&world).round().await;
    assert!(world.api.get("/api/v1/nodes/n").is_some());
    world.api.calls();
    // The round after it knows, though no watch has told.
    monitor(&world).round().await;
    assert!(world.api.calls().is_empty());
}

/// A node that was never initialised, or has no provider id, was never proven to be ours.
#[tokio::test]
async fn a_node_that_was_never_ours_is_never_deleted() {
    let world = World::new(Config::default());
    let mut fresh = fresh_node("n");
    fresh["status"]["conditions"] = json!([]);
    fresh["spec"]["providerID"] = json!("equinixmetal://n");
    world.node(fresh);
    let mut bare = settled_node("b", "False");
    bare["spec"] = json!({});
    world.node(bare);
    world.instances.answer("n", absent());
    world.instances.answer("b", absent());
    monitor(&world).round().await;
    assert!(world.api.calls().is_empty());
}

/// The brake: an answer by which most of the nodes would go is not believed.
#[tokio::test]
async fn most_nodes_never_go_at_once() {
    let mut world = World::new(Config::default());
    for i in 0..4 {
        let name = format!("n{i}");
        world.node(settled_node(&name, if i < 3 { "False" } else { "True" }));
        world.instances.answer(&name, absent());
    }
    monitor(&world).round().await;
    assert!(world.api.calls().is_empty());
    assert!(
        world
            .events
            .take()
            .iter()
            .all(|(_, reason)| *reason == "DeletionRefused")
    );
}

/// The brake counts over a window: nodes that go one by one are as many as nodes that go at once.
#[tokio::test(start_paused = true)]
async fn most_nodes_never_go_one_by_one_either() {
    let mut world = World::new(Config::default());
    let names: Vec<String> = (0..4).map(|n| format!("n{n}")).collect();
    for name in &names {
        world.node(settled_node(name, "True"));
        world.instances.answer(name, absent());
    }
    let mut monitor = monitor(&world);
    let gone = |world: &World| -> Vec<bool> {
        let exists = |name: &String| world.api.get(&format!("/api/v1/nodes/{name}")).is_some();
        names.iter().map(|name| !exists(name)).collect()
    };
    for name in &names {
        world.node(settled_node(name, "False"));
        monitor.round().await;
        world.catch_up(&Key::cluster_wide(name));
        advance(Duration::from_secs(60)).await;
    }
    assert_eq!(gone(&world), [true, true, false, false]);
    let reasons: Vec<&str> = world
        .events
        .take()
        .into_iter()
        .map(|(_, reason)| reason)
        .collect();
    let expected = [
        "DeletingNode",
        "DeletingNode",
        "DeletionRefused",
        "DeletionRefused",
        "DeletionRefused",
    ];
    assert_eq!(reasons, expected);
    // When the first two are long gone, the cloud has had its time to come to its senses.
    advance(Config::default().lifecycle.delete_window.0).await;
    monitor.round().await;
    assert_eq!(gone(&world), [true; 4]);
}

/// A deletion whose answer was lost counts, and so does the one that finds it done; one that was refused does not.
#[test]
fn what_may_have_gone_is_counted() {
    let status = |code: u16| {
        let error = kube::Error::Api(
            kube::core::Status::failure("scripted", "Scripted")
                .with_code(code)
                .boxed(),
        );
        Err(WriteError::from(error))
    };
    assert!(may_have_gone(&Ok(())));
    assert!(may_have_gone(&Err(WriteError::Timeout)));
    for (code, counts) in [(404, true), (503, true), (409, false), (403, false), (422, false)] {
        assert_eq!(may_have_gone(&status(code)), counts, "{code}");
    }
    assert!(!may_have_gone(&Err(WriteError::NotLeader)));
}
