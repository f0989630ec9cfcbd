//! Elastic IPs that a person, a limit, an older controller or another one has a say in.

use anyhow::{Context as _, Result, ensure};
use groundplane_sandbox::ReservationOptions;
use groundplane_tests::kube_api::ingress_of;
use groundplane_tests::{CloudApi, WorldOptions, eventually};
use k8s_openapi::api::core::v1::Service;
use pretty_assertions::assert_eq;
use serde_json::json;

use crate::announced::{condition, refusal};
use crate::clouds::on_each_cloud;

on_each_cloud! {
    one_prefix_too_many_is_refused,
    to_an_inner_service_and_back_gives_another_address,
    what_is_anothers_is_left_alone,
}

/// E44: a reservation that waits for a person is said to, and used when it comes; no other is ordered. At Cherry Servers no person has a
/// say in an order.
#[tokio::test]
async fn a_reservation_that_waits_is_waited_for() -> Result<()> {
    let world = WorldOptions::equinix(CloudApi::Equinix.project_of_reservations())
        .section("eip: {maxAge: 1s}\n")
        .start("waits")
        .await?;
    let (corner, project) = (&world.corner, world.project()?);
    // A Service of this name, to learn its tags.
    corner.add_service("web").await?;
    corner.addresses_of("web", 1).await?;
    let tags = project.reservations().remove(0).tags;
    corner.delete_service("web").await?;
    corner.service_gone("web").await?;
    let waiting = project.add_reservation(ReservationOptions {
        pending: true,
        ..ReservationOptions::tagged(tags)
    });
    let mark = project.journal().mark();
    let service = corner.add_service("web").await?;
    assert_eq!(corner.service_until("web", "says why", refusal).await?, "Pending");
    corner.event(&service, "SyncLoadBalancerFailed").await?;
    project.approve(waiting.id);
    let given = project.reservation(waiting.id).and_then(|one| one.address);
    let given = given.context("it has no address")?.to_string();
    let looks = std::sync::atomic::AtomicUsize::new(0);
    eventually("it is used", async || {
        // Whatever changes has it looked at again: else it takes half a minute.
        let look = looks
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed)
            .to_string();
        let changed = json!({ "metadata": { "labels": { "look": look } } });
        let shown = ingress_of(&corner.edit_service("web", &changed).await?);
        ensure!(shown == [given.clone()], "{shown:?}");
        Ok(())
    })
    .await?;
    assert_eq!(
        project.journal().calls(mark, "POST", "/projects/{pid}/ips").len(),
        0
    );
    Ok(())
}

/// E52, E90: the Service that would be one prefix too many is refused, and comes when another goes.
async fn one_prefix_too_many_is_refused(cloud: CloudApi) -> Result<()> {
    let world = WorldOptions::on(cloud, cloud.project_of_reservations())
        .gateway("  maxPrefixes: 2\n")
        .start("prefixes")
        .await?;
    let (corner, project) = (&world.corner, world.project()?);
    for name in ["a", "b"] {
        corner.add_service(name).await?;
        corner.addresses_of(name, 1).await?;
    }
    let third = corner.add_service("c").await?;
    assert_eq!(
        corner.service_until("c", "is refused", refusal).await?,
        "PrefixLimit"
    );
    corner.event(&third, "SyncLoadBalancerFailed").await?;
    assert_eq!(project.reservations().len(), 2);
    corner.delete_service("a").await?;
    corner.service_gone("a").await?;
    corner.addresses_of("c", 1).await?;
    Ok(())
}

