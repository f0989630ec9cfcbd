//! The API endpoint: a floating IP, and the server that it is on.
//!
//! One call puts it on another server, whoever has it: there is no instant at which nobody does. What the API lacks for that is a refusal
//! where another holds it, and ids of assignments. So an assignment is called by the floating IP and its server, which is the same name
//! each time it is on that server; and whether it is held is looked up before a call that must not move it.

use std::net::IpAddr;

use async_trait::async_trait;
use groundplane_core::{Prefix, ProviderId};
use http::Method;
use serde_json::json;

use super::{Cherry, FloatingIp, addresses, need_server, provider_id, server_of, wire};
use crate::http::{Call, is_plain};
use crate::{CloudError, CloudErrorKind, Endpoint, EndpointAssignment, EndpointIps, EndpointSelector};

const READ: &str = "read the API endpoint";
/// What the API takes for no server.
const NOBODY: u64 = 0;

#[async_trait]
impl EndpointIps for Cherry {
    /// The list, the move, the list again. A project with more addresses than a page has costs a call a page.
    fn calls_per_move(&self) -> u32 {
        3
    }

    fn moves_atomically(&self) -> bool {
        true
    }

    fn machine(&self, id: &ProviderId) -> Option<ProviderId> {
        provider_id(server_of(id)?, READ).ok()
    }

    async fn endpoint(&self, selector: &EndpointSelector) -> Result<Endpoint, CloudError> {
        let row = find(self.addresses().await?, selector)?;
        let floating = movable(&row)?;
        let assignments = row.holder().map(|server| assignment(&row.id, server));
        let endpoint = Endpoint {
            address: floating.address,
            assignments: assignments.into_iter().collect::<Result<_, _>>()?,
        };
        *self.known.lock() = Some(floating);
        Ok(endpoint)
    }

    async fn assign(&self, address: IpAddr, machine: &ProviderId) -> Result<EndpointAssignment, CloudError> {
        let operation = format!("assign {address}");
        let server = need_server(machine, &operation)?;
        let row = find(self.addresses().await?, &EndpointSelector::Address(address))?;
        let floating = movable(&row)?;
        if let Some(holder) = row.holder() {
            let message = format!("server {holder} holds it");
            return Err(CloudError::new(CloudErrorKind::AlreadyExists, operation, message));
        }
        self.put(&floating, server, operation).await
    }

    async fn unassign(&self, assignment_id: &str) -> Result<(), CloudError> {
        let operation = format!("remove assignment {assignment_id}");
        let error = |kind, message| CloudError::new(kind, &operation, message);
        let Some((id, server)) = parse(assignment_id) else {
            let message = "not an assignment of this cloud";
            return Err(error(CloudErrorKind::Refused, message));
        };
        let rows = self.addresses().await?;
        let held = rows
            .iter()
            .any(|row| row.id == id && row.holder() == Some(server));
        if !held {
            return Err(error(CloudErrorKind::NotFound, "it is not there any more"));
        }
        self.http.send(&target(&operation, id, NOBODY)).await
    }

    async fn reassign(
        &self,
        address: IpAddr,
        machine: &ProviderId,
    ) -> Result<EndpointAssignment, CloudError> {
        let operation = format!("move {address}");
        let server = need_server(machine, &operation)?;
        let known = self.known.lock().clone().filter(|known| known.address == address);
        if let Some(known) = &known {
            match self.put(known, server, operation.clone()).await {
                Err(error) if error.is(CloudErrorKind::NotFound) => *self.known.lock() = None,
                result => return result,
            }
        }
        // Never looked for, or not there any more by that id; or the server is not there: the list tells.
        let row = find(self.addresses().await?, &EndpointSelector::Address(address))?;
        let floating = movable(&row)?;
        *self.known.lock() = Some(floating.clone());
        self.put(&floating, server, operation).await
    }
}

impl Cherry {
    /// Puts a floating IP on a server, whoever has it.
    async fn put(
        &self,
        floating: &FloatingIp,
        server: u64,
        operation: String,
    ) -> Result<EndpointAssignment, CloudError> {
        let call = target(&operation, &floating.id, server);
        let row: wire::Ip = match self.http.read(&call).await {
            Ok(row) => row,
            Err(error) => return Err(self.explain(error, floating, server).await),
        };
        match row.holder() {
            Some(other) if other != server => {
                let message = format!("server {other} got it in the same moment");
                Err(call.error(CloudErrorKind::AlreadyExists, message))
            }
            _ => assignment(&floating.id, server),
        }
    }

