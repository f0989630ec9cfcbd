//! Machines of a cloud that are not as usual, and peers that do not stay as they are.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use groundplane_core::names::{NODE_ANNOTATED, TAINT_UNINITIALIZED};
use groundplane_sandbox::{Choice, DeviceId, DeviceOptions, Project, ProjectOptions};
use groundplane_tests::{Corner, WorldOptions, eventually, eventually_within};
use k8s_openapi::api::core::v1::Node;
use pretty_assertions::assert_eq;
use serde_json::json;

use crate::announced::{addresses, tainted};

/// The peers are asked for once a minute here, the shortest that may be configured.
const REFRESH: Duration = Duration::from_secs(240);

const PREFIX: &str = "metal.equinix.com/";

/// What the node is told, without the prefix.
fn told(node: &Node) -> BTreeMap<String, String> {
    let annotations = node.metadata.annotations.iter().flatten();
    annotations
        .filter_map(|(key, value)| Some((key.strip_prefix(PREFIX)?.to_owned(), value.clone())))
        .collect()
}

/// What it is to be told of these peers.
fn golden(
    project: &Project,
    device: DeviceId,
    asn: &str,
    password: &str,
    peers: &[&str],
) -> Result<BTreeMap<String, String>> {
    let source = project.own_ipv4(device, false).context("no private address")?;
    let rows = project.addresses(device);
    let own = rows.iter().find(|row| row.address == source).context("no row")?;
    let block = own.reservation.and_then(|id| project.reservation(id));
    let block = block.context("no block")?;
    let network = block.address.context("no network")?;
    let mut golden = BTreeMap::from([(
        "network-4-private".to_owned(),
        format!("{network}/{}", block.cidr),
    )]);
    for (n, peer) in peers.iter().enumerate() {
        for (field, value) in [
            ("node-asn", asn),
            ("peer-asn", "65530"),
            ("peer-ip", peer),
            ("src-ip", &source.to_string()),
            ("bgp-pass", password),
        ] {
            golden.insert(format!("bgp-peers-{n}-{field}"), value.to_owned());
        }
    }
    Ok(golden)
}

/// Waits until node `a` is told exactly this.
async fn says(corner: &Corner, expected: &BTreeMap<String, String>) -> Result<Node> {
    let (nodes, name) = (corner.nodes(), corner.node_name("a"));
    eventually_within(REFRESH, "the node says what the cloud says", async || {
        let node = nodes.get(&name).await?;
        ensure!(told(&node) == *expected, "it says {:?}", told(&node));
        Ok(node)
    })
    .await
}

/// E30, E31, E32: no peers at first is no answer, and nothing is written; they come; then AS number, password and peers change, and the
/// node says exactly what the cloud says, in one patch each.
#[tokio::test]
async fn peers_come_late_change_and_go() -> Result<()> {
    let world = WorldOptions::equinix(ProjectOptions::default())
        .section("bgp: {refresh: 1m}\n")
        .start("peers")
        .await?;
    let (corner, project) = (&world.corner, world.project()?);
    let device = project.add_device(DeviceOptions::named(corner.node_name("a")));
    project.set_peers(device, []);
    let node = corner.node_draft("a").uninitialized();
    corner
        .create_node(node.annotation("example.com/mine", "yes"))
        .await?;
    eventually("peers are asked for again", async || {
        let asked = project.journal().calls(0, "GET", "/devices/{id}/bgp/neighbors");
        ensure!(asked.len() >= 2, "{} times", asked.len());
        Ok(())
    })
    .await?;
    let node = corner.nodes().get(&corner.node_name("a")).await?;
    assert_eq!(told(&node), BTreeMap::new(), "half an answer was written");

    let mark = corner.mark().await?;
    let peer = |text: &str| text.parse::<IpAddr>();
    // In the other order, to see that it is put right.
    project.set_peers(device, [peer("169.254.255.2")?, peer("169.254.255.1")?]);
    let both = golden(project, device, "65000", "", &["169.254.255.1", "169.254.255.2"])?;
    says(corner, &both).await?;

    project.set_bgp(64_999, Some("Secret4711x"));
    project.set_peers(device, [peer("169.254.255.9")?]);
    let one = golden(project, device, "64999", "U2VjcmV0NDcxMXg=", &["169.254.255.9"])?;
    let node = says(corner, &one).await?;
    let annotations = node.metadata.annotations.unwrap_or_default();
    assert_eq!(
        annotations.get("example.com/mine").map(String::as_str),
        Some("yes"),
        "an annotation of somebody else is gone"
    );
    assert_eq!(
        annotations
            .get(NODE_ANNOTATED)
            .map(|keys| keys.split(',').count()),
        Some(one.len())
    );
    let writes = corner
        .requests_since(mark)
        .await?
        .by_agent("groundplane/")
        .writes();
    let name = corner.node_name("a");
    let patches = writes.only(|request| request.resource == "nodes" && request.name == name);
    assert_eq!(patches.count(), 2, "{:?}", patches.summary());
    ensure!(
        !world.log_text()?.contains("Secret4711x"),
        "the log holds a password"
    );
    Ok(())
}