/// E50: what the oldest controller reserved, and wrote to the Service, is carried over: same address, today's tags, nothing ordered; and it
/// goes with the Service. E42: to `ClusterIP` and back, it gets another one, though the old one stood in its spec.
#[tokio::test]
async fn the_oldest_controllers_address_is_carried_over() -> Result<()> {
    let world = WorldOptions::equinix(CloudApi::Equinix.project_of_reservations())
        .start("packet")
        .await?;
    let (corner, project) = (&world.corner, world.project()?);
    // A Service of this name, to learn its tag.
    corner.add_service("web").await?;
    corner.addresses_of("web", 1).await?;
    let today = project.reservations().remove(0).tags;
    corner.delete_service("web").await?;
    corner.service_gone("web").await?;
    let old = ["usage=packet-ccm-auto".to_owned(), today[1].clone()];
    let left = project.add_reservation(ReservationOptions::tagged(old));
    let address = left.address.context("it has no address")?.to_string();
    let mark = project.journal().mark();
    corner
        .create_service(corner.service_draft("web").load_balancer_ip(&address))
        .await?;
    assert_eq!(
        corner.addresses_of("web", 1).await?,
        std::slice::from_ref(&address)
    );
    let now = project.reservation(left.id).context("it is gone")?.tags;
    assert_eq!(now, today);
    assert_eq!(
        project.journal().calls(mark, "POST", "/projects/{pid}/ips").len(),
        0
    );

    corner
        .edit_service("web", &json!({ "spec": { "type": "ClusterIP" } }))
        .await?;
    eventually("it is given back", async || {
        ensure!(project.reservations().is_empty(), "it is there");
        Ok(())
    })
    .await?;
    corner
        .service_until("web", "asks for nothing", |service| {
            let asks = service
                .spec
                .as_ref()
                .and_then(|spec| spec.load_balancer_ip.as_ref());
            asks.is_none().then_some(())
        })
        .await?;
    corner
        .edit_service("web", &json!({ "spec": { "type": "LoadBalancer" } }))
        .await?;
    corner.addresses_of("web", 1).await?;
    assert_eq!(
        project.journal().calls(mark, "POST", "/projects/{pid}/ips").len(),
        1
    );
    Ok(())
}

/// E42, E90: to `ClusterIP` and back, a Service gets another elastic IP: what we wrote into it ourselves is no wish of its owner.
async fn to_an_inner_service_and_back_gives_another_address(cloud: CloudApi) -> Result<()> {
    let world = WorldOptions::on(cloud, cloud.project_of_reservations())
        .gateway("  announcer: kube-vip\n")
        .start("back")
        .await?;
    let (corner, project) = (&world.corner, world.project()?);
    corner.add_service("web").await?;
    let asks = |service: &Service| service.spec.as_ref()?.load_balancer_ip.clone();
    let first = corner.service_until("web", "asks for its address", asks).await?;
    corner
        .edit_service("web", &json!({ "spec": { "type": "ClusterIP" } }))
        .await?;
    let asks_not = |service: &Service| asks(service).is_none().then_some(());
    corner.service_until("web", "asks for nothing", asks_not).await?;
    eventually("it is given back", async || {
        ensure!(project.reservations().is_empty(), "it is there");
        Ok(())
    })
    .await?;
    // Whoever is quick gets the old one.
    let other = project.add_reservation(ReservationOptions {
        address: Some(first.parse()?),
        ..ReservationOptions::tagged(["mine"])
    });
    corner
        .edit_service("web", &json!({ "spec": { "type": "LoadBalancer" } }))
        .await?;
    let second = corner.service_until("web", "asks for its address", asks).await?;
    ensure!(second != first, "{first} is somebody else's");
    assert_eq!(project.journal().calls(0, "POST", "/projects/{pid}/ips").len(), 2);
    ensure!(project.reservation(other.id).is_some(), "it is gone");
    Ok(())
}

/// E48, E49, E90: what is another's, by its class or by its word, gets nothing from us, and costs no call. At Cherry Servers, its word may
/// be that of the cloud's own controller.
async fn what_is_anothers_is_left_alone(cloud: CloudApi) -> Result<()> {
    let world = WorldOptions::on(cloud, cloud.project_of_reservations())
        .start("others")
        .await?;
    let (corner, project) = (&world.corner, world.project()?);
    corner
        .create_service(corner.service_draft("classed").class("example.com/other"))
        .await?;
    let theirs = cloud.annotation("loadbalancer-managed");
    let mut names = vec!["classed", "opted"];
    let mut words = vec![("opted", "groundplane.dev/managed")];
    if cloud == CloudApi::Cherry {
        names.push("opted-before");
        words.push(("opted-before", &theirs));
    }
    for (name, word) in words {
        let draft = corner.service_draft(name).annotation(word, "false");
        corner.create_service(draft).await?;
    }
    // Looked at after those.
    corner.add_service("ours").await?;
    corner.addresses_of("ours", 1).await?;
    for name in names {
        let service = corner
            .service_until(name, "is there", |service| Some(service.clone()))
            .await?;
        ensure!(condition(&service).is_none(), "{name} is told something");
        ensure!(service.metadata.finalizers.is_none(), "{name} has a finalizer");
    }
    assert_eq!(project.journal().calls(0, "POST", "/projects/{pid}/ips").len(), 1);
    Ok(())
}
