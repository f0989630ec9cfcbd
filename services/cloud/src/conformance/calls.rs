//! Every call of the contract, with the deadline of the run and an error that names the call.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use groundplane_proto::provider::v1 as wire;
use groundplane_proto::provider::v1::address_service_client::AddressServiceClient;
use groundplane_proto::provider::v1::bgp_fabric_service_client::BgpFabricServiceClient;
use groundplane_proto::provider::v1::capability_service_client::CapabilityServiceClient;
use groundplane_proto::provider::v1::get_endpoint_request::Selector;
use groundplane_proto::provider::v1::machine_service_client::MachineServiceClient;
use groundplane_runtime::grpc::status::code_name;
use groundplane_runtime::grpc::{Channel, RpcError};
use tonic::{Code, Request, Response, Status};

/// Longest answer that is read.
const LONGEST_ANSWER: usize = 16 << 20;

/// A call that failed.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) method: &'static str,
    pub(crate) code: Code,
    pub(crate) message: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} answered {}: {}",
            self.method,
            code_name(self.code),
            self.message
        )
    }
}

impl Refusal {
    /// May the call have had its effect all the same?
    pub(crate) fn is_open(&self) -> bool {
        matches!(
            self.code,
            Code::Cancelled
                | Code::Unknown
                | Code::DeadlineExceeded
                | Code::Aborted
                | Code::Internal
                | Code::Unavailable
                | Code::DataLoss
        )
    }
}

/// What is listed by pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    Machines,
    Reservations,
    Sessions,
}

impl List {
    pub(crate) fn method(self) -> &'static str {
        match self {
            Self::Machines => "ListMachines",
            Self::Reservations => "ListReservations",
            Self::Sessions => "ListSessions",
        }
    }
}

/// A page, by the ids of what is on it.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub(crate) ids: Vec<String>,
    pub(crate) next: String,
    pub(crate) total: u32,
}

/// The provider's calls. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Calls {
    channel: Channel,
    timeout: Duration,
}

impl Calls {
    pub(crate) fn new(channel: Channel, timeout: Duration) -> Self {
        Self { channel, timeout }
    }

    /// The same, with another deadline.
    pub(crate) fn within(&self, timeout: Duration) -> Self {
        Self {
            timeout,
            ..self.clone()
        }
    }

    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    pub(crate) fn request<Q>(&self, message: Q) -> Request<Q> {
        let mut request = Request::new(message);
        request.set_timeout(self.timeout);
        request
    }

    async fn call<A>(
        &self,
        method: &'static str,
        answer: impl Future<Output = Result<Response<A>, Status>>,
    ) -> Result<A, Refusal> {
        // A head may come in time, and the rest never.
        let status = match tokio::time::timeout(self.timeout, answer).await {
            Ok(Ok(answer)) => return Ok(answer.into_inner()),
            Ok(Err(status)) => status,
            Err(_) => Status::deadline_exceeded(format!("no answer within {:?}", self.timeout)),
        };
        let code = status.code();
        Err(Refusal {
            method,
            code,
            message: RpcError::from(status).message,
        })
    }

    fn addresses(&self) -> AddressServiceClient<Channel> {
        AddressServiceClient::new(self.channel()).max_decoding_message_size(LONGEST_ANSWER)
    }

    fn machines(&self) -> MachineServiceClient<Channel> {
        MachineServiceClient::new(self.channel()).max_decoding_message_size(LONGEST_ANSWER)
    }

    fn fabric(&self) -> BgpFabricServiceClient<Channel> {
        BgpFabricServiceClient::new(self.channel()).max_decoding_message_size(LONGEST_ANSWER)
    }

    pub(crate) async fn capabilities(&self) -> Result<wire::GetCapabilitiesResponse, Refusal> {
        let mut client = CapabilityServiceClient::new(self.channel());
        let request = self.request(wire::GetCapabilitiesRequest {});
        self.call("GetCapabilities", client.get_capabilities(request))
            .await
    }

    pub(crate) async fn list_machines(
        &self,
        page_size: u32,
        page_token: &str,
    ) -> Result<wire::ListMachinesResponse, Refusal> {
        let page_token = page_token.to_owned();
        let request = self.request(wire::ListMachinesRequest {
            page_size,
            page_token,
        });
        self.call("ListMachines", self.machines().list_machines(request))
            .await
    }

    pub(crate) async fn list_reservations(
        &self,
        page_size: u32,
        page_token: &str,
    ) -> Result<wire::ListReservationsResponse, Refusal> {
        let page_token = page_token.to_owned();
        let request = self.request(wire::ListReservationsRequest {
            page_size,
            page_token,
        });
        self.call("ListReservations", self.addresses().list_reservations(request))
            .await
    }

    pub(crate) async fn list_sessions(
        &self,
        page_size: u32,
        page_token: &str,
    ) -> Result<wire::ListSessionsResponse, Refusal> {
        let page_token = page_token.to_owned();
        let request = self.request(wire::ListSessionsRequest {
            page_size,
            page_token,
        });
        self.call("ListSessions", self.fabric().list_sessions(request))
            .await
    }

