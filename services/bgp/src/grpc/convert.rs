//! Messages to values, and back. The only place that opens passwords.

use std::fmt::Display;
use std::num::NonZeroU32;
use std::str::FromStr;

use groundplane_cloud::{BgpProject, NeighborQuery, Neighbors, Peer};
use groundplane_core::ProviderId;
use groundplane_proto::bgp::v1 as proto;
use groundplane_runtime::grpc::InvalidField;
use secrecy::{ExposeSecret as _, SecretString};

use crate::app::{Asked, Overview, Peers};
use crate::error::BgpError;

/// The project, as the contract says it.
pub(crate) fn project(project: &BgpProject) -> proto::EnsureProjectResponse {
    proto::EnsureProjectResponse {
        enabled: project.enabled,
        local_asn: project.local_asn,
        pending: project.pending,
        max_prefixes: project.max_prefixes.map_or(0, NonZeroU32::get),
    }
}

/// A request for the peers of a machine.
pub(crate) fn asked(request: proto::EnsureMachineRequest) -> Result<Asked, BgpError> {
    let machine: ProviderId = parse(|| "provider_id".to_owned(), &request.provider_id)?;
    if machine.id().is_empty() || machine.id().contains("://") {
        return Err(InvalidField::new("provider_id", "is not `<cloud>://<id>`").into());
    }
    let mut peers = Vec::with_capacity(request.known_peers.len());
    for (index, known) in request.known_peers.into_iter().enumerate() {
        peers.push(seed(index, known)?);
    }
    peers.sort_by_key(|peer| peer.address);
    let private_network = Some(request.known_private_network).filter(|network| !network.is_empty());
    Ok(Asked {
        query: NeighborQuery {
            machine,
            node: request.node,
            labels: request.labels.into_iter().collect(),
            // A node reports names among its addresses, too.
            addresses: request
                .addresses
                .iter()
                .filter_map(|address| address.parse().ok())
                .collect(),
        },
        seed: Neighbors {
            peers,
            private_network,
            // Nodes do not say it.
            gateway: None,
        },
        fresh: request.fresh,
    })
}

fn seed(index: usize, peer: proto::Peer) -> Result<Peer, BgpError> {
    let field = |name: &'static str| move || format!("known_peers[{index}].{name}");
    let source = match peer.source_address.as_str() {
        "" => None,
        text => Some(parse(field("source_address"), text)?),
    };
    let port = u16::try_from(peer.port).map_err(|error| InvalidField::new(field("port")(), error))?;
    Ok(Peer {
        address: parse(field("peer_address"), &peer.peer_address)?,
        asn: peer.peer_asn,
        local_asn: peer.local_asn,
        source,
        password: (!peer.password.is_empty()).then(|| SecretString::from(peer.password)),
        multihop: peer.multihop,
        port: (port != 0).then_some(port),
    })
}

fn parse<T: FromStr<Err: Display>>(field: impl FnOnce() -> String, text: &str) -> Result<T, BgpError> {
    text.parse()
        .map_err(|error| InvalidField::new(field(), error).into())
}

/// The peers of a machine, passwords included: for who asked for this machine.
pub(crate) fn peers(peers: Peers) -> proto::EnsureMachineResponse {
    let Neighbors {
        peers: mut list,
        private_network,
        gateway: _,
    } = peers.neighbors;
    list.sort_by_key(|peer| peer.address);
    let with_password = |peer: Peer| {
        let password = peer
            .password
            .as_ref()
            .map(|password| password.expose_secret().to_owned());
        proto::Peer {
            password: password.unwrap_or_default(),
            ..without_password(&peer)
        }
    };
    proto::EnsureMachineResponse {
        peers: list.into_iter().map(with_password).collect(),
        private_network: private_network.unwrap_or_default(),
        pending: peers.pending,
        unverified: peers.unverified,
    }
}

fn without_password(peer: &Peer) -> proto::Peer {
    proto::Peer {
        peer_address: peer.address.to_string(),
        peer_asn: peer.asn,
        local_asn: peer.local_asn,
        source_address: peer.source.map(|source| source.to_string()).unwrap_or_default(),
        password: String::new(),
        multihop: peer.multihop,
        port: peer.port.map(u32::from).unwrap_or_default(),
    }
}

/// A machine's peers for people, passwords left out.
pub(crate) fn told(overview: Overview) -> proto::MachinePeers {
    proto::MachinePeers {
        provider_id: overview.machine.into(),
        node: overview.node,
        peers: overview.neighbors.peers.iter().map(without_password).collect(),
        session_status: overview.sessions.into_iter().collect(),
        private_network: overview.neighbors.private_network.unwrap_or_default(),
        gateway: overview
            .neighbors
            .gateway
            .map(|gateway| gateway.to_string())
            .unwrap_or_default(),
    }
}
