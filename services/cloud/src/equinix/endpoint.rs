//! The API endpoint: a reservation of one address, and the machine that it is assigned to.
//!
//! The API keeps what a mover relies on: an assignment has an id of its own, which is deleted once and never comes back, and an address
//! that is assigned is refused to every other machine.

use std::net::IpAddr;

use async_trait::async_trait;
use groundplane_core::{Prefix, ProviderId};
use http::Method;
use serde_json::json;

use super::addresses::LIST;
use super::{Equinix, device_of, need_device, provider_id, wire};
use crate::http::Call;
use crate::{CloudError, CloudErrorKind, Endpoint, EndpointAssignment, EndpointIps, EndpointSelector};

const READ: &str = "read the API endpoint";

#[async_trait]
impl EndpointIps for Equinix {
    /// The list, the removal, the assignment. A project with more addresses than a page has costs a call a page.
    fn calls_per_move(&self) -> u32 {
        3
    }

    fn moves_atomically(&self) -> bool {
        false
    }

    fn machine(&self, id: &ProviderId) -> Option<ProviderId> {
        // The API writes ids in lower case.
        provider_id(&device_of(id)?.to_ascii_lowercase(), READ).ok()
    }

    async fn endpoint(&self, selector: &EndpointSelector) -> Result<Endpoint, CloudError> {
        let rows = self.list_all::<wire::Reservation>(LIST).await?;
        find(rows, selector)
    }

    async fn assign(&self, address: IpAddr, machine: &ProviderId) -> Result<EndpointAssignment, CloudError> {
        let operation = format!("assign {address}");
        let device = need_device(machine, &operation)?;
        let call = Call::new(
            operation,
            Method::POST,
            "/devices/{id}/ips",
            format!("/devices/{device}/ips"),
        )
        .body(json!({ "address": address }));
        assignment(self.http.read(&call).await?)
    }

    async fn unassign(&self, assignment_id: &str) -> Result<(), CloudError> {
        let operation = format!("remove assignment {assignment_id}");
        let call = Call::on_ip(operation, Method::DELETE, assignment_id)?.once();
        self.http.send(&call).await
    }

    async fn reassign(
        &self,
        address: IpAddr,
        _machine: &ProviderId,
    ) -> Result<EndpointAssignment, CloudError> {
        let operation = format!("move {address}");
        let message = "this cloud takes an address away before it gives it to another machine";
        Err(CloudError::new(CloudErrorKind::Refused, operation, message))
    }
}

/// The one reservation that is meant, among all.
fn find(rows: Vec<wire::Reservation>, selector: &EndpointSelector) -> Result<Endpoint, CloudError> {
    let mut found: Vec<_> = rows.into_iter().filter(|row| is_meant(row, selector)).collect();
    let refuse = |message: String| Err(CloudError::new(CloudErrorKind::Refused, READ, message));
    let Some(row) = found.pop() else {
        let message = format!("no reservation of the project {}", said(selector));
        return Err(CloudError::new(CloudErrorKind::NotFound, READ, message));
    };
    if !found.is_empty() {
        let mut ids: Vec<_> = found.iter().map(|row| row.id.as_str()).collect();
        ids.push(&row.id);
        ids.sort_unstable();
        return refuse(format!(
            "several reservations {}: {}",
            said(selector),
            ids.join(", ")
        ));
    }
    let Some(prefix) = prefix(&row) else {
        return refuse(format!("reservation {} has no address ({})", row.id, row.state));
    };
    if !prefix.is_host() {
        return refuse(format!("reservation {} is a block, {prefix}", row.id));
    }
    if row.management || row.kind == "vrf" {
        return refuse(format!("reservation {} cannot be moved ({})", row.id, row.kind));
    }
    let assignments = row.assignments.into_iter().map(assignment);
    Ok(Endpoint {
        address: prefix.address(),
        assignments: assignments.collect::<Result<_, _>>()?,
    })
}

fn is_meant(row: &wire::Reservation, selector: &EndpointSelector) -> bool {
    match selector {
        EndpointSelector::Tag(tag) => row.tags.contains(tag),
        // A block around it is found, too: it is there, and cannot be the endpoint.
        EndpointSelector::Address(address) => {
            row.kind != "vrf"
                && prefix(row).is_some_and(|prefix| prefix.range().contains(Prefix::host(*address).range()))
        }
    }
}

fn said(selector: &EndpointSelector) -> String {
    match selector {
        EndpointSelector::Tag(tag) => format!("with tag `{tag}`"),
        EndpointSelector::Address(address) => format!("with address {address}"),
    }
}

fn prefix(row: &wire::Reservation) -> Option<Prefix> {
    let address = row.address.parse().ok()?;
    Prefix::new(address, row.cidr)
        .ok()
        .filter(|_| row.state == "created")
}

/// An assignment whose id or machine is missing is no answer: a mover would take it for nobody's.
fn assignment(row: wire::Assignment) -> Result<EndpointAssignment, CloudError> {
    let id = if row.id.is_empty() {
        wire::Link { href: row.href }.id().to_owned()
    } else {
        row.id
    };
    let device = row.assigned_to.id();
    if id.is_empty() || device.is_empty() {
        let message = "an assignment without its id or its machine";
        return Err(CloudError::new(CloudErrorKind::Unavailable, READ, message));
    }
    Ok(EndpointAssignment {
        id,
        machine: provider_id(device, READ)?,
    })
}
