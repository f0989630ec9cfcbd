use groundplane_proto::bgp::v1::{EnsureMachineResponse, Peer};
use pretty_assertions::assert_eq;
use serde_json::json;

use super::*;
use crate::config::Config;
use crate::testing::{World, fresh_node, rpc_error, settled_node};

fn answer(addresses: &[&str]) -> EnsureMachineResponse {
    let peer = |address: &&str| Peer {
        peer_address: (*address).to_owned(),
        peer_asn: 65530,
        local_asn: 65000,
        source_address: "10.0.0.1".into(),
        ..Peer::default()
    };
    EnsureMachineResponse {
        peers: addresses.iter().map(peer).collect(),
        ..EnsureMachineResponse::default()
    }
}

fn controller(world: &World) -> BgpController {
    BgpController::new(Arc::clone(&world.gateway))
}

/// E24, E29: one patch; when it is looked at again, none, and what the node says goes with the question.
#[tokio::test]
async fn peers_are_written_once() {
    let world = World::new(Config::default());
    let key = world.node(settled_node("n", "True"));
    world.bgp.answer("n", Ok(answer(&["169.254.255.1"])));
    let first = controller(&world);
    assert_eq!(first.due(), std::slice::from_ref(&key));
    assert_eq!(first.reconcile(&key).await, Outcome::Done);
    assert_eq!(world.api.calls(), ["PATCH /api/v1/nodes/n"]);
    assert!(first.due().is_empty());
    assert!(world.bgp.asked()[0].known_peers.is_empty());
    // A restart: nothing is remembered, everything is asked, nothing is written.
    let second = controller(&world);
    assert_eq!(second.due(), std::slice::from_ref(&key));
    assert_eq!(second.reconcile(&key).await, Outcome::Done);
    assert!(world.api.calls().is_empty());
    let asked = world.bgp.asked();
    assert_eq!(asked[0].known_peers, answer(&["169.254.255.1"]).peers);
    assert_eq!(asked[0].addresses, ["10.0.0.1"]);
    assert!(!asked[0].fresh);
}

/// E28: nodes that are not selected, not initialised, or have no provider id are not asked for.
#[tokio::test]
async fn only_selected_nodes_of_ours_are_asked_for() {
    let world = World::new(Config {
        bgp_node_selector: "role=edge".into(),
        ..Config::default()
    });
    let worker = world.node(settled_node("worker", "True"));
    let fresh = world.node(fresh_node("fresh"));
    let mut edge = settled_node("edge", "True");
    edge["metadata"]["labels"]["role"] = json!("edge");
    let edge = world.node(edge);
    let controller = controller(&world);
    assert_eq!(controller.due(), std::slice::from_ref(&edge));
    for key in [worker, fresh, edge] {
        assert_eq!(controller.reconcile(&key).await, Outcome::Done);
    }
    let asked: Vec<_> = world
        .bgp
        .asked()
        .into_iter()
        .map(|request| request.node)
        .collect();
    assert_eq!(asked, ["edge"]);
}

/// E28: nodes that Kubernetes keeps out of load balancers speak no BGP; a label that says false keeps nobody out. What they were told
/// stays, unless cleaning up is asked for.
#[tokio::test]
async fn nodes_that_are_kept_out_of_load_balancers_are_not_asked_for() {
    let world = World::new(Config::default());
    for (name, value) in [("empty", ""), ("true", "true"), ("odd", "no")] {
        let mut node = settled_node(name, "True");
        node["metadata"]["labels"][names::LABEL_EXCLUDED] = json!(value);
        world.node(node);
    }
    let mut leaving = settled_node("leaving", "True");
    leaving["spec"]["taints"] =
        json!([{ "key": names::TAINT_TO_BE_DELETED, "value": "1", "effect": "NoSchedule" }]);
    world.node(leaving);
    let mut expected = vec![world.node(settled_node("plain", "True"))];
    for value in ["false", "0"] {
        let mut node = settled_node(&format!("in-{value}"), "True");
        node["metadata"]["labels"][names::LABEL_EXCLUDED] = json!(value);
        expected.push(world.node(node));
    }
    expected.sort();
    let controller = controller(&world);
    let mut due = controller.due();
    due.sort();
    assert_eq!(due, expected);
    assert_eq!(controller.all().len(), expected.len());
    assert!(is_spoken(&world.gateway));
}

