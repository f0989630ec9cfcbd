//! What groundplane costs: calls to the cloud and writes to Kubernetes, as counts. The same at full size is in `make bench`.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use groundplane_sandbox::{Choice, DeviceOptions, ProjectOptions};
use groundplane_tests::kube_api::{Audit, Mark, ingress_of};
use groundplane_tests::metallb::objects;
use groundplane_tests::{CloudApi, User, World, WorldOptions, eventually};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Service};
use kube::Api;
use kube::api::ListParams;
use pretty_assertions::assert_eq;

use crate::metallb::{corner, section};

const SERVICES: usize = 20;
const NODES: usize = 5;
/// Routers that each machine peers with.
const PEERS: usize = 2;
/// Short, so that rounds can be waited for. A list takes one page here.
const ROUNDS: &str = "eip: {maxAge: 2s}\ninstances: {maxAge: 2s}\n";

/// The routes of one cloud.
struct Routes {
    order: &'static str,
    session: &'static str,
    neighbours: &'static str,
    machines: &'static str,
    addresses: &'static str,
}

fn routes(cloud: CloudApi) -> Routes {
    match cloud {
        CloudApi::Equinix => Routes {
            order: "POST /projects/{pid}/ips",
            session: "POST /devices/{id}/bgp/sessions",
            neighbours: "GET /devices/{id}/bgp/neighbors",
            machines: "GET /projects/{pid}/devices",
            addresses: "GET /projects/{pid}/ips",
        },
        CloudApi::Cherry => Routes {
            order: "POST /projects/{pid}/ips",
            session: "PUT /servers/{id}",
            neighbours: "GET /servers/{id}",
            machines: "GET /projects/{pid}/servers",
            addresses: "GET /projects/{pid}/ips",
        },
    }
}

fn options(cloud: CloudApi) -> WorldOptions {
    let project = ProjectOptions {
        asn: Some(65_000),
        list_machine_blocks: false,
        ..cloud.project()
    };
    WorldOptions::on(cloud, project).section(ROUNDS)
}

/// A machine that speaks IPv4 alone, and its node: one session.
async fn add_machine(world: &World, suffix: &str) -> Result<()> {
    let corner = &world.corner;
    world.project()?.add_device(DeviceOptions {
        public_ipv6: Choice::Absent,
        ..DeviceOptions::named(corner.node_name(suffix))
    });
    corner
        .create_node(corner.node_draft(suffix).uninitialized())
        .await
        .map(drop)
}

fn name(number: usize) -> String {
    format!("web-{number:02}")
}

async fn fill(world: &World, class: Option<&str>) -> Result<()> {
    for number in 0..NODES {
        add_machine(world, &number.to_string()).await?;
    }
    let drafts = (0..SERVICES).map(|number| {
        let draft = world.corner.service_draft(&name(number));
        match class {
            Some(class) => draft.class(class),
            None => draft,
        }
    });
    futures::future::try_join_all(drafts.map(|draft| world.corner.create_service(draft)))
        .await
        .map(drop)
}

/// Waits until the nodes with these suffixes know their peers, each of them.
async fn peered(world: &World, suffixes: impl IntoIterator<Item = usize>) -> Result<()> {
    let knows = |node: &Node| {
        let annotations = node.metadata.annotations.as_ref()?;
        let told = annotations
            .keys()
            .filter(|key| key.contains("/bgp-peers-") && key.ends_with("-peer-ip"));
        (told.count() == PEERS).then_some(())
    };
    for suffix in suffixes {
        world
            .corner
            .node_until(&suffix.to_string(), "knows its peers", knows)
            .await?;
    }
    Ok(())
}

async fn addressed(world: &World) -> Result<()> {
    eventually("all Services have an address", async || {
        let services = world.corner.api::<Service>().list(&ListParams::default()).await?;
        let count = services
            .iter()
            .filter(|service| !ingress_of(service).is_empty())
            .count();
        ensure!(count == SERVICES, "{count} have one");
        Ok(())
    })
    .await
}

