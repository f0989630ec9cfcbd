//! Devices, tokens, pages and includes.

use std::collections::BTreeSet;

use groundplane_sandbox::{Choice, DeviceOptions, DeviceState, ProjectOptions, RateLimit, Sandbox};
use reqwest::Method;

use crate::{Client, error, http, start};

#[tokio::test]
async fn a_device_has_what_a_controller_reads() {
    let (_sandbox, project, client) = start(ProjectOptions::default()).await;
    let id = project.add_device(DeviceOptions::named("n1"));
    let (status, device) = client.get(&format!("/devices/{id}")).await;
    assert_eq!(status, 200);
    assert_eq!(device["id"], id.to_string());
    assert_eq!(
        (&device["hostname"], &device["state"]),
        (&"n1".into(), &"active".into())
    );
    assert_eq!(device["plan"]["slug"], "c3.small.x86");
    assert_eq!(device["metro"]["code"], "sv");
    assert_eq!(
        device["facility"].as_object().unwrap().keys().collect::<Vec<_>>(),
        ["href"]
    );
    let addresses = device["ip_addresses"].as_array().unwrap();
    let shape: Vec<_> = addresses
        .iter()
        .map(|a| {
            (
                a["address_family"].as_u64().unwrap(),
                a["public"] == true,
                a["cidr"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(shape, [(4, true, 31), (6, true, 127), (4, false, 31)]);
    assert!(addresses.iter().all(|a| a["management"] == true));
    assert_eq!(
        addresses[0]["address"],
        project.own_ipv4(id, true).unwrap().to_string()
    );
}

#[tokio::test]
async fn sub_objects_are_links_unless_included_and_can_be_excluded() {
    let (_sandbox, project, client) = start(ProjectOptions::default()).await;
    let id = project.add_device(DeviceOptions::default());
    let (_, plain) = client.get(&format!("/devices/{id}")).await;
    let private = &plain["ip_addresses"][2];
    assert_eq!(
        private["parent_block"]
            .as_object()
            .unwrap()
            .keys()
            .collect::<Vec<_>>(),
        ["href"]
    );

    let query = "include=ip_addresses.parent_block,parent_block,facility&exclude=metro";
    let (_, full) = client.get(&format!("/devices/{id}?{query}")).await;
    let block = &full["ip_addresses"][2]["parent_block"];
    assert_eq!(
        (&block["network"], &block["cidr"]),
        (&"10.0.0.0".into(), &25.into())
    );
    assert_eq!(block["netmask"], "255.255.255.128");
    assert_eq!(full["facility"]["code"], "sv15");
    assert_eq!(
        full["metro"].as_object().unwrap().keys().collect::<Vec<_>>(),
        ["href"]
    );
    // The link leads to the block.
    let href = block["href"].as_str().unwrap().strip_prefix("/metal/v1").unwrap();
    let (status, reservation) = client.get(href).await;
    assert_eq!((status, &reservation["type"]), (200, &"private_ipv4".into()));
    assert_eq!(
        (&reservation["management"], &reservation["manageable"]),
        (&true.into(), &false.into())
    );
    // A comma may come encoded.
    let (_, encoded) = client
        .get(&format!("/devices/{id}?include=plan%2Cfacility"))
        .await;
    assert_eq!(encoded["facility"]["code"], "sv15");
}

#[tokio::test]
async fn addresses_can_be_given_or_absent() {
    let (_sandbox, project, client) = start(ProjectOptions::default()).await;
    let id = project.add_device(DeviceOptions {
        public_ipv4: Choice::Absent,
        public_ipv6: Choice::Absent,
        private_ipv4: Choice::Given("10.1.40.131".parse().unwrap()),
        state: DeviceState::Provisioning,
        ..DeviceOptions::default()
    });
    let (_, device) = client
        .get(&format!("/devices/{id}?include=ip_addresses.parent_block"))
        .await;
    assert_eq!(device["state"], "provisioning");
    assert_eq!(device["ip_addresses"].as_array().unwrap().len(), 1);
    assert_eq!(device["ip_addresses"][0]["address"], "10.1.40.131");
    assert_eq!(
        device["ip_addresses"][0]["parent_block"]["network"],
        "10.1.40.128"
    );
    project.set_state(id, DeviceState::Inactive);
    assert_eq!(client.get(&format!("/devices/{id}")).await.1["state"], "inactive");
}

#[tokio::test]
async fn a_device_that_is_gone_is_404_and_a_foreign_one_403() {
    let sandbox = Sandbox::start().await;
    let (mine, theirs) = (
        sandbox.project(ProjectOptions::default()),
        sandbox.project(ProjectOptions::default()),
    );
    let client = Client::of(&mine);
    let (own, foreign) = (
        mine.add_device(DeviceOptions::default()),
        theirs.add_device(DeviceOptions::default()),
    );
    assert!(mine.remove_device(own));
    assert!(!mine.remove_device(own));
    let (status, body) = client.get(&format!("/devices/{own}")).await;
    assert_eq!((status, error(&body)), (404, "Not found"));
    assert_eq!(client.get("/devices/not-an-id").await.0, 404);
    assert_eq!(client.get(&format!("/devices/{foreign}")).await.0, 403);
    assert_eq!(
        client.get(&format!("/projects/{}/devices", theirs.id())).await.0,
        403
    );
    assert_eq!(client.get(&format!("/projects/{own}/devices")).await.0, 404);
    assert_eq!(client.get("/nowhere").await.0, 404);
}

#[tokio::test]
async fn a_token_is_required_and_an_account_sees_all_projects() {
    let sandbox = Sandbox::start().await;
    let project = sandbox.project(ProjectOptions::default());
    let url = format!("{}/projects/{}/devices", project.base_url(), project.id());
    let response = http().get(&url).send().await.unwrap();
    assert_eq!(response.status(), 401);
    let body: serde_json::Value = response.json().await.unwrap();
    assert_eq!(body["error"], "Invalid authentication token");
    let with = |token: &str| http().get(&url).header("X-Auth-Token", token.to_owned()).send();
    assert_eq!(with("wrong").await.unwrap().status(), 401);
    assert_eq!(with(sandbox.account_token()).await.unwrap().status(), 200);
    assert_eq!(with(project.token()).await.unwrap().status(), 200);
}

/// More devices than a page holds.
#[tokio::test]
async fn devices_come_ten_a_page_and_the_pages_are_linked() {
    let (_sandbox, project, client) = start(ProjectOptions::default()).await;
    let ids = project.add_devices(23);
    let mut path = format!("/projects/{}/devices?include=facility", project.id());
    let mut seen = Vec::new();
    let mut sizes = Vec::new();
    loop {
        let (status, page) = client.get(&path).await;
        assert_eq!((status, page["meta"]["total"].as_u64()), (200, Some(23)));
        let devices = page["devices"].as_array().unwrap();
        assert!(devices.iter().all(|device| device["facility"]["code"] == "sv15"));
        sizes.push(devices.len());
        seen.extend(
            devices
                .iter()
                .map(|device| device["id"].as_str().unwrap().to_owned()),
        );
        match page["meta"]["next"]["href"].as_str() {
            Some(href) => path = href.strip_prefix("/metal/v1").unwrap().to_owned(),
            None => break,
        }
    }
    assert_eq!(sizes, [10, 10, 3]);
    assert_eq!(seen, ids.iter().map(ToString::to_string).collect::<Vec<_>>());
    let (_, beyond) = client
        .get(&format!("/projects/{}/devices?page=4", project.id()))
        .await;
    assert_eq!(beyond["devices"].as_array().unwrap().len(), 0);
    assert_eq!(beyond["meta"]["last_page"], 3);
    assert_eq!(
        client
            .get(&format!("/projects/{}/devices?page=0", project.id()))
            .await
            .0,
        422
    );
}

#[tokio::test]
async fn a_page_is_never_longer_than_the_project_allows() {
    let options = ProjectOptions {
        max_per_page: 4,
        ..ProjectOptions::default()
    };
    let (_sandbox, project, client) = start(options).await;
    project.add_devices(9);
    let (_, page) = client
        .get(&format!("/projects/{}/devices?per_page=1000", project.id()))
        .await;
    assert_eq!(page["devices"].as_array().unwrap().len(), 4);
    assert_eq!(page["meta"]["last_page"], 3);
}

#[tokio::test]
async fn devices_can_be_searched() {
    let (_sandbox, project, client) = start(ProjectOptions::default()).await;
    project.add_device(DeviceOptions::named("web-1"));
    project.add_device(DeviceOptions {
        metro: Some("da".to_owned()),
        ..DeviceOptions::named("web-2")
    });
    project.add_device(DeviceOptions {
        tags: vec!["db".to_owned()],
        ..DeviceOptions::named("store")
    });
    let names = async |query: &str| -> BTreeSet<String> {
        let (_, page) = client
            .get(&format!("/projects/{}/devices?{query}", project.id()))
            .await;
        let devices = page["devices"].as_array().unwrap();
        assert_eq!(page["meta"]["total"], devices.len());
        devices
            .iter()
            .map(|device| device["hostname"].as_str().unwrap().to_owned())
            .collect()
    };
    let set = |names: &[&str]| {
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(names("hostname=web").await, set(&["web-1", "web-2"]));
    assert_eq!(names("metro=da").await, set(&["web-2"]));
    assert_eq!(names("tag=db").await, set(&["store"]));
    assert_eq!(names("search=d").await, set(&["store"]));
    assert_eq!(names("facility=da1").await, set(&["web-2"]));
}

#[tokio::test]
async fn a_rate_limit_is_told_and_enforced() {
    let limit = RateLimit {
        requests: 2,
        window_seconds: 1_000_000_000,
        enforce: true,
    };
    let (_sandbox, project, client) = start(ProjectOptions {
        rate_limit: Some(limit),
        ..ProjectOptions::default()
    })
    .await;
    let path = format!("/projects/{}/devices", project.id());
    let mut told = Vec::new();
    for _ in 0..3 {
        let response = client.send(Method::GET, &path, None).await.unwrap();
        let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
        assert_eq!(header("x-ratelimit-limit"), "2");
        assert!(header("x-ratelimit-reset").parse::<i64>().unwrap() % 1_000_000_000 == 0);
        told.push((response.status().as_u16(), header("x-ratelimit-remaining")));
    }
    assert_eq!(
        told,
        [
            (200, "1".to_owned()),
            (200, "0".to_owned()),
            (429, "0".to_owned())
        ]
    );
}

#[tokio::test]
async fn runs_repeat() {
    let run = async || {
        let (_sandbox, project, client) = start(ProjectOptions::default()).await;
        project.add_devices(3);
        let (_, made) = client
            .post(
                &format!("/projects/{}/ips", project.id()),
                serde_json::json!({ "type": "public_ipv4", "quantity": 1, "metro": "sv" }),
            )
            .await;
        let devices: Vec<_> = project.devices().into_iter().map(|device| device.id).collect();
        (
            project.id(),
            project.token().to_owned(),
            devices,
            made["id"].clone(),
            made["address"].clone(),
        )
    };
    assert_eq!(run().await, run().await);
}
