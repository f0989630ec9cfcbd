//! Clouds that groundplane has no code for: the example providers, as an outsider wrote them.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use groundplane_cloud::{CloudErrorKind, Galaxy, GalaxyConfig, NodeAddresses as _};
use groundplane_core::NodeName;
use groundplane_core::names::{TAINT_SHUTDOWN, TAINT_UNINITIALIZED};
use groundplane_tests::providers::{Example, Provider, machine};
use groundplane_tests::{Corner, KubeApi, World, WorldOptions, eventually, throughout};
use k8s_openapi::api::core::v1::Node;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::announced::{addresses, annotation, condition, refusal, tainted};

/// A world on a provider, whose cloud has the machine of node `a`.
struct Remote {
    world: World,
    provider: Provider,
}

impl Remote {
    async fn start(example: Example, name: &str, capabilities: &str) -> Result<Self> {
        let corner = KubeApi::shared().await?.corner(name).await?;
        let provider = Provider::start(example, &[]).await?;
        provider.set_machines(&[machine("m-1", &corner.node_name("a"), "10.0.0.1")])?;
        let world = WorldOptions::remote(&provider.target(), capabilities)
            .section("eip: {maxAge: 1s}\n")
            .start_in(corner)
            .await?;
        world.ready().await?;
        Ok(Self { world, provider })
    }

    fn corner(&self) -> &Corner {
        &self.world.corner
    }

    async fn initialised(&self, suffix: &str) -> Result<Node> {
        let done = |node: &Node| (!tainted(node, TAINT_UNINITIALIZED)).then(|| node.clone());
        self.corner().node_until(suffix, "is initialised", done).await
    }

    /// Waits until the Service says why it has no address, and gives the reason and the words.
    async fn refused(&self, name: &str) -> Result<(String, String)> {
        self.corner()
            .service_until(name, "says why it has no address", |service| {
                let reason = refusal(service)?;
                Some((reason, condition(service)?.message))
            })
            .await
    }

    /// For a while, the Service keeps this address.
    async fn keeps(&self, name: &str, address: &str) -> Result<()> {
        throughout(Duration::from_secs(4), "the address stays", async || {
            let shown = self.corner().addresses_of(name, 1).await?;
            ensure!(shown == [address], "it is {shown:?}");
            Ok(())
        })
        .await
    }
}

async fn conforms(example: Example) -> Result<()> {
    let provider = Provider::start(example, &[]).await?;
    provider.set_machines(&[
        machine("m-1", "one", "10.0.0.1"),
        machine("m-2", "two", "10.0.0.2"),
    ])?;
    let output = tokio::process::Command::new(groundplane_tests::groundplane::program()?)
        .args(["conformance", "-o", "json", "--target", &provider.target()])
        .stdin(Stdio::null())
        .output()
        .await?;
    let said = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout).with_context(|| said.clone().into_owned())?;
    assert_eq!(output.status.code(), Some(0), "{report:#}\n{said}");
    let rules = report["rules"].as_array().context("a report without rules")?;
    let of = |result: &str| rules.iter().filter(|rule| rule["result"] == result).count();
    assert_eq!(of("fail"), 0, "{report:#}");
    // Nothing is skipped but what it does not offer.
    let at_least = if example == Example::Python { 34 } else { 20 };
    ensure!(of("pass") >= at_least, "{report:#}");
    assert_eq!(provider.reservations()?, 0, "something is left");
    Ok(())
}

/// The Python example passes what `groundplane conformance` checks, and nothing of it is left.
#[tokio::test]
async fn the_provider_in_python_conforms() -> Result<()> {
    conforms(Example::Python).await
}

/// The Go example does, too.
#[tokio::test]
async fn the_provider_in_go_conforms() -> Result<()> {
    conforms(Example::Go).await
}

