//! The gateway at a glance.

use std::collections::BTreeMap;
use std::time::Duration;

use groundplane_proto::gateway::v1::OverviewResponse;
use groundplane_proto::{bgp, eip, instances, ipam};
use groundplane_runtime::grpc::RpcError;
use tokio::time::timeout;

use super::cache_age;
use crate::domain::service::{Plan, Scope, is_ours, plan};
use crate::gateway::{Gateway, Standing};
use crate::queue::Queue;

/// A service that does not answer within this time is not ready.
const PATIENCE: Duration = Duration::from_secs(2);

/// Leader, caches, services and counts.
pub(super) async fn overview(gateway: &Gateway) -> OverviewResponse {
    let cluster = &gateway.cluster;
    let scope = Scope::of(&gateway.config);
    let services = cluster.services.index.all();
    let ours = services
        .iter()
        .filter(|service| matches!(plan(service, &scope), Plan::Hold(_) | Plan::Refuse(_)));
    let (mut count, mut ready) = (0_usize, 0_usize);
    for service in ours {
        count += 1;
        ready += usize::from(is_ours(service) && !service.ingress.is_empty());
    }
    let nodes = cluster.nodes.index.all();
    let initialized = nodes.iter().filter(|node| !node.is_uninitialised()).count();
    let (store_id, store_revision) = match gateway.adoption.standing() {
        Standing::Adopted { store, revision } => (store, revision),
        Standing::Refused { trusted, .. } => (trusted, 0),
        Standing::Waiting => Default::default(),
    };
    let queues = [
        &gateway.queues.nodes,
        &gateway.queues.bgp,
        &gateway.queues.services,
    ];
    OverviewResponse {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        cluster: cluster
            .identity
            .get()
            .map(|id| id.to_string())
            .unwrap_or_default(),
        driver: gateway.config.driver.to_string(),
        leader: cluster.leader.is_leader(),
        leader_identity: cluster.leader.identity().to_owned(),
        services: number(count),
        services_with_address: number(ready),
        nodes: number(nodes.len()),
        nodes_initialized: number(initialized),
        queue_length: number(queues.into_iter().map(length).sum()),
        cache_age: cache_age(gateway),
        dependencies: dependencies(gateway).await,
        store_id,
        store_revision,
    }
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn length(queue: &Queue) -> usize {
    let depth = queue.depth();
    depth.ready + depth.running + depth.waiting
}

/// Asks each service for something small.
async fn dependencies(gateway: &Gateway) -> BTreeMap<String, String> {
    let services = &gateway.services;
    let cluster = gateway
        .cluster
        .identity
        .get()
        .map(|id| id.to_string())
        .unwrap_or_default();
    let addresses = eip::v1::ListAddressesRequest {
        cluster,
        page_size: 1,
        page_token: String::new(),
    };
    let machines = instances::v1::ListMachinesRequest {
        page_size: 1,
        page_token: String::new(),
        fresh: false,
    };
    let peers = bgp::v1::ListPeersRequest {
        page_size: 1,
        page_token: String::new(),
    };
    let (ipam, eip, instances, bgp) = tokio::join!(
        answers(services.ipam.get_store(ipam::v1::GetStoreRequest {})),
        answers(services.eip.list_addresses(addresses)),
        answers(services.instances.list_machines(machines)),
        answers(services.bgp.list_peers(peers)),
    );
    let ipam = gateway.adoption.standing().refusal().unwrap_or(ipam);
    [
        ("ipam", ipam),
        ("eip", eip),
        ("instances", instances),
        ("bgp", bgp),
    ]
    .map(|(name, state)| (name.to_owned(), state))
    .into()
}

/// `ready`, or why not.
async fn answers<T>(call: impl Future<Output = Result<T, RpcError>>) -> String {
    match timeout(PATIENCE, call).await {
        Ok(Ok(_)) => "ready".to_owned(),
        Ok(Err(error)) => format!("{}: {error}", error.reason),
        Err(_) => format!("no answer within {PATIENCE:?}"),
    }
}
