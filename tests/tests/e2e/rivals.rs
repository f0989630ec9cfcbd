//! Older controllers that run where nobody looks for them, or beside a groundplane that was told to go on.

use anyhow::{Context as _, Result, ensure};
use groundplane_sandbox::{ProjectOptions, ReservationOptions};
use groundplane_tests::kube_api::KubeApi;
use groundplane_tests::{CloudApi, Corner, User, World, WorldOptions, eventually, throughout};
use k8s_openapi::api::core::v1::{Event, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use pretty_assertions::assert_eq;
use serde_json::json;

use crate::clouds::on_each_cloud;
use crate::endpoint::{grant, leave_behind};
use crate::takeover::{deployment, it_leads, nobody_leads, nothing_left, plan_with};

const METAL: &str = "cloud-provider-equinix-metal";
/// By what name it applies.
const APPLIES: &str = "cloud-provider-equinix-metal-auto";

on_each_cloud! {
    one_that_writes_from_elsewhere_is_noticed,
}

/// What the older controller of a cloud calls itself where it writes.
fn manager(cloud: CloudApi) -> &'static str {
    match cloud {
        CloudApi::Equinix => METAL,
        CloudApi::Cherry => "cloud-provider-cherry",
    }
}

/// The older controller writes an annotation of its own to the corner's node.
async fn writes(corner: &Corner, cloud: CloudApi, value: &str) -> Result<()> {
    let nodes: Api<Node> = corner.nodes();
    let parameters = PatchParams {
        field_manager: Some(manager(cloud).to_owned()),
        ..PatchParams::default()
    };
    let patch = json!({ "metadata": { "annotations": { (cloud.annotation("theirs")): value } } });
    let name = corner.node_name("n1");
    nodes.patch(&name, &parameters, &Patch::Merge(&patch)).await?;
    Ok(())
}

/// It has no pods and no lease where they are looked for, and is known by what it writes: nobody leads then, and people are told how it is
/// found. What it wrote before groundplane came bars nobody.
async fn one_that_writes_from_elsewhere_is_noticed(cloud: CloudApi) -> Result<()> {
    let corner = KubeApi::shared().await?.corner("elsewhere").await?;
    corner.create_node(corner.node_draft("n1")).await?;
    writes(&corner, cloud, "before").await?;
    let world = WorldOptions::on(cloud, cloud.project()).start_in(corner).await?;
    world.ready().await?;
    it_leads(&world).await?;

    // It may be that the first look is still to come, for which all of this is of the past: it goes on writing, as it does.
    let times = std::sync::atomic::AtomicUsize::new(0);
    let items = eventually("its writes are noticed", async || {
        let time = times.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        writes(&world.corner, cloud, &time.to_string()).await?;
        let plan = world.ctl(&["takeover", "plan"]).await?;
        let items = plan["items"].as_array().cloned().unwrap_or_default();
        ensure!(items.iter().any(|item| item["group"] == "rivals"), "{items:?}");
        Ok(items)
    })
    .await?;
    let rival = items
        .iter()
        .find(|item| item["group"] == "rivals")
        .context("no rival")?;
    assert_eq!(rival["action"], "BLOCKED");
    let (name, found) = (rival["name"].as_str(), rival["found"].as_str());
    ensure!(name.is_some_and(|name| name.contains(manager(cloud))), "{rival}");
    let node = format!("Node {}", world.corner.node_name("n1"));
    ensure!(found.is_some_and(|found| found.contains(&node)), "{rival}");
    let stop = format!("grep -E '{}", manager(cloud));
    ensure!(
        rival["detail"].as_str().unwrap_or_default().contains(&stop),
        "{rival}"
    );
    nobody_leads(&world).await?;
    ensure!(world.log_text()?.contains(&stop), "the log names no command");
    Ok(())
}

/// The events in `namespace` of this reason.
async fn events(api: &KubeApi, namespace: &str, reason: &str) -> Result<Vec<Event>> {
    let events: Api<Event> = Api::namespaced(api.client(User::Admin)?, namespace);
    let all = events.list(&ListParams::default()).await?.items;
    let wanted = |event: &Event| event.reason.as_deref() == Some(reason);
    Ok(all.into_iter().filter(wanted).collect())
}

