//! What only a person's word does in a takeover: cut short, asked of the wrong replica, and as the guides tell it.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use groundplane_sandbox::{DeviceOptions, ProjectOptions};
use groundplane_tests::groundplane::{Process, program};
use groundplane_tests::{CloudApi, Mode, World, WorldOptions, eventually};
use k8s_openapi::api::core::v1::Node;
use pretty_assertions::assert_eq;
use serde_json::Value;

use crate::announced::annotation;
use crate::takeover::{add, carried, it_leads, item, nothing_left, plan, plan_with, service_tag};

/// How long a process may take until it reaches its fail point.
const PATIENCE: Duration = Duration::from_secs(60);

/// A project without any quota left, so that a Service has no other way to an address than by a person's word.
fn spent() -> ProjectOptions {
    ProjectOptions {
        quota: Some(0),
        ..CloudApi::Equinix.project_of_reservations()
    }
}

/// A Service, and a reservation of the oldest controller's of which nothing but its name says that it is the Service's; its address.
async fn by_name_alone(world: &World, name: &str) -> Result<String> {
    let tags = vec![
        "usage=packet-ccm-auto".to_owned(),
        service_tag(&world.corner, name),
    ];
    let address = add(world.project()?, tags)?;
    world.corner.add_service(name).await?;
    Ok(address)
}

/// Waits until so many lines of the plan wait for a word; its id.
async fn waiting(world: &World, count: usize) -> Result<String> {
    eventually(format_args!("{count} wait for a word"), async || {
        let (id, items, _) = plan(world).await?;
        let waiting: Vec<&Value> = items.iter().filter(|item| item["needsApply"] == true).collect();
        ensure!(waiting.len() == count, "{items:#?}");
        Ok(id)
    })
    .await
}

/// E41, E50: killed (`kill -9`) between two things that it was told to do, apply has done the first whole and the second not at all;
/// the next apply finishes, and the one after that has nothing to do. Nothing is ordered or given back on the way.
#[tokio::test]
async fn an_apply_that_is_cut_short_is_finished_by_the_next() -> Result<()> {
    let mut world = WorldOptions::equinix(spent())
        .section("eip: {maxAge: 1s}\n")
        .fail_point("takeover.after-give")
        .start("cut-short")
        .await?;
    let mut addresses = Vec::new();
    for name in ["a", "b"] {
        addresses.push(by_name_alone(&world, name).await?);
    }
    let before = carried(world.project()?);
    let id = waiting(&world, 2).await?;
    let cut = world.ctl(&["takeover", "apply", "--plan", &id]).await;
    let Err(cut) = cut else {
        anyhow::bail!("it was not cut short");
    };
    ensure!(!format!("{cut:#}").contains("the plan changed"), "{cut:#}");
    let role = world.gateway_role();
    world.process(role)?.wait(PATIENCE).await?;
    let given = |world: &World| -> Result<usize> {
        let cluster = format!("cluster={}", world.corner.cluster());
        let reservations = world.project()?.reservations();
        Ok(reservations
            .iter()
            .filter(|one| one.tags.contains(&cluster))
            .count())
    };
    assert_eq!(given(&world)?, 1, "one was given");

    world.kill_and_restart().await?;
    it_leads(&world).await?;
    let id = waiting(&world, 1).await?;
    let applied = world.ctl(&["takeover", "apply", "--plan", &id]).await?;
    assert_eq!(applied["outcomes"].as_array().map(Vec::len), Some(1), "{applied}");
    assert_eq!(applied["outcomes"][0]["ok"], true, "{applied}");
    for (name, address) in ["a", "b"].into_iter().zip(addresses) {
        assert_eq!(world.corner.addresses_of(name, 1).await?, [address]);
    }
    nothing_left(&world).await?;
    let (id, ..) = plan(&world).await?;
    let applied = world.ctl(&["takeover", "apply", "--plan", &id]).await?;
    assert_eq!(applied["outcomes"].as_array().map(Vec::len), Some(0), "{applied}");
    let project = world.project()?;
    assert_eq!(carried(project), before, "nothing was lost, and nothing came");
    assert_eq!(given(&world)?, 2);
    let deleted = project.journal().calls(0, "DELETE", "/ips/{id}");
    assert_eq!(deleted.len(), 0, "{deleted:?}");
    Ok(())
}

/// What `groundplane ctl` says of the gateway at this address, and whether it is well.
async fn ask(gateway: &str, arguments: &[&str]) -> Result<(bool, String)> {
    let output = tokio::process::Command::new(program()?)
        .args(["ctl", "--gateway", gateway, "-o", "json"])
        .args(arguments)
        .output()
        .await
        .context("run groundplane ctl")?;
    let said = [output.stdout, output.stderr].concat();
    Ok((
        output.status.success(),
        String::from_utf8_lossy(&said).into_owned(),
    ))
}

