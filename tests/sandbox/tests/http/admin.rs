//! The admin API, as another process uses it.

use groundplane_sandbox::Sandbox;
use reqwest::Method;
use serde_json::{Value, json};

use crate::{Client, error, http};

struct Admin {
    http: reqwest::Client,
    url: String,
}

impl Admin {
    async fn call(&self, method: Method, path: &str, body: Value) -> (u16, Value) {
        let request = self.http.request(method, format!("{}{path}", self.url));
        let request = if body.is_null() {
            request
        } else {
            request.json(&body)
        };
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }

    async fn get(&self, path: &str) -> Value {
        let (status, body) = self.call(Method::GET, path, Value::Null).await;
        assert_eq!(status, 200, "{body}");
        body
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let (status, body) = self.call(Method::POST, path, body).await;
        assert_eq!(status, 201, "{body}");
        body
    }

    async fn patch(&self, path: &str, body: Value) -> Value {
        let (status, body) = self.call(Method::PATCH, path, body).await;
        assert_eq!(status, 200, "{body}");
        body
    }
}

async fn start() -> (Sandbox, Admin) {
    let sandbox = Sandbox::start().await;
    let admin = Admin {
        http: http(),
        url: sandbox.admin_url(),
    };
    (sandbox, admin)
}

/// A project made over HTTP, and somebody who may use it.
async fn project(admin: &Admin, options: Value) -> (String, Client) {
    let made = admin.post("/projects", options).await;
    let text = |key: &str| made[key].as_str().unwrap().to_owned();
    (
        text("id"),
        Client {
            http: http(),
            base: text("base_url"),
            bearer: false,
            token: text("token"),
        },
    )
}

#[tokio::test]
async fn a_project_is_furnished_from_outside() {
    let (_sandbox, admin) = start().await;
    let (id, client) = project(&admin, json!({ "name": "t", "quota": 0, "asn": 65_000 })).await;
    let made = admin
        .post(&format!("/projects/{id}/devices"), json!({ "count": 3 }))
        .await;
    assert_eq!(made["ids"].as_array().unwrap().len(), 3);
    let one = json!({ "device": { "hostname": "n", "public_ipv4": "none", "private_ipv4": "10.9.9.9" } });
    let made = admin.post(&format!("/projects/{id}/devices"), one).await;
    let device = made["ids"][0].as_str().unwrap().to_owned();
    assert_eq!(
        admin
            .get(&format!("/projects/{id}/devices"))
            .await
            .as_array()
            .unwrap()
            .len(),
        4
    );

    let change = json!({ "state": "inactive", "peers": ["169.254.255.7"], "bgp_password": "Abcdef12345" });
    admin.patch(&format!("/devices/{device}"), change).await;
    assert_eq!(
        client.get(&format!("/devices/{device}")).await.1["state"],
        "inactive"
    );
    client
        .post(&format!("/devices/{device}/bgp/sessions"), json!({}))
        .await;
    admin
        .patch(&format!("/projects/{id}"), json!({ "raise_sessions": true }))
        .await;
    assert_eq!(
        admin.get(&format!("/projects/{id}/sessions")).await[0]["status"],
        "up"
    );
    let (_, neighbors) = client.get(&format!("/devices/{device}/bgp/neighbors")).await;
    assert_eq!(neighbors["bgp_neighbors"][0]["md5_password"], "Abcdef12345");

    let (_, removed) = admin
        .call(Method::DELETE, &format!("/devices/{device}"), Value::Null)
        .await;
    assert_eq!(removed, json!({ "removed": true }));
    assert_eq!(client.get(&format!("/devices/{device}")).await.0, 404);
    let listed = admin.get("/projects").await;
    assert_eq!(
        listed,
        json!([{ "id": id, "number": 1_001, "name": "t", "devices": 3, "reservations": 0, "sessions": 0 }])
    );
}

#[tokio::test]
async fn a_project_at_cherry_servers_is_furnished_from_outside() {
    let (_sandbox, admin) = start().await;
    let made = admin
        .post("/projects", json!({ "number": 77, "metro": "EU-Nord-1" }))
        .await;
    assert_eq!(made["number"], 77);
    let id = made["id"].as_str().unwrap().to_owned();
    let client = Client {
        http: http(),
        base: made["cherry_url"].as_str().unwrap().to_owned(),
        bearer: true,
        token: made["token"].as_str().unwrap().to_owned(),
    };
    admin.post(&format!("/projects/{id}/devices"), json!({})).await;
    let bgp = json!({ "hosts": ["198.18.77.1"], "asn": 16_125 });
    admin
        .patch(
            &format!("/projects/{id}"),
            json!({ "regions": { "eu_nord_1": bgp } }),
        )
        .await;
    let (_, servers) = client.get("/projects/77/servers").await;
    assert_eq!(servers[0]["region"]["bgp"], bgp);
    let nowhere = json!({ "regions": { "nowhere": bgp } });
    let (status, refused) = admin
        .call(Method::PATCH, &format!("/projects/{id}"), nowhere)
        .await;
    assert_eq!(
        (status, error(&refused)),
        (422, "no metro, facility or region `nowhere`")
    );
}