/// Waits until both lists were read so often since `mark`, and nothing waits in a queue of the leader's.
async fn rounds(world: &World, cloud: CloudApi, mark: u64, times: u64) -> Result<()> {
    let routes = routes(cloud);
    eventually(format_args!("{times} rounds"), async || {
        let counts = world.project()?.journal().counts(mark);
        let seen = [routes.machines, routes.addresses].map(|route| of(&counts, route));
        ensure!(seen.iter().all(|seen| *seen >= times), "{counts:?}");
        let overview = world.ctl(&["overview"]).await?;
        ensure!(overview["leader"] == true, "{overview}");
        Ok(())
    })
    .await
}

fn of(counts: &BTreeMap<String, u64>, route: &str) -> u64 {
    counts.get(route).copied().unwrap_or_default()
}

async fn writes(world: &World, mark: Mark) -> Result<Audit> {
    let requests = world.corner.requests_since(mark).await?;
    Ok(requests.by_user(User::Gateway).writes())
}

/// Nothing but these two lists is asked for in some rounds, and nothing is written.
async fn idles(world: &World, cloud: CloudApi) -> Result<()> {
    let routes = routes(cloud);
    let (calls, mark) = (world.project()?.journal().mark(), world.corner.mark().await?);
    rounds(world, cloud, calls, 3).await?;
    let mut counts = world.project()?.journal().counts(calls);
    counts.remove(routes.machines);
    counts.remove(routes.addresses);
    assert_eq!(counts, BTreeMap::new(), "more than the two lists was asked for");
    let writes = writes(world, mark).await?;
    assert_eq!(writes.summary(), BTreeMap::new());
    Ok(())
}

/// E85, E90: Services and nodes that come at once cost one order each, one session and one question for peers each; a restart and idling cost
/// lists, and no write.
async fn made_once(cloud: CloudApi, corner: &str) -> Result<()> {
    let mut world = options(cloud).start(corner).await?;
    let routes = routes(cloud);
    fill(&world, None).await?;
    addressed(&world).await?;
    peered(&world, 0..NODES).await?;
    let counts = world.project()?.journal().counts(0);
    let (services, nodes) = (u64::try_from(SERVICES)?, u64::try_from(NODES)?);
    assert_eq!(of(&counts, routes.order), services, "{counts:?}");
    assert_eq!(of(&counts, routes.session), nodes, "{counts:?}");
    match cloud {
        CloudApi::Equinix => {
            assert_eq!(of(&counts, routes.neighbours), nodes, "{counts:?}");
            assert!(of(&counts, "GET /devices/{id}") <= nodes, "{counts:?}");
        }
        // Once as it is before it is changed, once with its routers.
        CloudApi::Cherry => assert_eq!(of(&counts, routes.neighbours), 2 * nodes, "{counts:?}"),
    }
    let settled = world.project()?.journal().mark();
    rounds(&world, cloud, settled, 1).await?;
    idles(&world, cloud).await?;

    let (calls, mark) = (world.project()?.journal().mark(), world.corner.mark().await?);
    world.kill_and_restart().await?;
    rounds(&world, cloud, calls, 3).await?;
    idles(&world, cloud).await?;
    let journal = world.project()?.journal();
    let mut counts = journal.counts(calls);
    assert_eq!(journal.writes(calls).len(), 0, "{counts:?}");
    for list in [routes.machines, routes.addresses] {
        counts.remove(list);
    }
    // The project's BGP and the list of sessions, for all nodes together.
    let others: u64 = counts.values().sum();
    assert!(others <= 3, "{counts:?}");
    let writes = writes(&world, mark).await?;
    assert_eq!(writes.summary(), BTreeMap::new());
    Ok(())
}

#[tokio::test]
async fn all_is_made_once_and_a_restart_or_idling_only_lists_at_equinix() -> Result<()> {
    made_once(CloudApi::Equinix, "cost").await
}

#[tokio::test]
async fn all_is_made_once_and_a_restart_or_idling_only_lists_at_cherry() -> Result<()> {
    made_once(CloudApi::Cherry, "cost-cherry").await
}

