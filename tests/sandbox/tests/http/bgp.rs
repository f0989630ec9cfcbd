//! BGP.

use groundplane_sandbox::{BgpStatus, Choice, DeviceOptions, ProjectOptions};
use serde_json::{Value, json};

use crate::{Client, error, start};

fn with_bgp() -> ProjectOptions {
    ProjectOptions {
        asn: Some(65_000),
        md5: Some("Abcdef12345".to_owned()),
        ..ProjectOptions::default()
    }
}

async fn open_session(client: &Client, device: impl std::fmt::Display, family: &str) -> (u16, Value) {
    client
        .post(
            &format!("/devices/{device}/bgp/sessions"),
            json!({ "address_family": family }),
        )
        .await
}

/// `{}` before, everything after.
#[tokio::test]
async fn bgp_is_enabled_once_and_for_all() {
    let (_sandbox, project, client) = start(ProjectOptions::default()).await;
    let config = format!("/projects/{}/bgp-config", project.id());
    let enable = format!("/projects/{}/bgp-configs", project.id());
    assert_eq!(client.get(&config).await, (200, json!({})));
    let request = json!({ "asn": 65_000, "deployment_type": "local", "md5": "", "use_case": "kubernetes-load-balancer" });
    assert_eq!(client.post(&enable, request.clone()).await, (204, Value::Null));
    let (_, now) = client.get(&config).await;
    assert_eq!(
        (&now["status"], &now["asn"], &now["md5"]),
        (&"enabled".into(), &65_000.into(), &Value::Null)
    );
    assert_eq!(
        (&now["deployment_type"], &now["max_prefix"]),
        (&"local".into(), &10.into())
    );
    assert!(now["id"].is_string());
    let other = json!({ "asn": 65_001, "deployment_type": "local" });
    for again in [request, other.clone()] {
        assert_eq!(client.post(&enable, again).await.0, 422);
    }
    assert_eq!(project.bgp_config().unwrap().asn, 65_000);

    // Support took it away.
    project.set_bgp_status(BgpStatus::Disabled);
    assert_eq!(client.get(&config).await.1["status"], "disabled");
    assert_eq!(client.post(&enable, other).await.0, 204);
    assert_eq!(client.get(&config).await.1["asn"], 65_001);
}

#[tokio::test]
async fn global_bgp_waits_for_a_review() {
    let (_sandbox, project, client) = start(ProjectOptions::default()).await;
    let device = project.add_device(DeviceOptions::default());
    let request = json!({ "asn": 4_200_000_000_u32, "deployment_type": "global", "md5": "Abcdef12345" });
    assert_eq!(
        client
            .post(&format!("/projects/{}/bgp-configs", project.id()), request)
            .await
            .0,
        204
    );
    let config = format!("/projects/{}/bgp-config", project.id());
    assert_eq!(client.get(&config).await.1["status"], "requested");
    assert_eq!(open_session(&client, device, "ipv4").await.0, 422);
    project.set_bgp_status(BgpStatus::Enabled);
    assert_eq!(client.get(&config).await.1["status"], "enabled");
    assert_eq!(open_session(&client, device, "ipv4").await.0, 201);
}

#[tokio::test]
async fn a_bad_bgp_request_is_refused() {
    let (_sandbox, project, client) = start(ProjectOptions::default()).await;
    for bad in [
        json!({ "asn": 0, "deployment_type": "local" }),
        json!({ "asn": 5_000_000_000_u64, "deployment_type": "local" }),
        json!({ "asn": 65_000, "deployment_type": "regional" }),
        json!({ "asn": 65_000, "deployment_type": "local", "md5": "short" }),
        json!({ "deployment_type": "local" }),
    ] {
        let (status, _) = client
            .post(&format!("/projects/{}/bgp-configs", project.id()), bad.clone())
            .await;
        assert_eq!(status, 422, "{bad}");
    }
    assert!(project.bgp_config().is_none());
}

/// A session that is there already.
#[tokio::test]
async fn a_session_is_made_once_a_family() {
    let (_sandbox, project, client) = start(with_bgp()).await;
    let device = project.add_device(DeviceOptions::default());
    let (status, made) = open_session(&client, device, "ipv4").await;
    assert_eq!(
        (status, &made["status"], &made["address_family"]),
        (201, &"unknown".into(), &"ipv4".into())
    );
    assert_eq!(made["default_route"], false);
    let (status, refused) = open_session(&client, device, "ipv4").await;
    assert_eq!(status, 422);
    assert!(error(&refused).contains("already has session"));
    assert_eq!(open_session(&client, device, "ipv6").await.0, 201);
    assert_eq!(open_session(&client, device, "ipx").await.0, 422);
    let (_, list) = client.get(&format!("/devices/{device}/bgp/sessions")).await;
    assert_eq!(list["bgp_sessions"].as_array().unwrap().len(), 2);

    let path = format!("/bgp/sessions/{}", made["id"].as_str().unwrap());
    assert_eq!(client.delete(&path).await.0, 204);
    assert_eq!(client.delete(&path).await.0, 404);
    assert_eq!(open_session(&client, device, "ipv4").await.0, 201);
    project.remove_device(device);
    assert!(project.sessions().is_empty());
}

