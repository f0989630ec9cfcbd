use std::time::Duration;

use groundplane_core::DriverName;
use groundplane_core::names::PROVIDED_NODE_IP;
use groundplane_proto::instances::v1::{AddressType as ProtoType, MachineAddress, ResolveRequest};
use pretty_assertions::assert_eq;
use serde_json::json;

use super::*;
use crate::config::Config;
use crate::testing::{World, fresh_node, rpc_error, settled_node};

fn machine(id: &str, addresses: &[&str]) -> Machine {
    let address = |address: &&str| MachineAddress {
        r#type: ProtoType::InternalIp.into(),
        address: (*address).to_owned(),
    };
    Machine {
        provider_id: format!("equinixmetal://{id}"),
        addresses: addresses.iter().map(address).collect(),
        zone: "ny5".into(),
        ..Machine::default()
    }
}

fn controller(world: &World) -> NodeController {
    NodeController::new(&world.gateway)
}

/// N1, N2, E12: two patches, the status first and the taint last; one event; and nothing more when it is looked at again.
#[tokio::test]
async fn a_machine_becomes_a_node_in_two_patches() {
    let mut world = World::new(Config::default());
    let key = world.node(fresh_node("n"));
    world.instances.answer("n", Ok(machine("m", &["10.0.0.1"])));
    let controller = controller(&world);
    assert_eq!(controller.due(), std::slice::from_ref(&key));
    assert_eq!(controller.reconcile(&key).await, Outcome::Done);
    assert_eq!(
        world.api.calls(),
        ["PATCH /api/v1/nodes/n/status", "PATCH /api/v1/nodes/n"]
    );
    assert_eq!(world.events.take(), [("n".to_owned(), "Synced")]);
    let node = world.api.get("/api/v1/nodes/n").unwrap();
    assert_eq!(node["spec"]["providerID"], "equinixmetal://m");
    assert_eq!(node["spec"]["taints"].as_array().unwrap().len(), 1);
    assert_eq!(
        node["status"]["addresses"],
        json!([{ "type": "InternalIP", "address": "10.0.0.1" }, { "type": "Hostname", "address": "n" }])
    );
    // The watch has told nothing yet: the answers to our own writes are what the next look sees.
    assert!(controller.due().is_empty());
    assert_eq!(controller.reconcile(&key).await, Outcome::Done);
    assert!(world.api.calls().is_empty());
}

/// N3: an untainted node is not woken for, and is not due.
#[tokio::test]
async fn an_untainted_node_is_left_alone() {
    let world = World::new(Config::default());
    let key = world.node(settled_node("n", "True"));
    let after = world.gateway.cluster.nodes.get(&key);
    changed(
        &world.gateway,
        &Change {
            key,
            before: None,
            after,
        },
    );
    assert_eq!(world.gateway.queues.nodes.depth().ready, 0);
    assert!(controller(&world).due().is_empty());
}

/// N7, N8, N10, N11, N12, E20: whatever is wrong, the taint stays, nothing is written, an event says why, and it is tried again.
#[tokio::test]
async fn what_goes_wrong_leaves_the_node_as_it_is() {
    let unknown = machine("", &["10.0.0.1"]);
    let nameless = Machine {
        provider_id: String::new(),
        ..unknown
    };
    let cases = [
        (
            "invalid-ip",
            Ok(machine("m", &["10.0.0.1"])),
            "ProvidedNodeIpMismatch",
        ),
        (
            "10.0.0.2",
            Ok(machine("m", &["10.0.0.1"])),
            "ProvidedNodeIpMismatch",
        ),
        ("", Ok(nameless), "ProviderIdMissing"),
        (
            "",
            Err(rpc_error(ErrorKind::Unavailable, "CLOUD_UNAVAILABLE")),
            "MachineNotResolved",
        ),
        (
            "",
            Err(rpc_error(ErrorKind::Timeout, "DEADLINE_EXCEEDED")),
            "MachineNotResolved",
        ),
        (
            "",
            Err(rpc_error(ErrorKind::Precondition, "AMBIGUOUS")),
            "MachineNotResolved",
        ),
        (
            "",
            Err(rpc_error(ErrorKind::NotFound, "MACHINE_NOT_FOUND")),
            "MachineNotFound",
        ),
    ];
    for (provided, answer, reason) in cases {
        let mut world = World::new(Config::default());
        let mut node = fresh_node("n");
        if !provided.is_empty() {
            node["metadata"]["annotations"] = json!({ PROVIDED_NODE_IP: provided });
        }
        let key = world.node(node);
        world.instances.answer("n", answer);
        let outcome = controller(&world).reconcile(&key).await;
        assert_eq!(outcome, Outcome::Failed(Duration::ZERO), "{reason}");
        assert!(world.api.calls().is_empty(), "{reason}");
        assert_eq!(world.events.take(), [("n".to_owned(), reason)]);
    }
}

