//! The external Service of the API endpoint, on a real API server. What agents do is in `failover`.

use anyhow::{Context as _, Result, ensure};
use groundplane_sandbox::ReservationOptions;
use groundplane_tests::kube_api::KubeApi;
use groundplane_tests::{CloudApi, WorldOptions, chart, eventually};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use pretty_assertions::assert_eq;
use serde_json::json;
use tokio::sync::Mutex;

use crate::clouds::on_each_cloud;

on_each_cloud! {
    the_external_service_leads_to_the_api_servers_alone,
    an_external_service_of_the_older_controller_is_taken_over,
}

/// The slices of `default/kubernetes` are all tests' own: who adds some has them alone, and removes them again.
static SLICES: Mutex<()> = Mutex::const_new(());

/// The endpoint's tag.
pub(crate) const TAG: &str = "api=the-api";

/// Gives the gateway what the chart gives it where an endpoint is configured.
pub(crate) async fn grant(client: &Client, service: &str) -> Result<()> {
    let service = format!("config.endpoint.service={service}");
    let objects = chart::render(&["--set", "config.endpoint.tag=x", "--set", &service]).await?;
    let apply = PatchParams::apply("chart").force();
    for role in chart::of_kind::<Role>(&objects)? {
        let name = role.metadata.name.clone().context("no name")?;
        if name.ends_with("-endpoint") {
            let namespace = role.metadata.namespace.clone().context("no namespace")?;
            let api: Api<Role> = Api::namespaced(client.clone(), &namespace);
            api.patch(&name, &apply, &Patch::Apply(&role)).await?;
        }
    }
    for binding in chart::of_kind::<RoleBinding>(&objects)? {
        let name = binding.metadata.name.clone().context("no name")?;
        if name.ends_with("-endpoint") {
            let namespace = binding.metadata.namespace.clone().context("no namespace")?;
            let api: Api<RoleBinding> = Api::namespaced(client.clone(), &namespace);
            api.patch(&name, &apply, &Patch::Apply(&binding)).await?;
        }
    }
    Ok(())
}

/// A slice of a Service in `default`. The API server of the tests publishes none of its own, since it listens on loopback.
pub(crate) async fn add_slice(
    client: &Client,
    name: &str,
    service: &str,
    address: &str,
    port: u16,
) -> Result<()> {
    let api: Api<EndpointSlice> = Api::namespaced(client.clone(), "default");
    let slice = serde_json::from_value(json!({
        "metadata": { "name": name, "labels": { "kubernetes.io/service-name": service } },
        "addressType": "IPv4",
        "endpoints": [{ "addresses": [address], "conditions": { "ready": true } }],
        "ports": [{ "name": "https", "port": port }],
    }))?;
    api.create(&PostParams::default(), &slice).await?;
    Ok(())
}

