//! The external Service of the API endpoint beside others who serve load balancers: the real MetalLB, and our own controller.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use groundplane_core::older;
use groundplane_sandbox::{ProjectOptions, ReservationOptions};
use groundplane_tests::kube_api::{ServiceDraft, ingress_of};
use groundplane_tests::metallb::{self, Metallb, create};
use groundplane_tests::{CloudApi, KubeApi, WorldOptions, eventually, throughout};
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::DeleteParams;
use pretty_assertions::assert_eq;
use serde_json::json;

use crate::endpoint::{TAG, add_slice, grant, leave_behind, older};

/// Does it say our address, and nothing of MetalLB's?
fn ours(service: &Service, endpoint: &str) -> Result<()> {
    ensure!(ingress_of(service) == [endpoint], "{:?}", service.status);
    let annotations = service.metadata.annotations.iter().flatten();
    let theirs: Vec<_> = annotations
        .filter(|(key, _)| key.contains("allocated-from-pool"))
        .collect();
    ensure!(theirs.is_empty(), "{theirs:?}");
    let class = service
        .spec
        .as_ref()
        .and_then(|spec| spec.load_balancer_class.as_deref());
    ensure!(class == Some("groundplane.dev/endpoint"), "{class:?}");
    Ok(())
}

/// E77: the real MetalLB, as it runs by default (it serves every Service that has no class, from a pool that gives addresses by itself),
/// leaves the external Service alone: one that an older controller left, whose status it clears until we take that over, and a new one.
#[tokio::test]
async fn the_real_metallb_does_not_claim_it() -> Result<()> {
    let api = KubeApi::start().await?;
    let corner = api.corner("company").await?;
    let client = corner.client();
    metallb::install(&client).await?;
    let metallb_namespace = corner.another_namespace("metallb").await?;
    let pool = json!({ "addresses": ["192.0.2.128/26"], "autoAssign": true });
    create(
        &corner,
        &metallb_namespace,
        "IPAddressPool",
        "all",
        json!({}),
        pool,
    )
    .await?;
    let metallb = Metallb::controller_of_all(&corner, &metallb_namespace).await?;

    let cloud = CloudApi::Equinix;
    let (manager, name) = older(cloud);
    let namespace = corner.namespace().to_owned();
    grant(&client, &format!("{namespace}/{name}")).await?;
    add_slice(&client, "apis", "kubernetes", "10.0.0.8", 7443).await?;
    let services: Api<Service> = Api::namespaced(client.clone(), &namespace);
    leave_behind(&client, &namespace, (manager, name), "198.51.100.77").await?;
    // MetalLB is at work: it serves what has no class, and clears what is of no pool of its own.
    let elsewhere = corner.another_namespace("others").await?;
    corner
        .create_service(ServiceDraft::new(&elsewhere, "web"))
        .await?;
    let others: Api<Service> = Api::namespaced(client.clone(), &elsewhere);
    eventually(
        "MetalLB serves another Service, and clears the one that was left",
        async || {
            let given = ingress_of(&others.get("web").await?);
            ensure!(given.len() == 1 && given[0].starts_with("192.0.2."), "{given:?}");
            let left = ingress_of(&services.get(name).await?);
            ensure!(left.is_empty(), "{left:?}");
            Ok(())
        },
    )
    .await
    .with_context(|| metallb.log_tail())?;

    let section = format!("endpoint: {{tag: {TAG}, service: \"{namespace}/{name}\"}}\n");
    let options = WorldOptions::on(cloud, ProjectOptions::default()).section(&section);
    let world = options.start_in(corner).await?;
    world.ready().await?;
    let reservation = world
        .project()?
        .add_reservation(ReservationOptions::tagged([TAG]));
    let endpoint = reservation.address.context("it has no address")?.to_string();
    for step in ["the one that was left is ours", "a new one is ours"] {
        let look = async || ours(&services.get(name).await?, &endpoint);
        eventually(step, look).await?;
        throughout(Duration::from_secs(3), step, look).await?;
        services.delete(name, &DeleteParams::default()).await?;
    }
    Ok(())
}

/// E77: the external Services of older controllers, of whatever generation, are not load balancers that somebody wants: no elastic IP is
/// ordered for them, where no endpoint is configured either.
#[tokio::test]
async fn external_services_of_older_controllers_get_no_address() -> Result<()> {
    let corner = KubeApi::shared().await?.corner("generations").await?;
    let class = corner.class();
    let options = WorldOptions::equinix(ProjectOptions::default())
        .namespace(older::NAMESPACE)
        .gateway(&format!(
            "  loadBalancerClass: {class}\n  claimClassless: false\n"
        ));
    let world = options.start_in(corner).await?;
    world.ready().await?;
    let corner = &world.corner;
    let names: Vec<&str> = older::external_services().collect();
    assert_eq!(names.len(), 4);
    let other = corner.node_name("web");
    for name in names.iter().copied().chain([other.as_str()]) {
        let draft = ServiceDraft::new(older::NAMESPACE, name).class(&class);
        corner.create_service(draft).await?;
    }
    let services: Api<Service> = Api::namespaced(corner.client(), older::NAMESPACE);
    eventually("another Service beside them has an address", async || {
        let given = ingress_of(&services.get(&other).await?);
        ensure!(given.len() == 1, "{given:?}");
        Ok(())
    })
    .await?;
    throughout(Duration::from_secs(2), "they have none", async || {
        for name in &names {
            let service = services.get(name).await?;
            ensure!(ingress_of(&service).is_empty(), "{name}: {:?}", service.status);
            let finalizers = service.metadata.finalizers;
            ensure!(finalizers.is_none(), "{name}: {finalizers:?}");
        }
        let reservations = world.project()?.reservations();
        ensure!(reservations.len() == 1, "{reservations:?}");
        Ok(())
    })
    .await?;
    for name in names.iter().copied().chain([other.as_str()]) {
        services.delete(name, &DeleteParams::default()).await?;
    }
    Ok(())
}
