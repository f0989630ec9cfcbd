//! What goes wrong on purpose.

use std::time::Duration;

use groundplane_sandbox::{
    Action, DeviceOptions, FaultRule, ProjectOptions, RandomPlan, Sandbox, StatusFault,
};
use reqwest::Method;
use serde_json::json;

use crate::{Client, PATIENCE, start};

const DEVICES: &str = "/projects/{pid}/devices";

#[tokio::test]
async fn the_first_calls_to_one_object_fail_and_the_next_does_not() {
    let (_sandbox, project, client) = start(ProjectOptions::default()).await;
    let (a, b) = (
        project.add_device(DeviceOptions::default()),
        project.add_device(DeviceOptions::default()),
    );
    let rule = FaultRule::on("GET", "/devices/{id}", Action::status(500))
        .object(a.to_string())
        .first(2);
    project.fault(rule);
    let get = async |id| client.get(&format!("/devices/{id}")).await.0;
    assert_eq!(get(b).await, 200);
    assert_eq!([get(a).await, get(a).await, get(a).await], [500, 500, 200]);
}

#[tokio::test]
async fn a_429_says_when_to_come_back() {
    let (_sandbox, project, client) = start(ProjectOptions::default()).await;
    project.fault(FaultRule::on(
        "GET",
        DEVICES,
        Action::too_many_requests(Some(7), Some(1_900_000_000)),
    ));
    let response = client
        .send(Method::GET, &format!("/projects/{}/devices", project.id()), None)
        .await
        .unwrap();
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers()["retry-after"], "7");
    assert_eq!(response.headers()["x-ratelimit-reset"], "1900000000");
    assert_eq!(response.headers()["x-ratelimit-remaining"], "0");
}

#[tokio::test]
async fn a_fault_of_one_project_spares_the_others() {
    let sandbox = Sandbox::start().await;
    let (a, b) = (
        sandbox.project(ProjectOptions::default()),
        sandbox.project(ProjectOptions::default()),
    );
    a.fault(FaultRule::new(Action::status(503)));
    let get = async |project: &groundplane_sandbox::Project| {
        Client::of(project)
            .get(&format!("/projects/{}/devices", project.id()))
            .await
            .0
    };
    assert_eq!((get(&a).await, get(&b).await), (503, 200));
    a.clear_faults();
    assert_eq!(get(&a).await, 200);
}

fn reservation() -> serde_json::Value {
    json!({ "type": "public_ipv4", "quantity": 1, "metro": "sv", "tags": ["service=x"] })
}

#[tokio::test]
async fn a_connection_dropped_before_has_no_effect_and_after_has() {
    let (sandbox, project, client) = start(ProjectOptions::default()).await;
    let ips = format!("/projects/{}/ips", project.id());
    let route = "/projects/{pid}/ips";
    for (action, made) in [
        (Action::DropBefore, 0),
        (Action::DropAfter, 1),
        (Action::HalfBody, 2),
    ] {
        let rule = project.fault(FaultRule::on("POST", route, action.clone()).object("service=x"));
        let sent = client.send(Method::POST, &ips, Some(reservation())).await;
        match action {
            Action::HalfBody => assert!(sent.unwrap().text().await.is_err(), "the body came whole"),
            _ => assert!(sent.is_err(), "{action:?} was answered"),
        }
        assert_eq!(project.reservations().len(), made, "{action:?}");
        assert!(sandbox.faults().remove(rule));
    }
    project.fault(FaultRule::on("POST", route, Action::StatusAfter(StatusFault::new(502))).first(1));
    assert_eq!(client.post(&ips, reservation()).await.0, 502);
    assert_eq!(project.reservations().len(), 3);
    assert_eq!(client.post(&ips, reservation()).await.0, 201);
}

#[tokio::test]
async fn half_a_page_announces_all_of_it() {
    let (_sandbox, project, client) = start(ProjectOptions::default()).await;
    project.add_devices(300);
    project.fault(FaultRule::on("GET", DEVICES, Action::HalfBody).first(1));
    let path = format!("/projects/{}/devices?per_page=1000", project.id());
    let mut response = client.send(Method::GET, &path, None).await.unwrap();
    assert_eq!(response.status(), 200);
    let announced = response.content_length().unwrap();
    let mut got = 0_u64;
    let ended = loop {
        match response.chunk().await {
            Ok(Some(chunk)) => got += chunk.len() as u64,
            Ok(None) => break true,
            Err(_) => break false,
        }
    };
    assert!(!ended && got < announced, "{got} of {announced}");
    let (_, whole) = client.get(&path).await;
    assert_eq!(whole["devices"].as_array().unwrap().len(), 300);
}