#[tokio::test]
async fn reservations_are_made_and_decided_from_outside() {
    let (_sandbox, admin) = start().await;
    let (id, client) = project(&admin, json!({ "quota": 0 })).await;
    let made = admin
        .post(
            &format!("/projects/{id}/reservations"),
            json!({ "tags": ["a=b"] }),
        )
        .await;
    assert_eq!(
        (&made["tags"], &made["state"]),
        (&json!(["a=b"]), &"created".into())
    );
    let request = json!({ "type": "public_ipv4", "quantity": 1, "metro": "sv" });
    let (_, pending) = client.post(&format!("/projects/{id}/ips"), request.clone()).await;
    let path = format!("/reservations/{}", pending["id"].as_str().unwrap());
    let approved = admin.patch(&path, json!({ "state": "created" })).await;
    assert!(approved["address"].is_string());
    let (status, _) = admin
        .call(Method::PATCH, &path, json!({ "state": "denied" }))
        .await;
    assert_eq!(status, 404, "it is not pending any more");
    admin
        .patch(&format!("/projects/{id}"), json!({ "quota": null }))
        .await;
    let (_, free) = client.post(&format!("/projects/{id}/ips"), request).await;
    assert_eq!(free["state"], "created");
    assert_eq!(
        admin
            .get(&format!("/projects/{id}/reservations"))
            .await
            .as_array()
            .unwrap()
            .len(),
        3
    );
}

#[tokio::test]
async fn faults_and_journal_are_at_hand_from_outside() {
    let (_sandbox, admin) = start().await;
    let (id, client) = project(&admin, json!({})).await;
    let rule = json!({
        "project": id, "method": "GET", "route": "/projects/{pid}/devices", "when": { "first": 1 },
        "action": { "status": { "status": 503 } },
    });
    let fault = admin.post("/faults", rule).await["id"].clone();
    let devices = format!("/projects/{id}/devices");
    assert_eq!(
        [client.get(&devices).await.0, client.get(&devices).await.0],
        [503, 200]
    );
    let listed = admin.get("/faults").await;
    assert_eq!((&listed[0]["calls"], &listed[0]["hits"]), (&2.into(), &1.into()));

    let journal = admin.get(&format!("/journal?since=1&project={id}")).await;
    assert_eq!(
        (&journal["mark"], journal["entries"].as_array().unwrap().len()),
        (&2.into(), 1)
    );
    assert_eq!(journal["entries"][0]["status"], 200);
    let counts = admin.get("/journal/counts").await;
    assert_eq!(counts["counts"], json!({ "GET /projects/{pid}/devices": 2 }));
    assert_eq!(counts["total"], 2);

    let remove = async || {
        admin
            .call(Method::DELETE, &format!("/faults/{fault}"), Value::Null)
            .await
            .0
    };
    assert_eq!([remove().await, remove().await], [200, 404]);
    admin
        .post(
            "/plans",
            json!({ "seed": 1, "per_mille": 1000, "actions": [{ "status": { "status": 500 } }] }),
        )
        .await;
    assert_eq!(client.get(&devices).await.0, 500);
    let (status, _) = admin
        .call(Method::DELETE, &format!("/faults?project={fault}"), Value::Null)
        .await;
    assert_eq!(status, 400);
    admin.call(Method::DELETE, "/faults", Value::Null).await;
    assert_eq!(client.get(&devices).await.0, 200);
}

#[tokio::test]
async fn a_bad_request_is_refused_with_a_reason() {
    let (_sandbox, admin) = start().await;
    let (id, _) = project(&admin, json!({ "name": "a" })).await;
    for (path, body) in [
        ("/projects".to_owned(), json!({ "name": "a" })),
        ("/projects".to_owned(), json!({ "qota": 1 })),
        ("/projects".to_owned(), json!({ "metro": "zz" })),
        (
            format!("/projects/{id}/devices"),
            json!({ "device": { "public_ipv4": "x" } }),
        ),
        (format!("/projects/{id}/reservations"), json!({ "quantity": 3 })),
        ("/faults".to_owned(), json!({ "action": "explode" })),
    ] {
        let (status, answer) = admin.call(Method::POST, &path, body.clone()).await;
        assert_eq!(status, 422, "{path} {body}");
        assert!(answer["errors"][0].is_string());
    }
    let nobody = "/projects/00000000-0000-4000-8000-000000000000/devices";
    assert_eq!(admin.call(Method::POST, nobody, json!({})).await.0, 404);
}
