//! The story that `make demo` tells: chapters of steps, each seen to be true before it is printed, with the time it took.

#![allow(clippy::print_stdout, reason = "a program that talks to a person")]

mod cloud;
mod endpoint;
mod fixed;
mod story;

use anyhow::{Context as _, Result};

use crate::demo::story::Story;
use crate::kube_api::{KubeApi, MEMBERS, User};
use crate::tools::{Tool, ensure};
use crate::world::World;
use crate::world::endpoint::EndpointWorld;

/// Tells all of it. True when everything was seen.
///
/// # Errors
/// When what it stands on (tools, API server) cannot be had.
pub async fn run(keep: bool) -> Result<bool> {
    crate::tls::install();
    let mut story = Story::new();
    story.chapter("What it stands on");
    for tool in [Tool::Etcd, Tool::KubeApiserver, Tool::Helm] {
        story
            .step(&format!("{tool} is built"), async || {
                Ok(ensure(tool).await?.display().to_string())
            })
            .await;
    }
    let started = story.step("etcd and kube-apiserver answer", async || {
        KubeApi::shared()
            .await
            .map(|api| format!("https://{}", api.address()))
    });
    anyhow::ensure!(
        started.await.is_some(),
        "there is no API server to tell a story on"
    );

    story.chapter("Addresses from your own ranges (driver static)");
    let fixed = fixed::tell(&mut story).await;
    story.chapter("The same on a cloud (driver equinix, sandbox)");
    let cloud = cloud::tell(&mut story).await;
    story.chapter("The API endpoint outlives its holder (three machines, an agent on each)");
    let endpoint = endpoint::tell(&mut story).await;
    let complete = story.table() && fixed.is_some() && cloud.is_some() && endpoint.is_some();
    if keep {
        stay(fixed.iter().chain(&cloud), endpoint.as_ref()).await?;
    }
    Ok(complete)
}

/// Says how to reach everything, and waits for Ctrl-C.
async fn stay(worlds: impl Iterator<Item = &World>, endpoint: Option<&EndpointWorld>) -> Result<()> {
    println!("\nEverything stays up until Ctrl-C.\n");
    let api = KubeApi::shared().await?;
    println!("export KUBECONFIG={}", api.kubeconfig(User::Admin).display());
    for world in worlds {
        println!("kubectl -n {} get services", world.corner.namespace());
        println!("groundplane ctl --gateway {} overview", world.gateway());
        if let Ok(project) = world.project() {
            println!(
                "# the sandbox cloud: {}, project {}",
                project.base_url(),
                project.id()
            );
        }
    }
    if let Some(world) = endpoint {
        for number in 0..MEMBERS {
            println!("groundplane ctl --gateway {} endpoint", world.target(number));
        }
    }
    tokio::signal::ctrl_c().await.context("listen for Ctrl-C")
}