/// Turned off, annotations stay; told to clean up, it takes back its own, and nothing else, and leaves the cloud as it is.
#[tokio::test]
async fn turned_off_it_cleans_up_what_is_its_own() -> Result<()> {
    let world = WorldOptions::equinix(ProjectOptions::default())
        .gateway("  bgpNodeSelector: speaks!=no\n  bgpCleanup: true\n")
        .start("cleanup")
        .await?;
    let (corner, project) = (&world.corner, world.project()?);
    world.add_machine("a").await?;
    let speaks = |node: &Node| told(node).contains_key("bgp-peers-1-peer-ip").then_some(());
    corner.node_until("a", "knows its peers", speaks).await?;
    let patch = json!({ "metadata": {
        "labels": { "speaks": "no" },
        "annotations": { "example.com/mine": "yes", "metal.equinix.com/bgp-peers-7-peer-ip": "192.0.2.1" },
    } });
    corner
        .nodes()
        .patch(
            &corner.node_name("a"),
            &kube::api::PatchParams::default(),
            &kube::api::Patch::Merge(&patch),
        )
        .await?;
    let freed = |node: &Node| {
        let annotations = node.metadata.annotations.clone().unwrap_or_default();
        (!annotations.contains_key(NODE_ANNOTATED) && !told(node).contains_key("bgp-peers-0-peer-ip"))
            .then_some(annotations)
    };
    let left = corner.node_until("a", "is freed of them", freed).await?;
    assert_eq!(left.get("example.com/mine").map(String::as_str), Some("yes"));
    // The key of a peer is ours by its name while peers are told. Whoever wrote this one did so as we stopped.
    ensure!(
        told(&corner.nodes().get(&corner.node_name("a")).await?)
            .keys()
            .all(|key| key == "bgp-peers-7-peer-ip"),
        "{left:?}"
    );
    assert_eq!(project.sessions().len(), 2, "the cloud was touched");
    Ok(())
}

/// E17: machines without public addresses, without IPv4, and of both families by `--node-ip` become nodes, all the same.
#[tokio::test]
async fn machines_of_any_address_family_become_nodes() -> Result<()> {
    let world = WorldOptions::equinix(ProjectOptions::default())
        .start("families")
        .await?;
    let (corner, project) = (&world.corner, world.project()?);
    let private = DeviceOptions {
        public_ipv4: Choice::Absent,
        public_ipv6: Choice::Absent,
        ..DeviceOptions::default()
    };
    let only_v6 = DeviceOptions {
        public_ipv4: Choice::Absent,
        private_ipv4: Choice::Absent,
        ..DeviceOptions::default()
    };
    for (suffix, options) in [
        ("private", private),
        ("only-v6", only_v6),
        ("dual", DeviceOptions::default()),
    ] {
        let name = corner.node_name(suffix);
        let device = project.add_device(DeviceOptions {
            hostname: Some(name.clone()),
            ..options
        });
        let rows = project.addresses(device);
        let (v4, v6): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.address.is_ipv4());
        let mut draft = corner.node_draft(suffix).uninitialized();
        let mut expected = vec![format!("Hostname={name}")];
        let kind = |public: bool| if public { "ExternalIP" } else { "InternalIP" };
        if suffix == "dual" {
            let inside = v4.iter().find(|row| !row.public).context("no private address")?;
            let outside = v6.first().context("no IPv6 address")?;
            // As kubelet writes what it was given; the families that were asked for come first.
            draft = draft.node_ip(&format!("{},{}", outside.address, inside.address));
            expected = vec![
                format!("ExternalIP={}", outside.address),
                format!("InternalIP={}", inside.address),
                format!("Hostname={name}"),
            ];
        } else {
            let row = |row: &groundplane_sandbox::Assignment| format!("{}={}", kind(row.public), row.address);
            expected.extend(rows.iter().map(row));
        }
        corner.create_node(draft).await?;
        let done = |node: &Node| (!tainted(node, TAINT_UNINITIALIZED)).then(|| node.clone());
        let node = corner.node_until(suffix, "is initialised", done).await?;
        assert_eq!(addresses(&node), expected, "{suffix}");
        let labels = node.metadata.labels.unwrap_or_default();
        for (key, value) in [
            ("topology.kubernetes.io/region", "sv"),
            ("topology.kubernetes.io/zone", "sv15"),
        ] {
            assert_eq!(labels.get(key).map(String::as_str), Some(value), "{suffix}");
        }
    }
    Ok(())
}
