//! Clusters as the older controllers leave them: planned while they still run, taken over when they stop, and nothing moves.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use groundplane_sandbox::{DeviceOptions, Project, ProjectOptions, ReservationOptions};
use groundplane_tests::kube_api::{KubeApi, User};
use groundplane_tests::{CloudApi, Corner, World, WorldOptions, chart, eventually};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::announced::annotation;

const METAL: &str = "cloud-provider-equinix-metal";

/// The tag that stands for a Service, as all generations made it.
pub(crate) fn service_tag(corner: &Corner, name: &str) -> String {
    let digest = Sha256::digest(format!("{}/{name}", corner.namespace()));
    format!("service={}", BASE64.encode(digest))
}

/// An older controller's workload in `kube-system`, with so many pods at work. Nothing runs it: the status is all that it is.
pub(crate) async fn deployment(corner: &Corner, name: &str, ready: i32) -> Result<()> {
    let api: Api<Deployment> = Api::namespaced(corner.client(), "kube-system");
    if api.get_opt(name).await?.is_none() {
        let labels = json!({ "app": name });
        let workload = serde_json::from_value(json!({
            "metadata": { "name": name },
            "spec": { "selector": { "matchLabels": labels }, "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "ccm", "image": "example.com/ccm" }] },
            } },
        }))?;
        api.create(&PostParams::default(), &workload).await?;
    }
    let status =
        json!({ "status": { "replicas": ready, "readyReplicas": ready, "availableReplicas": ready } });
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    Ok(())
}

/// The lease of an older controller, renewed now.
async fn renew(corner: &Corner) -> Result<()> {
    let api: Api<Lease> = Api::namespaced(corner.client(), "kube-system");
    // Whatever the clock says: it is another time than before.
    let micros = fastrand::u32(0..1_000_000);
    let spec = json!({
        "holderIdentity": "old-host_1", "leaseDurationSeconds": 3, "renewTime": format!("2026-01-01T00:00:00.{micros:06}Z"),
    });
    let lease = json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "cloud-controller-manager" }, "spec": spec });
    api.patch(
        "cloud-controller-manager",
        &PatchParams::apply("ccm").force(),
        &Patch::Apply(&lease),
    )
    .await?;
    Ok(())
}

/// The items of the plan, and its id.
pub(crate) async fn plan(world: &World) -> Result<(String, Vec<Value>, u64)> {
    let plan = world.ctl(&["takeover", "plan"]).await?;
    let id = plan["planId"].as_str().context("no id")?.to_owned();
    let items = plan["items"].as_array().cloned().unwrap_or_default();
    Ok((id, items, plan["left"].as_u64().context("left")?))
}

/// The item of a plan whose name ends so.
pub(crate) fn item<'a>(items: &'a [Value], group: &str, name: &str) -> Result<&'a Value> {
    let found = items
        .iter()
        .find(|item| item["group"] == group && item["name"].as_str().unwrap_or_default().ends_with(name));
    found.with_context(|| format!("no {group} {name} in {items:#?}"))
}

/// Waits for a plan that says so.
pub(crate) async fn plan_with(
    world: &World,
    group: &str,
    name: &str,
    action: &str,
) -> Result<(String, Vec<Value>)> {
    eventually(
        format_args!("the plan says {action} of {group} {name}"),
        async || {
            let (id, items, _) = plan(world).await?;
            let found = item(&items, group, name)?;
            ensure!(found["action"] == action, "{found}");
            Ok((id, items))
        },
    )
    .await
}

/// Waits for a plan that has nothing to do.
pub(crate) async fn nothing_left(world: &World) -> Result<()> {
    eventually("nothing is left to do", async || {
        let (_, items, left) = plan(world).await?;
        let open: Vec<_> = items.iter().filter(|item| item["action"] != "LEAVE").collect();
        ensure!(left == 0, "{open:#?}");
        Ok(())
    })
    .await
}

