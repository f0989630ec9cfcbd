//! BGP: a switch of the project, a switch of each server, and the routers of the server's region.
//!
//! There are no sessions to make: a server speaks BGP, or does not. To those who count sessions a server that does has one of each
//! family.

use std::net::IpAddr;
use std::time::Duration;

use async_trait::async_trait;
use groundplane_core::{Family, ProviderId};
use http::Method;
use serde_json::json;
use tokio::time::Instant;

use super::{Cherry, need_server, provider_id, wire};
use crate::error::not_absence;
use crate::http::Call;
use crate::{BgpFabric, BgpProject, CloudError, CloudErrorKind, NeighborQuery, Neighbors, Peer, Session};

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];
const ENABLE: &str = "enable BGP";
/// How long the project's BGP is good for the neighbours of machines. Whether it is on is asked elsewhere, too.
const RECENT: Duration = Duration::from_secs(60);

#[async_trait]
impl BgpFabric for Cherry {
    fn needs_sessions(&self) -> bool {
        true
    }

    async fn project(&self) -> Result<Option<BgpProject>, CloudError> {
        project(&self.read_project().await?)
    }

    async fn enable(&self) -> Result<BgpProject, CloudError> {
        let before = self.read_project().await?;
        if let Some(enabled) = project(&before)? {
            return Ok(enabled);
        }
        let call = self
            .project_call(ENABLE, Method::PUT)
            .body(json!({ "name": before.name, "bgp": true }));
        self.http.send(&call).await.map_err(not_absence)?;
        self.project().await?.ok_or_else(|| {
            call.error(
                CloudErrorKind::Unavailable,
                "accepted, but the project does not show it",
            )
        })
    }

    async fn sessions(&self) -> Result<Vec<Session>, CloudError> {
        let mut sessions = Vec::new();
        for server in self
            .servers()
            .await?
            .into_iter()
            .filter(|server| server.bgp.enabled)
        {
            for family in FAMILIES {
                sessions.push(Session {
                    id: format!("{}/{family}", server.id),
                    machine: provider_id(server.id, "list BGP sessions")?,
                    family,
                    status: server.bgp.status.clone(),
                });
            }
        }
        Ok(sessions)
    }

    async fn create_session(&self, machine: &ProviderId, _family: Family) -> Result<(), CloudError> {
        let operation = format!("enable BGP of {machine}");
        let number = need_server(machine, &operation)?;
        let server = self.server(number).await?;
        if server.bgp.enabled {
            return Ok(());
        }
        // Tags that are left out of such a call may be taken for none.
        let call = Call::new(
            operation,
            Method::PUT,
            "/servers/{id}",
            format!("/servers/{number}"),
        )
        .body(json!({ "tags": server.tags.0, "bgp": true }));
        self.http.send(&call).await
    }

    async fn neighbors(&self, query: &NeighborQuery) -> Result<Neighbors, CloudError> {
        let operation = "read BGP neighbors";
        let number = need_server(&query.machine, operation)?;
        let (server, own) = futures::future::try_join(self.server(number), self.own_bgp()).await?;
        // Routers speak to nobody whose switches are off.
        let Some(own) = own.filter(|_| server.bgp.enabled) else {
            return Ok(Neighbors::default());
        };
        let routers = &server.region.bgp;
        if routers.asn == 0 && !routers.hosts.is_empty() {
            let message = format!("region {} has routers, and no AS number", server.region.slug);
            return Err(CloudError::new(CloudErrorKind::Unavailable, operation, message));
        }
        let mut peers: Vec<Peer> = routers
            .hosts
            .iter()
            .map(|host| peer(&server, *host, own.local_asn))
            .collect();
        peers.sort_by_key(|peer| peer.address);
        peers.dedup_by_key(|peer| peer.address);
        Ok(Neighbors {
            peers,
            private_network: None,
            gateway: None,
        })
    }
}

impl Cherry {
    fn project_call(&self, operation: &str, method: Method) -> Call {
        let path = format!("/projects/{}", self.config.project_id);
        Call::new(operation, method, "/projects/{pid}", path)
    }

    /// BGP of the project, as read in the last minute: machines that join together ask for it together.
    async fn own_bgp(&self) -> Result<Option<BgpProject>, CloudError> {
        let mut recent = self.recent.lock().await;
        if let Some((read, own)) = &*recent
            && read.elapsed() < RECENT
        {
            return Ok(Some(own.clone()));
        }
        let own = self.project().await?;
        *recent = own.clone().map(|own| (Instant::now(), own));
        Ok(own)
    }

    async fn read_project(&self) -> Result<wire::Project, CloudError> {
        let call = self.project_call("read the project", Method::GET);
        self.http.read(&call).await.map_err(not_absence)
    }
}

/// `None`: it is off.
fn project(project: &wire::Project) -> Result<Option<BgpProject>, CloudError> {
    let wire::ProjectBgp { enabled, local_asn } = project.bgp;
    if enabled && local_asn == 0 {
        let message = "BGP is on, and the project has no AS number";
        return Err(CloudError::new(
            CloudErrorKind::Unavailable,
            "read the project",
            message,
        ));
    }
    Ok(enabled.then_some(BgpProject {
        enabled,
        pending: false,
        local_asn,
        password: None,
        // What it says of each server is not documented to be that.
        max_prefixes: None,
    }))
}

/// The routers of a region are not in the server's own network, and take what comes from its public address.
fn peer(server: &wire::Server, address: IpAddr, local_asn: u32) -> Peer {
    let own = server.ip_addresses.iter().filter(|row| row.is_public());
    let source = own
        .filter_map(|row| row.address)
        .find(|own| Family::of(*own) == Family::of(address));
    Peer {
        address,
        asn: server.region.bgp.asn,
        local_asn,
        source,
        password: None,
        multihop: true,
        port: None,
    }
}
