//! The harness itself: the process under test, and Jaeger.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use anyhow::{Context as _, Result};
use groundplane_tests::groundplane::{Launch, Process};
use groundplane_tests::jaeger::Jaeger;
use groundplane_tests::scratch::Scratch;

/// Says where it "listens" as groundplane does, with the number of its run as the port, and the rest on plain lines.
const SCRIPT: &str = r#"#!/bin/sh
echo run >> runs
port=$(wc -l < runs)
echo "arguments: $*; fail point: ${GROUNDPLANE_FAIL_POINT:-none}; config: $(cat groundplane.yaml)"
printf '{"fields":{"message":"listening","listener":"admin","address":"127.0.0.1:%d"}}\n' "$port"
trap 'echo "{\"fields\":{\"message\":\"stopping\"}}"; exit 0' TERM
while [ "$GROUNDPLANE_FAIL_POINT" != now ]; do sleep 0.01; done
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
    let mut process: Process = launch(&scripts)?.env("GROUNDPLANE_FAIL_POINT", "later").start()?;
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
    let process = launch(&scripts)?.env("GROUNDPLANE_FAIL_POINT", "now").start()?;
    let error = process.address("grpc").await.unwrap_err().to_string();
    assert!(
        error.contains("exit status: 66") && error.contains("fail point: now"),
        "{error}"
    );
    assert_eq!(process.wait(Duration::from_secs(10)).await?.code(), Some(66));
    Ok(())
}

#[tokio::test]
async fn jaeger_comes_up_and_knows_no_trace() -> Result<()> {
    let jaeger = Jaeger::start().await?;
    assert!(jaeger.otlp_endpoint().starts_with("http://127.0.0.1:"));
    assert!(jaeger.spans("0123456789abcdef0123456789abcdef").await?.is_empty());
    Ok(())
}
