//! What an agent tells `groundplane ctl endpoint`.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use groundplane_proto::gateway::v1 as pb;
use groundplane_proto::gateway::v1::gateway_service_server::{GatewayService, GatewayServiceServer};
use groundplane_runtime::grpc::timestamp;
use jiff::Timestamp;
use parking_lot::RwLock;
use tokio::time::Instant;
use tonic::service::Routes;
use tonic::{Request, Response, Status as GrpcStatus};

use super::candidate::Candidate;
use super::values::{Holding, Observation, Record, Report};

/// The last moves, newest first, each with when it ended.
pub(super) type Moves = VecDeque<(Timestamp, Record)>;

/// A candidate, and what this agent knows of it.
#[derive(Clone, Debug)]
pub(super) struct Ranked {
    pub(super) candidate: Candidate,
    pub(super) rank: u32,
    /// The cloud did not give it the endpoint a while ago.
    pub(super) refused: bool,
}

/// What an agent knows. Replaced as a whole; the lock is never held across an await.
#[derive(Clone, Debug, Default)]
pub(super) struct Status {
    pub(super) node: String,
    pub(super) endpoint: Option<SocketAddr>,
    pub(super) address: Option<IpAddr>,
    pub(super) holding: Option<Holding>,
    pub(super) holder: Option<String>,
    pub(super) read_at: Option<Timestamp>,
    pub(super) candidates: Vec<Ranked>,
    pub(super) report: Option<Report>,
    pub(super) told_at: Option<Instant>,
    pub(super) moves: Moves,
    pub(super) from_file: bool,
    pub(super) problem: Option<String>,
}

fn lasted(duration: Duration) -> Option<prost_types::Duration> {
    duration.try_into().ok()
}

impl Status {
    fn probe(&self, node: &str) -> Option<pb::EndpointProbe> {
        let seen = self.report.as_ref()?.observations.iter();
        let Observation {
            ready,
            detail,
            age,
            took,
            ..
        } = seen.into_iter().find(|seen| seen.node == node)?;
        let since = self.told_at.map(|told| told.elapsed()).unwrap_or_default();
        Some(pb::EndpointProbe {
            ready: *ready,
            detail: detail.clone(),
            took: lasted(*took),
            age: lasted(*age + since),
        })
    }

    fn message(&self) -> pb::GetEndpointStatusResponse {
        let held = self.holding.as_ref().and_then(|holding| holding.held.as_ref());
        let machine = held.map(|(machine, _)| machine.clone());
        let judged = self.report.as_ref().map(|report| match &report.move_to {
            Some(node) => format!("move to {node}: {}", report.reason),
            None => report.reason.clone(),
        });
        pb::GetEndpointStatusResponse {
            address: match (self.endpoint, self.address) {
                (Some(endpoint), _) => endpoint.to_string(),
                (None, Some(address)) => address.to_string(),
                (None, None) => String::new(),
            },
            holder: self.holder.clone().or(machine).unwrap_or_default(),
            read_at: self.read_at.map(timestamp),
            candidates: self
                .candidates
                .iter()
                .map(
                    |Ranked {
                         candidate,
                         rank,
                         refused,
                     }| pb::EndpointCandidate {
                        node: candidate.node.clone(),
                        provider_id: candidate.provider_id.clone(),
                        address: candidate.address.to_string(),
                        cordoned: candidate.cordoned,
                        deleting: candidate.deleting,
                        rank: *rank,
                        probe: self.probe(&candidate.node),
                        refused: *refused,
                    },
                )
                .collect(),
            probe: self.probe(""),
            moves: self
                .moves
                .iter()
                .map(|(at, record)| pb::EndpointMove {
                    at: Some(timestamp(*at)),
                    from: record.from.clone(),
                    to: record.to.clone(),
                    reason: record.reason.clone(),
                    outcome: record.outcome.clone(),
                    detection: lasted(record.detection),
                    r#move: lasted(record.took),
                })
                .collect(),
            verdict: judged.unwrap_or_default(),
            candidates_from: match (self.candidates.is_empty(), self.from_file) {
                (true, _) => "",
                (false, true) => "file",
                (false, false) => "cluster",
            }
            .to_owned(),
            problem: self.problem.clone().unwrap_or_default(),
            answered_by: self.node.clone(),
        }
    }
}

/// What an agent serves.
pub(super) fn routes(status: Arc<RwLock<Status>>) -> Routes {
    Routes::new(GatewayServiceServer::new(AgentApi { status }))
}

struct AgentApi {
    status: Arc<RwLock<Status>>,
}

fn elsewhere<T>() -> Result<Response<T>, GrpcStatus> {
    Err(GrpcStatus::unimplemented(
        "this is an agent, which knows the API endpoint alone; ask a gateway",
    ))
}

#[async_trait]
impl GatewayService for AgentApi {
    async fn get_endpoint_status(
        &self,
        _: Request<pb::GetEndpointStatusRequest>,
    ) -> Result<Response<pb::GetEndpointStatusResponse>, GrpcStatus> {
        let status = self.status.read().clone();
        Ok(Response::new(status.message()))
    }

    async fn explain_object(
        &self,
        _: Request<pb::ExplainObjectRequest>,
    ) -> Result<Response<pb::ExplainObjectResponse>, GrpcStatus> {
        elsewhere()
    }

    async fn overview(
        &self,
        _: Request<pb::OverviewRequest>,
    ) -> Result<Response<pb::OverviewResponse>, GrpcStatus> {
        elsewhere()
    }

    async fn list_pools(
        &self,
        _: Request<pb::ListPoolsRequest>,
    ) -> Result<Response<pb::ListPoolsResponse>, GrpcStatus> {
        elsewhere()
    }

    async fn list_addresses(
        &self,
        _: Request<pb::ListAddressesRequest>,
    ) -> Result<Response<pb::ListAddressesResponse>, GrpcStatus> {
        elsewhere()
    }

    async fn list_machines(
        &self,
        _: Request<pb::ListMachinesRequest>,
    ) -> Result<Response<pb::ListMachinesResponse>, GrpcStatus> {
        elsewhere()
    }

    async fn list_peers(
        &self,
        _: Request<pb::ListPeersRequest>,
    ) -> Result<Response<pb::ListPeersResponse>, GrpcStatus> {
        elsewhere()
    }

    async fn accept_store(
        &self,
        _: Request<pb::AcceptStoreRequest>,
    ) -> Result<Response<pb::AcceptStoreResponse>, GrpcStatus> {
        elsewhere()
    }

    async fn plan_takeover(
        &self,
        _: Request<pb::PlanTakeoverRequest>,
    ) -> Result<Response<pb::PlanTakeoverResponse>, GrpcStatus> {
        elsewhere()
    }

    async fn apply_takeover(
        &self,
        _: Request<pb::ApplyTakeoverRequest>,
    ) -> Result<Response<pb::ApplyTakeoverResponse>, GrpcStatus> {
        elsewhere()
    }
}
