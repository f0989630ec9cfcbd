//! The API endpoint. What moves it is sent once: after a lost answer the caller reads.

use std::net::IpAddr;

use async_trait::async_trait;
use groundplane_core::ProviderId;
use groundplane_proto::provider::v1::get_endpoint_request::Selector;
use groundplane_proto::provider::v1::{
    AssignRequest, Assignment, GetEndpointRequest, ReassignRequest, UnassignRequest,
};

use super::Remote;
use super::addresses::client;
use super::call::Operation;
use super::convert::{address, provider_id};
use crate::config::Capability;
use crate::{CloudError, CloudErrorKind, Endpoint, EndpointAssignment, EndpointIps, EndpointSelector};

fn assignment(row: Assignment) -> Result<EndpointAssignment, String> {
    if row.id.is_empty() {
        return Err("an assignment without an id".to_owned());
    }
    Ok(EndpointAssignment {
        machine: provider_id(&row.provider_id)?,
        id: row.id,
    })
}

/// The assignment that was asked for, or what is wrong.
fn asked(
    operation: &Operation,
    row: Option<Assignment>,
    machine: &ProviderId,
) -> Result<EndpointAssignment, CloudError> {
    let row = row.ok_or_else(|| operation.nonsense("an answer without an assignment"))?;
    let made = assignment(row).map_err(|wrong| operation.nonsense(wrong))?;
    if made.machine.id() != machine.id() {
        return Err(operation.nonsense(format!("it assigned to {}", made.machine)));
    }
    Ok(made)
}

#[async_trait]
impl EndpointIps for Remote {
    fn calls_per_move(&self) -> u32 {
        self.inner
            .capabilities
            .last()
            .map_or(2, |said| said.calls_per_move)
    }

    /// Before the first answer, no: two steps are what every provider has.
    fn moves_atomically(&self) -> bool {
        self.inner
            .capabilities
            .last()
            .is_some_and(|said| said.moves_atomically)
    }

    fn machine(&self, id: &ProviderId) -> Option<ProviderId> {
        match self.inner.capabilities.last() {
            Some(said) => said.canonical(id),
            None => id.scheme().map(|_| id.clone()),
        }
    }

    async fn endpoint(&self, selector: &EndpointSelector) -> Result<Endpoint, CloudError> {
        let operation = Operation::read("read the endpoint", "GetEndpoint").finds();
        self.offers(Capability::Endpoint, &operation).await?;
        let request = GetEndpointRequest {
            selector: Some(match selector {
                EndpointSelector::Tag(tag) => Selector::Tag(tag.clone()),
                EndpointSelector::Address(address) => Selector::Address(address.to_string()),
            }),
        };
        let answer = self
            .call(&operation, request, |channel, request| async move {
                client(channel).get_endpoint(request).await
            })
            .await?;
        let found = address(&answer.address).map_err(|wrong| operation.nonsense(wrong))?;
        if let EndpointSelector::Address(wanted) = selector
            && *wanted != found
        {
            return Err(operation.nonsense(format!("asked for {wanted}, it is about {found}")));
        }
        let held = answer.assignments.into_iter().map(assignment);
        Ok(Endpoint {
            address: found,
            assignments: held
                .collect::<Result<_, _>>()
                .map_err(|wrong| operation.nonsense(wrong))?,
        })
    }

    async fn assign(&self, address: IpAddr, machine: &ProviderId) -> Result<EndpointAssignment, CloudError> {
        let operation = Operation::read(format!("assign {address} to {machine}"), "Assign")
            .finds()
            .once();
        self.offers(Capability::Endpoint, &operation).await?;
        let request = AssignRequest {
            address: address.to_string(),
            provider_id: machine.to_string(),
        };
        let answer = self
            .call(&operation, request, |channel, request| async move {
                client(channel).assign(request).await
            })
            .await?;
        asked(&operation, answer.assignment, machine)
    }

    async fn unassign(&self, assignment_id: &str) -> Result<(), CloudError> {
        let operation = Operation::read(format!("take assignment {assignment_id} away"), "Unassign")
            .finds()
            .once();
        self.offers(Capability::Endpoint, &operation).await?;
        let request = UnassignRequest {
            assignment_id: assignment_id.to_owned(),
        };
        self.call(&operation, request, |channel, request| async move {
            client(channel).unassign(request).await
        })
        .await?;
        Ok(())
    }

    async fn reassign(
        &self,
        address: IpAddr,
        machine: &ProviderId,
    ) -> Result<EndpointAssignment, CloudError> {
        let operation = Operation::read(format!("move {address} to {machine}"), "Reassign")
            .finds()
            .once();
        let said = self.offers(Capability::Endpoint, &operation).await?;
        if !said.moves_atomically {
            return Err(operation.error(
                CloudErrorKind::Refused,
                "the provider cannot move an address in one step",
            ));
        }
        let request = ReassignRequest {
            address: address.to_string(),
            provider_id: machine.to_string(),
        };
        let answer = self
            .call(&operation, request, |channel, request| async move {
                client(channel).reassign(request).await
            })
            .await?;
        asked(&operation, answer.assignment, machine)
    }
}
