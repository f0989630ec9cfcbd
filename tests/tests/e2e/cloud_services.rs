//! Journey 1 on a cloud, whose tags are the truth; the same on every cloud.

use anyhow::{Context as _, Result, ensure};
use groundplane_sandbox::{Action, FaultRule, ProjectOptions, ReservationOptions};
use groundplane_tests::{CloudApi, Mode, WorldOptions, eventually};
use pretty_assertions::assert_eq;

use crate::announced::{condition, refusal};
use crate::clouds::on_each_cloud;

on_each_cloud! {
    an_elastic_ip_comes_and_goes[
        an_elastic_ip_comes_and_goes_in_one_process: One,
        an_elastic_ip_comes_and_goes_with_a_process_a_service: Services
    ],
    a_users_own_address_is_used_and_never_deleted,
    a_create_without_an_answer_is_found_again,
    a_spent_quota_is_said_and_overcome,
    the_cloud_may_be_away_and_lose_things,
    the_token_shows_nowhere,
}

/// E35, E40, E90: one elastic IP with the exact tags; status set; the deletion gives it back, and another Service keeps its own.
async fn an_elastic_ip_comes_and_goes(cloud: CloudApi, mode: Mode) -> Result<()> {
    let world = WorldOptions::on(cloud, cloud.project_of_reservations())
        .mode(mode)
        .start("elastic")
        .await?;
    let (corner, project) = (&world.corner, world.project()?);
    for name in ["web", "other"] {
        corner.add_service(name).await?;
        corner.addresses_of(name, 1).await?;
    }
    let posts = project.journal().calls(0, "POST", "/projects/{pid}/ips");
    assert_eq!(posts.len(), 2, "{posts:?}");
    for post in &posts {
        let tags = cloud.tags(post)?;
        let has = |wanted: &str| tags.iter().any(|tag| tag == wanted);
        ensure!(
            has(cloud.usage()) && has(&format!("cluster={}", corner.cluster())),
            "{tags:?}"
        );
        ensure!(
            tags.len() == 3 && tags.iter().any(|tag| tag.starts_with("service=")),
            "{tags:?}"
        );
    }
    let kept = corner.addresses_of("other", 1).await?.remove(0);
    corner.delete_service("web").await?;
    corner.service_gone("web").await?;
    let left = project.reservations();
    assert_eq!(left.len(), 1, "{left:?}");
    ensure!(format!("{left:?}").contains(&kept), "the wrong one was deleted");
    Ok(())
}

/// E39, E90: the user's own address: status set, nothing ordered; the deletion leaves it alone.
async fn a_users_own_address_is_used_and_never_deleted(cloud: CloudApi) -> Result<()> {
    let world = WorldOptions::on(cloud, cloud.project_of_reservations())
        .start("own")
        .await?;
    let (corner, project) = (&world.corner, world.project()?);
    let own = project.add_reservation(ReservationOptions::tagged(["mine"]));
    let address = own.address.context("it has no address")?.to_string();
    corner
        .create_service(corner.service_draft("web").load_balancer_ip(&address))
        .await?;
    assert_eq!(corner.addresses_of("web", 1).await?, [address]);
    corner.delete_service("web").await?;
    corner.service_gone("web").await?;
    assert_eq!(project.reservations().len(), 1);
    assert_eq!(project.journal().calls(0, "POST", "/projects/{pid}/ips").len(), 0);
    Ok(())
}

/// E41, E45, E90: a create whose answer is lost is found again by its tags; no second one is ordered.
async fn a_create_without_an_answer_is_found_again(cloud: CloudApi) -> Result<()> {
    let world = WorldOptions::on(cloud, cloud.project_of_reservations())
        .start("lost")
        .await?;
    let (corner, project) = (&world.corner, world.project()?);
    project.fault(FaultRule::on("POST", "/projects/{pid}/ips", Action::DropAfter).first(1));
    corner.add_service("web").await?;
    corner.addresses_of("web", 1).await?;
    assert_eq!(project.reservations().len(), 1);
    assert_eq!(project.journal().calls(0, "POST", "/projects/{pid}/ips").len(), 1);
    corner.delete_service("web").await?;
    corner.service_gone("web").await?;
    assert_eq!(project.reservations().len(), 0);
    Ok(())
}

