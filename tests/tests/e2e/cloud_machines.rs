//! Machines of a cloud that are not as usual, and peers that do not stay as they are.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use groundplane_core::names::NODE_ANNOTATED;
use groundplane_sandbox::{Choice, DeviceId, DeviceOptions, Project};
use groundplane_tests::{CloudApi, Corner, WorldOptions, eventually, eventually_within};
use k8s_openapi::api::core::v1::Node;
use pretty_assertions::assert_eq;
use serde_json::json;

use crate::announced::{addresses, initialised};
use crate::clouds::on_each_cloud;

on_each_cloud! {
    peers_come_late_change_and_go,
    turned_off_it_cleans_up_what_is_its_own,
    machines_of_any_address_family_become_nodes,
}

/// The peers are asked for every ten seconds here, the shortest that may be configured. Far more than that, for a busy machine.
const REFRESH: Duration = Duration::from_secs(120);

/// What the node is told, without the prefix.
pub(crate) fn told(cloud: CloudApi, node: &Node) -> BTreeMap<String, String> {
    let prefix = cloud.annotation("");
    let annotations = node.metadata.annotations.iter().flatten();
    annotations
        .filter_map(|(key, value)| Some((key.strip_prefix(&prefix)?.to_owned(), value.clone())))
        .collect()
}

/// What it is to be told of these peers: at Equinix Metal with the network that its private address is of, and a password, empty where
/// there is none; at Cherry Servers from the public address, and beyond the next hop.
pub(crate) fn golden(
    cloud: CloudApi,
    project: &Project,
    device: DeviceId,
    asn: &str,
    password: &str,
    peers: &[&str],
) -> Result<BTreeMap<String, String>> {
    let is_public = cloud == CloudApi::Cherry;
    let source = project.own_ipv4(device, is_public).context("no address")?;
    let own = match cloud {
        CloudApi::Equinix => ("bgp-pass", password),
        CloudApi::Cherry => ("peer-multi-hop", "true"),
    };
    let mut golden = BTreeMap::new();
    if cloud == CloudApi::Equinix {
        let rows = project.addresses(device);
        let row = rows.iter().find(|row| row.address == source).context("no row")?;
        let block = row.reservation.and_then(|id| project.reservation(id));
        let block = block.context("no block")?;
        let network = block.address.context("no network")?;
        golden.insert(
            "network-4-private".to_owned(),
            format!("{network}/{}", block.cidr),
        );
    }
    for (n, peer) in peers.iter().enumerate() {
        for (field, value) in [
            ("node-asn", asn),
            ("peer-asn", "65530"),
            ("peer-ip", peer),
            ("src-ip", &source.to_string()),
            own,
        ] {
            golden.insert(format!("bgp-peers-{n}-{field}"), value.to_owned());
        }
    }
    Ok(golden)
}

/// Waits until node `a` is told exactly this.
async fn says(cloud: CloudApi, corner: &Corner, expected: &BTreeMap<String, String>) -> Result<Node> {
    let (nodes, name) = (corner.nodes(), corner.node_name("a"));
    eventually_within(REFRESH, "the node says what the cloud says", async || {
        let node = nodes.get(&name).await?;
        let said = told(cloud, &node);
        ensure!(said == *expected, "it says {said:?}");
        Ok(node)
    })
    .await
}

