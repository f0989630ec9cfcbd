//! Chapter one: nodes, Services and a crash, with addresses from configured ranges.

use anyhow::{Context as _, Result, ensure};
use groundplane_core::names::{CONDITION_ADDRESS, TAINT_UNINITIALIZED};
use k8s_openapi::api::core::v1::{Node, Service};

use crate::demo::story::Story;
use crate::eventually;
use crate::world::{World, WorldOptions};

/// Waits until a node has lost the taint by which it waits for its cloud.
pub(super) async fn initialised(world: &World, suffix: &str) -> Result<Node> {
    let free = |node: &Node| {
        let taints = node
            .spec
            .as_ref()
            .and_then(|spec| spec.taints.as_deref())
            .unwrap_or_default();
        (!taints.iter().any(|taint| taint.key == TAINT_UNINITIALIZED)).then(|| node.clone())
    };
    world.corner.node_until(suffix, "is initialised", free).await
}

/// Creates a Service and waits for its addresses.
pub(super) async fn serve(
    world: &World,
    draft: crate::kube_api::ServiceDraft,
    count: usize,
) -> Result<String> {
    let service = world.corner.create_service(draft).await?;
    let name = service.metadata.name.context("a Service without a name")?;
    Ok(world.corner.addresses_of(&name, count).await?.join(" and "))
}

/// The condition's reason and message of a Service that is refused its address.
fn refusal(service: &Service) -> Option<String> {
    let conditions = service.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions
        .iter()
        .find(|condition| condition.type_ == CONDITION_ADDRESS)?;
    (condition.status == "False").then(|| format!("{}: {}", condition.reason, condition.message))
}

/// Tells it, and returns the world that is left behind.
pub(super) async fn tell(story: &mut Story) -> Option<World> {
    let mut started = None;
    story
        .step("`groundplane all` starts", async || {
            started = Some(WorldOptions::fixed().start("demo").await?);
            Ok("ready")
        })
        .await?;
    let mut world = started?;
    nodes(story, &world).await;
    services(story, &world).await;
    deletion(story, &world).await;
    crash(story, &mut world).await;
    Some(world)
}

async fn nodes(story: &mut Story, world: &World) {
    story
        .step("three machines join", async || {
            for suffix in ["a", "b", "c"] {
                let draft = world
                    .corner
                    .node_draft(suffix)
                    .uninitialized()
                    .address("InternalIP", "10.0.0.5");
                world.corner.create_node(draft).await?;
            }
            for suffix in ["a", "b", "c"] {
                initialised(world, suffix).await?;
            }
            Ok("their nodes lost the uninitialized taint")
        })
        .await;
}

async fn services(story: &mut Story, world: &World) {
    let corner = &world.corner;
    let draft = |name: &str| corner.service_draft(name);
    story
        .step("a Service gets an address", async || {
            serve(world, draft("web"), 1).await
        })
        .await;
    story
        .step("a dual-stack Service gets two", async || {
            serve(world, draft("dual").dual_stack(), 2).await
        })
        .await;
    story
        .step("a Service gets the address it asks for", async || {
            let address = serve(world, draft("wish").requesting("192.0.2.42"), 1).await?;
            ensure!(address == "192.0.2.42", "it got {address}");
            Ok(address)
        })
        .await;
    story
        .step("an address that is taken: the Service says so", async || {
            corner
                .create_service(draft("late").requesting("192.0.2.42"))
                .await?;
            corner.service_until("late", "says why", refusal).await
        })
        .await;
}

async fn deletion(story: &mut Story, world: &World) {
    story
        .step(
            "a Service is deleted: its address returns to the pool",
            async || {
                world.corner.delete_service("web").await?;
                world.corner.service_gone("web").await?;
                let pools = world.ctl(&["pools"]).await?;
                ensure!(pools[0]["cooling"] == 1, "{pools}");
                Ok("it cools down before anybody else gets it")
            },
        )
        .await;
}

/// Kills groundplane with -9 while it works, starts it again, and compares.
async fn crash(story: &mut Story, world: &mut World) {
    let names: Vec<String> = (0..20).map(|n| format!("crowd-{n}")).collect();
    let kept = ["dual", "wish"];
    story
        .step(
            "kill -9 in the middle of twenty Services, and a restart",
            async || {
                let mut before = Vec::new();
                for name in kept {
                    before.push(
                        world
                            .corner
                            .service_until(name, "is there", |s| Some(crate::kube_api::ingress_of(s)))
                            .await?,
                    );
                }
                for (n, name) in names.iter().enumerate() {
                    world
                        .corner
                        .create_service(world.corner.service_draft(name))
                        .await?;
                    if n == names.len() / 2 {
                        world.kill_and_restart().await?;
                    }
                }
                let mut seen = std::collections::BTreeSet::new();
                for name in &names {
                    let address = world.corner.addresses_of(name, 1).await?.remove(0);
                    ensure!(seen.insert(address.clone()), "{address} was given twice");
                }
                for (name, before) in kept.iter().zip(before) {
                    let after = world
                        .corner
                        .service_until(name, "is there", |s| Some(crate::kube_api::ingress_of(s)))
                        .await?;
                    ensure!(before == after, "{name} had {before:?} and has {after:?}");
                }
                Ok("everybody kept their address, nobody shares one")
            },
        )
        .await;
    story
        .step("`groundplane ctl addresses` agrees", async || {
            eventually("as many addresses are held as Services show", async || {
                let held = world.ctl(&["addresses"]).await?;
                let count = held.as_array().map_or(0, Vec::len);
                ensure!(count == names.len() + 3, "{count} are held");
                Ok(format!("{count} held"))
            })
            .await
        })
        .await;
}