/// E74, E75, E77, E90: the Service has the endpoint's own port in front and the API server's behind, a class that nobody serves, and a slice
/// with the API servers of `default/kubernetes` and nobody else's. Written once; our own Service controller leaves it alone.
async fn the_external_service_leads_to_the_api_servers_alone(cloud: CloudApi) -> Result<()> {
    let _alone = SLICES.lock().await;
    let corner = KubeApi::shared().await?.corner("external").await?;
    let client = corner.client();
    let namespace = corner.namespace().to_owned();
    grant(&client, &format!("{namespace}/external")).await?;
    // Two slices of default/kubernetes, and another Service's beside them, which must not count.
    let beside: Api<EndpointSlice> = Api::namespaced(client.clone(), "default");
    let names = ["one", "two", "other"].map(|suffix| corner.node_name(suffix));
    add_slice(&client, &names[0], "kubernetes", "10.0.0.1", 7443).await?;
    add_slice(&client, &names[1], "kubernetes", "10.0.0.2", 7443).await?;
    add_slice(&client, &names[2], "other", "10.9.9.9", 9999).await?;
    let section = format!("endpoint: {{tag: {TAG}, port: 443, service: \"{namespace}/external\"}}\n");
    let options = WorldOptions::on(cloud, cloud.project()).section(&section);
    let world = options.start_in(corner).await?;
    world.ready().await?;
    let reservation = world
        .project()?
        .add_reservation(ReservationOptions::tagged([TAG]));
    let endpoint = reservation.address.context("it has no address")?.to_string();
    let services: Api<Service> = Api::namespaced(client.clone(), &namespace);
    let service = eventually("the external Service has its address", async || {
        let service = services.get("external").await?;
        let ingress = service
            .status
            .as_ref()
            .and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref()?.first());
        ensure!(
            ingress.and_then(|ingress| ingress.ip.as_ref()) == Some(&endpoint),
            "{service:?}"
        );
        ensure!(
            ingress.and_then(|ingress| ingress.ip_mode.as_deref()) == Some("Proxy"),
            "{service:?}"
        );
        Ok(service)
    })
    .await?;
    let spec = service.spec.context("no spec")?;
    assert_eq!(
        spec.load_balancer_class.as_deref(),
        Some("groundplane.dev/endpoint")
    );
    assert_eq!(spec.selector, None);
    let shown = spec.ports.context("no ports")?;
    assert_eq!(shown.len(), 1);
    assert_eq!((shown[0].port, shown[0].node_port), (443, None));
    assert_eq!(serde_json::to_value(&shown[0].target_port)?, json!(7443));
    assert_eq!(
        service.metadata.finalizers, None,
        "our own controller has taken it"
    );
    let annotations = service.metadata.annotations.context("no annotations")?;
    for (key, value) in GUARDS {
        assert_eq!(annotations.get(key).map(String::as_str), Some(value), "{key}");
    }
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), &namespace);
    let mine = ListParams::default().labels("kubernetes.io/service-name=external");
    let slice = eventually("its slice is there", async || {
        let mut found = slices.list(&mine).await?.items;
        ensure!(found.len() == 1, "{found:?}");
        Ok(found.remove(0))
    })
    .await?;
    let addresses: Vec<String> = slice
        .endpoints
        .iter()
        .flat_map(|endpoint| endpoint.addresses.clone())
        .collect();
    assert_eq!(addresses, ["10.0.0.1", "10.0.0.2"]);
    assert_eq!(
        slice.ports.iter().flatten().next().and_then(|shown| shown.port),
        Some(7443)
    );

    // Somebody deletes it: it is put right, and then left alone.
    let name = slice.metadata.name.context("no name")?;
    slices.delete(&name, &DeleteParams::default()).await?;
    let again = eventually("it is there again", async || Ok(slices.get(&name).await?)).await?;
    let before = services.get("external").await?.metadata.resource_version;
    groundplane_tests::throughout(
        std::time::Duration::from_secs(3),
        "nothing is written where nothing changes",
        async || {
            let slice = slices.get(&name).await?.metadata.resource_version;
            let service = services.get("external").await?.metadata.resource_version;
            ensure!(slice == again.metadata.resource_version, "the slice was written");
            ensure!(service == before, "the Service was written");
            Ok(())
        },
    )
    .await?;
    for name in names {
        beside.delete(&name, &DeleteParams::default()).await?;
    }
    Ok(())
}

/// What keeps those off the external Service who do not look at its class.
const GUARDS: [(&str, &str); 4] = [
    ("groundplane.dev/managed", "false"),
    ("kube-vip.io/ignore", "true"),
    (
        "metallb.io/address-pool",
        "disabled-metallb-do-not-use-any-address-pool",
    ),
    (
        "metallb.universe.tf/address-pool",
        "disabled-metallb-do-not-use-any-address-pool",
    ),
];

/// The field manager of the cloud's own controller, and what it calls the Service.
pub(crate) fn older(cloud: CloudApi) -> (&'static str, &'static str) {
    match cloud {
        CloudApi::Equinix => (
            "cloud-provider-equinix-metal-auto",
            "cloud-provider-equinix-metal-kubernetes-external",
        ),
        CloudApi::Cherry => (
            "cloud-provider-cherry-auto",
            "cloud-provider-cherry-kubernetes-external",
        ),
    }
}

/// What the cloud's own controller has left: the Service with its status, a slice, and the `Endpoints` object of its earlier versions.
pub(crate) async fn leave_behind(
    client: &Client,
    namespace: &str,
    (manager, name): (&str, &str),
    endpoint: &str,
) -> Result<Service> {
    let old = PatchParams::apply(manager).force();
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let pool = json!({ "metallb.universe.tf/address-pool": "disabled-metallb-do-not-use-any-address-pool" });
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": name, "annotations": pool },
        "spec": {
            "type": "LoadBalancer",
            "loadBalancerIP": endpoint,
            "ports": [{ "name": "https", "protocol": "TCP", "port": 443, "targetPort": 6443 }],
        },
    });
    let made = services.patch(name, &old, &Patch::Apply(&service)).await?;
    let status = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": name },
        "status": { "loadBalancer": { "ingress": [{ "ip": endpoint }] } },
    });
    services.patch_status(name, &old, &Patch::Apply(&status)).await?;
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": { "name": name, "labels": { "kubernetes.io/service-name": name } },
        "addressType": "IPv4",
        "endpoints": [{ "addresses": ["10.7.7.7"], "conditions": { "ready": true } }],
        "ports": [{ "name": "https", "port": 6443, "protocol": "TCP" }],
    });
    slices.patch(name, &old, &Patch::Apply(&slice)).await?;
    Ok(made)
}