/// E22, E14: a node of another cloud is untouched, without a word.
#[tokio::test]
async fn a_foreign_node_is_untouched() {
    let mut world = World::new(Config::default());
    let key = world.node(fresh_node("n"));
    world
        .instances
        .answer("n", Err(rpc_error(ErrorKind::Precondition, FOREIGN)));
    let outcome = controller(&world).reconcile(&key).await;
    assert_eq!(outcome, Outcome::After(Duration::from_secs(300)));
    assert!(world.api.calls().is_empty() && world.events.take().is_empty());
}

/// N30: conflicts are looked at again until it succeeds; one event.
#[tokio::test]
async fn conflicts_end_in_one_initialisation() {
    let mut world = World::new(Config::default());
    let key = world.node(fresh_node("n"));
    world.instances.answer("n", Ok(machine("m", &["10.0.0.1"])));
    world.api.fail("PATCH /api/v1/nodes/n", 409, 19);
    let controller = controller(&world);
    for _ in 0..19 {
        assert_eq!(controller.reconcile(&key).await, Outcome::Conflict);
        world.catch_up(&key);
    }
    assert_eq!(controller.reconcile(&key).await, Outcome::Done);
    assert_eq!(world.events.take(), [("n".to_owned(), "Synced")]);
}

/// N30: somebody else changes the node between our look and our write.
#[tokio::test]
async fn a_node_that_changed_meanwhile_keeps_its_new_taints() {
    let world = World::new(Config::default());
    let key = world.node(fresh_node("n"));
    world.instances.answer("n", Ok(machine("m", &[])));
    let mut changed = world.api.get("/api/v1/nodes/n").unwrap();
    changed["spec"]["taints"]
        .as_array_mut()
        .unwrap()
        .push(json!({ "key": "new", "effect": "NoSchedule" }));
    world.api.put("/api/v1/nodes", changed);
    let controller = controller(&world);
    assert_eq!(controller.reconcile(&key).await, Outcome::Conflict);
    world.catch_up(&key);
    assert_eq!(controller.reconcile(&key).await, Outcome::Done);
    let taints = world.api.get("/api/v1/nodes/n").unwrap()["spec"]["taints"].clone();
    let keys: Vec<_> = taints
        .as_array()
        .unwrap()
        .iter()
        .map(|taint| taint["key"].as_str().unwrap())
        .collect();
    assert_eq!(keys, ["other", "new"]);
}

/// N19: what waits to be initialised is initialised, not refreshed: one look does both.
/// Addresses that differ from the cloud's are mended, others not.
#[tokio::test]
async fn addresses_follow_the_cloud() {
    let world = World::new(Config::default());
    let key = world.node(settled_node("n", "True"));
    let controller = controller(&world);
    assert_eq!(controller.all(), std::slice::from_ref(&key));
    world.instances.answer("n", Ok(machine("n", &["10.0.0.1"])));
    assert_eq!(controller.reconcile(&key).await, Outcome::Done);
    assert!(world.api.calls().is_empty());
    world.instances.answer("n", Ok(machine("n", &["10.0.0.2"])));
    assert_eq!(controller.reconcile(&key).await, Outcome::Done);
    assert_eq!(world.api.calls(), ["PATCH /api/v1/nodes/n/status"]);
    assert_eq!(
        world.api.get("/api/v1/nodes/n").unwrap()["status"]["addresses"],
        json!([{ "type": "InternalIP", "address": "10.0.0.2" }])
    );
}

