//! Services in memory, which answer what they are told to.

use std::collections::HashMap;

use async_trait::async_trait;
use groundplane_core::ErrorKind;
use groundplane_proto::{bgp, instances};
use groundplane_runtime::grpc::RpcError;
use parking_lot::Mutex;
use tonic::Code;

use crate::clients::{Bgp, Instances};

/// An error as a service would give it.
pub(crate) fn rpc_error(kind: ErrorKind, reason: &str) -> RpcError {
    RpcError {
        kind,
        reason: reason.to_owned(),
        message: format!("scripted {reason}"),
        metadata: std::collections::BTreeMap::default(),
        retry_after: None,
        code: Code::Unknown,
    }
}

/// Machines by the name of their node.
#[derive(Default)]
pub(crate) struct FakeInstances {
    answers: Mutex<HashMap<String, Result<instances::v1::Machine, RpcError>>>,
    by_name: Mutex<HashMap<String, instances::v1::Machine>>,
    asked: Mutex<Vec<instances::v1::ResolveRequest>>,
}

impl FakeInstances {
    /// What is answered about a node.
    pub(crate) fn answer(&self, node: &str, answer: Result<instances::v1::Machine, RpcError>) {
        self.answers.lock().insert(node.to_owned(), answer);
    }

    /// What is answered about a node whose provider id is not told, where that is something else.
    pub(crate) fn answer_by_name(&self, node: &str, machine: instances::v1::Machine) {
        self.by_name.lock().insert(node.to_owned(), machine);
    }

    /// Questions since the last look.
    pub(crate) fn asked(&self) -> Vec<instances::v1::ResolveRequest> {
        std::mem::take(&mut *self.asked.lock())
    }
}

#[async_trait]
impl Instances for FakeInstances {
    async fn resolve(
        &self,
        request: instances::v1::ResolveRequest,
    ) -> Result<instances::v1::ResolveResponse, RpcError> {
        let mut answer = self.answers.lock().get(&request.node).cloned();
        if request.provider_id.is_empty()
            && let Some(machine) = self.by_name.lock().get(&request.node)
        {
            answer = Some(Ok(machine.clone()));
        }
        self.asked.lock().push(request);
        let machine = answer.unwrap_or_else(|| Err(rpc_error(ErrorKind::NotFound, "MACHINE_NOT_FOUND")))?;
        Ok(instances::v1::ResolveResponse {
            machine: Some(machine),
            read_at: None,
        })
    }

    async fn list_machines(
        &self,
        _: instances::v1::ListMachinesRequest,
    ) -> Result<instances::v1::ListMachinesResponse, RpcError> {
        Err(rpc_error(ErrorKind::Unsupported, "NOT_IMPLEMENTED"))
    }
}

/// Peers by the name of their node.
#[derive(Default)]
pub(crate) struct FakeBgp {
    answers: Mutex<HashMap<String, Result<bgp::v1::EnsureMachineResponse, RpcError>>>,
    asked: Mutex<Vec<bgp::v1::EnsureMachineRequest>>,
    /// What is answered about the project, to who wants it fresh and to who does not. None: there is no BGP.
    project: Mutex<Option<[Result<bgp::v1::EnsureProjectResponse, RpcError>; 2]>>,
}

impl FakeBgp {
    /// So many prefixes may be announced, by what is remembered and by what the cloud says now.
    pub(crate) fn limit(&self, remembered: u32, now: u32) {
        let answer = |max_prefixes| {
            Ok(bgp::v1::EnsureProjectResponse {
                enabled: true,
                local_asn: 65_000,
                pending: false,
                max_prefixes,
            })
        };
        *self.project.lock() = Some([answer(remembered), answer(now)]);
    }

    /// The project cannot be asked for, and why.
    pub(crate) fn fail_project(&self, error: &RpcError) {
        *self.project.lock() = Some([Err(error.clone()), Err(error.clone())]);
    }

    /// What is answered about a node.
    pub(crate) fn answer(&self, node: &str, answer: Result<bgp::v1::EnsureMachineResponse, RpcError>) {
        self.answers.lock().insert(node.to_owned(), answer);
    }

    /// Questions since the last look.
    pub(crate) fn asked(&self) -> Vec<bgp::v1::EnsureMachineRequest> {
        std::mem::take(&mut *self.asked.lock())
    }
}

#[async_trait]
impl Bgp for FakeBgp {
    async fn ensure_project(
        &self,
        request: bgp::v1::EnsureProjectRequest,
    ) -> Result<bgp::v1::EnsureProjectResponse, RpcError> {
        match &*self.project.lock() {
            Some([remembered, now]) => if request.fresh { now } else { remembered }.clone(),
            None => Ok(bgp::v1::EnsureProjectResponse::default()),
        }
    }

    async fn ensure_machine(
        &self,
        request: bgp::v1::EnsureMachineRequest,
    ) -> Result<bgp::v1::EnsureMachineResponse, RpcError> {
        let answer = self.answers.lock().get(&request.node).cloned();
        self.asked.lock().push(request);
        answer.unwrap_or_else(|| Err(rpc_error(ErrorKind::Precondition, "BGP_OFF")))
    }

    async fn list_peers(&self, _: bgp::v1::ListPeersRequest) -> Result<bgp::v1::ListPeersResponse, RpcError> {
        Err(rpc_error(ErrorKind::Unsupported, "NOT_IMPLEMENTED"))
    }
}
