//! Journey 2 where nodes are what they say of themselves (driver `static`).

use anyhow::{Context as _, Result, ensure};
use groundplane_core::names::{TAINT_SHUTDOWN, TAINT_UNINITIALIZED};
use groundplane_tests::{Mode, WorldOptions};
use pretty_assertions::assert_eq;

use crate::announced::{addresses, annotation, tainted};

/// A table of two machines with zone, region and type, and a peer table.
const MACHINES: &str = r"
static:
  machines:
    - name: MACHINE-a
      instanceType: r640
      zone: rack-1
      region: lab
      addresses:
        - {type: InternalIP, address: 10.0.0.11}
        - {type: ExternalIP, address: 198.51.100.11}
  bgp:
    localAsn: 65000
    peers:
      - {address: 10.0.0.1, asn: 65530}
";

/// N1, N2, N4, N5: provider id, addresses in the machine's order with kubelet's Hostname last, labels, and only the one
/// taint gone.
async fn a_machine_of_the_table_becomes_a_node(mode: Mode) -> Result<()> {
    let corner = groundplane_tests::KubeApi::shared()
        .await?
        .corner("table")
        .await?;
    let machines = MACHINES.replace("MACHINE", corner.name());
    let world = WorldOptions::fixed()
        .mode(mode)
        .section(&machines)
        .start_in(corner)
        .await?;
    world.ready().await?;
    let corner = &world.corner;
    let name = corner.node_name("a");
    let draft = corner
        .node_draft("a")
        .uninitialized()
        .taint("example.com/keep", "NoSchedule")
        .address("Hostname", &name);
    corner.create_node(draft).await?;
    let node = corner
        .node_until("a", "is initialised", |node| {
            (!tainted(node, TAINT_UNINITIALIZED)).then(|| node.clone())
        })
        .await?;
    let spec = node.spec.clone().context("it is missing")?;
    assert_eq!(spec.provider_id, Some(format!("static://{name}")));
    ensure!(tainted(&node, "example.com/keep"), "another's taint is gone");
    let expected = [
        "InternalIP=10.0.0.11".to_owned(),
        "ExternalIP=198.51.100.11".to_owned(),
        format!("Hostname={name}"),
    ];
    assert_eq!(addresses(&node), expected);
    let labels = node.metadata.labels.clone().context("it is missing")?;
    for (key, value) in [
        ("node.kubernetes.io/instance-type", "r640"),
        ("beta.kubernetes.io/instance-type", "r640"),
        ("topology.kubernetes.io/zone", "rack-1"),
        ("failure-domain.beta.kubernetes.io/zone", "rack-1"),
        ("topology.kubernetes.io/region", "lab"),
        ("failure-domain.beta.kubernetes.io/region", "lab"),
    ] {
        assert_eq!(labels.get(key).map(String::as_str), Some(value), "{key}");
    }
    corner.event(&node, "Synced").await?;
    let peered = corner
        .node_until("a", "has its peer", |node| {
            annotation(node, "metal.equinix.com/bgp-peers-0-peer-ip")
                .is_some()
                .then(|| node.clone())
        })
        .await?;
    assert_eq!(
        annotation(&peered, "metal.equinix.com/bgp-peers-0-peer-asn"),
        Some("65530")
    );
    assert_eq!(
        annotation(&peered, "metal.equinix.com/bgp-peers-0-src-ip"),
        Some("10.0.0.11")
    );
    Ok(())
}

#[tokio::test]
async fn a_machine_of_the_table_becomes_a_node_in_one_process() -> Result<()> {
    a_machine_of_the_table_becomes_a_node(Mode::One).await
}

#[tokio::test]
async fn a_machine_of_the_table_becomes_a_node_with_a_process_a_service() -> Result<()> {
    a_machine_of_the_table_becomes_a_node(Mode::Services).await
}

/// N8: kubelet was given an address that the table does not have for the machine: the taint stays, and an event names those that it has.
#[tokio::test]
async fn a_node_ip_that_the_table_lacks_is_refused() -> Result<()> {
    let corner = groundplane_tests::KubeApi::shared()
        .await?
        .corner("table-node-ip")
        .await?;
    let machines = MACHINES.replace("MACHINE", corner.name());
    let world = WorldOptions::fixed().section(&machines).start_in(corner).await?;
    world.ready().await?;
    let corner = &world.corner;
    let draft = corner.node_draft("a").uninitialized().node_ip("203.0.113.99");
    let node = corner.create_node(draft).await?;
    let event = corner.event(&node, "ProvidedNodeIpMismatch").await?;
    let message = event.message.unwrap_or_default();
    ensure!(
        message.contains("203.0.113.99") && message.contains("10.0.0.11"),
        "{message}"
    );
    let node = corner.nodes().get(&corner.node_name("a")).await?;
    ensure!(tainted(&node, TAINT_UNINITIALIZED), "it lost its taint");
    assert_eq!(addresses(&node), [format!("Hostname={}", corner.node_name("a"))]);
    Ok(())
}

/// Without a table, a node is what it says of itself: it loses the taint and keeps its addresses.
#[tokio::test]
async fn a_node_is_what_it_says_where_no_table_says_otherwise() -> Result<()> {
    let world = WorldOptions::fixed().start("plain").await?;
    let corner = &world.corner;
    corner
        .create_node(
            corner
                .node_draft("a")
                .uninitialized()
                .address("InternalIP", "10.0.0.5"),
        )
        .await?;
    let node = corner
        .node_until("a", "is initialised", |node| {
            (!tainted(node, TAINT_UNINITIALIZED)).then(|| node.clone())
        })
        .await?;
    let name = corner.node_name("a");
    assert_eq!(
        addresses(&node),
        [format!("Hostname={name}"), "InternalIP=10.0.0.5".to_owned()]
    );
    assert_eq!(
        node.spec.context("it is missing")?.provider_id,
        Some(format!("static://{}", corner.node_name("a")))
    );
    Ok(())
}

/// A table kept by hand proves nothing: an unready node that it does not list is neither deleted nor tainted. The listed
/// one, which is looked at in the same round, shows that the round happened.
#[tokio::test]
async fn no_node_is_deleted_on_the_word_of_a_table() -> Result<()> {
    let world = WorldOptions::fixed().start("unlisted").await?;
    let corner = &world.corner;
    corner
        .create_node(corner.node_draft("gone").provider_id("static://nobody"))
        .await?;
    corner.set_ready("gone", false).await?;
    groundplane_tests::throughout(std::time::Duration::from_secs(4), "the node stays", async || {
        let node = corner.nodes().get(&corner.node_name("gone")).await?;
        ensure!(!tainted(&node, TAINT_SHUTDOWN), "it is tainted");
        Ok(())
    })
    .await
}