/// E43, E90: a spent quota says so, and is not hammered; when it is raised, the Service gets its address.
async fn a_spent_quota_is_said_and_overcome(cloud: CloudApi) -> Result<()> {
    let options = ProjectOptions {
        quota: Some(0),
        ..cloud.project_of_reservations()
    };
    let world = WorldOptions::on(cloud, options).start("quota").await?;
    let (corner, project) = (&world.corner, world.project()?);
    let service = corner.add_service("web").await?;
    assert_eq!(
        corner.service_until("web", "says why", refusal).await?,
        "QuotaExceeded"
    );
    corner.event(&service, "SyncLoadBalancerFailed").await?;
    project.set_quota(Some(5));
    corner.addresses_of("web", 1).await?;
    Ok(())
}

/// S23, E87, E89, E90: an elastic IP that vanished is ordered again by the periodic resync; a cloud that is away at the start, or
/// hangs, costs time and nothing else.
async fn the_cloud_may_be_away_and_lose_things(cloud: CloudApi) -> Result<()> {
    let corner = groundplane_tests::KubeApi::shared().await?.corner("away").await?;
    corner.add_service("web").await?;
    let world = WorldOptions::on(cloud, cloud.project_of_reservations())
        .section("eip: {maxAge: 1s}\n")
        .start_in(corner)
        .await?;
    let (corner, project) = (&world.corner, world.project()?);
    let fault = FaultRule::new(Action::Hang).first(2);
    project.fault(fault);
    corner.addresses_of("web", 1).await?;
    let lost = project.reservations().remove(0);
    cloud.delete_reservation(project, &lost.id.to_string()).await?;
    eventually("it is ordered again", async || {
        ensure!(project.reservations().len() == 1, "there is none");
        Ok(())
    })
    .await?;
    let now = project
        .reservations()
        .remove(0)
        .address
        .context("it has no address")?
        .to_string();
    corner
        .service_until("web", "shows the new address", |service| {
            let shown = groundplane_tests::kube_api::ingress_of(service) == [now.clone()];
            condition(service)
                .filter(|condition| shown && condition.status == "True")
                .map(drop)
        })
        .await
}

/// E90: the token of the cloud is in its file and in the requests to the cloud, and nowhere else: not in the arguments or the
/// environment of the process, its log, its metrics, its readiness or its events.
async fn the_token_shows_nowhere(cloud: CloudApi) -> Result<()> {
    let mut world = WorldOptions::on(cloud, cloud.project_of_reservations())
        .env("GROUNDPLANE_LOG", "debug")
        .start("secret")
        .await?;
    let token = world.project()?.token().to_owned();
    let service = world.corner.add_service("web").await?;
    world.corner.addresses_of("web", 1).await?;
    // Refused from now on, so that the errors are looked at, too.
    let fault = FaultRule::new(Action::status(401));
    world.project()?.fault(fault);
    let refused = world.corner.add_service("refused").await?;
    world.corner.event(&refused, "SyncLoadBalancerFailed").await?;

    let pid = world.process("gateway")?.child()?.pid();
    let admin = world.process("gateway")?.address("admin").await?;
    let http = reqwest::Client::builder().no_proxy().build()?;
    let mut shown = vec![world.log_text()?];
    for page in ["metrics", "readyz"] {
        shown.push(
            http.get(format!("http://{admin}/{page}"))
                .send()
                .await?
                .text()
                .await?,
        );
    }
    for file in ["cmdline", "environ"] {
        shown.push(String::from_utf8_lossy(&std::fs::read(format!("/proc/{pid}/{file}"))?).into_owned());
    }
    for object in [&service, &refused] {
        shown.push(format!("{:?}", world.corner.events_of(object).await?));
    }
    for text in shown {
        ensure!(!text.is_empty(), "there is nothing to look at");
        ensure!(
            !text.contains(&token),
            "the token shows in {}",
            text.replace(&token, "<here>")
        );
    }
    Ok(())
}
