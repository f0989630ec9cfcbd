//! A whole cluster of Equinix Metal's controller, with all that it leaves in one: a `DaemonSet`, `MetalLB` by custom resources, BGP sessions,
//! annotated nodes, and the external Service of the API endpoint.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use groundplane_sandbox::{DeviceOptions, Project, ProjectOptions, ReservationOptions, Session};
use groundplane_tests::kube_api::KubeApi;
use groundplane_tests::metallb::{self, api_of, create};
use groundplane_tests::{CloudApi, Corner, World, WorldOptions, chart};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::announced::annotation;
use crate::endpoint::{grant, leave_behind};
use crate::takeover::{
    add, carried, item, nothing_left, nothing_written, old_service, plan_with, service_tag,
};

const METAL: &str = "cloud-provider-equinix-metal";
/// By what name it applies.
const APPLIES: &str = "cloud-provider-equinix-metal-auto";
const EXTERNAL: &str = "cloud-provider-equinix-metal-kubernetes-external";
const PEERS: [&str; 2] = ["169.254.255.1", "169.254.255.2"];

/// The older controller's `DaemonSet`, with so many pods at work.
async fn daemon_set(corner: &Corner, ready: i32) -> Result<()> {
    let api: Api<DaemonSet> = Api::namespaced(corner.client(), "kube-system");
    if api.get_opt(METAL).await?.is_none() {
        let labels = json!({ "app": METAL });
        let workload = serde_json::from_value(json!({
            "metadata": { "name": METAL },
            "spec": { "selector": { "matchLabels": labels }, "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "ccm", "image": "example.com/ccm" }] },
            } },
        }))?;
        api.create(&PostParams::default(), &workload).await?;
    }
    let status = json!({ "status": {
        "currentNumberScheduled": ready, "desiredNumberScheduled": ready, "numberMisscheduled": 0,
        "numberReady": ready, "numberAvailable": ready,
    } });
    api.patch_status(METAL, &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    Ok(())
}

/// What the older controller left, and how it looked.
struct Left {
    address: String,
    reservations: BTreeMap<String, String>,
    sessions: Vec<Session>,
    /// What it told the node.
    told: BTreeMap<String, String>,
    /// Each of `MetalLB`'s peers, with its version: one that is written ends its session.
    peers: Vec<(Option<String>, Value)>,
    external: Service,
}

/// The session of a machine, as the older controller asked for it.
async fn session(project: &Project, device: &str) -> Result<()> {
    let http = reqwest::Client::builder().no_proxy().build()?;
    let answer = http
        .post(format!("{}/devices/{device}/bgp/sessions", project.base_url()))
        .header("X-Auth-Token", project.token())
        .json(&json!({ "address_family": "ipv4" }))
        .send()
        .await?;
    answer.error_for_status()?;
    project.raise_sessions();
    Ok(())
}

/// What it told a node of its peers, which it speaks to from this address.
fn annotations(source: &str) -> BTreeMap<String, String> {
    let mut told = BTreeMap::new();
    for (n, peer) in PEERS.iter().enumerate() {
        for (field, value) in [
            ("node-asn", "65000"),
            ("peer-asn", "65530"),
            ("peer-ip", peer),
            ("src-ip", source),
            ("bgp-pass", ""),
        ] {
            told.insert(
                format!("metal.equinix.com/bgp-peers-{n}-{field}"),
                value.to_owned(),
            );
        }
    }
    told
}

