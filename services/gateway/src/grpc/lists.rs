//! Lists: pages of the services, with the names that the cluster has for what they tell.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use groundplane_core::{Prefix, ProviderId};
use groundplane_proto::eip::v1::{HeldAddress, State};
use groundplane_proto::gateway::v1 as pb;
use groundplane_proto::{bgp, eip, instances, ipam};

use super::GatewayError;
use crate::clients::messages::owner;
use crate::cluster::objects::{Key, ServiceObject};
use crate::domain::service::addresses as ingress;
use crate::gateway::Gateway;

/// Every pool, and how full it is.
pub(super) async fn pools(gateway: &Gateway) -> Result<pb::ListPoolsResponse, GatewayError> {
    let answer = gateway
        .services
        .ipam
        .list_pools(ipam::v1::ListPoolsRequest {})
        .await?;
    Ok(pb::ListPoolsResponse { pools: answer.pools })
}

/// Who has what. A cloud's tags do not say the owner in clear; then it is the Service that has the address in its status.
pub(super) async fn addresses(
    gateway: &Gateway,
    request: pb::ListAddressesRequest,
) -> Result<pb::ListAddressesResponse, GatewayError> {
    let cluster = gateway.cluster.identity.get().ok_or(GatewayError::NoCluster)?;
    let pb::ListAddressesRequest {
        page_size,
        page_token,
    } = request;
    let request = eip::v1::ListAddressesRequest {
        cluster: cluster.to_string(),
        page_size,
        page_token,
    };
    let page = gateway.services.eip.list_addresses(request).await?;
    let unowned = page.addresses.iter().any(|held| held.owner.is_none());
    let by_address = if unowned {
        services_by_address(gateway)
    } else {
        HashMap::new()
    };
    let row = |held: HeldAddress| {
        let address = held.address.unwrap_or_default();
        let known = || {
            let prefix: Prefix = address.prefix.parse().ok()?;
            by_address.get(&prefix.address()).map(|key| owner(&cluster, key))
        };
        pb::AddressRow {
            owner: held.owner.or_else(known),
            since: held.since,
            state: match address.state() {
                State::Ready => "ready",
                State::Pending => "pending",
                State::Unspecified => "",
            }
            .to_owned(),
            prefix: address.prefix,
            origin: address.origin,
        }
    };
    Ok(pb::ListAddressesResponse {
        addresses: page
            .addresses
            .into_iter()
            .map(row)
            .collect::<Vec<pb::AddressRow>>(),
        next_page_token: page.next_page_token,
    })
}

fn services_by_address(gateway: &Gateway) -> HashMap<IpAddr, Key> {
    let services = gateway.cluster.services.index.all();
    let of = |service: &Arc<ServiceObject>| {
        ingress(service)
            .map(|address| (address, service.key.clone()))
            .collect::<Vec<_>>()
    };
    services.iter().flat_map(of).collect()
}

/// Every machine, and which node it is.
pub(super) async fn machines(
    gateway: &Gateway,
    request: pb::ListMachinesRequest,
) -> Result<pb::ListMachinesResponse, GatewayError> {
    let pb::ListMachinesRequest {
        page_size,
        page_token,
    } = request;
    let request = instances::v1::ListMachinesRequest {
        page_size,
        page_token,
        fresh: false,
    };
    let page = gateway.services.instances.list_machines(request).await?;
    let nodes = nodes_by_machine(gateway);
    let row = |machine: instances::v1::Machine| pb::MachineRow {
        node: node_of(&nodes, &machine.provider_id),
        machine: Some(machine),
    };
    Ok(pb::ListMachinesResponse {
        machines: page.machines.into_iter().map(row).collect(),
        next_page_token: page.next_page_token,
    })
}

/// Names of nodes, by the bare id of their machine: a cloud had several schemes in its time.
fn nodes_by_machine(gateway: &Gateway) -> HashMap<String, String> {
    let nodes = gateway.cluster.nodes.index.all();
    let named = nodes.iter().filter_map(|node| {
        let machine: ProviderId = node.provider_id.parse().ok()?;
        Some((machine.id().to_owned(), node.name().to_owned()))
    });
    named.collect()
}

/// Which of the named nodes a machine is; empty: none.
fn node_of(nodes: &HashMap<String, String>, machine: &str) -> String {
    let id = machine.parse::<ProviderId>().ok();
    id.and_then(|id| nodes.get(id.id()).cloned()).unwrap_or_default()
}

/// The peers of every machine.
pub(super) async fn peers(
    gateway: &Gateway,
    request: pb::ListPeersRequest,
) -> Result<pb::ListPeersResponse, GatewayError> {
    let pb::ListPeersRequest {
        page_size,
        page_token,
    } = request;
    let page = gateway
        .services
        .bgp
        .list_peers(bgp::v1::ListPeersRequest {
            page_size,
            page_token,
        })
        .await?;
    let nodes = nodes_by_machine(gateway);
    let named = |mut machine: bgp::v1::MachinePeers| {
        if machine.node.is_empty() {
            machine.node = node_of(&nodes, &machine.provider_id);
        }
        machine
    };
    Ok(pb::ListPeersResponse {
        machines: page.machines.into_iter().map(named).collect(),
        next_page_token: page.next_page_token,
    })
}
