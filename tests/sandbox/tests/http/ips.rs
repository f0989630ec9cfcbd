//! Reservations and assignments.

use std::collections::BTreeSet;

use groundplane_sandbox::{
    DeviceOptions, ProjectOptions, ReservationKind, ReservationOptions, ReservationState,
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::{Client, error, keys, start};

fn wanted(tag: &str) -> Value {
    json!({
        "type": "public_ipv4", "quantity": 1, "metro": "sv", "tags": [tag], "details": "for a Service",
        "fail_on_approval_required": true,
    })
}

async fn reserve(client: &Client, path: &str, tag: &str) -> Value {
    let (status, body) = client.post(path, wanted(tag)).await;
    assert_eq!(status, 201, "{body}");
    body
}

#[tokio::test]
async fn a_reservation_is_made_listed_read_changed_and_deleted() {
    let (_sandbox, project, client) = start(ProjectOptions::default()).await;
    let ips = format!("/projects/{}/ips", project.id());
    let made = reserve(&client, &ips, "service=a").await;
    assert_eq!(
        (&made["state"], &made["cidr"], &made["type"]),
        (&"created".into(), &32.into(), &"public_ipv4".into())
    );
    assert_eq!(
        (&made["tags"], &made["details"]),
        (&json!(["service=a"]), &"for a Service".into())
    );
    assert_eq!(
        (&made["metro"]["code"], &made["assignments"]),
        (&"sv".into(), &json!([]))
    );

    let (_, list) = client.get(&ips).await;
    assert_eq!(list["ip_addresses"], json!([made]));
    let path = format!("/ips/{}", made["id"].as_str().unwrap());
    assert_eq!(client.get(&path).await, (200, made.clone()));

    let change = json!({ "tags": ["service=b"], "customdata": { "k": 1 } });
    let (status, changed) = client.patch(&path, change).await;
    assert_eq!(
        (status, &changed["tags"], &changed["details"]),
        (200, &json!(["service=b"]), &made["details"])
    );
    assert_eq!(changed["customdata"], json!({ "k": 1 }));

    assert_eq!(client.delete(&path).await, (204, Value::Null));
    assert_eq!(client.delete(&path).await.0, 404);
    assert_eq!(client.get(&path).await.0, 404);
    assert!(project.reservations().is_empty());
}

/// The vendor's SDK refuses a reservation with a field that it does not know, and then the whole list.
#[tokio::test]
async fn a_reservation_carries_no_field_beyond_the_schema() {
    let schema: BTreeSet<&str> = [
        "addon",
        "address",
        "address_family",
        "assignments",
        "available",
        "bill",
        "cidr",
        "created_at",
        "customdata",
        "enabled",
        "details",
        "facility",
        "gateway",
        "global_ip",
        "href",
        "id",
        "manageable",
        "management",
        "metal_gateway",
        "metro",
        "netmask",
        "network",
        "project",
        "project_lite",
        "public",
        "requested_by",
        "state",
        "tags",
        "type",
    ]
    .into();
    let (_sandbox, project, client) = start(ProjectOptions {
        quota: Some(4),
        ..ProjectOptions::default()
    })
    .await;
    let ips = format!("/projects/{}/ips", project.id());
    let device = project.add_device(DeviceOptions::default());
    let made = reserve(&client, &ips, "x").await;
    client
        .post(
            &format!("/devices/{device}/ips"),
            json!({ "address": made["address"] }),
        )
        .await;
    client
        .post(
            &ips,
            json!({ "type": "public_ipv6", "quantity": 2, "facility": "sv15" }),
        )
        .await;
    client
        .post(&ips, json!({ "type": "global_ipv4", "quantity": 1 }))
        .await;
    client
        .post(
            &ips,
            json!({ "type": "public_ipv4", "quantity": 8, "metro": "sv" }),
        )
        .await;
    let (_, list) = client.get(&format!("{ips}?include=assignments,facility")).await;
    let rows = list["ip_addresses"].as_array().unwrap();
    // Two blocks of the machine, four requests.
    assert_eq!(rows.len(), 6);
    for row in rows {
        assert!(
            keys(row).is_subset(&schema),
            "{:?}",
            keys(row).difference(&schema).collect::<Vec<_>>()
        );
        assert!(row["type"].is_string());
    }
}

#[tokio::test]
async fn a_vrf_block_is_listed_with_a_schema_of_its_own() {
    let (_sandbox, project, client) = start(ProjectOptions::default()).await;
    project.add_reservation(ReservationOptions {
        kind: ReservationKind::Vrf,
        address: Some("192.168.100.0".parse().unwrap()),
        quantity: 128,
        ..ReservationOptions::default()
    });
    let ips = format!("/projects/{}/ips", project.id());
    reserve(&client, &ips, "x").await;
    let (_, list) = client.get(&ips).await;
    let vrf = &list["ip_addresses"][0];
    assert_eq!((&vrf["type"], &vrf["cidr"]), (&"vrf".into(), &25.into()));
    assert!(vrf["vrf"]["href"].is_string());
    assert!(vrf.get("assignments").is_none());
    let (_, only) = client.get(&format!("{ips}?types=public_ipv4")).await;
    assert_eq!(
        (only["meta"]["total"].as_u64(), &only["ip_addresses"][0]["tags"]),
        (Some(1), &json!(["x"]))
    );
}

/// The quota is spent, and freed later.
#[tokio::test]
async fn over_the_quota_a_request_fails_or_waits_as_it_wishes() {
    let (_sandbox, project, client) = start(ProjectOptions {
        quota: Some(1),
        ..ProjectOptions::default()
    })
    .await;
    let ips = format!("/projects/{}/ips", project.id());
    let first = reserve(&client, &ips, "a").await;
    let (status, refused) = client.post(&ips, wanted("b")).await;
    assert_eq!(status, 422);
    assert!(error(&refused).contains("approval"));
    assert_eq!(project.reservations().len(), 1);

    let patient = json!({ "type": "public_ipv4", "quantity": 1, "metro": "sv", "tags": ["c"] });
    let (status, pending) = client.post(&ips, patient).await;
    assert_eq!((status, &pending["state"]), (201, &"pending".into()));
    assert_eq!((&pending["address"], &pending["cidr"]), (&"".into(), &0.into()));
    let id = pending["id"].as_str().unwrap().parse().unwrap();
    project.approve(id);
    let (_, approved) = client.get(&format!("/ips/{id}")).await;
    assert_eq!(
        (&approved["state"], &approved["cidr"]),
        (&"created".into(), &32.into())
    );
    assert!(
        approved["address"]
            .as_str()
            .unwrap()
            .parse::<std::net::IpAddr>()
            .is_ok()
    );

    // Two are held now, one by approval: both must go before there is room.
    client
        .delete(&format!("/ips/{}", first["id"].as_str().unwrap()))
        .await;
    assert_eq!(client.post(&ips, wanted("b")).await.0, 422);
    client.delete(&format!("/ips/{id}")).await;
    reserve(&client, &ips, "b").await;
    project.set_quota(None);
    reserve(&client, &ips, "d").await;
}

#[tokio::test]
async fn a_denied_reservation_never_has_an_address() {
    let (_sandbox, project, client) = start(ProjectOptions {
        quota: Some(0),
        ..ProjectOptions::default()
    })
    .await;
    let request = json!({ "type": "public_ipv4", "quantity": 1, "metro": "sv" });
    let (_, pending) = client
        .post(&format!("/projects/{}/ips", project.id()), request)
        .await;
    let id = pending["id"].as_str().unwrap().parse().unwrap();
    project.deny(id);
    assert_eq!(project.reservation(id).unwrap().state, ReservationState::Denied);
    assert_eq!(client.get(&format!("/ips/{id}")).await.1["state"], "denied");
    assert_eq!(client.delete(&format!("/ips/{id}")).await.0, 204);
}

#[tokio::test]
async fn nonsense_is_refused_and_reserves_nothing() {
    let (_sandbox, project, client) = start(ProjectOptions::default()).await;
    let ips = format!("/projects/{}/ips", project.id());
    for bad in [
        json!({}),
        json!({ "type": "public_ipv4", "metro": "sv" }),
        json!({ "type": "public_ipv4", "quantity": 3, "metro": "sv" }),
        json!({ "type": "public_ipv4", "quantity": 0, "metro": "sv" }),
        json!({ "type": "public_ipv4", "quantity": 1 }),
        json!({ "type": "public_ipv4", "quantity": 1, "metro": "sv", "facility": "sv15" }),
        json!({ "type": "public_ipv4", "quantity": 1, "metro": "zz" }),
        json!({ "type": "public_ipv4", "quantity": 1, "facility": "sv" }),
        json!({ "type": "global_ipv4", "quantity": 1, "metro": "sv" }),
        json!({ "type": "floating", "quantity": 1, "metro": "sv" }),
        json!({ "type": "public_ipv4", "quantity": "1", "metro": "sv" }),
    ] {
        let (status, body) = client.post(&ips, bad.clone()).await;
        assert_eq!(status, 422, "{bad}");
        assert!(!error(&body).is_empty());
    }
    let half = client
        .http
        .post(format!("{}{ips}", client.base))
        .header("X-Auth-Token", &client.token);
    assert_eq!(half.body("{\"type\":").send().await.unwrap().status(), 400);
    assert!(project.reservations().is_empty());
}

#[tokio::test]
async fn ipv6_and_blocks_can_be_reserved() {
    let (_sandbox, project, client) = start(ProjectOptions::default()).await;
    let ips = format!("/projects/{}/ips", project.id());
    let ask = async |kind: &str, quantity: u32| {
        client
            .post(&ips, json!({ "type": kind, "quantity": quantity, "metro": "sv" }))
            .await
            .1
    };
    let one = ask("public_ipv6", 1).await;
    assert_eq!((&one["cidr"], &one["address_family"]), (&128.into(), &6.into()));
    let block = ask("public_ipv4", 4).await;
    assert_eq!(
        (&block["cidr"], &block["netmask"]),
        (&30.into(), &"255.255.255.252".into())
    );
    let next = ask("public_ipv4", 1).await;
    assert_ne!(next["address"], block["address"]);
    let device = project.add_device(DeviceOptions::default());
    let (status, assigned) = client
        .post(
            &format!("/devices/{device}/ips"),
            json!({ "address": one["address"] }),
        )
        .await;
    assert_eq!((status, &assigned["address_family"]), (201, &6.into()));
    // A part of a block goes to a machine, the rest of it to nobody.
    let inner = format!("{}/31", block["address"].as_str().unwrap());
    let (status, assigned) = client
        .post(&format!("/devices/{device}/ips"), json!({ "address": inner }))
        .await;
    assert_eq!((status, &assigned["cidr"]), (201, &31.into()));
    let (status, body) = client
        .post(
            &format!("/devices/{device}/ips"),
            json!({ "address": block["address"] }),
        )
        .await;
    assert_eq!((status, error(&body)), (422, "Address has already been taken"));
}

#[tokio::test]
async fn an_assigned_address_shows_up_on_the_device_and_goes_again() {
    let (_sandbox, project, client) = start(ProjectOptions::default()).await;
    let ips = format!("/projects/{}/ips", project.id());
    let (a, b) = (
        project.add_device(DeviceOptions::default()),
        project.add_device(DeviceOptions::default()),
    );
    let made = reserve(&client, &ips, "x").await;
    let body = json!({ "address": made["address"] });

    let (status, assigned) = client.post(&format!("/devices/{a}/ips"), body.clone()).await;
    assert_eq!((status, &assigned["address"]), (201, &made["address"]));
    assert_eq!(assigned["assigned_to"]["href"], format!("/metal/v1/devices/{a}"));
    for device in [a, b] {
        let (status, refused) = client.post(&format!("/devices/{device}/ips"), body.clone()).await;
        assert_eq!((status, error(&refused)), (422, "Address has already been taken"));
    }
    let (_, device) = client.get(&format!("/devices/{a}")).await;
    let shown = device["ip_addresses"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&shown["id"], &shown["management"], &shown["public"]),
        (&assigned["id"], &false.into(), &true.into())
    );
    let (_, listed) = client.get(&format!("/devices/{a}/ips")).await;
    assert_eq!(listed["ip_addresses"].as_array().unwrap().len(), 4);

    // In lists of reservations an assignment is a link, unless included.
    let row = async |query: &str| {
        client
            .get(&format!("/ips/{}{query}", made["id"].as_str().unwrap()))
            .await
            .1
    };
    let assignment = format!("/ips/{}", assigned["id"].as_str().unwrap());
    assert_eq!(
        row("").await["assignments"],
        json!([{ "href": format!("/metal/v1{assignment}") }])
    );
    assert_eq!(
        row("?include=assignments").await["assignments"][0]["assigned_to"],
        assigned["assigned_to"]
    );
    assert_eq!(client.get(&assignment).await.1["address"], made["address"]);
    let (_, with_parent) = client.get(&format!("{assignment}?include=parent_block")).await;
    assert_eq!(with_parent["parent_block"]["cidr"], 32);

    // A reservation in use stays; without its assignment it goes.
    let reservation = format!("/ips/{}", made["id"].as_str().unwrap());
    assert_eq!(client.delete(&reservation).await.0, 422);
    assert_eq!(client.delete(&assignment).await.0, 204);
    assert_eq!(client.delete(&assignment).await.0, 404);
    assert_eq!(
        client.get(&format!("/devices/{a}")).await.1["ip_addresses"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
    assert_eq!(client.post(&format!("/devices/{b}/ips"), body).await.0, 201);
    // A machine that goes leaves the reservation behind.
    project.remove_device(b);
    assert_eq!(row("").await["assignments"], json!([]));
    assert_eq!(client.delete(&reservation).await.0, 204);
}

#[tokio::test]
async fn an_address_that_is_not_ours_or_not_here_is_not_assigned() {
    let (_sandbox, project, client) = start(ProjectOptions::default()).await;
    let device = project.add_device(DeviceOptions::default());
    let elsewhere = project.add_reservation(ReservationOptions {
        metro: Some("da".to_owned()),
        ..ReservationOptions::default()
    });
    let own = project.own_ipv4(device, true).unwrap().to_string();
    let far = elsewhere.address.unwrap().to_string();
    for address in ["192.0.2.1", "192.0.2.1/24", "x", "1.2.3.4/33", &own, &far] {
        let (status, body) = client
            .post(&format!("/devices/{device}/ips"), json!({ "address": address }))
            .await;
        assert_eq!(status, 422, "{address}");
        assert!(!error(&body).is_empty());
    }
    assert!(project.assignments().is_empty());
}

#[tokio::test]
async fn what_comes_with_a_machine_cannot_be_deleted() {
    let (_sandbox, project, client) = start(ProjectOptions::default()).await;
    let device = project.add_device(DeviceOptions::default());
    for address in project.addresses(device) {
        assert_eq!(client.delete(&format!("/ips/{}", address.id)).await.0, 422);
        if let Some(block) = address.reservation {
            assert_eq!(client.delete(&format!("/ips/{block}")).await.0, 422);
        }
    }
    assert_eq!(project.addresses(device).len(), 3);
}

#[tokio::test]
async fn blocks_of_machines_are_listed_unless_the_project_says_otherwise() {
    for (shown, expected) in [(true, 2), (false, 0)] {
        let options = ProjectOptions {
            list_machine_blocks: shown,
            ..ProjectOptions::default()
        };
        let (_sandbox, project, client) = start(options).await;
        project.add_devices(5);
        let (_, list) = client.get(&format!("/projects/{}/ips", project.id())).await;
        assert_eq!(list["meta"]["total"], expected);
    }
}

#[tokio::test]
async fn reservations_come_250_a_page() {
    let (_sandbox, project, client) = start(ProjectOptions::default()).await;
    for _ in 0..260 {
        project.add_reservation(ReservationOptions::tagged(["t"]));
    }
    let (_, list) = client.get(&format!("/projects/{}/ips", project.id())).await;
    assert_eq!(list["ip_addresses"].as_array().unwrap().len(), 250);
    let next = list["meta"]["next"]["href"]
        .as_str()
        .unwrap()
        .strip_prefix("/metal/v1")
        .unwrap();
    let (_, rest) = client.get(next).await;
    assert_eq!(rest["ip_addresses"].as_array().unwrap().len(), 10);
    assert!(rest["meta"].get("next").is_none());
}