#[tokio::test]
async fn a_short_page_looks_complete_and_a_garbled_one_is_not_json() {
    let (_sandbox, project, client) = start(ProjectOptions::default()).await;
    project.add_devices(8);
    project.fault(FaultRule::on("GET", DEVICES, Action::MissingItems { count: 3 }).nth(1));
    project.fault(FaultRule::on("GET", DEVICES, Action::MalformedJson).nth(2));
    let path = format!("/projects/{}/devices", project.id());
    let (status, short) = client.get(&path).await;
    assert_eq!(status, 200);
    assert_eq!(
        (
            short["devices"].as_array().unwrap().len(),
            &short["meta"]["total"]
        ),
        (5, &5.into())
    );
    let garbled = client.send(Method::GET, &path, None).await.unwrap();
    assert_eq!(garbled.status(), 200);
    let text = garbled.text().await.unwrap();
    assert!(serde_json::from_str::<serde_json::Value>(&text).is_err());
    assert_eq!(client.get(&path).await.1["devices"].as_array().unwrap().len(), 8);
}

/// A call that is never answered.
#[tokio::test]
async fn a_hanging_call_is_seen_and_holds_up_nobody() {
    let (sandbox, project, client) = start(ProjectOptions::default()).await;
    let device = project.add_device(DeviceOptions::default());
    project.fault(FaultRule::on("GET", "/devices/{id}", Action::Hang).first(1));
    let path = format!("/devices/{device}");
    let journal = project.journal();
    let mut hanging = std::pin::pin!(client.send(Method::GET, &path, None));
    let seen = tokio::select! {
        answer = &mut hanging => panic!("answered: {answer:?}"),
        seen = journal.wait_for(0, |entry| entry.fault.as_deref() == Some("hang")) => seen,
    };
    assert_eq!((seen.status, seen.route.as_str()), (None, "/devices/{id}"));
    tokio::select! {
        answer = &mut hanging => panic!("answered: {answer:?}"),
        other = client.get(&path) => assert_eq!(other.0, 200),
    }
    // Stopping cuts what hangs, and closes the port.
    sandbox.stop();
    assert!(hanging.await.is_err());
    let late = Client::of(&project);
    assert!(
        late.send(Method::GET, &path, None)
            .await
            .unwrap_err()
            .is_connect()
    );
}

#[tokio::test]
async fn a_call_can_be_done_and_never_answered() {
    let (_sandbox, project, client) = start(ProjectOptions::default()).await;
    project.fault(FaultRule::on("POST", "/projects/{pid}/ips", Action::HangAfter).first(1));
    let ips = format!("/projects/{}/ips", project.id());
    let journal = project.journal();
    let mut hanging = std::pin::pin!(client.post(&ips, reservation()));
    tokio::select! {
        answer = &mut hanging => panic!("answered: {answer:?}"),
        _ = journal.wait_for(0, |entry| entry.method == "POST") => {}
    }
    // The entry is written before the work is done: another call comes after it.
    let made = async || client.get(&ips).await.1["meta"]["total"] == 1;
    tokio::time::timeout(PATIENCE, async {
        while !made().await {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn latency_delays_and_is_noted() {
    let (_sandbox, project, client) = start(ProjectOptions::default()).await;
    project.fault(FaultRule::new(Action::latency(Duration::from_millis(30))));
    assert_eq!(
        client.get(&format!("/projects/{}/devices", project.id())).await.0,
        200
    );
    let [entry] = project.journal().since(0).try_into().unwrap();
    assert_eq!(entry.fault.as_deref(), Some("latency 30 ms"));
    assert!(entry.duration_us.unwrap() >= 30_000);
}

#[tokio::test]
async fn a_plan_repeats_with_its_seed() {
    let run = async |seed| {
        let (_sandbox, project, client) = start(ProjectOptions::default()).await;
        let devices = project.add_devices(10);
        project.fault_plan(RandomPlan {
            seed,
            per_mille: 400,
            actions: vec![Action::status(500), Action::DropAfter, Action::status(429)],
            project: None,
            method: Some("GET".to_owned()),
            route: Some("/devices/{id}".to_owned()),
            at_most: Some(2),
        });
        let mut answers = Vec::new();
        for _ in 0..4 {
            for id in &devices {
                let sent = client.send(Method::GET, &format!("/devices/{id}"), None).await;
                answers.push(sent.map_or(0, |response| response.status().as_u16()));
            }
        }
        answers
    };
    let first = run(3).await;
    assert_eq!(first, run(3).await);
    assert_ne!(first, run(4).await);
    assert!(first.contains(&0) && first.contains(&200) && first.contains(&500));
}