/// A slice of `default/kubernetes`: the API server of the tests publishes none, since it listens on loopback.
async fn api_servers(client: &kube::Client) -> Result<()> {
    let slice = serde_json::from_value(json!({
        "metadata": { "name": "servers", "labels": { "kubernetes.io/service-name": "kubernetes" } },
        "addressType": "IPv4",
        "endpoints": [{ "addresses": ["10.0.0.8"], "conditions": { "ready": true } }],
        "ports": [{ "name": "https", "port": 6443 }],
    }))?;
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), "default");
    slices.create(&PostParams::default(), &slice).await?;
    Ok(())
}

/// A world that goes on beside a rival, which keeps the external Service of this name.
async fn beside_a_rival(api: &KubeApi, name: &str) -> Result<World> {
    let corner = api.corner("warn").await?;
    let (client, namespace) = (corner.client(), corner.namespace().to_owned());
    grant(&client, &format!("{namespace}/{name}")).await?;
    api_servers(&client).await?;
    deployment(&corner, METAL, 1).await?;
    leave_behind(&client, &namespace, (APPLIES, name), "198.51.100.77").await?;
    let project = ProjectOptions {
        list_machine_blocks: false,
        ..ProjectOptions::default()
    };
    let section = format!("endpoint: {{tag: the-api, port: 8443, service: \"{namespace}/{name}\"}}\n");
    let world = WorldOptions::equinix(project)
        .gateway("  rivals: warn\n")
        .section(&section)
        .start_in(corner)
        .await?;
    world
        .project()?
        .add_reservation(ReservationOptions::tagged(["the-api"]));
    world.ready().await?;
    Ok(world)
}

/// Told to go on beside a rival (`gateway.rivals: warn`), groundplane serves Services, tells of it, and does not fight about the external
/// Service of the API endpoint: it stays as the older controller has it, with one event, until that one has stopped.
#[tokio::test]
async fn told_to_warn_it_goes_on_and_leaves_the_external_service() -> Result<()> {
    let api = KubeApi::start().await?;
    let name = "cloud-provider-equinix-metal-kubernetes-external";
    let world = beside_a_rival(&api, name).await?;
    let (corner, namespace) = (&world.corner, world.corner.namespace());
    corner.add_service("web").await?;
    corner.addresses_of("web", 1).await?;
    let (_, items) = plan_with(&world, "rivals", METAL, "BLOCKED").await?;
    ensure!(
        items[0]["detail"]
            .as_str()
            .unwrap_or_default()
            .contains("gateway.rivals"),
        "{items:#?}"
    );
    let told = eventually("people are told of the rival", async || {
        let found = events(&api, "default", "OlderControllerRuns").await?;
        found.into_iter().next().context("no event")
    })
    .await?;
    ensure!(told.message.unwrap_or_default().contains("goes on"), "it refuses");

    let services: Api<Service> = Api::namespaced(corner.client(), namespace);
    eventually("people are told of the Service", async || {
        let found = events(&api, namespace, "ExternalServiceDisputed").await?;
        ensure!(found.len() == 1, "{found:?}");
        Ok(())
    })
    .await?;
    let before = services.get(name).await?.metadata.resource_version;
    throughout(
        std::time::Duration::from_secs(3),
        "it is left alone",
        async || {
            let service = services.get(name).await?;
            ensure!(service.metadata.resource_version == before, "{service:?}");
            let found = events(&api, namespace, "ExternalServiceDisputed").await?;
            ensure!(found.len() == 1 && found[0].count.unwrap_or(1) == 1, "{found:?}");
            Ok(())
        },
    )
    .await?;

    deployment(corner, METAL, 0).await?;
    eventually("it is taken over", async || {
        let service = services.get(name).await?;
        let ports = service.spec.and_then(|spec| spec.ports).unwrap_or_default();
        ensure!(ports.iter().map(|port| port.port).eq([8443]), "{ports:?}");
        let managers = service.metadata.managed_fields.unwrap_or_default();
        let is_old =
            |manager: &Option<String>| manager.as_deref().is_some_and(|name| name.starts_with(METAL));
        ensure!(
            !managers.iter().any(|entry| is_old(&entry.manager)),
            "{managers:?}"
        );
        Ok(())
    })
    .await?;
    nothing_left(&world).await
}