    /// A page of any list.
    pub(crate) async fn page(&self, list: List, size: u32, token: &str) -> Result<Page, Refusal> {
        Ok(match list {
            List::Machines => {
                let answer = self.list_machines(size, token).await?;
                Page {
                    ids: answer.machines.into_iter().map(|row| row.provider_id).collect(),
                    next: answer.next_page_token,
                    total: answer.total_size,
                }
            }
            List::Reservations => {
                let answer = self.list_reservations(size, token).await?;
                Page {
                    ids: answer.reservations.into_iter().map(|row| row.id).collect(),
                    next: answer.next_page_token,
                    total: answer.total_size,
                }
            }
            List::Sessions => {
                let answer = self.list_sessions(size, token).await?;
                Page {
                    ids: answer.sessions.into_iter().map(|row| row.id).collect(),
                    next: answer.next_page_token,
                    total: answer.total_size,
                }
            }
        })
    }

    pub(crate) async fn get_machine(&self, provider_id: &str) -> Result<wire::GetMachineResponse, Refusal> {
        let provider_id = provider_id.to_owned();
        let request = self.request(wire::GetMachineRequest { provider_id });
        self.call("GetMachine", self.machines().get_machine(request))
            .await
    }

    pub(crate) async fn create_reservation(
        &self,
        request: wire::CreateReservationRequest,
    ) -> Result<wire::Reservation, Refusal> {
        let request = self.request(request);
        let answer = self
            .call("CreateReservation", self.addresses().create_reservation(request))
            .await?;
        reservation("CreateReservation", answer.reservation)
    }

    pub(crate) async fn delete_reservation(&self, id: &str) -> Result<(), Refusal> {
        let request = self.request(wire::DeleteReservationRequest { id: id.to_owned() });
        self.call("DeleteReservation", self.addresses().delete_reservation(request))
            .await?;
        Ok(())
    }

    pub(crate) async fn replace_tags(&self, id: &str, tags: &[String]) -> Result<wire::Reservation, Refusal> {
        let request = self.request(wire::ReplaceTagsRequest {
            id: id.to_owned(),
            tags: tags.to_vec(),
        });
        let answer = self
            .call("ReplaceTags", self.addresses().replace_tags(request))
            .await?;
        reservation("ReplaceTags", answer.reservation)
    }

    pub(crate) async fn get_endpoint(
        &self,
        selector: Selector,
    ) -> Result<wire::GetEndpointResponse, Refusal> {
        let request = self.request(wire::GetEndpointRequest {
            selector: Some(selector),
        });
        self.call("GetEndpoint", self.addresses().get_endpoint(request))
            .await
    }

    pub(crate) async fn assign(&self, address: &str, machine: &str) -> Result<wire::Assignment, Refusal> {
        let request = self.request(wire::AssignRequest {
            address: address.to_owned(),
            provider_id: machine.to_owned(),
        });
        let answer = self.call("Assign", self.addresses().assign(request)).await?;
        assignment("Assign", answer.assignment)
    }

    pub(crate) async fn unassign(&self, id: &str) -> Result<(), Refusal> {
        let request = self.request(wire::UnassignRequest {
            assignment_id: id.to_owned(),
        });
        self.call("Unassign", self.addresses().unassign(request)).await?;
        Ok(())
    }

    pub(crate) async fn reassign(&self, address: &str, machine: &str) -> Result<wire::Assignment, Refusal> {
        let request = self.request(wire::ReassignRequest {
            address: address.to_owned(),
            provider_id: machine.to_owned(),
        });
        let answer = self.call("Reassign", self.addresses().reassign(request)).await?;
        assignment("Reassign", answer.assignment)
    }

    pub(crate) async fn get_project(&self) -> Result<wire::GetProjectResponse, Refusal> {
        let request = self.request(wire::GetProjectRequest {});
        self.call("GetProject", self.fabric().get_project(request)).await
    }

    pub(crate) async fn enable_project(&self) -> Result<wire::EnableProjectResponse, Refusal> {
        let request = self.request(wire::EnableProjectRequest::default());
        self.call("EnableProject", self.fabric().enable_project(request))
            .await
    }

    pub(crate) async fn create_session(
        &self,
        machine: &str,
        family: &str,
    ) -> Result<wire::CreateSessionResponse, Refusal> {
        let request = self.request(wire::CreateSessionRequest {
            provider_id: machine.to_owned(),
            family: family.to_owned(),
        });
        self.call("CreateSession", self.fabric().create_session(request))
            .await
    }

    pub(crate) async fn list_neighbors(
        &self,
        request: wire::ListNeighborsRequest,
    ) -> Result<wire::ListNeighborsResponse, Refusal> {
        let request = self.request(request);
        self.call("ListNeighbors", self.fabric().list_neighbors(request))
            .await
    }
}

fn reservation(method: &'static str, row: Option<wire::Reservation>) -> Result<wire::Reservation, Refusal> {
    row.ok_or_else(|| Refusal {
        method,
        code: Code::Ok,
        message: "without a reservation".to_owned(),
    })
}

fn assignment(method: &'static str, row: Option<wire::Assignment>) -> Result<wire::Assignment, Refusal> {
    row.ok_or_else(|| Refusal {
        method,
        code: Code::Ok,
        message: "without an assignment".to_owned(),
    })
}