#[tokio::test]
async fn a_session_is_unknown_first_and_up_later() {
    let (_sandbox, project, client) = start(with_bgp()).await;
    let device = project.add_device(DeviceOptions::default());
    let (_, made) = open_session(&client, device, "ipv4").await;
    let path = format!("/bgp/sessions/{}", made["id"].as_str().unwrap());
    assert_eq!(client.get(&path).await.1["status"], "unknown");
    // One word a switch.
    assert_eq!(client.get(&path).await.1["status"], "up,up");
    project.set_session_status(made["id"].as_str().unwrap().parse().unwrap(), "up,down");
    assert_eq!(client.get(&path).await.1["status"], "up,down");

    let (_sandbox, project, client) = start(ProjectOptions {
        session_reads_until_up: None,
        ..with_bgp()
    })
    .await;
    let device = project.add_device(DeviceOptions::default());
    open_session(&client, device, "ipv4").await;
    let status = async || {
        let (_, list) = client.get(&format!("/devices/{device}/bgp/sessions")).await;
        list["bgp_sessions"][0]["status"].clone()
    };
    for _ in 0..3 {
        assert_eq!(status().await, "unknown");
    }
    project.raise_sessions();
    assert_eq!(status().await, "up,up");
}

#[tokio::test]
async fn sessions_of_a_project_come_in_pages() {
    let (_sandbox, project, client) = start(with_bgp()).await;
    for device in project.add_devices(12) {
        open_session(&client, device, "ipv4").await;
    }
    let base = format!("/projects/{}/bgp/sessions", project.id());
    let (_, first) = client.get(&base).await;
    assert_eq!(
        (
            first["bgp_sessions"].as_array().unwrap().len(),
            &first["meta"]["total"]
        ),
        (10, &12.into())
    );
    let (_, all) = client.get(&format!("{base}?per_page=1000")).await;
    let rows = all["bgp_sessions"].as_array().unwrap();
    assert_eq!(rows.len(), 12);
    // The first ten were shown before, the last two were not.
    let up = rows.iter().filter(|row| row["status"] == "up,up").count();
    assert_eq!(up, 10);
    let device = project.devices()[0].id;
    assert_eq!(rows[0]["device"]["href"], format!("/metal/v1/devices/{device}"));
}

/// What a node's annotations are made of.
#[tokio::test]
async fn neighbours_tell_how_to_peer() {
    let (_sandbox, project, client) = start(with_bgp()).await;
    let device = project.add_device(DeviceOptions {
        private_ipv4: Choice::Given("10.1.40.131".parse().unwrap()),
        ..DeviceOptions::default()
    });
    let path = format!("/devices/{device}/bgp/neighbors");
    assert_eq!(client.get(&path).await, (200, json!({ "bgp_neighbors": [] })));
    open_session(&client, device, "ipv4").await;
    let expected = json!({
        "address_family": 4, "customer_as": 65_000, "customer_ip": "10.1.40.131", "md5_enabled": true,
        "md5_password": "Abcdef12345", "multihop": true, "peer_as": 65_530,
        "peer_ips": ["169.254.255.1", "169.254.255.2"],
        "routes_in": [{ "route": "10.1.40.128/25", "exact": false }], "routes_out": [],
    });
    assert_eq!(client.get(&path).await.1, json!({ "bgp_neighbors": [expected] }));

    open_session(&client, device, "ipv6").await;
    let (_, both) = client.get(&path).await;
    assert_eq!(both["bgp_neighbors"][1]["address_family"], 6);

    // What a person changes shows.
    project.set_bgp_password(device, Some("Other1234567"));
    project.set_bgp(65_100, None);
    project.set_peers(device, ["169.254.255.9".parse().unwrap()]);
    let (_, changed) = client.get(&path).await;
    let [only] = changed["bgp_neighbors"].as_array().unwrap().as_slice() else {
        panic!("{changed}")
    };
    assert_eq!(
        (&only["md5_password"], &only["customer_as"]),
        (&"Other1234567".into(), &65_100.into())
    );
    assert_eq!(only["peer_ips"], json!(["169.254.255.9"]));
    project.set_bgp_password(device, None);
    assert_eq!(
        client.get(&path).await.1["bgp_neighbors"][0]["md5_enabled"],
        false
    );
    project.set_peers(device, []);
    assert_eq!(client.get(&path).await.1["bgp_neighbors"], json!([]));
}

#[tokio::test]
async fn a_machine_without_private_address_has_no_neighbours() {
    let (_sandbox, project, client) = start(with_bgp()).await;
    let device = project.add_device(DeviceOptions {
        private_ipv4: Choice::Absent,
        ..DeviceOptions::default()
    });
    assert_eq!(open_session(&client, device, "ipv4").await.0, 201);
    assert_eq!(
        client.get(&format!("/devices/{device}/bgp/neighbors")).await.1["bgp_neighbors"],
        json!([])
    );
}

#[tokio::test]
async fn sessions_are_links_in_the_configuration_unless_included() {
    let (_sandbox, project, client) = start(with_bgp()).await;
    let device = project.add_device(DeviceOptions::default());
    let (_, made) = open_session(&client, device, "ipv4").await;
    let config = format!("/projects/{}/bgp-config", project.id());
    let (_, plain) = client.get(&config).await;
    assert_eq!(plain["sessions"], json!([{ "href": made["href"] }]));
    let (_, full) = client.get(&format!("{config}?include=sessions")).await;
    assert_eq!(full["sessions"][0]["address_family"], "ipv4");
}
