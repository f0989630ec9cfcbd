//! A real Jaeger, which takes traces over OTLP and gives them back.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

use crate::eventually::eventually;
use crate::processes::{Child, free_ports, until};
use crate::scratch::Scratch;
use crate::tools::{self, Tool};

/// As for the Kubernetes API: a port may be taken between our look and its use.
const TRIES: u32 = 3;

/// A running Jaeger with its memory store. Dropping it ends it.
#[derive(Debug)]
pub struct Jaeger {
    process: Child,
    otlp: u16,
    otlp_http: u16,
    query: u16,
    http: reqwest::Client,
    _folder: Scratch,
}

/// One span, as Jaeger gives it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The name of the operation.
    pub name: String,
    /// The service that sent it.
    pub service: String,
    /// Its id, in hexadecimal.
    pub id: String,
    /// The id of the span that it is a part of; `None` for the first.
    pub parent: Option<String>,
    /// Its attributes, as text.
    pub tags: BTreeMap<String, String>,
}

impl Jaeger {
    /// Starts one and waits until it answers. Builds it if this machine has none.
    ///
    /// # Errors
    /// What the machine lacks, or the end of its log when it does not come up.
    pub async fn start() -> Result<Self> {
        let program = tools::ensure(Tool::Jaeger).await?;
        let mut tried = 1;
        loop {
            match Self::try_start(Command::new(&program)).await {
                Err(error) if tried < TRIES && format!("{error:#}").contains("address already in use") => {
                    tried += 1;
                }
                result => return result,
            }
        }
    }

    async fn try_start(mut command: Command) -> Result<Self> {
        crate::tls::install();
        let folder = Scratch::new("jaeger")?;
        let [
            otlp,
            otlp_http,
            query,
            query_grpc,
            admin,
            collector,
            collector_http,
            agent,
        ] = free_ports()?;
        for (listener, port) in [
            ("collector.otlp.grpc", otlp),
            ("collector.otlp.http", otlp_http),
            ("query.http-server", query),
            ("query.grpc-server", query_grpc),
            ("admin.http", admin),
            ("collector.grpc-server", collector),
            ("collector.http-server", collector_http),
            ("http-server", agent),
        ] {
            command.arg(format!("--{listener}.host-port=127.0.0.1:{port}"));
        }
        // What spoke before OTLP, over UDP; nobody asks for these ports.
        for processor in ["jaeger-binary", "jaeger-compact", "zipkin-compact"] {
            command.arg(format!("--processor.{processor}.server-host-port=127.0.0.1:0"));
        }
        command
            .arg("--collector.otlp.enabled=true")
            .env("SPAN_STORAGE_TYPE", "memory");

        let process = Child::spawn("jaeger", command, folder.join("jaeger.log"))?;
        let http = reqwest::Client::builder()
            .no_proxy()
            .timeout(Duration::from_secs(10))
            .build()?;
        let jaeger = Self {
            process,
            otlp,
            otlp_http,
            query,
            http,
            _folder: folder,
        };
        let admin = format!("http://127.0.0.1:{admin}/");
        until(&[&jaeger.process], "jaeger is ready", async || {
            jaeger.http.get(&admin).send().await?.error_for_status()?;
            Ok(())
        })
        .await?;
        Ok(jaeger)
    }

    /// Where it takes spans, over OTLP and gRPC.
    pub fn otlp_endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.otlp)
    }

    /// Where it takes spans, over OTLP and HTTP, as JSON or protobuf.
    pub fn otlp_http_endpoint(&self) -> String {
        format!("http://127.0.0.1:{}/v1/traces", self.otlp_http)
    }

    /// The base URL of its query API, for `/api/traces` and its like.
    pub fn query_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.query)
    }

    /// The spans of a trace that it has so far; none for a trace that it does not know.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn spans(&self, trace_id: &str) -> Result<Vec<Span>> {
        let url = format!("{}/api/traces/{trace_id}", self.query_url());
        let answer = self.http.get(&url).send().await.context("ask jaeger")?;
        if answer.status() == reqwest::StatusCode::NOT_FOUND {
            return Ok(Vec::new());
        }
        let answer: Answer = answer
            .error_for_status()?
            .json()
            .await
            .context("read jaeger's answer")?;
        Ok(answer.data.into_iter().flat_map(Trace::spans).collect())
    }

    /// Waits until a trace has a span of each of these services, and returns all that it then has. Spans arrive in
    /// batches, from each process when it pleases.
    ///
    /// # Errors
    /// When they do not come, with those that did.
    pub async fn trace_through(&self, trace_id: &str, services: &[&str]) -> Result<Vec<Span>> {
        eventually(
            format_args!("trace {trace_id} goes through {services:?}"),
            async || {
                let spans = self.spans(trace_id).await?;
                let missing: Vec<_> = services
                    .iter()
                    .filter(|service| !spans.iter().any(|span| span.service == **service))
                    .collect();
                ensure!(missing.is_empty(), "no span of {missing:?} among {spans:#?}");
                Ok(spans)
            },
        )
        .await
    }
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    data: Vec<Trace>,
}

#[derive(Deserialize)]
struct Trace {
    spans: Vec<RawSpan>,
    processes: BTreeMap<String, Process>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Process {
    service_name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawSpan {
    #[serde(rename = "spanID")]
    id: String,
    operation_name: String,
    #[serde(default)]
    references: Vec<Reference>,
    #[serde(default)]
    tags: Vec<Tag>,
    #[serde(rename = "processID")]
    process: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reference {
    ref_type: String,
    #[serde(rename = "spanID")]
    span: String,
}

#[derive(Deserialize)]
struct Tag {
    key: String,
    value: Value,
}

impl Trace {
    fn spans(self) -> Vec<Span> {
        let Self { spans, processes } = self;
        let service = |id: &str| {
            processes
                .get(id)
                .map_or_else(String::new, |process| process.service_name.clone())
        };
        spans
            .into_iter()
            .map(|span| Span {
                service: service(&span.process),
                name: span.operation_name,
                id: span.id,
                parent: span
                    .references
                    .into_iter()
                    .find(|it| it.ref_type == "CHILD_OF")
                    .map(|it| it.span),
                tags: span
                    .tags
                    .into_iter()
                    .map(|tag| (tag.key, text_of(tag.value)))
                    .collect(),
            })
            .collect()
    }
}

fn text_of(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}