    /// What a refusal of the API is about, which its status does not tell: a server that is not there, or that is elsewhere.
    async fn explain(&self, error: CloudError, floating: &FloatingIp, server: u64) -> CloudError {
        let is_refusal = matches!(
            error.kind,
            CloudErrorKind::Refused | CloudErrorKind::AlreadyExists | CloudErrorKind::Denied
        );
        if !is_refusal {
            return error;
        }
        let about = |kind, message| CloudError::new(kind, &error.operation, message);
        match self.server(server).await {
            Ok(found) if is_elsewhere(&floating.region, &found.region.slug) => {
                let message = format!(
                    "it is a floating IP of region {}, and server {server} is in {}: it moves within its region only ({})",
                    floating.region, found.region.slug, error.message
                );
                about(CloudErrorKind::Refused, message)
            }
            Err(gone) if gone.is(CloudErrorKind::NotFound) => {
                about(CloudErrorKind::NotFound, format!("there is no server {server}"))
            }
            _ => error,
        }
    }
}

fn is_elsewhere(floating: &str, server: &str) -> bool {
    !floating.is_empty() && !server.is_empty() && floating != server
}

/// The call that puts it on a server, or on [`NOBODY`]. `PUT` is never repeated by the client.
fn target(operation: &str, id: &str, server: u64) -> Call {
    Call::new(operation, Method::PUT, "/ips/{id}", format!("/ips/{id}"))
        .body(json!({ "targeted_to": server.to_string() }))
}

/// The one address that is meant, among all.
fn find(rows: Vec<wire::Ip>, selector: &EndpointSelector) -> Result<wire::Ip, CloudError> {
    let mut found: Vec<_> = rows.into_iter().filter(|row| is_meant(row, selector)).collect();
    let said = match selector {
        EndpointSelector::Tag(tag) => format!("with tag `{tag}`"),
        EndpointSelector::Address(address) => format!("with address {address}"),
    };
    let Some(row) = found.pop() else {
        let message = format!("no IP address of the project {said}");
        return Err(CloudError::new(CloudErrorKind::NotFound, READ, message));
    };
    if found.is_empty() {
        return Ok(row);
    }
    let mut ids: Vec<_> = found.iter().map(|row| row.id.as_str()).collect();
    ids.push(&row.id);
    ids.sort_unstable();
    let message = format!("several IP addresses {said}: {}", ids.join(", "));
    Err(CloudError::new(CloudErrorKind::Refused, READ, message))
}

fn is_meant(row: &wire::Ip, selector: &EndpointSelector) -> bool {
    match selector {
        EndpointSelector::Tag(tag) => row.tags.has(tag),
        // A block around it is found, too: it is there, and cannot be the endpoint.
        EndpointSelector::Address(address) => addresses::prefix(row)
            .is_some_and(|prefix| prefix.range().contains(Prefix::host(*address).range())),
    }
}

/// A floating IP of one address.
fn movable(row: &wire::Ip) -> Result<FloatingIp, CloudError> {
    let refuse = |message: String| Err(CloudError::new(CloudErrorKind::Refused, READ, message));
    let Some(prefix) = addresses::prefix(row) else {
        return refuse(format!("IP address {} has no address yet", row.id));
    };
    if !prefix.is_host() {
        return refuse(format!("IP address {} is a block, {prefix}", row.id));
    }
    if !row.is_floating() || !is_plain(&row.id) {
        return refuse(format!("IP address {} cannot be moved ({})", row.id, row.kind));
    }
    Ok(FloatingIp {
        address: prefix.address(),
        id: row.id.clone(),
        region: row.region.slug.clone(),
    })
}

/// What we call it that this floating IP is on this server. The API has no name for that.
pub(super) fn assignment_id(floating: &str, server: u64) -> String {
    format!("{floating}.{server}")
}

fn parse(assignment_id: &str) -> Option<(&str, u64)> {
    let (id, server) = assignment_id.rsplit_once('.')?;
    let server = server.parse().ok()?;
    (is_plain(id) && server != NOBODY).then_some((id, server))
}

fn assignment(floating: &str, server: u64) -> Result<EndpointAssignment, CloudError> {
    Ok(EndpointAssignment {
        id: assignment_id(floating, server),
        machine: provider_id(server, READ)?,
    })
}
