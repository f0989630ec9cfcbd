//! The plain client: it makes the creates, and then the patches that groundplane makes, with nothing to decide.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::channel::mpsc;
use futures::{StreamExt as _, TryStreamExt as _};
use groundplane_core::names;
use k8s_openapi::api::core::v1::{Event, Service};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde_json::json;
use tokio::task::JoinSet;

use super::watch::Watching;
use super::{IN_FLIGHT, creates, warm_up};
use crate::bench::subject::Cluster;
use crate::kube_api::{ServiceDraft, User};

/// The first address that it gives.
const FIRST: u32 = u32::from_be_bytes([10, 64, 0, 1]);

/// How long it takes, from the first create until the watch has seen the last status. With `events`, it writes an
/// event about each Service, too.
pub(super) async fn run(count: usize, events: bool) -> Result<Duration> {
    let cluster = Cluster::start().await?;
    // What is there on the other side, too.
    let draft = ServiceDraft::new(cluster.corner.namespace(), "warm-up");
    cluster.corner.create_service(draft).await?;
    warm_up(&cluster).await?;
    let namespace = cluster.corner.another_namespace("load").await?;

    let admin = cluster.corner.client();
    let writer = cluster.api.client(User::Gateway)?;
    // The first patches wait for the first create anyway; their connections come then, as groundplane's do.
    let watching = Watching::start(admin.clone(), &namespace).await?;
    let begun = Instant::now();
    let (created, made) = mpsc::unbounded();
    let creating = creates(admin, &namespace, count);
    let mut tasks: JoinSet<Result<Option<Instant>>> = JoinSet::new();
    tasks.spawn(async move {
        creating
            .try_for_each(async |service| Ok(created.unbounded_send(service)?))
            .await?;
        Ok(None)
    });
    tasks.spawn(async move {
        let patching = made.enumerate().map(anyhow::Ok);
        patching
            .try_for_each_concurrent(IN_FLIGHT, |(place, service)| {
                serve(writer.clone(), service, place, events)
            })
            .await?;
        Ok(None)
    });
    tasks.spawn(async move { Ok(Some(watching.until_settled(count).await?)) });
    let mut settled = begun;
    while let Some(ended) = tasks.join_next().await {
        settled = ended??.unwrap_or(settled);
    }
    Ok(settled.duration_since(begun))
}

/// The finalizer, then the status with the condition: what groundplane writes with the announcer `empty`.
async fn serve(client: Client, service: Service, place: usize, events: bool) -> Result<()> {
    let name = service.name_any();
    let api: Api<Service> = Api::namespaced(client.clone(), &service.namespace().unwrap_or_default());
    let params = PatchParams {
        field_manager: Some(names::FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let finalizer = json!({ "metadata": { "uid": service.uid(), "finalizers": [names::SERVICE_FINALIZER] } });
    let held = api
        .patch(&name, &params, &Patch::Strategic(finalizer))
        .await
        .context("patch a Service")?;

    let address = Ipv4Addr::from(FIRST + u32::try_from(place)?);
    let status = json!({
        "metadata": { "uid": held.uid(), "resourceVersion": held.resource_version() },
        "status": {
            "loadBalancer": { "ingress": [{ "ip": address, "ipMode": "VIP" }] },
            "conditions": [{
                "type": names::CONDITION_ADDRESS,
                "status": "True",
                "reason": "Assigned",
                "message": format!("Has {address}."),
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        },
    });
    let told = api
        .patch_status(&name, &params, &Patch::Strategic(status))
        .await
        .context("patch a status")?;
    if events {
        let about = event(&told, address)?;
        let api: Api<Event> = Api::namespaced(client, &told.namespace().unwrap_or_default());
        api.create(&PostParams::default(), &about)
            .await
            .context("create an event")?;
    }
    Ok(())
}

/// An event as groundplane writes it.
fn event(service: &Service, address: Ipv4Addr) -> Result<Event> {
    let (name, namespace) = (service.name_any(), service.namespace());
    Ok(serde_json::from_value(json!({
        "metadata": { "generateName": format!("{name}."), "namespace": namespace },
        "involvedObject": service.object_ref(&()),
        "reason": "AddressAssigned",
        "message": format!("Assigned {address}."),
        "type": "Normal",
        "source": { "component": "groundplane" },
        "count": 1,
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }))?)
}