/// The two gateways' addresses: the one that leads, and the other.
async fn leader_and_follower(world: &World, second: &Process) -> Result<(String, String)> {
    let (one, other) = (
        world.gateway(),
        format!("http://{}", second.address("gateway").await?),
    );
    let leads = async |gateway: &str| -> Result<bool> {
        let (_, said) = ask(gateway, &["overview"]).await?;
        let overview: Value = serde_json::from_str(&said).with_context(|| said.clone())?;
        Ok(overview["leader"] == true)
    };
    eventually("one of them leads", async || {
        match (leads(&one).await?, leads(&other).await?) {
            (true, false) => Ok((one.clone(), other.clone())),
            (false, true) => Ok((other.clone(), one.clone())),
            both => anyhow::bail!("{both:?}"),
        }
    })
    .await
}

/// E88: a replica that does not lead applies nothing, and names the pod that does with the command for it; both plan the same.
#[tokio::test]
async fn a_replica_that_does_not_lead_names_the_one_that_does() -> Result<()> {
    let world = WorldOptions::equinix(spent())
        .mode(Mode::Services)
        .section("eip: {maxAge: 1s}\n")
        .start("two")
        .await?;
    let second = world.second_gateway()?;
    second.ready().await?;
    let address = by_name_alone(&world, "web").await?;
    let id = waiting(&world, 1).await?;
    let (leader, follower) = leader_and_follower(&world, &second).await?;
    let apply = ["takeover", "apply", "--plan", &id];
    eventually("both have the same plan", async || {
        for gateway in [&leader, &follower] {
            let (_, said) = ask(gateway, &["takeover", "plan"]).await?;
            ensure!(said.contains(&id), "{gateway}: {said}");
        }
        Ok(())
    })
    .await?;
    let (well, said) = ask(&follower, &apply).await?;
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname")?;
    let namespace = world.corner.namespace();
    let command = format!(
        "kubectl -n {namespace} exec {} -- groundplane ctl takeover apply --plan {id}",
        host.trim()
    );
    ensure!(!well && said.contains(&command), "{said}");
    let (well, said) = ask(&leader, &apply).await?;
    ensure!(well, "{said}");
    assert_eq!(world.corner.addresses_of("web", 1).await?, [address]);
    Ok(())
}

/// A node whose machine has no peers keeps what the older controller wrote, and is nothing that is left to do.
#[tokio::test]
async fn a_node_without_peers_is_nothing_that_is_left_to_do() -> Result<()> {
    let world = WorldOptions::equinix(CloudApi::Equinix.project_of_reservations())
        .start("peerless")
        .await?;
    let (corner, project) = (&world.corner, world.project()?);
    let device = project.add_device(DeviceOptions::named(corner.node_name("n1")));
    project.set_peers(device, []);
    let draft = corner
        .node_draft("n1")
        .provider_id(&format!("equinixmetal://{device}"))
        .annotation("packet.com/node.asn", "65000");
    corner.create_node(draft).await?;
    let (_, items) = plan_with(&world, "nodes", "n1", "LEAVE").await?;
    let node = item(&items, "nodes", "n1")?;
    ensure!(
        node["detail"]
            .as_str()
            .unwrap_or_default()
            .contains("no BGP peers"),
        "{node}"
    );
    nothing_left(&world).await?;
    let node: Node = corner.nodes().get(&corner.node_name("n1")).await?;
    assert_eq!(annotation(&node, "packet.com/node.asn"), Some("65000"));
    Ok(())
}

/// Every command of `groundplane ctl` in the guides, in their order.
fn commands() -> Result<Vec<String>> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&docs)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if !name.starts_with("takeover") {
            continue;
        }
        let text = std::fs::read_to_string(&path)?;
        let given = text
            .lines()
            .filter_map(|line| Some(line.split_once(" groundplane ctl ")?.1.to_owned()));
        found.extend(given);
    }
    ensure!(found.len() >= 7, "{found:?}");
    Ok(found)
}

/// What the guides tell people to type works on a cluster that was taken over.
#[tokio::test]
async fn every_command_of_the_guides_works() -> Result<()> {
    let world = WorldOptions::equinix(CloudApi::Equinix.project_of_reservations())
        .start("guides")
        .await?;
    world.add_machine("n1").await?;
    world.corner.add_service("web").await?;
    world.corner.addresses_of("web", 1).await?;
    nothing_left(&world).await?;
    let (id, ..) = plan(&world).await?;
    let service = format!("{}/web", world.corner.namespace());
    for command in commands()? {
        let words = command.split_whitespace().map(|word| match word {
            "ID" => id.as_str(),
            "NAMESPACE/NAME" => service.as_str(),
            other => other,
        });
        let words: Vec<&str> = words.collect();
        let said = world.ctl(&words).await.with_context(|| command.clone())?;
        ensure!(!said.is_null(), "{command}");
    }
    Ok(())
}
