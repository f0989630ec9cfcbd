//! The API of Cherry Servers: addresses, and the move of one in a single call.

use std::net::IpAddr;

use groundplane_sandbox::{
    Action, DeviceOptions, FaultRule, Project, ProjectOptions, ReservationOptions, most_holders,
};
use pretty_assertions::assert_eq;
use reqwest::Method;
use serde_json::{Value, json};

use crate::Client;
use crate::cherry::start;

async fn reserve(client: &Client, project: &Project, tag: &str) -> Value {
    let (status, body) = client
        .post(
            &format!("/projects/{}/ips", project.number()),
            json!({ "region": "EU-Nord-1", "tags": { "service": tag } }),
        )
        .await;
    assert_eq!(status, 201, "{body}");
    body
}

fn path_of(ip: &Value) -> String {
    format!("/ips/{}", ip["id"].as_str().unwrap())
}

fn address_of(ip: &Value) -> IpAddr {
    ip["address"].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_floating_address_is_made_listed_tagged_and_deleted() {
    let (_sandbox, project, client) = start(ProjectOptions::cherry()).await;
    let made = reserve(&client, &project, "a").await;
    assert_eq!(
        (&made["type"], &made["tags"], &made["address_family"]),
        (&json!("floating-ip"), &json!({ "service": "a" }), &json!(4))
    );
    assert_eq!(made["cidr"], format!("{}/32", made["address"].as_str().unwrap()));
    assert_eq!(made["region"]["slug"], "eu_nord_1");
    assert!(made.get("targeted_to").is_none() && made.get("assigned_to").is_none());

    project.add_device(DeviceOptions::default());
    let ips = format!("/projects/{}/ips", project.number());
    let (_, list) = client.get(&ips).await;
    let kinds: Vec<&Value> = list.as_array().unwrap().iter().map(|ip| &ip["type"]).collect();
    assert_eq!(kinds, ["floating-ip", "primary-ip", "primary-ip", "private-ip"]);
    assert_eq!(list[0], made);
    let (_, only) = client.get(&format!("{ips}?type[]=floating-ip")).await;
    assert_eq!(only, json!([made]));

    let path = path_of(&made);
    let (status, tagged) = client
        .put(&path, json!({ "tags": { "service": "b", "cluster": "c" } }))
        .await;
    assert_eq!(
        (status, &tagged["tags"]),
        (200, &json!({ "cluster": "c", "service": "b" }))
    );
    assert_eq!(client.delete(&path).await, (204, Value::Null));
    for (status, body) in [client.delete(&path).await, client.get(&path).await] {
        assert_eq!((status, &body["code"]), (404, &json!(404)));
    }
    assert!(project.reservations().is_empty());
    // A machine's own address is not to be had.
    let own = path_of(&list[1]);
    assert_eq!(client.get(&own).await.1["assigned_to"]["hostname"], "node-00000");
    assert_eq!(client.delete(&own).await.0, 422);
    assert_eq!(client.put(&own, json!({ "targeted_to": "0" })).await.0, 422);
}

/// The move is one step: nobody ever sees two holders, nor none.
#[tokio::test]
async fn an_address_moves_from_server_to_server_in_one_call() {
    let (_sandbox, project, client) = start(ProjectOptions::cherry()).await;
    project.add_devices(2);
    let numbers: Vec<u32> = project.devices().iter().map(|device| device.number).collect();
    let made = reserve(&client, &project, "api").await;
    let (path, address) = (path_of(&made), address_of(&made));
    let target = async |to: Value| client.put(&path, json!({ "targeted_to": to })).await;

    let (status, first) = target(json!(numbers[0].to_string())).await;
    assert_eq!((status, &first["targeted_to"]["id"]), (200, &json!(numbers[0])));
    assert_eq!(first["routed_to"]["type"], "primary-ip");
    let (_, server) = client.get(&format!("/servers/{}", numbers[0])).await;
    assert!(
        server["ip_addresses"]
            .as_array()
            .unwrap()
            .iter()
            .any(|ip| ip["id"] == made["id"])
    );
    assert_eq!(client.delete(&path).await.0, 422);

    let (_, moved) = target(json!(numbers[1])).await;
    assert_eq!(moved["targeted_to"]["id"], json!(numbers[1]));
    // Once more changes nothing.
    assert_eq!(target(json!(numbers[1].to_string())).await.0, 200);
    assert_eq!(project.holder_changes(address).len(), 3);
    assert_eq!(most_holders(&project.holder_changes(address)), 1);
    assert_eq!(project.holders(address)[0].device, project.devices()[1].id);

    let (status, freed) = target(json!("0")).await;
    assert_eq!((status, freed.get("targeted_to")), (200, None));
    assert!(project.holders(address).is_empty());
    assert_eq!(target(json!(0)).await.0, 200);
    assert_eq!(client.delete(&path).await.0, 204);
}

#[tokio::test]
async fn a_refused_move_leaves_the_holder_as_it_is() {
    let (_sandbox, project, client) = start(ProjectOptions::cherry()).await;
    let home = project.add_device(DeviceOptions::default());
    project.add_device(DeviceOptions {
        metro: Some("EU-West-1".to_owned()),
        ..DeviceOptions::default()
    });
    let numbers: Vec<u32> = project.devices().iter().map(|device| device.number).collect();
    let made = reserve(&client, &project, "api").await;
    let path = path_of(&made);
    client.put(&path, json!({ "targeted_to": numbers[0] })).await;
    let refused = json!({ "targeted_to": numbers[1].to_string(), "tags": {} });
    let (status, body) = client.put(&path, refused).await;
    assert_eq!(status, 422);
    assert!(body["message"].as_str().unwrap().contains("region"), "{body}");
    for nonsense in [json!("x"), json!(true), json!("999"), json!(-1)] {
        let (status, body) = client.put(&path, json!({ "targeted_to": nonsense })).await;
        assert_eq!(status, 422, "{body}");
    }
    assert_eq!(project.holders(address_of(&made))[0].device, home);
    assert_eq!(client.get(&path).await.1["tags"], json!({ "service": "api" }));

    // A machine that goes takes nothing with it: the address leads to nobody.
    assert!(project.remove_device(home));
    assert!(client.get(&path).await.1.get("targeted_to").is_none());
}

#[tokio::test]
async fn beyond_the_quota_and_beyond_sense_nothing_is_reserved() {
    let (_sandbox, project, client) = start(ProjectOptions {
        quota: Some(1),
        ..ProjectOptions::cherry()
    })
    .await;
    let ips = format!("/projects/{}/ips", project.number());
    for bad in [
        json!({}),
        json!({ "region": "nowhere" }),
        json!({ "region": "EU-Nord-1", "tags": ["a=b"] }),
        json!({ "region": "EU-Nord-1", "tags": { "a=b": "c" } }),
        json!({ "region": "EU-Nord-1", "targeted_to": "12" }),
    ] {
        let (status, body) = client.post(&ips, bad.clone()).await;
        assert_eq!((status, &body["code"]), (422, &json!(422)), "{bad}");
    }
    assert!(project.reservations().is_empty());
    let first = reserve(&client, &project, "a").await;
    let (status, refused) = client.post(&ips, json!({ "region": "EU-Nord-1" })).await;
    assert_eq!(status, 422);
    assert!(
        refused["message"].as_str().unwrap().contains("quota"),
        "{refused}"
    );
    client.delete(&path_of(&first)).await;
    reserve(&client, &project, "b").await;
}

#[tokio::test]
async fn what_was_made_by_hand_is_told_as_far_as_this_cloud_knows_it() {
    let (_sandbox, project, client) = start(ProjectOptions {
        list_machine_blocks: false,
        ..ProjectOptions::cherry()
    })
    .await;
    project.add_reservation(ReservationOptions::tagged(["usage=x", "plain"]));
    project.add_reservation(ReservationOptions {
        quantity: 4,
        metro: Some("us_chicago_1".to_owned()),
        ..ReservationOptions::default()
    });
    // It has no address yet: nothing that this cloud could show.
    project.add_reservation(ReservationOptions {
        pending: true,
        ..ReservationOptions::default()
    });
    project.add_device(DeviceOptions::default());
    let (_, list) = client.get(&format!("/projects/{}/ips", project.number())).await;
    let [floating, block] = list.as_array().unwrap().as_slice() else {
        panic!("{list}");
    };
    assert_eq!(floating["tags"], json!({ "plain": "", "usage": "x" }));
    assert_eq!(
        (&block["type"], &block["region"]["name"]),
        (&json!("subnet"), &json!("US-Chicago-1"))
    );
}

/// A move whose answer is lost was done all the same.
#[tokio::test]
async fn a_move_without_an_answer_was_made() {
    let (_sandbox, project, client) = start(ProjectOptions::cherry()).await;
    let device = project.add_device(DeviceOptions::default());
    let number = project.devices()[0].number;
    let made = reserve(&client, &project, "api").await;
    let id = made["id"].as_str().unwrap().to_owned();
    project.fault(
        FaultRule::on("PUT", "/ips/{id}", Action::DropAfter)
            .object(id)
            .first(1),
    );
    let body = Some(json!({ "targeted_to": number.to_string() }));
    assert!(client.send(Method::PUT, &path_of(&made), body).await.is_err());
    assert_eq!(project.holders(address_of(&made))[0].device, device);
}