/// What it told `MetalLB`, for one Service on one node.
async fn tell_metallb(corner: &Corner, namespace: &str, address: &str, source: &str) -> Result<()> {
    let labels = || json!({ "cloud-provider": "equinix-metal" });
    let (ns, node) = (corner.namespace(), corner.node_name("n1"));
    let pool = format!("{ns}.web");
    let spec = json!({ "addresses": [format!("{address}/32")], "autoAssign": false, "avoidBuggyIPs": false });
    create(corner, namespace, "IPAddressPool", &pool, labels(), spec).await?;
    let spec = json!({ "ipAddressPools": [pool] });
    let name = "equinix-metal-bgp-adv";
    create(corner, namespace, "BGPAdvertisement", name, labels(), spec).await?;
    let mark = json!({
        "nomatch.metal.equinix.com/service-name": "web", "nomatch.metal.equinix.com/service-namespace": ns,
    });
    for (n, peer) in PEERS.iter().enumerate() {
        let spec = json!({
            "myASN": 65_000, "peerASN": 65_530, "peerAddress": peer, "sourceAddress": source, "peerPort": 179, "holdTime": "0s",
            "nodeSelectors": [{ "matchLabels": { "kubernetes.io/hostname": node } }, { "matchLabels": mark }],
        });
        create(
            corner,
            namespace,
            "BGPPeer",
            &format!("{node}-{n}"),
            labels(),
            spec,
        )
        .await?;
    }
    Ok(())
}

async fn peers(corner: &Corner, namespace: &str) -> Result<Vec<(Option<String>, Value)>> {
    let api = api_of(corner, namespace, "v1beta2", "BGPPeer");
    let mut found = Vec::new();
    for n in 0..PEERS.len() {
        let peer = api.get(&format!("{}-{n}", corner.node_name("n1"))).await?;
        found.push((peer.metadata.resource_version, peer.data["spec"].clone()));
    }
    Ok(found)
}

/// Leaves all of it.
async fn leave(world: &World, metallb: &str) -> Result<Left> {
    let (corner, project) = (&world.corner, world.project()?);
    let tags = vec![
        format!("usage={METAL}-auto"),
        service_tag(corner, "web"),
        format!("cluster={}", corner.cluster()),
    ];
    let address = add(project, tags)?;
    let endpoint = project.add_reservation(ReservationOptions::tagged(["the-api"]));
    let endpoint = endpoint.address.context("no address")?.to_string();
    old_service(corner, "web", &address).await?;
    let device = project.add_device(DeviceOptions::named(corner.node_name("n1")));
    session(project, &device.to_string()).await?;
    let source = project
        .own_ipv4(device, false)
        .context("no private address")?
        .to_string();
    let mut draft = corner
        .node_draft("n1")
        .provider_id(&format!("equinixmetal://{device}"));
    let told = annotations(&source);
    for (key, value) in &told {
        draft = draft.annotation(key, value);
    }
    corner.create_node(draft).await?;
    tell_metallb(corner, metallb, &address, &source).await?;
    Ok(Left {
        reservations: carried(project),
        sessions: project.sessions(),
        told,
        peers: peers(corner, metallb).await?,
        external: leave_behind(&corner.client(), "kube-system", (APPLIES, EXTERNAL), &endpoint).await?,
        address,
    })
}

/// While it runs each thing is found, and what becomes of it.
async fn planned(world: &World) -> Result<()> {
    let stop = format!("kubectl -n kube-system delete daemonset {METAL}");
    let (_, items) = plan_with(world, "rivals", METAL, "BLOCKED").await?;
    let rival = item(&items, "rivals", METAL)?;
    ensure!(
        rival["detail"].as_str().unwrap_or_default().contains(&stop),
        "{rival}"
    );
    plan_with(world, "services", "/web", "ADOPT").await?;
    let (_, items) = plan_with(world, "nodes", "n1", "CHANGE").await?;
    for (group, name, action) in [
        ("metallb", ".web", "ADOPT"),
        ("metallb", "equinix-metal-bgp-adv", "ADOPT"),
        ("metallb", "n1-0", "ADOPT"),
        ("metallb", "n1-1", "ADOPT"),
        ("endpoint", EXTERNAL, "ADOPT"),
    ] {
        assert_eq!(item(&items, group, name)?["action"], action, "{name}");
    }
    Ok(())
}