/// What may not change when a cluster is taken over: each reservation's address.
pub(crate) fn carried(project: &Project) -> BTreeMap<String, String> {
    let address = |address: Option<std::net::IpAddr>| address.map(|one| one.to_string()).unwrap_or_default();
    let reservations = project.reservations().into_iter();
    reservations
        .map(|one| (one.id.to_string(), address(one.address)))
        .collect()
}

/// No write of the gateway's account since `mark` but events, and none to the cloud since `sent`.
pub(crate) async fn nothing_written(
    api: &KubeApi,
    world: &World,
    mark: groundplane_tests::kube_api::Mark,
    sent: u64,
) -> Result<()> {
    let writes = api.requests_since(mark).await?.by_user(User::Gateway).writes();
    let others = writes.only(|request| request.resource != "events");
    ensure!(others.count() == 0, "{:?}", others.requests());
    let sent = world.project()?.journal().writes(sent);
    ensure!(sent.is_empty(), "{sent:?}");
    Ok(())
}

/// A node as an older controller left it, on a machine of the project.
pub(crate) async fn old_node(
    world: &World,
    cloud: CloudApi,
    scheme: &str,
    annotations: &[(&str, &str)],
) -> Result<()> {
    let (corner, project) = (&world.corner, world.project()?);
    let device = project.add_device(DeviceOptions::named(corner.node_name("n1")));
    let bare = cloud.bare_id(project, device)?;
    let mut draft = corner.node_draft("n1").provider_id(&format!("{scheme}{bare}"));
    for (key, value) in annotations {
        draft = draft.annotation(key, value);
    }
    corner.create_node(draft).await?;
    Ok(())
}

/// A Service as an older controller left it: its address in spec and status.
pub(crate) async fn old_service(corner: &Corner, name: &str, address: &str) -> Result<()> {
    let draft = corner
        .service_draft(name)
        .load_balancer_ip(address)
        .finalizer("service.kubernetes.io/load-balancer-cleanup");
    corner.create_service(draft).await?;
    let status = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": address }] } } });
    corner.edit_service_status(name, &status).await?;
    Ok(())
}

pub(crate) fn add(project: &Project, tags: Vec<String>) -> Result<String> {
    let reservation = project.add_reservation(ReservationOptions::tagged(tags));
    Ok(reservation.address.context("no address")?.to_string())
}

/// What packet-ccm left, beside what others have.
struct Left {
    web: String,
    brought: String,
    reservations: BTreeMap<String, String>,
}

/// What a user has in MetalLB's `ConfigMap`.
const USERS: &str = "- name: lan\n  protocol: layer2\n  addresses: [192.168.7.0/24] # by hand\n";

/// What stands on the node: packet-ccm's, and a user's.
const ON_NODE: [(&str, &str); 4] = [
    ("packet.com/node.asn", "65000"),
    ("packet.com/peer.asns", "65530"),
    ("packet.com/peer.ips", "169.254.255.1,169.254.255.2"),
    ("example.com/mine", "stays"),
];

/// The tags of another cluster's reservation.
fn foreign() -> Vec<String> {
    vec!["usage=packet-ccm-auto".to_owned(), "service=another".to_owned()]
}

/// Leaves it.
async fn left_by_packet_ccm(world: &World, metallb: &str) -> Result<Left> {
    let (corner, project) = (&world.corner, world.project()?);
    let web = add(
        project,
        vec!["usage=packet-ccm-auto".to_owned(), service_tag(corner, "web")],
    )?;
    add(project, foreign())?;
    let brought = add(project, vec!["mine".to_owned()])?;
    old_service(corner, "web", &web).await?;
    old_service(corner, "brought", &brought).await?;
    old_node(world, CloudApi::Equinix, "packet://", &ON_NODE).await?;
    let text = format!(
        "address-pools:\n{USERS}- name: {ns}/web\n  protocol: bgp\n  auto-assign: false\n  addresses: [{web}/32]\n- name: brought\n  \
         protocol: bgp\n  auto-assign: false\n  addresses: [{brought}/32]\n",
        ns = corner.namespace()
    );
    let config_maps: Api<ConfigMap> = Api::namespaced(corner.client(), metallb);
    let config_map =
        serde_json::from_value(json!({ "metadata": { "name": "config" }, "data": { "config": text } }))?;
    config_maps.create(&PostParams::default(), &config_map).await?;
    Ok(Left {
        web,
        brought,
        reservations: carried(project),
    })
}