/// Machines become nodes, Services get addresses; the provider dies and comes back, and nothing is lost; what is deleted is given
/// back; a node whose machine is gone is deleted.
async fn serves_nodes_and_services(example: Example, name: &str) -> Result<()> {
    let mut remote = Remote::start(example, name, "machines, addresses").await?;
    let corner = remote.corner();
    corner.create_node(corner.node_draft("a").uninitialized()).await?;
    let node = remote.initialised("a").await?;
    let id = node.spec.clone().context("it is missing")?.provider_id;
    assert_eq!(id.as_deref(), Some("example://m-1"));
    ensure!(
        addresses(&node).contains(&"InternalIP=10.0.0.1".to_owned()),
        "{node:?}"
    );
    corner.add_service("web").await?;
    let web = corner.addresses_of("web", 1).await?.remove(0);

    remote.provider.kill9().await?;
    remote.corner().add_service("other").await?;
    let (reason, words) = remote.refused("other").await?;
    assert_eq!(reason, "CloudUnavailable", "{words}");
    remote.keeps("web", &web).await?;
    remote.provider.start_again().await?;
    let other = remote.corner().addresses_of("other", 1).await?.remove(0);
    ensure!(other != web, "both have {web}");
    assert_eq!(
        remote.corner().addresses_of("web", 1).await?,
        std::slice::from_ref(&web)
    );
    assert_eq!(remote.provider.reservations()?, 2);

    remote.corner().delete_service("other").await?;
    remote.corner().service_gone("other").await?;
    assert_eq!(remote.provider.reservations()?, 1);
    remote.corner().set_ready("a", false).await?;
    remote.provider.set_machines(&[])?;
    remote.corner().node_gone("a").await?;
    assert_eq!(remote.corner().addresses_of("web", 1).await?, [web]);
    Ok(())
}

/// The Python example serves nodes and Services, through a `kill -9`.
#[tokio::test]
async fn the_provider_in_python_serves_nodes_and_services() -> Result<()> {
    serves_nodes_and_services(Example::Python, "pyprov").await
}

/// So does the Go example.
#[tokio::test]
async fn the_provider_in_go_serves_nodes_and_services() -> Result<()> {
    serves_nodes_and_services(Example::Go, "goprov").await
}

/// A provider with a table of peers: its nodes get them.
#[tokio::test]
async fn the_peers_of_a_provider_reach_the_nodes() -> Result<()> {
    let remote = Remote::start(Example::Python, "pybgp", "machines, addresses, bgp").await?;
    let corner = remote.corner();
    corner.create_node(corner.node_draft("a").uninitialized()).await?;
    remote.initialised("a").await?;
    let peer = corner
        .node_until("a", "has its peer", |node| {
            let annotations = node.metadata.annotations.as_ref()?;
            let found = annotations
                .iter()
                .find(|(key, _)| key.ends_with("bgp-peers-1-peer-ip"));
            found.map(|(key, _)| annotation(node, key).unwrap_or_default().to_owned())
        })
        .await?;
    assert_eq!(peer, "169.254.255.2");
    Ok(())
}

/// An answer that comes too late, after its effect: one reservation, found again.
#[tokio::test]
async fn a_late_provider_makes_one_reservation() -> Result<()> {
    let remote = Remote::start(Example::Python, "pylate", "machines, addresses").await?;
    remote
        .provider
        .set_faults(&json!({"CreateReservation": {"after": 4}}))?;
    remote.corner().add_service("web").await?;
    eventually("the effect is there", async || {
        ensure!(remote.provider.reservations()? == 1, "no reservation");
        Ok(())
    })
    .await?;
    remote.corner().addresses_of("web", 1).await?;
    assert_eq!(remote.provider.reservations()?, 1);
    remote.provider.set_faults(&json!({}))?;
    remote.corner().delete_service("web").await?;
    remote.corner().service_gone("web").await?;
    assert_eq!(remote.provider.reservations()?, 0);
    Ok(())
}

/// Values that no contract knows change nothing: a machine's power, a reservation's state; and a list that cannot be is no list.
#[tokio::test]
async fn a_wrong_provider_costs_nobody_an_address() -> Result<()> {
    let remote = Remote::start(Example::Python, "pywrong", "machines, addresses").await?;
    let corner = remote.corner();
    let mut odd = machine("m-1", &corner.node_name("a"), "10.0.0.1");
    odd["power"] = json!(99);
    remote.provider.set_machines(&[odd])?;
    corner.create_node(corner.node_draft("a").uninitialized()).await?;
    remote.initialised("a").await?;
    corner.set_ready("a", false).await?;
    corner.add_service("web").await?;
    let web = corner.addresses_of("web", 1).await?.remove(0);

    // An id twice, and one that is empty.
    let twice = json!({"id": "r-99", "prefix": "198.51.100.99/32", "state": 1});
    remote.provider.set_faults(&json!({
        "ListReservations": {"answer": {"reservations": [twice, twice, {}]}},
        "ListMachines": {"answer": {"machines": [{}]}},
        "GetMachine": {"answer": {"machine": {"providerId": "example://another"}}},
        "CreateReservation": {"answer": {"reservation": {"state": 99}}},
    }))?;
    corner.add_service("other").await?;
    let (reason, words) = remote.refused("other").await?;
    ensure!(!words.is_empty(), "{reason} without words");
    remote.keeps("web", &web).await?;
    let node = corner
        .node_until("a", "is there", |node| Some(node.clone()))
        .await?;
    ensure!(
        !tainted(&node, TAINT_SHUTDOWN),
        "an unknown power state shut it down"
    );

    remote.provider.set_faults(&json!({}))?;
    let other = corner.addresses_of("other", 1).await?.remove(0);
    ensure!(other != web, "both have {web}");
    assert_eq!(remote.provider.reservations()?, 2);
    Ok(())
}