/// Waits until MetalLB is told of so many nodes' peers. The other announcers live on the nodes' annotations.
async fn told(world: &World, announcer: &str, namespace: &str, nodes: usize) -> Result<()> {
    eventually(
        format_args!("{announcer} knows the peers of {nodes} nodes"),
        async || {
            let count = match announcer {
                "metallb" => objects(&world.corner, namespace, "BGPPeer").await?.len(),
                "metallb-configmap" => {
                    let api: Api<ConfigMap> = Api::namespaced(world.corner.client(), namespace);
                    let data = api.get("config").await?.data.unwrap_or_default();
                    data.get("config")
                        .map_or(0, |text| text.matches("peer-address:").count())
                }
                _ => nodes * PEERS,
            };
            ensure!(count == nodes * PEERS, "{count} peers");
            Ok(())
        },
    )
    .await
}

/// However many Services there are: a node that comes costs the cloud one session and the question for its peers, and Kubernetes what the
/// node itself needs and what its own peers need; no Service is written, and no other node's peer.
async fn one_node_more(announcer: &str, of_peers: &[(&str, usize)]) -> Result<()> {
    let cloud = CloudApi::Equinix;
    let (corner, namespace) = corner("one-more", announcer).await?;
    let class = corner.class();
    let gateway = match announcer {
        "kube-vip" => "  announcer: kube-vip\n".to_owned(),
        _ => section(&corner, announcer, &namespace, ""),
    };
    let world = options(cloud).gateway(&gateway).start_in(corner).await?;
    world.ready().await?;
    fill(&world, (announcer != "kube-vip").then_some(&class)).await?;
    peered(&world, 0..NODES).await?;
    told(&world, announcer, &namespace, NODES).await?;
    let ordered = world.project()?.journal();
    eventually("every Service has its reservation", async || {
        let orders = of(&ordered.counts(0), routes(cloud).order);
        ensure!(orders == u64::try_from(SERVICES)?, "{orders} orders");
        Ok(())
    })
    .await?;
    settled(&world).await?;

    let (calls, mark) = (ordered.mark(), world.corner.mark().await?);
    add_machine(&world, &NODES.to_string()).await?;
    peered(&world, [NODES]).await?;
    told(&world, announcer, &namespace, NODES + 1).await?;
    rounds(&world, cloud, ordered.mark(), 2).await?;
    let counts = ordered.counts(calls);
    assert_eq!(of(&counts, routes(cloud).session), 1, "{counts:?}");
    assert_eq!(ordered.writes(calls).len(), 1, "{counts:?}");
    assert_eq!(of(&counts, routes(cloud).neighbours), 1, "{counts:?}");

    let mut summary = writes(&world, mark).await?.summary();
    for (write, allowed) in of_peers {
        let made = summary.remove(*write).unwrap_or_default();
        assert!(
            (1..=*allowed).contains(&made),
            "{made} times {write}, and {summary:?}"
        );
    }
    let events = summary.remove("create events").unwrap_or_default();
    assert!(events <= 2, "{events} events");
    let expected = [("patch nodes", 2), ("patch nodes/status", 1)];
    let expected: BTreeMap<_, _> = expected.map(|(write, count)| (write.to_owned(), count)).into();
    assert_eq!(summary, expected);
    Ok(())
}

/// Waits until a round of all that waited has passed without a write.
async fn settled(world: &World) -> Result<()> {
    eventually("a round without a write", async || {
        let (calls, mark) = (world.project()?.journal().mark(), world.corner.mark().await?);
        rounds(world, CloudApi::Equinix, calls, 1).await?;
        let writes = writes(world, mark).await?.summary();
        ensure!(writes.is_empty(), "{writes:?}");
        Ok(())
    })
    .await
    .context("it does not settle")
}

#[tokio::test]
async fn a_node_more_costs_its_own_annotations() -> Result<()> {
    one_node_more("kube-vip", &[]).await
}

#[tokio::test]
async fn a_node_more_costs_its_own_peers_in_custom_resources() -> Result<()> {
    one_node_more("metallb", &[("create bgppeers", PEERS)]).await
}

#[tokio::test]
async fn a_node_more_costs_one_write_of_the_config_map() -> Result<()> {
    one_node_more("metallb-configmap", &[("patch configmaps", 1)]).await
}