/// A node that the autoscaler is about to delete, or spares after all, is looked at.
#[tokio::test]
async fn a_node_that_is_about_to_go_is_looked_at() {
    let world = World::new(Config::default());
    let key = world.node(settled_node("n", "True"));
    let before = world.gateway.cluster.nodes.get(&key).unwrap();
    let mut leaving = settled_node("n", "True");
    leaving["spec"]["taints"] = json!([{ "key": names::TAINT_TO_BE_DELETED, "effect": "NoSchedule" }]);
    world.node(leaving);
    let after = world.gateway.cluster.nodes.get(&key);
    let change = Change {
        key,
        before: Some(before),
        after,
    };
    changed(&world.gateway, &change);
    assert_eq!(world.gateway.queues.bgp.depth().ready, 1);
    assert!(!is_spoken(&world.gateway));
}

/// Where nobody wants BGP, it is quiet.
#[tokio::test]
async fn bgp_that_is_off_is_quiet() {
    for reason in UNWANTED {
        let mut world = World::new(Config::default());
        let key = world.node(settled_node("n", "True"));
        world
            .bgp
            .answer("n", Err(rpc_error(ErrorKind::Precondition, reason)));
        let controller = controller(&world);
        assert_eq!(controller.reconcile(&key).await, Outcome::Done);
        assert!(world.api.calls().is_empty() && world.events.take().is_empty());
        assert!(
            controller.due().is_empty(),
            "asked again with the next look at the cloud, not before"
        );
        assert_eq!(controller.all(), [key]);
    }
}

/// E32: what is pending is asked for again, and what is there is kept meanwhile.
#[tokio::test]
async fn what_is_pending_is_asked_for_again() {
    let world = World::new(Config::default());
    let key = world.node(settled_node("n", "True"));
    world.bgp.answer(
        "n",
        Ok(EnsureMachineResponse {
            pending: true,
            ..answer(&[])
        }),
    );
    let controller = controller(&world);
    for pause in [10, 20, 40, 80, 160, 300, 300] {
        let after = Outcome::After(Duration::from_secs(pause));
        assert_eq!(controller.reconcile(&key).await, after);
        assert!(
            controller.due().is_empty(),
            "asked again after its pause, not with each look"
        );
    }
    world.bgp.answer("n", Ok(answer(&["169.254.255.1"])));
    assert_eq!(controller.reconcile(&key).await, Outcome::Done);
    assert_eq!(world.api.calls().len(), 1);
}

/// E33: what somebody else takes away is found in the cache, and written again.
#[tokio::test]
async fn annotations_that_were_taken_away_come_back() {
    let world = World::new(Config::default());
    let key = world.node(settled_node("n", "True"));
    world.bgp.answer("n", Ok(answer(&["169.254.255.1"])));
    let controller = controller(&world);
    controller.reconcile(&key).await;
    let mut node = world.api.get("/api/v1/nodes/n").unwrap();
    node["metadata"]["annotations"]
        .as_object_mut()
        .unwrap()
        .remove("metal.equinix.com/bgp-peers-0-peer-ip");
    world.api.put("/api/v1/nodes", node);
    world.catch_up(&key);
    assert_eq!(controller.due(), std::slice::from_ref(&key));
    world.api.calls();
    assert_eq!(controller.reconcile(&key).await, Outcome::Done);
    assert_eq!(world.api.calls().len(), 1);
    let node = world.api.get("/api/v1/nodes/n").unwrap();
    assert_eq!(
        node["metadata"]["annotations"]["metal.equinix.com/bgp-peers-0-peer-ip"],
        "169.254.255.1"
    );
}

/// A cloud that is away is asked again; what it refuses for good is told.
#[tokio::test]
async fn failures_are_tried_again_and_told() {
    let mut world = World::new(Config::default());
    let key = world.node(settled_node("n", "True"));
    for (kind, told) in [(ErrorKind::Unavailable, false), (ErrorKind::Denied, true)] {
        world.bgp.answer("n", Err(rpc_error(kind, "X")));
        let outcome = controller(&world).reconcile(&key).await;
        assert_eq!(outcome, Outcome::Failed(Duration::ZERO));
        assert_eq!(!world.events.take().is_empty(), told);
    }
    assert!(world.api.calls().is_empty());
}

