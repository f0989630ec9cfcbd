//! The API of Cherry Servers: projects, servers, regions, and what it shares with the other one.

use groundplane_sandbox::{
    Action, DeviceOptions, DeviceState, FaultRule, Project, ProjectOptions, RandomPlan, RateLimit, Sandbox,
};
use pretty_assertions::assert_eq;
use reqwest::Method;
use serde_json::{Value, json};

use crate::{Client, keys};

pub(crate) async fn start(options: ProjectOptions) -> (Sandbox, Project, Client) {
    let sandbox = Sandbox::start().await;
    let project = sandbox.project(options);
    let client = Client::of_cherry(&project);
    (sandbox, project, client)
}

fn number_of(project: &Project, at: usize) -> u32 {
    project.devices()[at].number
}

#[tokio::test]
async fn a_server_shows_what_a_controller_needs() {
    let (_sandbox, project, client) = start(ProjectOptions::cherry()).await;
    let device = project.add_device(DeviceOptions {
        plan: "e5_1620v4".to_owned(),
        tags: vec!["role=worker".to_owned()],
        ..DeviceOptions::named("node-a")
    });
    let number = number_of(&project, 0);
    let (status, server) = client.get(&format!("/servers/{number}")).await;
    assert_eq!(status, 200);
    assert_eq!(
        (
            &server["id"],
            &server["hostname"],
            &server["state"],
            &server["status"]
        ),
        (
            &json!(number),
            &json!("node-a"),
            &json!("active"),
            &json!("deployed")
        )
    );
    assert_eq!(server["plan"]["slug"], "e5_1620v4");
    assert_eq!(server["tags"], json!({ "role": "worker" }));
    assert_eq!(
        (
            &server["region"]["name"],
            &server["region"]["slug"],
            &server["region"]["region_iso_2"]
        ),
        (&json!("EU-Nord-1"), &json!("eu_nord_1"), &json!("LT"))
    );
    assert_eq!(
        server["region"]["bgp"],
        json!({ "hosts": ["198.18.1.1", "198.18.1.2"], "asn": 65_530 })
    );
    let kinds: Vec<&Value> = server["ip_addresses"]
        .as_array()
        .unwrap()
        .iter()
        .map(|ip| &ip["type"])
        .collect();
    assert_eq!(kinds, ["primary-ip", "primary-ip", "private-ip"]);
    let public = project.own_ipv4(device, true).unwrap().to_string();
    assert_eq!(server["ip_addresses"][0]["address"], json!(public));
    assert_eq!(server["ip_addresses"][0]["address_family"], 4);

    project.set_state(device, DeviceState::Inactive);
    let (_, list) = client
        .get(&format!("/projects/{}/servers", project.number()))
        .await;
    assert_eq!(list[0]["state"], "inactive");
    assert_eq!(keys(&list[0]), keys(&server));
    assert!(project.remove_device(device));
    assert_eq!(client.get(&format!("/servers/{number}")).await.0, 404);
}

