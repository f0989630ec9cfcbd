//! One Service getting its address is one trace, and its event says which.

use anyhow::{Context as _, Result, ensure};
use groundplane_core::names::TRACE_ID;
use groundplane_sandbox::ProjectOptions;
use groundplane_tests::jaeger::Jaeger;
use groundplane_tests::{Mode, WorldOptions};

async fn traced(options: WorldOptions, name: &str, services: &[&str]) -> Result<()> {
    let jaeger = Jaeger::start().await?;
    let world = options
        .mode(Mode::Services)
        .env("GROUNDPLANE_OTLP_ENDPOINT", &jaeger.otlp_endpoint())
        .start(name)
        .await?;
    let service = world.corner.add_service("web").await?;
    world.corner.addresses_of("web", 1).await?;
    let event = world.corner.event(&service, "EnsuredLoadBalancer").await?;
    let id = event
        .metadata
        .annotations
        .and_then(|all| all.get(TRACE_ID).cloned())
        .context("no trace id")?;
    let spans = jaeger.trace_through(&id, services).await?;
    ensure!(spans.len() >= services.len(), "{spans:?}");
    Ok(())
}

/// gateway, eip and ipam, for driver `static`.
#[tokio::test]
async fn a_trace_goes_through_gateway_eip_and_ipam() -> Result<()> {
    let services = ["groundplane-gateway", "groundplane-eip", "groundplane-ipam"];
    traced(WorldOptions::fixed(), "trace", &services).await
}

/// gateway, eip and the cloud's HTTP call.
#[tokio::test]
async fn a_trace_goes_through_gateway_and_eip_to_the_cloud() -> Result<()> {
    let services = ["groundplane-gateway", "groundplane-eip"];
    traced(
        WorldOptions::equinix(ProjectOptions::default()),
        "trace-cloud",
        &services,
    )
    .await
}
