//! MetalLB up to 0.12 is told by its `ConfigMap`. No such MetalLB is at work here: what it would write, the status, the tests write.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use groundplane_sandbox::ProjectOptions;
use groundplane_tests::kube_api::ingress_of;
use groundplane_tests::{Corner, World, WorldOptions, eventually};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use pretty_assertions::assert_eq;
use serde_json::json;

use crate::announced::{annotation, refusal};
use crate::metallb::{add_service, corner, ready, section, started};

const FORM: &str = "metallb-configmap";

/// What a user has, with what the old controller would have lost.
const USERS: &str = "# by hand
address-pools:
- name: lan
  protocol: layer2
  addresses: [192.168.7.0/24]
bfd-profiles:
- {name: fast, receive-interval: 100}
peers:
- my-asn: 64500
  peer-asn: 64501
  peer-address: 10.0.0.1
  keepalive-time: 10s
  bfd-profile: fast
";

fn config_maps(corner: &Corner, namespace: &str) -> Api<ConfigMap> {
    Api::namespaced(corner.client(), namespace)
}

async fn text(corner: &Corner, namespace: &str) -> Result<String> {
    let found = config_maps(corner, namespace).get("config").await?;
    Ok(found
        .data
        .unwrap_or_default()
        .remove("config")
        .unwrap_or_default())
}

async fn create(corner: &Corner, namespace: &str, data: Option<&str>) -> Result<()> {
    let config_map = ConfigMap {
        metadata: kube::api::ObjectMeta {
            name: Some("config".to_owned()),
            ..kube::api::ObjectMeta::default()
        },
        data: data.map(|text| BTreeMap::from([("config".to_owned(), text.to_owned())])),
        ..ConfigMap::default()
    };
    let created = config_maps(corner, namespace)
        .create(&PostParams::default(), &config_map)
        .await;
    created.map(drop).context("create the ConfigMap")
}

/// Says in the status what MetalLB would: the address that the Service asks for.
async fn serve(corner: &Corner, name: &str) -> Result<String> {
    let asks = |service: &Service| {
        let waits = refusal(service).is_some_and(|reason| reason == "Announcing");
        let spec = service.spec.as_ref()?;
        spec.load_balancer_ip.clone().filter(|_| waits)
    };
    let address = corner.service_until(name, "asks for its address", asks).await?;
    let status = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": address }] } } });
    corner.edit_service_status(name, &status).await?;
    corner.service_until(name, "is ready", ready).await?;
    Ok(address)
}

async fn lacks(corner: &Corner, namespace: &str, entry: &str) -> Result<()> {
    eventually(format_args!("{entry} is gone"), async || {
        let text = text(corner, namespace).await?;
        ensure!(!text.contains(entry), "{text}");
        Ok(())
    })
    .await
}

/// E53, E54, E58, E61: where there is no `ConfigMap`, it is made, and says for one Service on one node exactly what the old controller wrote.
#[tokio::test]
async fn a_missing_config_map_is_made_as_the_old_controller_wrote_it() -> Result<()> {
    let (corner, namespace) = corner("golden", FORM).await?;
    let project = ProjectOptions {
        asn: Some(65_000),
        md5: Some("pw4711".to_owned()),
        list_machine_blocks: false,
        ..ProjectOptions::default()
    };
    let options = WorldOptions::equinix(project).gateway(&section(&corner, FORM, &namespace, ""));
    let world = started(corner, options).await?;
    let corner = &world.corner;
    world.add_machine("a").await?;
    let source = corner
        .node_until("a", "knows its peers", |node| {
            annotation(node, "metal.equinix.com/bgp-peers-1-peer-ip")?;
            annotation(node, "metal.equinix.com/bgp-peers-0-src-ip").map(str::to_owned)
        })
        .await?;
    add_service(corner, "svc1").await?;
    let address = serve(corner, "svc1").await?;
    let (node, ns) = (corner.node_name("a"), corner.namespace());
    let peer = |address: &str| {
        format!(
            "- hold-time: \"\"\n  my-asn: 65000\n  node-selectors:\n  - match-expressions: null\n    match-labels:\n      \
             kubernetes.io/hostname: {node}\n  - match-expressions: null\n    match-labels:\n      \
             nomatch.metal.equinix.com/service-name: svc1\n      nomatch.metal.equinix.com/service-namespace: {ns}\n  \
             password: pw4711\n  peer-address: {address}\n  peer-asn: 65530\n  peer-port: 0\n  router-id: \"\"\n  \
             source-address: {source}\n"
        )
    };
    let peers = [peer("169.254.255.1"), peer("169.254.255.2")].concat();
    let golden = format!(
        "address-pools:\n- addresses:\n  - {address}/32\n  auto-assign: false\n  avoid-buggy-ips: false\n  bgp-advertisements: null\n  \
         name: {ns}/svc1\n  protocol: bgp\nbgp-communities: null\npeers:\n{peers}"
    );
    eventually("the golden text", async || {
        let found = text(corner, &namespace).await?;
        ensure!(found == golden, "{found}\nis not\n{golden}");
        Ok(())
    })
    .await?;
    corner.delete_service("svc1").await?;
    corner.service_gone("svc1").await?;
    lacks(corner, &namespace, "peer-address").await
}

