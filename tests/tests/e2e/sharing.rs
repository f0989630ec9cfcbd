//! Services that name one address.

use anyhow::{Context as _, Result, ensure};
use groundplane_sandbox::ReservationOptions;
use groundplane_tests::{CloudApi, WorldOptions};
use pretty_assertions::assert_eq;

use crate::announced::{condition, refusal};
use crate::clouds::on_each_cloud;

on_each_cloud! {
    what_services_share_goes_with_the_last,
    a_users_address_is_given_once,
}

const KEY: &str = "metallb.io/allow-shared-ip";

/// E90: two Services with one key have one elastic IP: one is ordered, it outlives the one that it was ordered for, and goes with the last.
async fn what_services_share_goes_with_the_last(cloud: CloudApi) -> Result<()> {
    let world = WorldOptions::on(cloud, cloud.project_of_reservations())
        .start("share")
        .await?;
    let (corner, project) = (&world.corner, world.project()?);
    corner
        .create_service(corner.service_draft("web").annotation(KEY, "k"))
        .await?;
    let shared = corner.addresses_of("web", 1).await?;
    let second = corner
        .service_draft("api")
        .annotation(KEY, "k")
        .load_balancer_ip(&shared[0])
        .spec(|spec| {
            for port in spec.ports.iter_mut().flatten() {
                port.port += 1;
            }
        });
    corner.create_service(second).await?;
    assert_eq!(corner.addresses_of("api", 1).await?, shared);
    let posts = || project.journal().calls(0, "POST", "/projects/{pid}/ips").len();
    assert_eq!((posts(), project.reservations().len()), (1, 1));
    corner.delete_service("web").await?;
    corner.service_gone("web").await?;
    assert_eq!(project.reservations().len(), 1, "it is in use");
    assert_eq!(corner.addresses_of("api", 1).await?, shared);
    corner.delete_service("api").await?;
    corner.service_gone("api").await?;
    assert_eq!((posts(), project.reservations().len()), (1, 0));
    Ok(())
}

/// E90: of two Services that name one address of the user's, the second is told whose it is, and gets it when that is gone.
async fn a_users_address_is_given_once(cloud: CloudApi) -> Result<()> {
    let world = WorldOptions::on(cloud, cloud.project_of_reservations())
        .start("once")
        .await?;
    let (corner, project) = (&world.corner, world.project()?);
    let own = project.add_reservation(ReservationOptions::tagged(["mine"]));
    let address = own.address.context("it has no address")?.to_string();
    let draft = |name: &str| corner.service_draft(name).load_balancer_ip(&address);
    corner.create_service(draft("web")).await?;
    corner.addresses_of("web", 1).await?;
    corner.create_service(draft("api")).await?;
    let why = corner.service_until("api", "is refused", refusal).await?;
    assert_eq!(why, "AddressInUse");
    let told = corner.service_until("api", "says whose it is", condition).await?;
    ensure!(
        told.message.contains(&format!("{}/web", corner.namespace())),
        "{}",
        told.message
    );
    corner.delete_service("web").await?;
    corner.service_gone("web").await?;
    assert_eq!(corner.addresses_of("api", 1).await?, [address]);
    Ok(())
}