#[tokio::test]
async fn lists_come_in_parts_and_say_how_long_they_are() {
    let options = ProjectOptions {
        max_per_page: 7,
        ..ProjectOptions::cherry()
    };
    let (_sandbox, project, client) = start(options).await;
    project.add_devices(20);
    let path = format!("/projects/{}/servers", project.number());
    let part = async |query: &str| {
        let answer = client
            .send(Method::GET, &format!("{path}?{query}"), None)
            .await
            .unwrap();
        assert_eq!(answer.headers()["x-total-count"], "20", "{query}");
        let rows: Vec<Value> = answer.json().await.unwrap();
        rows.iter()
            .map(|row| row["hostname"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    // More than is allowed is cut without a word.
    let mut all = part("limit=100").await;
    assert_eq!(all.len(), 7);
    all.extend(part("limit=7&offset=7&fields=hostname").await);
    all.extend(part("offset=14").await);
    assert_eq!(all.len(), 20);
    assert_eq!(
        all,
        project
            .devices()
            .iter()
            .map(|row| row.hostname.clone())
            .collect::<Vec<_>>()
    );
    assert!(part("offset=20").await.is_empty());
    for bad in ["limit=0", "limit=x", "offset=-1"] {
        let (status, body) = client.get(&format!("{path}?{bad}")).await;
        assert_eq!((status, &body["code"]), (422, &json!(422)), "{bad}");
    }
}

#[tokio::test]
async fn refusals_have_a_code_and_a_message() {
    let (sandbox, project, client) = start(ProjectOptions::cherry()).await;
    let other = sandbox.project(ProjectOptions::cherry());
    other.add_device(DeviceOptions::default());
    let foreign = number_of(&other, 0);
    let expect = async |path: &str, status: u16| {
        let (answered, body) = client.get(path).await;
        assert_eq!((answered, &body["code"]), (status, &json!(status)), "{path}");
        assert!(!body["message"].as_str().unwrap().is_empty());
    };
    expect("/servers/1", 404).await;
    expect("/servers/x", 404).await;
    expect(&format!("/servers/{foreign}"), 403).await;
    expect(&format!("/projects/{}/ips", other.number()), 403).await;
    expect("/nothing", 404).await;
    let path = format!("/projects/{}", project.number());
    let nobody = Client {
        token: "wrong".to_owned(),
        ..Client::of_cherry(&project)
    };
    assert_eq!(nobody.get(&path).await.0, 401);
    // The header of the other cloud opens nothing here.
    let elsewhere = Client {
        bearer: false,
        ..Client::of_cherry(&project)
    };
    assert_eq!(elsewhere.get(&path).await.1["code"], 401);
    let half = client
        .http
        .put(format!("{}{path}", client.base))
        .bearer_auth(&client.token);
    let answer = half.body("{\"bgp\":").send().await.unwrap();
    assert_eq!(answer.status(), 400);
    assert_eq!(answer.json::<Value>().await.unwrap()["code"], 400);
}

#[tokio::test]
async fn bgp_is_switched_on_for_the_project_and_then_for_each_server() {
    let (_sandbox, project, client) = start(ProjectOptions::cherry()).await;
    project.add_device(DeviceOptions {
        tags: vec!["keep=me".to_owned()],
        ..DeviceOptions::default()
    });
    let path = format!("/projects/{}", project.number());
    let server = format!("/servers/{}", number_of(&project, 0));
    let (_, off) = client.get(&path).await;
    assert_eq!(off["bgp"], json!({ "enabled": false, "local_asn": 0 }));
    let (status, refused) = client.put(&server, json!({ "bgp": true })).await;
    assert_eq!((status, &refused["code"]), (422, &json!(422)));
    assert!(project.sessions().is_empty());

    let (status, on) = client.put(&path, json!({ "name": "mine", "bgp": true })).await;
    assert_eq!(
        (status, &on["name"], &on["bgp"]["enabled"]),
        (200, &json!("mine"), &json!(true))
    );
    let asn = on["bgp"]["local_asn"].as_u64().unwrap();
    assert!((64_512..65_535).contains(&asn), "{asn}");
    assert_eq!(
        client.put(&path, json!({ "bgp": true })).await.1["bgp"],
        on["bgp"]
    );

    let (status, changed) = client.put(&server, json!({ "bgp": true })).await;
    assert_eq!((status, &changed["bgp"]["enabled"]), (200, &json!(true)));
    assert!(changed.get("ip_addresses").is_none());
    assert_eq!(changed["tags"], json!({ "keep": "me" }));
    assert_eq!(client.put(&server, json!({ "bgp": true })).await.0, 200);
    assert_eq!(project.sessions().len(), 1);
    // Seen once as down, from then on as up.
    assert_eq!(client.get(&server).await.1["bgp"]["connected"], 0);
    let (_, up) = client.get(&server).await;
    assert_eq!(
        (
            &up["bgp"]["status"],
            &up["bgp"]["routers"],
            &up["bgp"]["connected"]
        ),
        (&json!("up"), &json!(2), &json!(2))
    );
    client.put(&server, json!({ "bgp": false, "tags": {} })).await;
    assert!(project.sessions().is_empty());
    assert!(project.devices()[0].tags.is_empty());
}

#[tokio::test]
async fn regions_and_plans_are_told_and_routers_can_change() {
    let (_sandbox, project, client) = start(ProjectOptions::cherry()).await;
    let answer = client.send(Method::GET, "/regions", None).await.unwrap();
    let total: usize = answer.headers()["x-total-count"]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    let all: Vec<Value> = answer.json().await.unwrap();
    assert_eq!(all.len(), total);
    assert!(
        all.iter()
            .all(|region| region["bgp"]["hosts"].as_array().unwrap().len() == 2)
    );
    project.set_region_bgp("EU-Nord-1", [], 16_125);
    for name in ["1", "eu_nord_1", "EU-Nord-1"] {
        let (status, region) = client.get(&format!("/regions/{name}")).await;
        assert_eq!((status, &region["id"]), (200, &json!(1)), "{name}");
        assert_eq!(region["bgp"], json!({ "hosts": [], "asn": 16_125 }));
    }
    assert_eq!(client.get("/regions/nowhere").await.0, 404);
    assert_eq!(client.get("/regions/2").await.1["bgp"]["asn"], 65_530);
    let (_, plans) = client.get("/plans").await;
    assert!(
        plans
            .as_array()
            .unwrap()
            .iter()
            .any(|plan| plan["slug"] == "e5_1620v4")
    );
    let (_, teams) = client.get("/teams/101/projects").await;
    assert_eq!(
        (teams.as_array().unwrap().len(), &teams[0]["id"]),
        (1, &json!(project.number()))
    );
    assert_eq!(client.get("/teams/7/projects").await.0, 404);
}

/// One world: what one API makes, the other shows.
#[tokio::test]
async fn both_clouds_show_the_same_world_and_write_the_same_journal() {
    let (_sandbox, project, cherry) = start(ProjectOptions {
        number: Some(4_711),
        ..ProjectOptions::cherry()
    })
    .await;
    let metal = Client::of(&project);
    let device = project.add_device(DeviceOptions::default());
    let body = json!({ "region": "eu_nord_1", "tags": { "usage": "a", "service": "b=" } });
    let (_, made) = cherry.post("/projects/4711/ips", body).await;
    let (_, seen) = metal.get(&format!("/ips/{}", made["id"].as_str().unwrap())).await;
    assert_eq!(
        (&seen["tags"], &seen["metro"]["code"]),
        (&json!(["service=b=", "usage=a"]), &json!("lt"))
    );
    let (status, _) = metal
        .post(
            &format!("/devices/{device}/ips"),
            json!({ "address": made["address"] }),
        )
        .await;
    assert_eq!(status, 201);
    let (_, again) = cherry
        .get(&format!("/ips/{}", made["id"].as_str().unwrap()))
        .await;
    assert_eq!(again["targeted_to"]["id"], json!(number_of(&project, 0)));

    let entries = project.journal().since(0);
    let routes: Vec<(&str, &str)> = entries
        .iter()
        .map(|entry| (entry.method.as_str(), entry.route.as_str()))
        .collect();
    assert_eq!(
        routes,
        [
            ("POST", "/projects/{pid}/ips"),
            ("GET", "/ips/{id}"),
            ("POST", "/devices/{id}/ips"),
            ("GET", "/ips/{id}")
        ]
    );
    assert!(entries[0].path.starts_with("/v1/") && entries[1].path.starts_with("/metal/v1/"));
    assert!(entries.iter().all(|entry| entry.project == Some(project.id())));
}

#[tokio::test]
async fn faults_and_rate_limits_speak_as_this_cloud_does() {
    let limit = RateLimit {
        requests: 6,
        window_seconds: 86_400,
        enforce: true,
    };
    let (_sandbox, project, client) = start(ProjectOptions {
        rate_limit: Some(limit),
        ..ProjectOptions::cherry()
    })
    .await;
    project.add_devices(4);
    let route = "/projects/{pid}/servers";
    let path = format!("/projects/{}/servers", project.number());
    project.fault(FaultRule::on("GET", route, Action::status(503)).nth(1));
    project.fault(FaultRule::on("GET", route, Action::MissingItems { count: 3 }).nth(2));
    project.fault(FaultRule::on("GET", route, Action::HalfBody).nth(3));
    project.fault(FaultRule::on("GET", route, Action::DropBefore).nth(4));
    let (status, refused) = client.get(&path).await;
    assert_eq!(
        (status, refused),
        (503, json!({ "code": 503, "message": "injected" }))
    );
    let short = client.send(Method::GET, &path, None).await.unwrap();
    assert_eq!(short.headers()["x-total-count"], "1");
    assert_eq!(short.json::<Vec<Value>>().await.unwrap().len(), 1);
    let half = client.send(Method::GET, &path, None).await.unwrap();
    assert!(half.bytes().await.is_err());
    assert!(client.send(Method::GET, &path, None).await.is_err());
    // What was refused or dropped by a fault did not count; two did.
    for _ in 2..6 {
        assert_eq!(client.get(&path).await.0, 200);
    }
    let (status, refused) = client.get(&path).await;
    assert_eq!((status, &refused["code"]), (429, &json!(429)));
    project.fault_plan(RandomPlan {
        seed: 1,
        per_mille: 1_000,
        actions: vec![Action::status(500)],
        project: None,
        method: None,
        route: None,
        at_most: None,
    });
    assert_eq!(client.get(&path).await.0, 500);
}