/// Nothing has moved: addresses, sessions, and what speakers are told are as they were, in every byte.
async fn as_it_was(world: &World, metallb: &str, left: &Left) -> Result<()> {
    let (corner, project) = (&world.corner, world.project()?);
    assert_eq!(carried(project), left.reservations);
    assert_eq!(
        corner.addresses_of("web", 1).await?,
        std::slice::from_ref(&left.address)
    );
    let now = project.sessions();
    for before in &left.sessions {
        let same = now
            .iter()
            .find(|one| one.id == before.id)
            .context("a session is gone")?;
        assert_eq!((same.device, &same.status), (before.device, &before.status));
    }
    assert_eq!(CloudApi::Equinix.switched_on(project).len(), 0);
    let node: Node = corner.nodes().get(&corner.node_name("n1")).await?;
    for (key, value) in &left.told {
        assert_eq!(annotation(&node, key), Some(value.as_str()), "{key}");
    }
    assert_eq!(
        peers(corner, metallb).await?,
        left.peers,
        "their sessions would end"
    );
    let services: Api<Service> = Api::namespaced(corner.client(), "kube-system");
    let external = services.get(EXTERNAL).await?;
    assert_eq!(external.metadata.uid, left.external.metadata.uid);
    let cluster_ip = |service: &Service| service.spec.as_ref().and_then(|spec| spec.cluster_ip.clone());
    assert_eq!(cluster_ip(&external), cluster_ip(&left.external));
    let managers = external.metadata.managed_fields.unwrap_or_default();
    let old = |manager: &Option<String>| manager.as_deref().is_some_and(|name| name.starts_with(METAL));
    ensure!(!managers.iter().any(|entry| old(&entry.manager)), "{managers:?}");
    Ok(())
}

/// E59, E75: planned while its `DaemonSet` runs, taken over when that has stopped, and no session, address or annotation has moved.
#[tokio::test]
async fn a_whole_cluster_is_taken_over_and_nothing_moves() -> Result<()> {
    let api = KubeApi::start().await?;
    let corner = api.corner("whole").await?;
    let client = corner.client();
    metallb::install(&client).await?;
    let metallb = corner.another_namespace("metallb").await?;
    chart::grant_metallb(&client, "metallb", &metallb).await?;
    grant(&client, &format!("kube-system/{EXTERNAL}")).await?;
    let slice = serde_json::from_value(json!({
        "metadata": { "name": "servers", "labels": { "kubernetes.io/service-name": "kubernetes" } },
        "addressType": "IPv4",
        "endpoints": [{ "addresses": ["10.0.0.8"], "conditions": { "ready": true } }],
        "ports": [{ "name": "https", "port": 6443 }],
    }))?;
    let slices: Api<EndpointSlice> = Api::namespaced(client, "default");
    slices.create(&PostParams::default(), &slice).await?;
    daemon_set(&corner, 1).await?;
    let project = ProjectOptions {
        asn: Some(65_000),
        ..CloudApi::Equinix.project_of_reservations()
    };
    let mark = api.mark().await?;
    let world = WorldOptions::equinix(project)
        .older_json(json!({
            "loadbalancer": format!("metallb:///{metallb}?crdConfiguration=true"), "eipTag": "the-api",
        }))
        .start_in(corner)
        .await?;
    let left = leave(&world, &metallb).await?;
    let sent = world.project()?.journal().mark();
    planned(&world).await?;
    nothing_written(&api, &world, mark, sent).await?;

    daemon_set(&world.corner, 0).await?;
    world.ready().await?;
    nothing_left(&world).await?;
    as_it_was(&world, &metallb, &left).await?;
    let journal = world.project()?.journal();
    ensure!(
        journal.calls(sent, "DELETE", "/ips/{id}").is_empty(),
        "given back"
    );
    ensure!(
        journal.calls(sent, "POST", "/projects/{pid}/ips").is_empty(),
        "ordered"
    );
    Ok(())
}