/// A machine of which the cloud knows no address at the moment takes none from its node, and its labels follow all the same; a new node
/// waits, and is told what for.
#[tokio::test]
async fn a_machine_without_addresses_takes_none_from_its_node() {
    let mut world = World::new(Config {
        refresh_labels: true,
        ..Config::default()
    });
    let nameless = || {
        let mut machine = machine("m", &[]);
        machine.addresses.push(MachineAddress {
            r#type: ProtoType::Hostname.into(),
            address: "m".into(),
        });
        Ok(machine)
    };
    let (old, new) = (
        world.node(settled_node("old", "True")),
        world.node(fresh_node("new")),
    );
    for name in ["old", "new"] {
        world.instances.answer(name, nameless());
    }
    let controller = controller(&world);
    let before = world.api.get("/api/v1/nodes/old").unwrap()["status"].clone();
    assert_eq!(controller.reconcile(&old).await, Outcome::Done);
    let after = world.api.get("/api/v1/nodes/old").unwrap();
    assert_eq!(after["status"], before);
    assert_eq!(after["metadata"]["labels"]["topology.kubernetes.io/zone"], "ny5");
    world.api.calls();
    assert_eq!(controller.reconcile(&new).await, Outcome::Failed(Duration::ZERO));
    assert!(world.api.calls().is_empty());
    assert_eq!(world.events.take(), [("new".to_owned(), "MachineWithoutAddress")]);
}

/// E17: kubelet's word is good for an address that a cloud does not list, and not where the list is whole.
#[tokio::test]
async fn a_node_ip_that_the_cloud_does_not_list_is_believed_of_clouds() {
    for (driver, believed) in [
        (DriverName::Equinix, true),
        (DriverName::Cherry, true),
        (DriverName::Static, false),
        (DriverName::Remote, false),
    ] {
        let mut world = World::new(Config {
            driver,
            ..Config::default()
        });
        let mut node = fresh_node("n");
        node["metadata"]["annotations"] = json!({ PROVIDED_NODE_IP: "172.16.0.5" });
        let key = world.node(node);
        world.instances.answer("n", Ok(machine("m", &["10.0.0.1"])));
        let outcome = controller(&world).reconcile(&key).await;
        assert_eq!(outcome == Outcome::Done, believed, "{driver}");
        let event = if believed {
            "Synced"
        } else {
            "ProvidedNodeIpMismatch"
        };
        assert_eq!(world.events.take(), [("n".to_owned(), event)]);
        let expected = if believed {
            json!([{ "type": "InternalIP", "address": "172.16.0.5" }, { "type": "Hostname", "address": "n" }])
        } else {
            json!([{ "type": "Hostname", "address": "n" }])
        };
        let node = world.api.get("/api/v1/nodes/n").unwrap();
        assert_eq!(node["status"]["addresses"], expected, "{driver}");
    }
}

/// A node whose machine is gone is told so once, and which machine has its name today; found again and lost again, once more. Another
/// cloud's is not told anything.
#[tokio::test]
async fn a_node_that_lost_its_machine_is_told_once() {
    let mut world = World::new(Config::default());
    let key = world.node(settled_node("n", "True"));
    let gone = || Err(rpc_error(ErrorKind::NotFound, "MACHINE_NOT_FOUND"));
    let controller = controller(&world);
    world.instances.answer("n", gone());
    for told in [&[("n".to_owned(), "MachineNotFound")][..], &[]] {
        assert_eq!(controller.reconcile(&key).await, Outcome::Done);
        assert_eq!(world.events.take(), told);
    }
    world.instances.answer("n", Ok(machine("n", &["10.0.0.1"])));
    assert_eq!(controller.reconcile(&key).await, Outcome::Done);
    assert!(world.events.take().is_empty());
    world.instances.answer("n", gone());
    world.instances.answer_by_name("n", machine("m2", &["10.0.0.1"]));
    assert_eq!(controller.reconcile(&key).await, Outcome::Done);
    assert_eq!(world.events.take(), [("n".to_owned(), "MachineRecreated")]);
    assert!(world.api.calls().is_empty());
    let asked = world.instances.asked();
    assert_eq!(asked.last().unwrap().provider_id, "");
    let foreign = world.node(settled_node("foreign", "True"));
    world
        .instances
        .answer("foreign", Err(rpc_error(ErrorKind::Precondition, FOREIGN)));
    assert_eq!(controller.reconcile(&foreign).await, Outcome::Done);
    assert!(world.events.take().is_empty());
}

/// N32: labels follow the cloud only where that is asked for.
#[tokio::test]
async fn labels_follow_the_cloud_on_request() {
    for refresh_labels in [false, true] {
        let world = World::new(Config {
            refresh_labels,
            ..Config::default()
        });
        let key = world.node(settled_node("n", "True"));
        world.instances.answer("n", Ok(machine("n", &["10.0.0.1"])));
        assert_eq!(controller(&world).reconcile(&key).await, Outcome::Done);
        assert_eq!(world.api.calls().len(), usize::from(refresh_labels));
    }
}

