//! Chapter two: the same on a cloud, where reservations and BGP sessions appear, too.

use anyhow::{Context as _, Result, ensure};
use groundplane_sandbox::{DeviceOptions, ProjectOptions};
use k8s_openapi::api::core::v1::Node;

use crate::demo::fixed::{initialised, serve};
use crate::demo::story::Story;
use crate::eventually;
use crate::world::{World, WorldOptions};

/// Tells it, and returns the world that is left behind.
pub(super) async fn tell(story: &mut Story) -> Option<World> {
    let mut started = None;
    story
        .step("`groundplane all` starts on a project of the cloud", async || {
            let project = ProjectOptions {
                list_machine_blocks: false,
                ..ProjectOptions::default()
            };
            started = Some(WorldOptions::equinix(project).start("demo-cloud").await?);
            Ok("ready")
        })
        .await?;
    let mut world = started?;
    machines(story, &world).await;
    addresses(story, &world).await;
    crash(story, &mut world).await;
    Some(world)
}

async fn machines(story: &mut Story, world: &World) {
    story
        .step("three machines join", async || {
            for suffix in ["a", "b", "c"] {
                world
                    .project()?
                    .add_device(DeviceOptions::named(world.corner.node_name(suffix)));
                world
                    .corner
                    .create_node(world.corner.node_draft(suffix).uninitialized())
                    .await?;
            }
            let mut last = None;
            for suffix in ["a", "b", "c"] {
                last = Some(initialised(world, suffix).await?);
            }
            let id = last.and_then(|node| node.spec).and_then(|spec| spec.provider_id);
            Ok(format!(
                "nodes with provider ids, the last is {}",
                id.context("no provider id")?
            ))
        })
        .await;
    story
        .step("BGP is on, and each node says with whom it peers", async || {
            for suffix in ["a", "b", "c"] {
                let peer = |node: &Node| {
                    node.metadata
                        .annotations
                        .as_ref()?
                        .get("metal.equinix.com/bgp-peers-1-peer-ip")
                        .cloned()
                };
                world.corner.node_until(suffix, "has both peers", peer).await?;
            }
            let sessions = world.project()?.sessions().len();
            ensure!(sessions >= 3, "there are {sessions} sessions");
            Ok(format!("{sessions} sessions in the cloud"))
        })
        .await;
}

async fn addresses(story: &mut Story, world: &World) {
    story
        .step("a Service gets an elastic IP", async || {
            serve(world, world.corner.service_draft("web"), 1).await
        })
        .await;
    story
        .step("the reservation carries our tags", async || {
            let reservation = world
                .project()?
                .reservations()
                .into_iter()
                .next()
                .context("no reservation")?;
            let tags = reservation.tags.join(" ");
            ensure!(
                tags.contains("cloud-provider-equinix-metal-auto"),
                "its tags are {tags}"
            );
            Ok(tags)
        })
        .await;
}

async fn crash(story: &mut Story, world: &mut World) {
    story
        .step(
            "kill -9 in the middle of ten Services, and a restart",
            async || {
                for n in 0..10 {
                    world
                        .corner
                        .create_service(world.corner.service_draft(&format!("crowd-{n}")))
                        .await?;
                    if n == 5 {
                        world.kill_and_restart().await?;
                    }
                }
                for n in 0..10 {
                    world.corner.addresses_of(&format!("crowd-{n}"), 1).await?;
                }
                let reserved = world.project()?.reservations().len();
                ensure!(reserved == 11, "{reserved} elastic IPs for 11 Services");
                Ok("eleven Services, eleven elastic IPs")
            },
        )
        .await;
    story
        .step("every Service is deleted: the elastic IPs go back", async || {
            let names: Vec<String> = (0..10)
                .map(|n| format!("crowd-{n}"))
                .chain(["web".to_owned()])
                .collect();
            for name in &names {
                world.corner.delete_service(name).await?;
            }
            for name in &names {
                world.corner.service_gone(name).await?;
            }
            returned(world).await
        })
        .await;
}

async fn returned(world: &World) -> Result<&'static str> {
    eventually("no elastic IP is left", async || {
        let left = world.project()?.reservations().len();
        ensure!(left == 0, "{left} are left");
        Ok("none is left")
    })
    .await
}