/// E74, E75, E77, E90: the external Service of the cloud's own controller, under its own name, is taken over as it is: it keeps its UID and
/// its cluster address and what people wrote, has the right port alone, which follows `default/kubernetes` where nobody says another, and
/// its old slice goes once ours is there.
async fn an_external_service_of_the_older_controller_is_taken_over(cloud: CloudApi) -> Result<()> {
    let _alone = SLICES.lock().await;
    let corner = KubeApi::shared().await?.corner("left").await?;
    let client = corner.client();
    let namespace = corner.namespace().to_owned();
    let (manager, name) = older(cloud);
    grant(&client, &format!("{namespace}/{name}")).await?;
    let beside: Api<EndpointSlice> = Api::namespaced(client.clone(), "default");
    let listed = corner.node_name("left");
    add_slice(&client, &listed, "kubernetes", "10.0.0.8", 7443).await?;
    let services: Api<Service> = Api::namespaced(client.clone(), &namespace);
    let section = format!("endpoint: {{tag: {TAG}, service: \"{namespace}/{name}\"}}\n");
    let options = WorldOptions::on(cloud, cloud.project()).section(&section);
    let before = leave_behind(&client, &namespace, (manager, name), "198.51.100.77").await?;
    let note = json!({ "metadata": { "annotations": { "example.com/note": "mine" } } });
    services
        .patch(name, &PatchParams::default(), &Patch::Merge(&note))
        .await?;
    let world = options.start_in(corner).await?;
    world.ready().await?;
    let reservation = world
        .project()?
        .add_reservation(ReservationOptions::tagged([TAG]));
    let endpoint = reservation.address.context("it has no address")?.to_string();
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), &namespace);
    let mine = ListParams::default().labels(&format!("kubernetes.io/service-name={name}"));
    let after = eventually("it is taken over", async || {
        let service = services.get(name).await?;
        let status = service
            .status
            .as_ref()
            .and_then(|status| status.load_balancer.as_ref());
        let ingress = status.and_then(|status| status.ingress.as_ref()?.first());
        ensure!(
            ingress.and_then(|ingress| ingress.ip.as_ref()) == Some(&endpoint),
            "{service:?}"
        );
        let found = slices.list(&mine).await?.items;
        let addresses = found.iter().flat_map(|slice| slice.endpoints.iter());
        let addresses: Vec<_> = addresses.flat_map(|one| one.addresses.iter()).collect();
        ensure!(
            !addresses.iter().any(|address| *address == "10.7.7.7"),
            "{found:?}"
        );
        ensure!(
            addresses.iter().any(|address| *address == "10.0.0.8"),
            "{found:?}"
        );
        Ok(service)
    })
    .await?;
    assert_eq!(after.metadata.uid, before.metadata.uid);
    let managers: Vec<_> = after.metadata.managed_fields.iter().flatten().collect();
    assert!(
        managers
            .iter()
            .all(|entry| entry.manager.as_deref() != Some(manager)),
        "{managers:?}"
    );
    let annotations = after.metadata.annotations.context("no annotations")?;
    assert_eq!(
        annotations.get("example.com/note").map(String::as_str),
        Some("mine")
    );
    for (key, value) in GUARDS {
        assert_eq!(annotations.get(key).map(String::as_str), Some(value), "{key}");
    }
    let (spec, old) = (after.spec.context("no spec")?, before.spec.context("no spec")?);
    assert_eq!(spec.cluster_ip, old.cluster_ip);
    assert_eq!(spec.load_balancer_ip, None);
    assert_eq!(
        spec.load_balancer_class, None,
        "nodes would forget its address for as long as it takes to give it one"
    );
    let ports: Vec<_> = spec.ports.iter().flatten().map(|port| port.port).collect();
    assert_eq!(ports, [7443], "not the 443 of before");
    assert_eq!(after.metadata.finalizers, None, "our own controller has taken it");
    let moved = json!({ "ports": [{ "name": "https", "port": 8443 }] });
    beside
        .patch(&listed, &PatchParams::default(), &Patch::Merge(&moved))
        .await?;
    eventually("the port follows", async || {
        let spec = services.get(name).await?.spec.context("no spec")?;
        let ports = spec.ports.unwrap_or_default();
        let target = ports.first().map(|port| serde_json::to_value(&port.target_port));
        ensure!(
            ports.len() == 1 && ports[0].port == 8443 && target.transpose()? == Some(json!(8443)),
            "{ports:?}"
        );
        Ok(())
    })
    .await?;
    beside.delete(&listed, &DeleteParams::default()).await?;
    Ok(())
}
