//! The sandbox as a client sees it: over HTTP, one file a subject.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

mod admin;
mod bgp;
mod binary;
mod cherry;
mod cherry_ips;
mod devices;
mod faults;
mod holders;
mod ips;
mod journal;
mod scale;

use std::collections::BTreeSet;
use std::sync::Once;
use std::time::Duration;

use groundplane_sandbox::{Project, ProjectOptions, Sandbox};
use reqwest::{Method, Response};
use serde_json::Value;

/// No call of a test takes longer; one that does is a bug, not a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client without retries, as strict as a careful driver.
fn http() -> reqwest::Client {
    static PROVIDER: Once = Once::new();
    // Even a client that never speaks TLS refuses to be built without.
    PROVIDER.call_once(|| {
        rustls::crypto::ring::default_provider()
            .install_default()
            .unwrap();
    });
    reqwest::Client::builder()
        .timeout(PATIENCE)
        .retry(reqwest::retry::never())
        .build()
        .unwrap()
}

/// Somebody with a token.
struct Client {
    http: reqwest::Client,
    base: String,
    token: String,
    /// Send the token as Cherry Servers wants it.
    bearer: bool,
}

impl Client {
    fn of(project: &Project) -> Self {
        Self {
            http: http(),
            base: project.base_url().to_owned(),
            token: project.token().to_owned(),
            bearer: false,
        }
    }

    /// The same, at Cherry Servers.
    fn of_cherry(project: &Project) -> Self {
        Self {
            base: project.cherry_url().to_owned(),
            bearer: true,
            ..Self::of(project)
        }
    }

    async fn send(&self, method: Method, path: &str, body: Option<Value>) -> reqwest::Result<Response> {
        let request = self.http.request(method, format!("{}{path}", self.base));
        let request = if self.bearer {
            request.bearer_auth(&self.token)
        } else {
            request.header("X-Auth-Token", &self.token)
        };
        match body {
            Some(body) => request.json(&body),
            None => request,
        }
        .send()
        .await
    }

    /// Status and body; `null` where there is none.
    async fn call(&self, method: Method, path: &str, body: Option<Value>) -> (u16, Value) {
        let response = self.send(method, path, body).await.unwrap();
        let status = response.status().as_u16();
        let content_type = response.headers().get("content-type").cloned();
        let text = response.text().await.unwrap();
        if text.is_empty() {
            assert_eq!(content_type, None);
            return (status, Value::Null);
        }
        assert_eq!(content_type.unwrap(), "application/json");
        (status, serde_json::from_str(&text).unwrap())
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        self.call(Method::GET, path, None).await
    }

    async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.call(Method::POST, path, Some(body)).await
    }

    async fn patch(&self, path: &str, body: Value) -> (u16, Value) {
        self.call(Method::PATCH, path, Some(body)).await
    }

    async fn put(&self, path: &str, body: Value) -> (u16, Value) {
        self.call(Method::PUT, path, Some(body)).await
    }

    async fn delete(&self, path: &str) -> (u16, Value) {
        self.call(Method::DELETE, path, None).await
    }
}

/// A sandbox with one project, and somebody who may use it.
async fn start(options: ProjectOptions) -> (Sandbox, Project, Client) {
    let sandbox = Sandbox::start().await;
    let project = sandbox.project(options);
    let client = Client::of(&project);
    (sandbox, project, client)
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

/// The first text of an error body.
fn error(body: &Value) -> &str {
    body["errors"][0].as_str().unwrap()
}
