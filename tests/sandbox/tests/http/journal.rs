//! The journal.

use std::collections::BTreeMap;

use groundplane_sandbox::{Action, DeviceOptions, FaultRule, ProjectOptions, Sandbox};
use reqwest::Method;
use serde_json::json;

use crate::{Client, http, start};

#[tokio::test]
async fn every_call_is_written_down_in_order() {
    let (_sandbox, project, client) = start(ProjectOptions::default()).await;
    let device = project.add_device(DeviceOptions::default());
    let journal = project.journal();
    let body = json!({ "type": "public_ipv4", "quantity": 1, "metro": "sv" });
    client.get(&format!("/devices/{device}?include=facility")).await;
    let mark = journal.mark();
    client
        .post(&format!("/projects/{}/ips", project.id()), body.clone())
        .await;
    client.get("/nowhere").await;
    project.fault(FaultRule::on("GET", "/devices/{id}", Action::DropBefore).nth(1));
    assert!(
        client
            .send(Method::GET, &format!("/devices/{device}"), None)
            .await
            .is_err()
    );

    let all = journal.since(0);
    assert_eq!(
        all.iter().map(|entry| entry.sequence).collect::<Vec<_>>(),
        [0, 1, 2, 3]
    );
    assert_eq!(
        all[0].path,
        format!("/metal/v1/devices/{device}?include=facility")
    );
    assert_eq!(
        (all[0].route.as_str(), all[0].status, &all[0].body),
        ("/devices/{id}", Some(200), &None)
    );
    let later = journal.since(mark);
    assert_eq!(
        (later.len(), later[0].status, &later[0].body),
        (3, Some(201), &Some(body))
    );
    assert_eq!((later[1].route.as_str(), later[1].status), ("-", Some(404)));
    assert_eq!(
        (later[2].status, later[2].fault.as_deref()),
        (None, Some("drop before"))
    );
    assert!(later.iter().all(|entry| entry.project == Some(project.id())));
    assert_eq!(
        journal.counts(0),
        BTreeMap::from([
            ("GET -".to_owned(), 1),
            ("GET /devices/{id}".to_owned(), 2),
            ("POST /projects/{pid}/ips".to_owned(), 1),
        ])
    );
    assert_eq!(journal.writes(0).len(), 1);
}

#[tokio::test]
async fn projects_are_apart_and_tokens_never_written() {
    let sandbox = Sandbox::start().await;
    let (a, b) = (
        sandbox.project(ProjectOptions::default()),
        sandbox.project(ProjectOptions::default()),
    );
    Client::of(&a).get(&format!("/projects/{}/devices", a.id())).await;
    Client::of(&b).get(&format!("/projects/{}/ips", b.id())).await;
    let url = format!("{}/projects/{}/ips", sandbox.base_url(), b.id());
    http()
        .get(url)
        .header("X-Auth-Token", sandbox.account_token())
        .send()
        .await
        .unwrap();
    assert_eq!(
        (
            a.journal().total(0),
            b.journal().total(0),
            sandbox.journal().total(0)
        ),
        (1, 2, 3)
    );
    let text = serde_json::to_string(&sandbox.journal().since(0)).unwrap();
    for token in [a.token(), b.token(), sandbox.account_token()] {
        assert!(!text.contains(token));
        assert!(!format!("{a:?}{sandbox:?}").contains(token));
    }
}
