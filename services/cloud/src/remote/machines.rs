//! Machines.

use async_trait::async_trait;
use groundplane_core::ProviderId;
use groundplane_proto::provider::v1::machine_service_client::MachineServiceClient;
use groundplane_proto::provider::v1::{GetMachineRequest, ListMachinesRequest, ListMachinesResponse};
use groundplane_runtime::grpc::Channel;

use super::Remote;
use super::call::{LONGEST_ANSWER, Operation};
use super::capabilities::Said;
use super::convert::machine;
use super::pages::{Page, whole};
use crate::config::Capability;
use crate::{CloudError, CloudErrorKind, Machine, MachineSource};

fn client(channel: Channel) -> MachineServiceClient<Channel> {
    MachineServiceClient::new(channel).max_decoding_message_size(LONGEST_ANSWER)
}

/// A machine of another cloud would be taken for one of this one's: its node would be deleted by this provider's word.
fn own(said: &Said, found: Machine) -> Result<Machine, String> {
    if said.accepts(&found.id) {
        return Ok(found);
    }
    Err(format!(
        "the machine `{}` has none of the provider's own schemes ({})",
        found.id,
        said.schemes.join(", ")
    ))
}

#[async_trait]
impl MachineSource for Remote {
    fn schemes(&self) -> Vec<String> {
        self.inner
            .capabilities
            .last()
            .map(|said| said.schemes.clone())
            .unwrap_or_default()
    }

    /// Before the first answer, whatever has a scheme may be its own: to take a node of ours for somebody else's would be as wrong as
    /// the other way round, and whoever goes on from here must read, which asks the provider first.
    fn accepts(&self, id: &ProviderId) -> bool {
        match self.inner.capabilities.last() {
            Some(said) => said.accepts(id),
            None => id.scheme().is_some(),
        }
    }

    fn proves_absence(&self) -> bool {
        self.inner
            .capabilities
            .last()
            .is_some_and(|said| said.proves_absence)
    }

    async fn list(&self) -> Result<Vec<Machine>, CloudError> {
        let operation = Operation::read("list machines", "ListMachines");
        let said = self.offers(Capability::Machines, &operation).await?;
        let rows = self
            .list(
                &operation,
                |cursor| ListMachinesRequest {
                    page_size: cursor.size,
                    page_token: cursor.token,
                },
                |channel, request| async move { client(channel).list_machines(request).await },
                |answer: ListMachinesResponse| Page {
                    items: answer.machines,
                    next: answer.next_page_token,
                    total: answer.total_size,
                },
                |row| &row.provider_id,
            )
            .await?;
        whole(rows, &operation, |row| own(&said, machine(row)?))
    }

    async fn get(&self, id: &ProviderId) -> Result<Machine, CloudError> {
        let operation = Operation::read(format!("read machine {id}"), "GetMachine").finds();
        let said = self.offers(Capability::Machines, &operation).await?;
        if !said.accepts(id) {
            return Err(operation.error(CloudErrorKind::Refused, "not a machine of this provider"));
        }
        let request = GetMachineRequest {
            provider_id: id.to_string(),
        };
        let answer = self
            .call(&operation, request, |channel, request| async move {
                client(channel).get_machine(request).await
            })
            .await?;
        let row = answer
            .machine
            .ok_or_else(|| operation.nonsense("an answer without a machine"))?;
        let found = machine(row)
            .and_then(|found| own(&said, found))
            .map_err(|wrong| operation.nonsense(wrong))?;
        if found.id.id() != id.id() {
            return Err(operation.nonsense(format!("it is about `{}`", found.id)));
        }
        Ok(found)
    }
}
