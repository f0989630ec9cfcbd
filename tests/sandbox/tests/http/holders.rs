//! Who holds an address, and since when.

use groundplane_sandbox::{DeviceOptions, ProjectOptions, ReservationOptions, most_holders};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::{error, http, start};

#[tokio::test]
async fn an_address_has_one_holder_and_each_assignment_an_id_of_its_own() {
    let (_sandbox, project, client) = start(ProjectOptions::default()).await;
    let [a, b] = ["a", "b"].map(|name| project.add_device(DeviceOptions::named(name)));
    let address = project
        .add_reservation(ReservationOptions::tagged(["endpoint"]))
        .address
        .unwrap();
    let body = json!({ "address": address });
    let (status, first) = client.post(&format!("/devices/{a}/ips"), body.clone()).await;
    assert_eq!(status, 201, "{first}");
    assert_eq!(first["assigned_to"]["href"], format!("/metal/v1/devices/{a}"));
    for device in [a, b] {
        let (status, refused) = client.post(&format!("/devices/{device}/ips"), body.clone()).await;
        assert_eq!((status, error(&refused)), (422, "Address has already been taken"));
    }
    let path = format!("/ips/{}", first["id"].as_str().unwrap());
    assert_eq!(client.delete(&path).await, (204, Value::Null));
    assert_eq!(client.delete(&path).await.0, 404, "it is gone");
    let (_, again) = client.post(&format!("/devices/{a}/ips"), body).await;
    assert_ne!(again["id"], first["id"], "an id never comes back");

    let changes = project.holder_changes(address);
    let told: Vec<_> = changes
        .iter()
        .map(|change| (change.device, change.given))
        .collect();
    assert_eq!(told, [(a, true), (a, false), (a, true)]);
    assert!(changes.is_sorted_by_key(|change| change.at));
    assert_eq!(most_holders(&changes), 1);
    project.assign_beside(b, address);
    assert_eq!(most_holders(&project.holder_changes(address)), 2);
    assert_eq!(project.holders(address).len(), 2);
    assert!(project.remove_device(b));
    assert_eq!(
        project.holders(address).len(),
        1,
        "a machine's assignments go with it"
    );
}

#[tokio::test]
async fn a_change_is_waited_for_in_process_and_from_outside() {
    let (sandbox, project, _client) = start(ProjectOptions::default()).await;
    let device = project.add_device(DeviceOptions::default());
    let address = project
        .add_reservation(ReservationOptions::tagged(["endpoint"]))
        .address
        .unwrap();
    let url = format!(
        "{}/projects/{}/holders?address={address}",
        sandbox.admin_url(),
        project.id()
    );
    let ask = async |query: &str| -> Value {
        let answer = http().get(format!("{url}{query}")).send().await.unwrap();
        answer.json().await.unwrap()
    };
    assert_eq!(
        ask("").await,
        json!({ "holders": [], "changes": 0, "history": [] })
    );

    let (inside, outside, assignment) = tokio::join!(
        project.until_held(address, |holders| !holders.is_empty()),
        ask("&after=0&wait_ms=60000"),
        async { project.assign(device, address) },
    );
    assert_eq!(inside[0].id, assignment);
    assert_eq!(
        outside["holders"],
        json!([{ "assignment": assignment.to_string(), "device": device.to_string() }])
    );
    assert_eq!(
        (&outside["changes"], &outside["history"][0]["given"]),
        (&json!(1), &json!(true))
    );
    project.unassign(assignment);
    assert_eq!(ask("&after=1&wait_ms=60000").await["holders"], json!([]));
    let refused = http().get(format!("{url}&afte=1")).send().await.unwrap();
    assert_eq!(refused.status(), 400);
}