/// A node is looked at when something changes that the answer depends on, and not when it only beats its heart.
#[tokio::test]
async fn only_changes_that_matter_wake() {
    let world = World::new(Config::default());
    let key = world.node(settled_node("n", "True"));
    let before = world.gateway.cluster.nodes.get(&key).unwrap();
    let mut after = (*before).clone();
    after.ready = crate::cluster::objects::Ready::No;
    let change = |after: &NodeObject| Change {
        key: key.clone(),
        before: Some(Arc::clone(&before)),
        after: Some(Arc::new(after.clone())),
    };
    changed(&world.gateway, &change(&after));
    assert_eq!(world.gateway.queues.bgp.depth().ready, 0);
    after.labels = [("role", "edge")].into_iter().collect();
    changed(&world.gateway, &change(&after));
    assert_eq!(world.gateway.queues.bgp.depth().ready, 1);
}

/// Turned off, nothing is undone unless that is wanted; then what we wrote goes, and nothing else.
#[tokio::test]
async fn turned_off_it_cleans_up_only_when_told_to() {
    let told = World::new(Config::default());
    let key = told.node(settled_node("n", "True"));
    told.bgp.answer("n", Ok(answer(&["169.254.255.1"])));
    controller(&told).reconcile(&key).await;
    let mut node = told.api.get("/api/v1/nodes/n").unwrap();
    node["metadata"]["annotations"]["example.com/mine"] = json!("x");
    node["metadata"]["annotations"]["metal.equinix.com/bgp-peers-5-peer-ip"] = json!("of somebody else");
    for (controllers, selector, cleanup) in [(false, "", false), (false, "", true), (true, "role=edge", true)]
    {
        let mut config = Config {
            bgp_node_selector: selector.to_owned(),
            bgp_cleanup: cleanup,
            ..Config::default()
        };
        config.controllers.bgp = controllers;
        let world = World::new(config);
        let key = world.node(node.clone());
        let controller = controller(&world);
        let due = if cleanup { vec![key.clone()] } else { Vec::new() };
        assert_eq!(controller.due(), due);
        assert_eq!(controller.reconcile(&key).await, Outcome::Done);
        assert!(controller.due().is_empty());
        assert!(world.bgp.asked().is_empty());
        assert_eq!(world.api.calls().len(), usize::from(cleanup));
        let after = world.api.get("/api/v1/nodes/n").unwrap()["metadata"]["annotations"].clone();
        let others = json!({
            "example.com/mine": "x",
            "metal.equinix.com/bgp-peers-5-peer-ip": "of somebody else",
        });
        let expected = if cleanup {
            others
        } else {
            node["metadata"]["annotations"].clone()
        };
        assert_eq!(after, expected);
    }
}

/// The same where BGP is off in the cloud's part of the configuration.
#[tokio::test]
async fn where_the_cloud_speaks_no_bgp_it_cleans_up_only_when_told_to() {
    for cleanup in [false, true] {
        let mut world = World::new(Config {
            bgp_cleanup: cleanup,
            ..Config::default()
        });
        let key = world.node(settled_node("n", "True"));
        world.bgp.answer("n", Ok(answer(&["169.254.255.1"])));
        let controller = controller(&world);
        controller.reconcile(&key).await;
        world.api.calls();
        world
            .bgp
            .answer("n", Err(rpc_error(ErrorKind::Precondition, "BGP_OFF")));
        for expected in [usize::from(cleanup), 0] {
            assert_eq!(controller.reconcile(&key).await, Outcome::Done);
            assert_eq!(world.api.calls().len(), expected);
        }
        assert!(controller.due().is_empty() && world.events.take().is_empty());
        let node = world.gateway.cluster.nodes.get(&key).unwrap();
        assert_eq!(plan::is_told(&node), !cleanup);
    }
}

/// What a format cannot say is told, once.
#[tokio::test]
async fn peers_that_a_list_cannot_hold_are_told() {
    let mut world = World::new(Config {
        annotation_formats: vec![crate::config::AnnotationFormat::Plain],
        ..Config::default()
    });
    let key = world.node(settled_node("n", "True"));
    let mut answer = answer(&["169.254.255.1", "169.254.255.2"]);
    answer.peers[1].peer_asn = 64_512;
    world.bgp.answer("n", Ok(answer));
    let controller = controller(&world);
    for told in [true, false] {
        assert_eq!(controller.reconcile(&key).await, Outcome::Done);
        assert_eq!(!world.events.take().is_empty(), told);
    }
}