/// It runs: looked at, named, refused.
async fn planned_while_it_runs(world: &World) -> Result<()> {
    let stop = "kubectl -n kube-system delete deployment packet-cloud-controller-manager";
    let (id, items) = plan_with(world, "rivals", "packet-cloud-controller-manager", "BLOCKED").await?;
    let rival = item(&items, "rivals", "packet-cloud-controller-manager")?;
    ensure!(
        rival["detail"].as_str().unwrap_or_default().contains(stop),
        "{rival}"
    );
    let refused = world.ctl(&["takeover", "apply", "--plan", &id]).await;
    let Err(refused) = refused else {
        bail!("applied beside an older controller");
    };
    ensure!(format!("{refused:#}").contains(stop), "{refused:#}");
    let other = world.ctl(&["takeover", "apply", "--plan", "another"]).await;
    ensure!(format!("{other:?}").contains("the plan changed"), "{other:?}");
    ensure!(world.log_text()?.contains(stop), "the log names no command");
    let (_, items) = plan_with(world, "services", "/web", "ADOPT").await?;
    ensure!(
        item(&items, "services", "/brought")?["found"]
            .as_str()
            .unwrap_or_default()
            .contains("brought"),
        "{items:#?}"
    );
    assert_eq!(item(&items, "metallb", "/web")?["action"], "ADOPT");
    let changes = items
        .iter()
        .filter(|item| item["group"] == "reservations" && item["action"] == "CHANGE");
    assert_eq!(changes.count(), 1, "{items:#?}");
    Ok(())
}

/// Everything is where it was, today's tags are on what is ours, and what others have is theirs.
async fn as_it_was(world: &World, metallb: &str, left: &Left) -> Result<()> {
    let (corner, project) = (&world.corner, world.project()?);
    let config_maps: Api<ConfigMap> = Api::namespaced(corner.client(), metallb);
    let Left { web, brought, .. } = left;
    assert_eq!(carried(project), left.reservations, "reservations");
    let calls = |method: &str, route: &str| project.journal().calls(0, method, route).len();
    assert_eq!(calls("POST", "/projects/{pid}/ips"), 0);
    assert_eq!(calls("DELETE", "/ips/{id}"), 0);
    let tags: Vec<Vec<String>> = project.reservations().into_iter().map(|one| one.tags).collect();
    ensure!(tags.contains(&foreign()), "another cluster's stay: {tags:?}");
    ensure!(tags.contains(&vec!["mine".to_owned()]), "{tags:?}");
    ensure!(
        tags.contains(&vec![
            format!("usage={METAL}-auto"),
            service_tag(corner, "web"),
            format!("cluster={}", corner.cluster()),
        ]),
        "{tags:?}"
    );
    assert_eq!(
        corner.addresses_of("web", 1).await?,
        std::slice::from_ref(&left.web)
    );
    assert_eq!(
        corner.addresses_of("brought", 1).await?,
        std::slice::from_ref(&left.brought)
    );
    let told = config_maps.get("config").await?.data.unwrap_or_default();
    let told = told.get("config").context("no text")?;
    ensure!(told.contains(USERS), "{told}");
    ensure!(
        told.contains(&format!("{web}/32")) && told.contains(&format!("{brought}/32")),
        "{told}"
    );
    let node: Node = corner.nodes().get(&corner.node_name("n1")).await?;
    for (key, value) in ON_NODE {
        assert_eq!(annotation(&node, key), Some(value), "{key}");
    }
    let id = node.spec.unwrap_or_default().provider_id.unwrap_or_default();
    ensure!(id.starts_with("packet://"), "{id}");
    Ok(())
}

