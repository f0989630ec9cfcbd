//! The harness itself: the process under test, and Jaeger.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use anyhow::{Context as _, Result};
use groundplane_tests::groundplane::{Launch, Process};
use groundplane_tests::jaeger::Jaeger;
use groundplane_tests::scratch::Scratch;
use serde_json::json;

/// Says where it "listens" as groundplane does, with the number of its run as the port, and the rest on plain lines.
const SCRIPT: &str = r#"#!/bin/sh
echo run >> runs
port=$(wc -l < runs)
echo "arguments: $*; fail point: ${GROUNDPLANE_FAILPOINT:-none}; config: $(cat groundplane.yaml)"
printf '{"message":"listening","server":"admin","address":"127.0.0.1:%d"}\n' "$port"
trap 'echo "{\"fields\":{\"message\":\"stopping\"}}"; exit 0' TERM
while [ "$GROUNDPLANE_FAILPOINT" != now ]; do sleep 0.01; done
exit 66
"#;

fn launch(scripts: &Scratch) -> Result<Launch> {
    let program = scripts.write("groundplane", SCRIPT)?;
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
    Ok(Launch::new("all")?
        .program(program)
        .config("pools: []")
        .args(["--cluster", "test"]))
}

#[tokio::test]
async fn a_process_keeps_its_folder_and_its_logs_over_restarts() -> Result<()> {
    let scripts = Scratch::new("scripts")?;
    let mut process: Process = launch(&scripts)?.env("GROUNDPLANE_FAILPOINT", "later").start()?;
    assert_eq!(process.address("admin").await?.port(), 1);
    process.kill9().await?;
    assert!(process.address("admin").await.is_err(), "it was killed");
    process.restart_with(Vec::clear).await?;
    assert_eq!(
        process.address("admin").await?.port(),
        2,
        "the announcement of the run before is not taken for it"
    );
    assert!(process.child()?.memory()?.resident > 0);
    assert_eq!(process.terminate().await?.code(), Some(0));

    let text = process.log_text()?;
    let greeting = |fail_point| {
        let config = process.folder().join("groundplane.yaml");
        format!(
            "arguments: all --config {} --cluster test; fail point: {fail_point}; config: pools: []",
            config.display()
        )
    };
    assert!(
        text.contains(&greeting("later")) && text.contains(&greeting("none")),
        "{text}"
    );
    let last = process.logs()?.pop().context("no log")?;
    assert_eq!(last["fields"]["message"], "stopping");
    Ok(())
}

#[tokio::test]
async fn a_process_that_ends_before_it_listens_is_reported_at_once_with_its_output() -> Result<()> {
    let scripts = Scratch::new("scripts")?;
    let process = launch(&scripts)?.env("GROUNDPLANE_FAILPOINT", "now").start()?;
    let error = format!("{:#}", process.address("grpc").await.unwrap_err());
    assert!(
        error.contains("exit status: 66") && error.contains("fail point: now"),
        "{error}"
    );
    assert_eq!(process.wait(Duration::from_secs(10)).await?.code(), Some(66));
    Ok(())
}

#[tokio::test]
async fn jaeger_gives_back_the_spans_that_it_was_sent() -> Result<()> {
    const TRACE: &str = "0123456789abcdef0123456789abcdef";
    let jaeger = Jaeger::start().await?;
    assert!(jaeger.spans(TRACE).await?.is_empty(), "it knows nothing yet");
    let span = |service: &str, id: &str, parent: &str| {
        json!({
            "resource": { "attributes": [{ "key": "service.name", "value": { "stringValue": service } }] },
            "scopeSpans": [{ "spans": [{
                "traceId": TRACE, "spanId": id, "parentSpanId": parent, "name": "Allocate", "kind": 2,
                "startTimeUnixNano": "1795219200000000000", "endTimeUnixNano": "1795219200001000000",
                "attributes": [{ "key": "attempt", "value": { "intValue": "2" } }],
            }] }],
        })
    };
    let spans = [
        span("gateway", "00000000000000a1", ""),
        span("ipam", "00000000000000b2", "00000000000000a1"),
    ];
    let http = reqwest::Client::builder().no_proxy().build()?;
    let sent = http
        .post(jaeger.otlp_http_endpoint())
        .json(&json!({ "resourceSpans": spans }))
        .send()
        .await?;
    sent.error_for_status()?;

    let spans = jaeger.trace_through(TRACE, &["gateway", "ipam"]).await?;
    let ipam = spans
        .iter()
        .find(|span| span.service == "ipam")
        .context("no span of ipam")?;
    assert_eq!(
        (ipam.name.as_str(), ipam.parent.as_deref()),
        ("Allocate", Some("00000000000000a1"))
    );
    assert_eq!(ipam.tags.get("attempt").map(String::as_str), Some("2"));
    let gateway = spans
        .iter()
        .find(|span| span.service == "gateway")
        .context("no span of gateway")?;
    assert_eq!(
        (gateway.id.as_str(), gateway.parent.as_deref()),
        ("00000000000000a1", None)
    );
    Ok(())
}