/// Two Services that ask for one address, by one key.
async fn share(remote: &Remote) -> Result<String> {
    const KEY: &str = "metallb.io/allow-shared-ip";
    let corner = remote.corner();
    corner
        .create_service(corner.service_draft("web").annotation(KEY, "k"))
        .await?;
    let shared = corner.addresses_of("web", 1).await?.remove(0);
    let second = corner.service_draft("api").annotation(KEY, "k");
    let second = second.load_balancer_ip(&shared).spec(|spec| {
        for port in spec.ports.iter_mut().flatten() {
            port.port += 1;
        }
    });
    corner.create_service(second).await?;
    Ok(shared)
}

/// Where a provider replaces tags, Services share an address, and it goes with the last of them.
#[tokio::test]
async fn services_share_an_address_of_a_provider() -> Result<()> {
    let remote = Remote::start(Example::Python, "pyshare", "machines, addresses").await?;
    let shared = share(&remote).await?;
    let corner = remote.corner();
    assert_eq!(
        corner.addresses_of("api", 1).await?,
        std::slice::from_ref(&shared)
    );
    corner.delete_service("web").await?;
    corner.service_gone("web").await?;
    assert_eq!(remote.provider.reservations()?, 1, "it is in use");
    remote.keeps("api", &shared).await?;
    corner.delete_service("api").await?;
    corner.service_gone("api").await?;
    assert_eq!(remote.provider.reservations()?, 0);
    Ok(())
}

/// Where it does not, the second is told why, and what to do.
#[tokio::test]
async fn a_provider_that_replaces_no_tags_shares_nothing() -> Result<()> {
    let remote = Remote::start(Example::Go, "goshare", "machines, addresses").await?;
    let shared = share(&remote).await?;
    let (reason, words) = remote.refused("api").await?;
    assert_eq!(reason, "SharingUnsupported");
    ensure!(
        words.contains("an address of its own") && words.contains("ReplaceTags"),
        "{words}"
    );
    remote.keeps("web", &shared).await
}

/// Galaxy's contract against a server that has no code of ours: an address is attached, moves by one call, and is detached; each call may
/// arrive twice, and late news of a node that has it no more take it from nobody; a failure has the provider's words; a provider that
/// was killed is away, and knows everything when it is back.
#[tokio::test]
async fn galaxys_contract_is_spoken_as_galaxy_speaks_it() -> Result<()> {
    let mut provider = Provider::start(Example::Galaxy, &["--nodes", "n1", "n2"]).await?;
    let galaxy = Galaxy::new(&GalaxyConfig {
        address: provider.target(),
        ..GalaxyConfig::default()
    })?;
    let (one, two, none): (NodeName, NodeName, NodeName) = ("n1".parse()?, "n2".parse()?, "n3".parse()?);
    let address = std::net::Ipv4Addr::new(192, 0, 2, 7);
    for node in [&one, &one, &two] {
        galaxy.assign(node, address).await?;
        assert_eq!(provider.state()?, json!({"192.0.2.7": node.as_str()}));
    }
    galaxy.unassign(Some(&one), address).await?;
    assert_eq!(provider.state()?, json!({"192.0.2.7": "n2"}));
    let refused = galaxy.assign(&none, address).await.unwrap_err();
    ensure!(refused.message == "there is no node n3", "{refused}");

    provider.kill9().await?;
    let away = galaxy.assign(&one, address).await.unwrap_err();
    ensure!(away.is(CloudErrorKind::Unavailable), "{away:?}");
    provider.start_again().await?;
    assert_eq!(provider.state()?, json!({"192.0.2.7": "n2"}));
    for node in [Some(&two), Some(&two), None] {
        galaxy.unassign(node, address).await?;
        assert_eq!(provider.state()?, json!({}));
    }
    Ok(())
}
