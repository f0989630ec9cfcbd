//! The harness itself, on a real API server.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use groundplane_tests::kube_api::{Audit, User, ingress_of};
use groundplane_tests::{KubeApi, eventually};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use pretty_assertions::assert_eq;
use serde_json::json;

#[tokio::test]
async fn a_service_gets_cluster_addresses_of_both_families() -> Result<()> {
    let corner = KubeApi::shared().await?.corner("dual-stack").await?;
    let service = corner
        .create_service(corner.service_draft("web").dual_stack())
        .await?;
    let spec = service.spec.context("no spec")?;
    let addresses = spec.cluster_ips.context("no addresses")?;
    assert!(
        addresses[0].starts_with("10.") && addresses[1].starts_with("fd00:10:96:"),
        "{addresses:?}"
    );
    assert_eq!(spec.ports.context("no ports")?[0].node_port, None);
    Ok(())
}

#[tokio::test]
async fn requests_are_counted_by_user_agent() -> Result<()> {
    let corner = KubeApi::shared().await?.corner("audit").await?;
    corner.create_service(corner.service_draft("web")).await?;
    let mark = corner.mark().await?;
    for agent in ["groundplane/1.2.3", "somebody-else"] {
        let client = corner.connection().client_as(User::Admin, agent)?;
        let services = Api::<Service>::namespaced(client, corner.namespace());
        services.list(&ListParams::default()).await?;
        let status = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } } });
        let written = services
            .patch_status("web", &PatchParams::default(), &Patch::Merge(&status))
            .await?;
        assert_eq!(ingress_of(&written), ["192.0.2.1"]);
        let twice = services
            .create(&PostParams::default(), &corner.service_draft("web").build())
            .await;
        assert!(twice.is_err(), "a name is taken once");
    }
    let all = corner.requests_since(mark).await?;
    let ours = all.clone().by_agent("groundplane/");
    let expected = [
        ("create services", 1),
        ("list services", 1),
        ("patch services/status", 1),
    ];
    assert_eq!(
        ours.summary(),
        expected.map(|(what, count)| (what.to_owned(), count)).into()
    );
    assert_eq!(all.counts()[&("somebody-else", "patch", "services/status")], 1);
    assert_eq!(all.by_agent("somebody-else").writes().count(), 2);
    let codes: Vec<_> = ours.requests().iter().map(|request| request.code).collect();
    assert_eq!(codes, [200, 200, 409]);
    assert_eq!(corner.requests_since(corner.mark().await?).await?.count(), 0);
    Ok(())
}

#[tokio::test]
async fn a_corner_sees_nothing_of_another() -> Result<()> {
    let api = KubeApi::shared().await?;
    let (one, other) = (api.corner("neighbour").await?, api.corner("neighbour").await?);
    let marks = (one.mark().await?, other.mark().await?);
    one.create_service(one.service_draft("web")).await?;
    one.create_node(one.node_draft("a")).await?;
    assert_eq!(other.requests_since(marks.1).await?.count(), 0);
    let seen: Audit = one.requests_since(marks.0).await?.writes();
    assert_eq!(seen.count(), 2, "{:?}", seen.requests());
    assert!(other.api::<Service>().get_opt("web").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn the_gateway_may_do_what_its_role_says_and_no_more() -> Result<()> {
    let api = KubeApi::shared().await?;
    let corner = api.corner("role").await?;
    // By the kubeconfig, as the program under test comes.
    let kubeconfig = kube::config::Kubeconfig::read_from(api.kubeconfig(User::Gateway))?;
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default()).await?;
    let services = Api::<Service>::namespaced(kube::Client::try_from(config)?, corner.namespace());
    let denied = services
        .list(&ListParams::default())
        .await
        .err()
        .context("it was allowed")?;
    assert!(denied.to_string().contains(&User::Gateway.name()), "{denied}");

    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": { "name": "lister" },
        "rules": [{ "apiGroups": [""], "resources": ["services"], "verbs": ["list"] }],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": { "name": "lister" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "lister" },
        "subjects": [{
            "kind": "ServiceAccount", "name": groundplane_tests::kube_api::GATEWAY_SERVICE_ACCOUNT,
            "namespace": groundplane_tests::kube_api::GATEWAY_NAMESPACE,
        }],
    });
    let post = PostParams::default();
    corner
        .api()
        .create(
            &post,
            &serde_json::from_value::<k8s_openapi::api::rbac::v1::Role>(role)?,
        )
        .await?;
    corner
        .api()
        .create(
            &post,
            &serde_json::from_value::<k8s_openapi::api::rbac::v1::RoleBinding>(binding)?,
        )
        .await?;
    // The authorizer learns of roles from a watch.
    eventually("the role is known", async || {
        Ok(services.list(&ListParams::default()).await?)
    })
    .await?;
    assert!(
        services
            .create(&post, &corner.service_draft("web").build())
            .await
            .is_err()
    );
    Ok(())
}