/// E13: what the node says of itself goes with the question.
#[tokio::test]
async fn the_question_has_what_the_node_says() {
    let world = World::new(Config::default());
    let mut node = fresh_node("n");
    node["spec"]["providerID"] = json!("packet://abc");
    node["metadata"]["annotations"] = json!({ PROVIDED_NODE_IP: "10.0.0.1,2001:db8::1" });
    node["status"]["addresses"] = json!([
        { "type": "InternalIP", "address": "10.0.0.1" },
        { "type": "InternalIP", "address": "10.0.0.9" },
        { "type": "Hostname", "address": "n" },
    ]);
    let key = world.node(node);
    controller(&world).reconcile(&key).await;
    let asked = world.instances.asked();
    assert_eq!(
        asked,
        [ResolveRequest {
            provider_id: "packet://abc".into(),
            node: "n".into(),
            addresses: vec!["10.0.0.1".into(), "2001:db8::1".into(), "10.0.0.9".into()],
            fresh: false,
        }]
    );
}

/// E88: a replica that lost the lease in the middle writes nothing more.
#[tokio::test]
async fn who_does_not_lead_writes_nothing() {
    let mut world = World::new(Config::default());
    let key = world.node(fresh_node("n"));
    world.instances.answer("n", Ok(machine("m", &["10.0.0.1"])));
    world.leads.send_replace(None);
    assert_eq!(controller(&world).reconcile(&key).await, Outcome::Done);
    assert!(world.api.calls().is_empty() && world.events.take().is_empty());
}

/// N15, N16, E22: a label that changed under yesterday's name wakes, and its twin follows, on nodes of ours alone.
#[tokio::test]
async fn twins_of_labels_follow_on_nodes_of_ours() {
    let world = World::new(Config::default());
    let labelled = |name: &str| {
        let mut node = settled_node(name, "True");
        node["metadata"]["labels"]["failure-domain.beta.kubernetes.io/zone"] = json!("ny5");
        node["metadata"]["labels"]["topology.kubernetes.io/zone"] = json!("old");
        node
    };
    let (ours, foreign) = (world.node(labelled("ours")), world.node(labelled("foreign")));
    world.instances.answer("ours", Ok(machine("m", &["10.0.0.1"])));
    world
        .instances
        .answer("foreign", Err(rpc_error(ErrorKind::Precondition, FOREIGN)));
    let after = world.gateway.cluster.nodes.get(&ours);
    let change = Change {
        key: ours.clone(),
        before: None,
        after,
    };
    changed(&world.gateway, &change);
    assert_eq!(world.gateway.queues.nodes.depth().ready, 1);
    let controller = controller(&world);
    for key in [&ours, &foreign] {
        assert_eq!(controller.reconcile(key).await, Outcome::Done);
    }
    assert_eq!(world.api.calls(), ["PATCH /api/v1/nodes/ours"]);
    let node = world.api.get("/api/v1/nodes/ours").unwrap();
    assert_eq!(node["metadata"]["labels"]["topology.kubernetes.io/zone"], "ny5");
    assert_eq!(controller.due(), [foreign], "ours is settled");
}

/// N21: a hundred nodes are a hundred questions, however many workers there are; none is asked for twice.
#[tokio::test]
async fn a_hundred_nodes_are_a_hundred_questions() {
    for workers in [1, 5, 10, 30] {
        let world = World::new(Config::default());
        let controller = Arc::new(controller(&world));
        for number in 0..100 {
            let name = format!("n{number}");
            world.instances.answer(&name, Ok(machine(&name, &["10.0.0.1"])));
            let key = world.node(fresh_node(&name));
            // Woken several times, as by a watch and a resync at once.
            world.gateway.queues.nodes.wake(key.clone());
            world.gateway.queues.nodes.offer(key);
        }
        let work = (0..workers).map(|_| {
            let (controller, gateway) = (Arc::clone(&controller), Arc::clone(&world.gateway));
            crate::controllers::work(controller, gateway)
        });
        let settled = async {
            while !controller.due().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            _ = futures::future::join_all(work) => panic!("workers do not end"),
            () = settled => {}
        }
        assert_eq!(world.instances.asked().len(), 100, "{workers} workers");
    }
}