/// E50: packet-ccm's cluster: while its Deployment runs, groundplane plans and writes nothing; its lease alone keeps it waiting, too. When
/// it has stopped, everything becomes groundplane's where it is, and the user's own entries stay to the byte.
#[tokio::test]
async fn a_cluster_of_packet_ccm_is_taken_over_when_it_has_stopped() -> Result<()> {
    let api = KubeApi::start().await?;
    let corner = api.corner("packet").await?;
    let metallb = corner.another_namespace("metallb").await?;
    chart::grant_older(&corner.client(), "packet-cloud-config", &metallb).await?;
    deployment(&corner, "packet-cloud-controller-manager", 1).await?;
    let mark = api.mark().await?;
    let world = WorldOptions::equinix(CloudApi::Equinix.project_of_reservations())
        // As its documents have it: token and project, and nothing else. MetalLB is in this corner's own namespace.
        .older_json(json!({}))
        .env("GROUNDPLANE_CLOUD_CONFIG_OF", "packet-ccm")
        .gateway(&format!("  metallb: {{namespace: {metallb}}}\n"))
        .start_in(corner)
        .await?;
    let corner = &world.corner;
    let left = left_by_packet_ccm(&world, &metallb).await?;
    planned_while_it_runs(&world).await?;
    nothing_written(&api, &world, mark, 0).await?;

    // Its pods are gone, and somebody still renews its lease.
    deployment(corner, "packet-cloud-controller-manager", 0).await?;
    eventually("the holder of the lease is named", async || {
        renew(corner).await?;
        let (_, items, _) = plan(&world).await?;
        let rival = item(&items, "rivals", "cloud-controller-manager")?;
        ensure!(
            rival["found"].as_str().unwrap_or_default().contains("old-host_1"),
            "{rival}"
        );
        Ok(())
    })
    .await?;
    nothing_written(&api, &world, mark, 0).await?;

    // It stops: taken over, without a word from anybody.
    world.ready().await?;
    nothing_left(&world).await?;
    as_it_was(&world, &metallb, &left).await?;
    once_more(&world).await?;

    // It is started again: leadership ends.
    deployment(corner, "packet-cloud-controller-manager", 1).await?;
    plan_with(&world, "rivals", "packet-cloud-controller-manager", "BLOCKED").await?;
    nobody_leads(&world).await
}

/// Where nothing is left to do, doing it changes nothing.
async fn once_more(world: &World) -> Result<()> {
    let (id, ..) = plan(world).await?;
    let applied = world.ctl(&["takeover", "apply", "--plan", &id]).await?;
    assert_eq!(applied["outcomes"], json!([]));
    Ok(())
}

pub(crate) async fn it_leads(world: &World) -> Result<()> {
    eventually("it leads", async || {
        let overview = world.ctl(&["overview"]).await?;
        ensure!(overview["leader"] == true, "{overview}");
        Ok(())
    })
    .await
}

pub(crate) async fn nobody_leads(world: &World) -> Result<()> {
    eventually("nobody leads", async || {
        let overview = world.ctl(&["overview"]).await?;
        ensure!(overview["leader"] == false, "{overview}");
        Ok(())
    })
    .await
}

