use groundplane_proto::instances::v1::{Machine, MachineAddress};
use pretty_assertions::assert_eq;

use super::*;
use crate::testing::{fresh_node, settled_node};

fn node(value: &Value) -> NodeObject {
    let mut value = value.clone();
    value["metadata"]["uid"] = json!("uid-1");
    value["metadata"]["resourceVersion"] = json!("7");
    serde_json::from_value(value).unwrap()
}

fn machine() -> Machine {
    let address = |kind: ProtoType, address: &str| MachineAddress {
        r#type: kind.into(),
        address: address.into(),
    };
    Machine {
        provider_id: "equinixmetal://m".into(),
        hostname: "n".into(),
        addresses: vec![
            address(ProtoType::Hostname, "n"),
            address(ProtoType::InternalIp, "10.0.0.1"),
            address(ProtoType::ExternalIp, "192.0.2.1"),
        ],
        ..Machine::default()
    }
}

/// N1, N5: provider id, addresses in the cloud's order, and only our taint goes; others keep all of their fields.
#[test]
fn a_fresh_node_gets_all_in_two_patches() {
    let node = node(&fresh_node("n"));
    assert_eq!(
        addresses(&node, &machine(), Unlisted::Refused).unwrap().unwrap(),
        json!({ "metadata": { "uid": "uid-1" }, "status": { "addresses": [
            { "type": "Hostname", "address": "n" },
            { "type": "InternalIP", "address": "10.0.0.1" },
            { "type": "ExternalIP", "address": "192.0.2.1" },
        ] } })
    );
    assert_eq!(
        initialisation(&node, &machine()).unwrap(),
        json!({
            "metadata": { "resourceVersion": "7" },
            "spec": {
                "providerID": "equinixmetal://m",
                "taints": [{ "key": "other", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z" }],
            },
        })
    );
}

/// N4: six labels, under today's names and yesterday's.
#[test]
fn type_zone_and_region_become_six_labels() {
    let machine = Machine {
        instance_type: "c3".into(),
        zone: "ny5".into(),
        region: "ny".into(),
        ..machine()
    };
    let patch = initialisation(&node(&fresh_node("n")), &machine).unwrap();
    assert_eq!(
        patch["metadata"]["labels"],
        json!({
            "node.kubernetes.io/instance-type": "c3",
            "beta.kubernetes.io/instance-type": "c3",
            "topology.kubernetes.io/zone": "ny5",
            "failure-domain.beta.kubernetes.io/zone": "ny5",
            "topology.kubernetes.io/region": "ny",
            "failure-domain.beta.kubernetes.io/region": "ny",
        })
    );
}

/// N13: the cloud's own labels are added, never over others, and never among Kubernetes' own.
#[test]
fn more_labels_do_not_overwrite_and_are_not_reserved() {
    let labels = [
        ("rack", "r1"),
        ("role", "other"),
        ("kubernetes.io/x", "y"),
        ("node.k8s.io/x", "y"),
        ("notk8s.io/x", "y"),
        ("bad", "not a label"),
    ];
    let labels = labels
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    let machine = Machine { labels, ..machine() };
    assert_eq!(unusable(&machine).collect::<Vec<_>>(), [("bad", "not a label")]);
    let patch = initialisation(&node(&fresh_node("n")), &machine).unwrap();
    assert_eq!(
        patch["metadata"]["labels"],
        json!({ "rack": "r1", "notk8s.io/x": "y" })
    );
}

/// N9: a provider id that is there is never overwritten, and the node is initialised.
#[test]
fn a_provider_id_is_never_overwritten() {
    let mut value = fresh_node("n");
    value["spec"]["providerID"] = json!("equinixmetal://mine");
    for provider_id in ["", "equinixmetal://other"] {
        let machine = Machine {
            provider_id: provider_id.into(),
            ..machine()
        };
        let patch = initialisation(&node(&value), &machine).unwrap();
        assert_eq!(patch["spec"].get("providerID"), None);
        assert_eq!(patch["spec"]["taints"].as_array().unwrap().len(), 1);
    }
}

/// N10: no provider id anywhere.
#[test]
fn without_any_provider_id_nothing_is_planned() {
    let machine = Machine {
        provider_id: String::new(),
        ..machine()
    };
    assert_eq!(
        initialisation(&node(&fresh_node("n")), &machine),
        Err(PlanError::NoProviderId)
    );
}

/// The last taint leaves no empty list.
#[test]
fn the_last_taint_leaves_none() {
    let mut value = fresh_node("n");
    value["spec"]["taints"].as_array_mut().unwrap().pop();
    let patch = initialisation(&node(&value), &machine()).unwrap();
    assert_eq!(patch["spec"]["taints"], Value::Null);
}

/// N31: what is settled needs no patch.
#[test]
fn a_settled_node_needs_nothing() {
    let node = node(&settled_node("n", "True"));
    let machine = Machine {
        addresses: vec![MachineAddress {
            r#type: ProtoType::InternalIp.into(),
            address: "10.0.0.1".into(),
        }],
        ..machine()
    };
    assert_eq!(addresses(&node, &machine, Unlisted::Refused), Ok(None));
    assert_eq!(refreshed_labels(&node, &machine), None);
    assert_eq!(up_again(&node), None);
}

/// N32: a zone that changed.
#[test]
fn refreshed_labels_are_those_that_differ() {
    let mut value = settled_node("n", "True");
    value["metadata"]["labels"] = json!({
        "topology.kubernetes.io/zone": "old", "failure-domain.beta.kubernetes.io/zone": "new",
    });
    let machine = Machine {
        zone: "new".into(),
        ..machine()
    };
    assert_eq!(
        refreshed_labels(&node(&value), &machine).unwrap()["metadata"]["labels"],
        json!({ "topology.kubernetes.io/zone": "new" })
    );
}

/// C6, C8: the shutdown taint, added once and taken away again, with the version that was read.
#[test]
fn the_shutdown_taint_comes_and_goes() {
    let on = node(&settled_node("n", "False"));
    let patch = shut_down(&on).unwrap();
    assert_eq!(
        patch,
        json!({ "metadata": { "resourceVersion": "7" }, "spec": { "taints": [
            { "key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule" },
        ] } })
    );
    let mut value = settled_node("n", "True");
    value["spec"]["taints"] = patch["spec"]["taints"].clone();
    let off = node(&value);
    assert_eq!(shut_down(&off), None);
    assert_eq!(up_again(&off).unwrap()["spec"]["taints"], Value::Null);
    value["spec"]["taints"][0]["effect"] = json!("NoExecute");
    assert_eq!(up_again(&node(&value)), None, "another effect is somebody else's");
}

/// N15, N16, N17, N18: yesterday's label is the truth for its twin, and nothing else is touched.
#[test]
fn labels_under_yesterdays_names_have_twins() {
    let labelled = |labels: Value| {
        let mut value = settled_node("n", "True");
        value["metadata"]["labels"] = labels;
        node(&value)
    };
    let old = json!({
        "beta.kubernetes.io/instance-type": "c3",
        "failure-domain.beta.kubernetes.io/zone": "ny5",
        "failure-domain.beta.kubernetes.io/region": "ny",
    });
    let new = json!({
        "node.kubernetes.io/instance-type": "c3",
        "topology.kubernetes.io/zone": "ny5",
        "topology.kubernetes.io/region": "ny",
    });
    assert_eq!(
        twins(&labelled(old.clone())),
        Some(json!({ "metadata": { "uid": "uid-1", "labels": new } }))
    );
    let mut both = old;
    both.as_object_mut()
        .unwrap()
        .extend(new.as_object().unwrap().clone());
    assert_eq!(twins(&labelled(both.clone())), None, "they are the same");
    both["topology.kubernetes.io/zone"] = json!("elsewhere");
    let corrected = twins(&labelled(both)).unwrap();
    assert_eq!(
        corrected["metadata"]["labels"],
        json!({ "topology.kubernetes.io/zone": "ny5" })
    );
    assert_eq!(twins(&labelled(new)), None, "today's alone are enough");
}