/// E30, E31, E32, E90: no peers at first is no answer, and nothing is written; they come; then AS number, password and peers change, and the
/// node says exactly what the cloud says, in one patch each.
async fn peers_come_late_change_and_go(cloud: CloudApi) -> Result<()> {
    let world = WorldOptions::on(cloud, cloud.project())
        .section("bgp: {refresh: 10s}\n")
        .start("peers")
        .await?;
    let (corner, project) = (&world.corner, world.project()?);
    let device = project.add_device(DeviceOptions::named(corner.node_name("a")));
    cloud.set_peers(project, device, []);
    let node = corner.node_draft("a").uninitialized();
    corner
        .create_node(node.annotation("example.com/mine", "yes"))
        .await?;
    let (route, least) = match cloud {
        CloudApi::Equinix => ("/devices/{id}/bgp/neighbors", 1),
        // Once more as the server is told to speak BGP.
        CloudApi::Cherry => ("/servers/{id}", 2),
    };
    eventually("peers are asked for again", async || {
        let asked = project.journal().calls(0, "GET", route);
        ensure!(asked.len() > least, "{} times", asked.len());
        Ok(())
    })
    .await?;
    let node = corner.nodes().get(&corner.node_name("a")).await?;
    assert_eq!(told(cloud, &node), BTreeMap::new(), "half an answer was written");

    let mark = corner.mark().await?;
    let peer = |text: &str| text.parse::<IpAddr>();
    // In the other order, to see that it is put right.
    cloud.set_peers(project, device, [peer("169.254.255.2")?, peer("169.254.255.1")?]);
    let asn = project.bgp_config().context("BGP is off")?.asn.to_string();
    let golden =
        |asn: &str, password: &str, peers: &[&str]| golden(cloud, project, device, asn, password, peers);
    let both = golden(&asn, "", &["169.254.255.1", "169.254.255.2"])?;
    says(cloud, corner, &both).await?;

    project.set_bgp(64_999, Some("Secret4711x"));
    cloud.set_peers(project, device, [peer("169.254.255.9")?]);
    let one = golden("64999", "U2VjcmV0NDcxMXg=", &["169.254.255.9"])?;
    let node = says(cloud, corner, &one).await?;
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
    let most = match cloud {
        CloudApi::Equinix => 2,
        // The project's AS number is asked for once a minute for all servers, and may be told after the routers.
        CloudApi::Cherry => 3,
    };
    ensure!((2..=most).contains(&patches.count()), "{:?}", patches.summary());
    ensure!(
        !world.log_text()?.contains("Secret4711x"),
        "the log holds a password"
    );
    Ok(())
}

/// E90: turned off, annotations stay; told to clean up, it takes back its own, and nothing else, and leaves the cloud as it is.
async fn turned_off_it_cleans_up_what_is_its_own(cloud: CloudApi) -> Result<()> {
    let world = WorldOptions::on(cloud, cloud.project())
        .gateway("  bgpNodeSelector: speaks!=no\n  bgpCleanup: true\n")
        .start("cleanup")
        .await?;
    let (corner, project) = (&world.corner, world.project()?);
    world.add_machine("a").await?;
    let speaks = |node: &Node| {
        told(cloud, node)
            .contains_key("bgp-peers-1-peer-ip")
            .then_some(())
    };
    corner.node_until("a", "knows its peers", speaks).await?;
    let sessions = project.sessions().len();
    ensure!(sessions > 0, "there is no session");
    let patch = json!({ "metadata": {
        "labels": { "speaks": "no" },
        "annotations": { "example.com/mine": "yes", cloud.annotation("bgp-peers-7-peer-ip"): "192.0.2.1" },
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
        (!annotations.contains_key(NODE_ANNOTATED) && !told(cloud, node).contains_key("bgp-peers-0-peer-ip"))
            .then_some(annotations)
    };
    let left = corner.node_until("a", "is freed of them", freed).await?;
    assert_eq!(left.get("example.com/mine").map(String::as_str), Some("yes"));
    // The key of a peer is ours by its name while peers are told. Whoever wrote this one did so as we stopped.
    ensure!(
        told(cloud, &corner.nodes().get(&corner.node_name("a")).await?)
            .keys()
            .all(|key| key == "bgp-peers-7-peer-ip"),
        "{left:?}"
    );
    assert_eq!(project.sessions().len(), sessions, "the cloud was touched");
    Ok(())
}

/// E17, E90: machines without public addresses, without IPv4, and of both families by `--node-ip` become nodes, all the same.
async fn machines_of_any_address_family_become_nodes(cloud: CloudApi) -> Result<()> {
    let world = WorldOptions::on(cloud, cloud.project()).start("families").await?;
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
        let node = initialised(corner, suffix).await?;
        assert_eq!(addresses(&node), expected, "{suffix}");
        let labels = node.metadata.labels.unwrap_or_default();
        let (region, zone) = match cloud {
            CloudApi::Equinix => ("sv", Some("sv15")),
            // It has no zones.
            CloudApi::Cherry => ("eu_nord_1", None),
        };
        for (key, value) in [("region", Some(region)), ("zone", zone)] {
            let label = labels.get(&format!("topology.kubernetes.io/{key}"));
            assert_eq!(label.map(String::as_str), value, "{suffix}");
        }
    }
    Ok(())
}
