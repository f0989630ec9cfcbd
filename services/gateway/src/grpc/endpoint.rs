//! Who holds the API endpoint, as a gateway can tell: from eip and from the cluster's nodes. Probes are the agents' affair.

use std::net::{IpAddr, SocketAddr};

use groundplane_proto::eip::v1::GetEndpointRequest;
use groundplane_proto::gateway::v1 as pb;

use super::GatewayError;
use crate::endpoint::{ClusterView, overview};
use crate::gateway::Gateway;

pub(super) async fn status(gateway: &Gateway) -> Result<pb::GetEndpointStatusResponse, GatewayError> {
    let Some(external) = &gateway.config.external else {
        return Err(GatewayError::NoEndpoint);
    };
    let cluster = gateway
        .cluster
        .identity
        .get()
        .ok_or(GatewayError::NoCluster)?
        .to_string();
    let read = gateway
        .services
        .eip
        .get_endpoint(GetEndpointRequest { cluster })
        .await?;
    let mut answer = pb::GetEndpointStatusResponse {
        holder: read.holder.clone(),
        read_at: read.read_at,
        candidates_from: "cluster".to_owned(),
        ..pb::GetEndpointStatusResponse::default()
    };
    if !read.other_assignments.is_empty() {
        let others: Vec<&str> = read
            .other_assignments
            .iter()
            .map(|other| other.holder.as_str())
            .collect();
        answer.problem = format!(
            "several machines hold the endpoint ({}, {}); nothing is moved until all but one are taken away",
            read.holder,
            others.join(", ")
        );
    }
    let Ok(address) = read.address.parse::<IpAddr>() else {
        return Ok(answer);
    };
    let nodes = gateway.cluster.nodes.index.all();
    let view = ClusterView::of(&nodes, &external.node_selector, &gateway.servers.all());
    answer.address = match external.port.or(external.node_port).or_else(|| view.port()) {
        Some(port) => SocketAddr::new(address, port).to_string(),
        None => address.to_string(),
    };
    let (candidates, holder) = overview(&view, address, external.node_port, &read.holder);
    if let Some(holder) = holder {
        answer.holder = holder;
    }
    let rows = candidates
        .into_iter()
        .map(|(candidate, rank)| pb::EndpointCandidate {
            node: candidate.node,
            provider_id: candidate.provider_id,
            address: candidate.address.to_string(),
            cordoned: candidate.cordoned,
            deleting: candidate.deleting,
            rank,
            probe: None,
            // Agents know.
            refused: false,
        });
    answer.candidates = rows.collect();
    Ok(answer)
}
