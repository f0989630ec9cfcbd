//! BGP.

use std::num::NonZeroU32;
use std::sync::Arc;

use groundplane_core::{ErrorKind, Family};
use groundplane_proto::provider::v1 as wire;
use groundplane_proto::provider::v1::bgp_fabric_service_server::BgpFabricService;
use secrecy::{ExposeSecret as _, SecretString};
use tonic::{Request, Response, Status};

use super::{Loopback, failed, family, lacks, page, provider_id, refused};
use crate::{BgpFabric, BgpProject, NeighborQuery, Peer, Session};

impl Loopback {
    fn fabric(&self) -> Result<&Arc<dyn BgpFabric>, Status> {
        self.cloud.bgp.as_ref().ok_or_else(|| lacks("BGP"))
    }
}

fn plain(secret: Option<&SecretString>) -> String {
    secret.map_or_else(String::new, |secret| secret.expose_secret().to_owned())
}

fn project(project: Option<BgpProject>) -> wire::GetProjectResponse {
    let Some(project) = project else {
        return wire::GetProjectResponse::default();
    };
    wire::GetProjectResponse {
        enabled: project.enabled,
        pending: project.pending,
        local_asn: project.local_asn,
        password: plain(project.password.as_ref()),
        max_prefixes: project.max_prefixes.map_or(0, NonZeroU32::get),
    }
}

fn session(session: Session) -> wire::Session {
    wire::Session {
        id: session.id,
        provider_id: session.machine.to_string(),
        family: session.family.to_string(),
        status: session.status,
    }
}

fn neighbor(peer: &Peer) -> wire::Neighbor {
    wire::Neighbor {
        family: Family::of(peer.address).to_string(),
        local_asn: peer.local_asn,
        local_address: peer.source.map(|source| source.to_string()).unwrap_or_default(),
        peer_asn: peer.asn,
        peer_addresses: vec![peer.address.to_string()],
        password: plain(peer.password.as_ref()),
        multihop: peer.multihop,
        port: peer.port.map(u32::from).unwrap_or_default(),
    }
}

#[async_trait::async_trait]
impl BgpFabricService for Loopback {
    async fn get_project(
        &self,
        _: Request<wire::GetProjectRequest>,
    ) -> Result<Response<wire::GetProjectResponse>, Status> {
        let read = self.fabric()?.project().await;
        Ok(Response::new(project(read.map_err(|error| failed(&error))?)))
    }

    async fn enable_project(
        &self,
        _: Request<wire::EnableProjectRequest>,
    ) -> Result<Response<wire::EnableProjectResponse>, Status> {
        let enabled = self.fabric()?.enable().await;
        Ok(Response::new(wire::EnableProjectResponse {
            project: Some(project(Some(enabled.map_err(|error| failed(&error))?))),
        }))
    }

    async fn list_sessions(
        &self,
        request: Request<wire::ListSessionsRequest>,
    ) -> Result<Response<wire::ListSessionsResponse>, Status> {
        let wire::ListSessionsRequest {
            page_size,
            page_token,
        } = request.into_inner();
        let all = self.fabric()?.sessions().await.map_err(|error| failed(&error))?;
        let rows: Vec<_> = all.into_iter().map(session).collect();
        let (sessions, next_page_token, total_size) = page(rows, page_size, &page_token, |row| &row.id)?;
        Ok(Response::new(wire::ListSessionsResponse {
            sessions,
            next_page_token,
            total_size,
        }))
    }

    async fn create_session(
        &self,
        request: Request<wire::CreateSessionRequest>,
    ) -> Result<Response<wire::CreateSessionResponse>, Status> {
        let asked = request.into_inner();
        let fabric = self.fabric()?;
        if !fabric.needs_sessions() {
            return Err(lacks("sessions to make"));
        }
        let (machine, family) = (provider_id(&asked.provider_id)?, family(&asked.family)?);
        let made = fabric.create_session(&machine, family).await;
        made.map_err(|error| failed(&error))?;
        let all = fabric.sessions().await.map_err(|error| failed(&error))?;
        let found = all
            .into_iter()
            .find(|session| session.machine == machine && session.family == family)
            .ok_or_else(|| {
                refused(
                    ErrorKind::Unavailable,
                    "CLOUD_UNAVAILABLE",
                    "made, and not in the list",
                )
            })?;
        Ok(Response::new(wire::CreateSessionResponse {
            session: Some(session(found)),
        }))
    }

    async fn list_neighbors(
        &self,
        request: Request<wire::ListNeighborsRequest>,
    ) -> Result<Response<wire::ListNeighborsResponse>, Status> {
        let asked = request.into_inner();
        let addresses = asked.node_addresses.iter().map(|text| {
            text.parse().map_err(|_| {
                let message = format!("`{text}` is not an IP address");
                refused(ErrorKind::Invalid, "ADDRESS", message)
            })
        });
        let query = NeighborQuery {
            machine: provider_id(&asked.provider_id)?,
            node: asked.node,
            labels: asked.node_labels.into_iter().collect(),
            addresses: addresses.collect::<Result<_, _>>()?,
        };
        let found = self.fabric()?.neighbors(&query).await;
        let found = found.map_err(|error| failed(&error))?;
        Ok(Response::new(wire::ListNeighborsResponse {
            neighbors: found.peers.iter().map(neighbor).collect(),
            private_network: found.private_network.unwrap_or_default(),
        }))
    }
}