/// E40, E55, E56, E66: while a user writes to the same `ConfigMap`, Services come and go, and nobody loses anything; in the end the user's
/// text is as it was, to the byte.
#[tokio::test]
async fn a_config_map_that_others_write_loses_nothing() -> Result<()> {
    let (corner, namespace) = corner("shared", FORM).await?;
    create(&corner, &namespace, None).await?;
    let options = WorldOptions::fixed().gateway(&section(&corner, FORM, &namespace, ""));
    let world = started(corner, options).await?;
    let corner = &world.corner;
    let users = config_maps(corner, &namespace);
    let write = async |data: serde_json::Value| -> Result<()> {
        let patch = Patch::Merge(json!({ "data": data }));
        let written = users.patch("config", &PatchParams::default(), &patch).await;
        written.map(drop).context("the user's write")
    };
    write(json!({ "config": USERS })).await?;
    let names: Vec<String> = (0..6).map(|n| format!("web-{n}")).collect();
    for (n, name) in names.iter().enumerate() {
        add_service(corner, name).await?;
        // Beside the key that MetalLB reads: each is a new version of the object.
        write(json!({ "notes": format!("{n}") })).await?;
    }
    let mut addresses = Vec::new();
    for name in &names {
        addresses.push(serve(corner, name).await?);
    }
    let full = text(corner, &namespace).await?;
    for (name, address) in names.iter().zip(&addresses) {
        let ns = corner.namespace();
        ensure!(full.contains(&format!("- {address}/32\n")), "{full}");
        ensure!(full.contains(&format!("name: {ns}/{name}\n")), "{full}");
    }
    ensure!(
        full.starts_with("# by hand\n") && full.contains("{name: fast, receive-interval: 100}"),
        "{full}"
    );
    corner.delete_service("web-0").await?;
    corner.service_gone("web-0").await?;
    lacks(corner, &namespace, &format!("- {}/32\n", addresses[0])).await?;
    ensure!(
        text(corner, &namespace).await?.contains(&addresses[1]),
        "another went with it"
    );
    for name in &names[1..] {
        corner.delete_service(name).await?;
    }
    for name in &names[1..] {
        corner.service_gone(name).await?;
    }
    assert_eq!(text(corner, &namespace).await?, USERS);
    let notes = config_maps(corner, &namespace)
        .get("config")
        .await?
        .data
        .context("no data")?;
    assert_eq!(notes["notes"], "5");
    Ok(())
}

/// E54, E56: without a namespace for it, or with a text that cannot be changed safely, Services are told why; what they hold is given back
/// all the same when they go.
#[tokio::test]
async fn a_config_map_that_cannot_be_written_is_told() -> Result<()> {
    let (corner, namespace) = corner("unwritable", FORM).await?;
    let flow = "{address-pools: [{name: a, protocol: layer2, addresses: [192.168.7.0/24]}]}\n";
    create(&corner, &namespace, Some(flow)).await?;
    let options = WorldOptions::fixed().gateway(&section(&corner, FORM, &namespace, ""));
    let world = started(corner, options).await?;
    let corner = &world.corner;
    add_service(corner, "web").await?;
    let told = |service: &Service| refusal(service).filter(|reason| reason == "AnnouncerUnreadable");
    corner.service_until("web", "is told", told).await?;
    assert_eq!(text(corner, &namespace).await?, flow);
    // Written in lines, it can be.
    let patch = Patch::Merge(json!({ "data": { "config": USERS } }));
    config_maps(corner, &namespace)
        .patch("config", &PatchParams::default(), &patch)
        .await?;
    serve(corner, "web").await?;
    nowhere().await
}

async fn nowhere() -> Result<()> {
    let (corner, _) = corner("nowhere", FORM).await?;
    let absent = format!("{}-absent", corner.name());
    groundplane_tests::chart::grant(&corner.client(), corner.namespace()).await?;
    let section = section(&corner, FORM, &absent, "");
    let world: World = started(corner, WorldOptions::fixed().gateway(&section)).await?;
    let corner = &world.corner;
    add_service(corner, "web").await?;
    let told = |service: &Service| refusal(service).filter(|reason| reason.starts_with("Announcer"));
    corner.service_until("web", "is told", told).await?;
    ensure!(
        ingress_of(&corner.api::<Service>().get("web").await?).is_empty(),
        "it has an address"
    );
    Ok(())
}