#[tokio::test]
async fn a_node_joins_fails_and_leaves_and_a_service_waits_for_its_finalizer() -> Result<()> {
    let corner = KubeApi::shared().await?.corner("objects").await?;
    let draft = corner
        .node_draft("a")
        .uninitialized()
        .address("InternalIP", "192.0.2.10")
        .padded(10_000);
    let node = corner.create_node(draft).await?;
    let status = node.status.clone().context("the status was dropped")?;
    assert_eq!(status.addresses.map(|addresses| addresses.len()), Some(2));
    assert!(serde_json::to_vec(&node)?.len() > 10_000);
    let ready = |node: &Node| {
        let conditions = node.status.as_ref()?.conditions.as_ref()?;
        conditions
            .iter()
            .find(|condition| condition.type_ == "Ready")
            .map(|condition| condition.status.clone())
    };
    assert_eq!(
        ready(&corner.set_ready("a", false).await?).as_deref(),
        Some("Unknown")
    );
    let silent = |node: &Node| ready(node).filter(|status| status == "Unknown");
    corner.node_until("a", "is not ready", silent).await?;
    assert!(corner.events_of(&node).await?.is_empty());
    corner.delete_node("a").await?;
    corner.node_gone("a").await?;

    corner
        .create_service(corner.service_draft("web").finalizer("example.com/hold"))
        .await?;
    corner.delete_service("web").await?;
    let deleted = |service: &Service| service.metadata.deletion_timestamp.clone();
    corner.service_until("web", "is being deleted", deleted).await?;
    corner.strip_finalizers("web").await?;
    corner.service_gone("web").await
}

#[tokio::test]
async fn an_api_of_ones_own_is_paused_stopped_and_started_with_its_data() -> Result<()> {
    let mut api = KubeApi::start().await?;
    let corner = api.corner("faults").await?;
    corner.create_service(corner.service_draft("web")).await?;
    let services = corner.api::<Service>();

    api.pause().await?;
    // The connection stands, and no answer comes. A second is a thousand times what a read takes.
    let silent = tokio::time::timeout(Duration::from_secs(1), services.get("web")).await;
    assert!(silent.is_err(), "a paused server has answered");
    api.resume()?;
    eventually("it answers again", async || Ok(services.get("web").await?)).await?;

    api.stop_api().await?;
    assert!(services.get("web").await.is_err());
    assert!(api.pause().await.is_err(), "there is nothing to pause");
    let address = api.address();
    api.start_api().await?;
    assert_eq!(api.address(), address);
    eventually("the Service is there still", async || {
        let service = services.get("web").await?;
        ensure!(
            service.spec.is_some_and(|spec| spec.cluster_ip.is_some()),
            "without its address"
        );
        Ok(())
    })
    .await?;
    assert!(api.resident_bytes()? > 100_000_000);
    Ok(())
}