/// What today's controller of a cloud leaves: tags with the cluster's id, finalizer, its annotations. Nothing is written but what makes it
/// groundplane's, and its own stays.
async fn todays(cloud: CloudApi, scheme: &str, workload: &str) -> Result<()> {
    let api = KubeApi::start().await?;
    let corner = api.corner("today").await?;
    deployment(&corner, workload, 1).await?;
    let mark = api.mark().await?;
    let world = WorldOptions::on(cloud, cloud.project_of_reservations())
        .older_json(json!({ "loadbalancer": "kube-vip://" }))
        .start_in(corner)
        .await?;
    let (corner, project) = (&world.corner, world.project()?);
    let tags = |cluster: &str| {
        vec![
            cloud.usage().to_owned(),
            service_tag(corner, "web"),
            format!("cluster={cluster}"),
        ]
    };
    let web = add(project, tags(corner.cluster()))?;
    add(project, tags("another"))?;
    old_service(corner, "web", &web).await?;
    let (number, other) = (cloud.annotation("bgp-peers-7-peer-ip"), cloud.annotation("mine"));
    old_node(
        &world,
        cloud,
        scheme,
        &[(&number, "169.254.255.9"), (&other, "stays")],
    )
    .await?;
    let before = carried(project);
    let before_tags: Vec<Vec<String>> = project.reservations().into_iter().map(|one| one.tags).collect();
    plan_with(&world, "rivals", workload, "BLOCKED").await?;
    plan_with(&world, "services", "/web", "ADOPT").await?;
    let (_, items) = plan_with(&world, "reservations", "", "ADOPT").await?;
    let others: Vec<&Value> = items
        .iter()
        .filter(|item| {
            item["found"]
                .as_str()
                .unwrap_or_default()
                .contains("cluster another")
        })
        .collect();
    assert_eq!(others.len(), 1, "the other cluster's is listed: {items:#?}");
    assert_eq!(others[0]["action"], "LEAVE");
    nothing_written(&api, &world, mark, 0).await?;

    deployment(corner, workload, 0).await?;
    world.ready().await?;
    nothing_left(&world).await?;
    assert_eq!(carried(project), before, "reservations");
    let tags: Vec<Vec<String>> = project.reservations().into_iter().map(|one| one.tags).collect();
    assert_eq!(tags, before_tags);
    let sent = project.journal().writes(0);
    ensure!(sent.iter().all(|entry| entry.method != "DELETE"), "{sent:?}");
    let about_addresses: Vec<_> = sent.iter().filter(|entry| entry.route.contains("/ips")).collect();
    ensure!(about_addresses.is_empty(), "{about_addresses:?}");
    assert_eq!(corner.addresses_of("web", 1).await?, [web]);
    let node: Node = corner.nodes().get(&corner.node_name("n1")).await?;
    assert_eq!(annotation(&node, &other), Some("stays"));
    let id = node.spec.unwrap_or_default().provider_id.unwrap_or_default();
    ensure!(id.starts_with(scheme), "{id}");
    Ok(())
}

/// What Equinix Metal's controller left becomes groundplane's as it is.
#[tokio::test]
async fn a_cluster_of_equinix_metals_controller_is_taken_over_as_it_is() -> Result<()> {
    todays(CloudApi::Equinix, "equinixmetal://", METAL).await
}

/// E36, E90: the same of Cherry Servers' controller.
#[tokio::test]
async fn a_cluster_of_cherrys_controller_is_taken_over_as_it_is() -> Result<()> {
    todays(CloudApi::Cherry, "cherryservers://", "cloud-provider-cherry").await
}

/// E50: a reservation of which nothing but a name says that it is a Service's waits for a person's word, and is the Service's then.
#[tokio::test]
async fn what_only_a_name_speaks_for_is_given_by_apply() -> Result<()> {
    // The quota is spent, so that the Service has no other way.
    let options = ProjectOptions {
        quota: Some(0),
        ..CloudApi::Equinix.project_of_reservations()
    };
    let world = WorldOptions::equinix(options)
        .section("eip: {maxAge: 1s}\n")
        .start("word")
        .await?;
    let (corner, project) = (&world.corner, world.project()?);
    let old = vec!["usage=packet-ccm-auto".to_owned(), service_tag(corner, "web")];
    let address = add(project, old.clone())?;
    corner.add_service("web").await?;
    let (id, items) = plan_with(&world, "reservations", "", "ADOPT").await?;
    assert_eq!(item(&items, "reservations", "")?["needsApply"], true);
    assert_eq!(project.reservations()[0].tags, old, "before a word was said");
    let applied = world.ctl(&["takeover", "apply", "--plan", &id]).await?;
    assert_eq!(applied["outcomes"][0]["ok"], true, "{applied}");
    assert_eq!(corner.addresses_of("web", 1).await?, [address]);
    nothing_left(&world).await?;
    let again = world.ctl(&["takeover", "apply", "--plan", &id]).await;
    ensure!(format!("{again:?}").contains("the plan changed"), "{again:?}");
    Ok(())
}
