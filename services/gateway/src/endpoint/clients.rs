//! The services that an agent calls, by gRPC.

use std::time::Duration;

use async_trait::async_trait;
use futures::{Stream, StreamExt as _};
use groundplane_core::ErrorKind;
use groundplane_proto::eip::v1 as eip;
use groundplane_proto::eip::v1::eip_service_client::EipServiceClient;
use groundplane_proto::health::v1 as health;
use groundplane_proto::health::v1::health_service_client::HealthServiceClient;
use groundplane_runtime::grpc::{Channel, RpcError};
use tokio::sync::mpsc;
use tonic::{Request, Status};

use super::ports::{EndpointCloud, EndpointWatch, Reports};
use super::values::{Failure, Holding, Observation, Order, Question, Report, Why};

/// A read takes no longer: while it hangs, nobody may hold the endpoint.
const READ_DEADLINE: Duration = Duration::from_secs(5);
/// A move takes no longer; eip finishes by itself what it has begun.
const MOVE_DEADLINE: Duration = Duration::from_secs(15);

/// `eip` behind a channel.
pub(super) struct EipOverGrpc {
    client: EipServiceClient<Channel>,
    cluster: String,
}

impl EipOverGrpc {
    pub(super) fn new(channel: Channel, cluster: String) -> Self {
        Self {
            client: EipServiceClient::new(channel),
            cluster,
        }
    }
}

fn failure(error: impl Into<RpcError>) -> Failure {
    let error = error.into();
    let text = error.to_string();
    match error.kind {
        ErrorKind::Conflict => Failure::Changed(text),
        ErrorKind::Unavailable | ErrorKind::Timeout | ErrorKind::Internal => Failure::Unanswered(text),
        _ => Failure::Refused(text),
    }
}

/// What of a move's own: what eip says of the endpoint itself, and what the cloud says of us, is the same for every machine.
fn unmoved(error: impl Into<RpcError>) -> Failure {
    let error = error.into();
    let of_machine = matches!(
        error.kind,
        ErrorKind::Invalid
            | ErrorKind::NotFound
            | ErrorKind::AlreadyExists
            | ErrorKind::Precondition
            | ErrorKind::Exhausted
            | ErrorKind::Denied
    );
    if of_machine && !error.reason.starts_with("ENDPOINT_") {
        return Failure::Unfit(error.to_string());
    }
    failure(error)
}

#[async_trait]
impl EndpointCloud for EipOverGrpc {
    async fn read(&self) -> Result<Holding, Failure> {
        let mut request = Request::new(eip::GetEndpointRequest {
            cluster: self.cluster.clone(),
        });
        request.set_timeout(READ_DEADLINE);
        let answer = self.client.clone().get_endpoint(request).await;
        let eip::GetEndpointResponse {
            address,
            holder,
            assignment_id,
            other_assignments,
            ..
        } = answer.map_err(failure)?.into_inner();
        let address = address
            .parse()
            .map_err(|_| Failure::Refused(format!("`{address}` is not an address")))?;
        Ok(Holding {
            address,
            held: (!assignment_id.is_empty()).then_some((holder, assignment_id)),
            others: other_assignments.into_iter().map(|other| other.holder).collect(),
        })
    }

    async fn transfer(&self, order: Order) -> Result<(), Failure> {
        let mut request = Request::new(eip::MoveEndpointRequest {
            cluster: self.cluster.clone(),
            address: order.address.to_string(),
            to: order.to,
            assignment_id: order.assignment.unwrap_or_default(),
            request_id: String::new(),
        });
        request.set_timeout(MOVE_DEADLINE);
        let answer = self.client.clone().move_endpoint(request).await;
        answer.map(drop).map_err(unmoved)
    }
}

/// `health` behind a channel.
pub(super) struct HealthOverGrpc(HealthServiceClient<Channel>);

impl HealthOverGrpc {
    pub(super) fn new(channel: Channel) -> Self {
        Self(HealthServiceClient::new(channel))
    }
}

#[async_trait]
impl EndpointWatch for HealthOverGrpc {
    async fn open(&self, questions: mpsc::Receiver<Question>) -> Result<Reports, String> {
        let mut client = self.0.clone();
        let answers = client.watch_endpoint(requests(questions)).await.map_err(text)?;
        Ok(answers.into_inner().map(reported).boxed())
    }
}

fn requests(
    questions: mpsc::Receiver<Question>,
) -> impl Stream<Item = health::WatchEndpointRequest> + Send + 'static {
    futures::stream::unfold(questions, |mut questions| async move {
        let question = questions.recv().await?;
        Some((request(question), questions))
    })
}

fn reported(answer: Result<health::WatchEndpointResponse, Status>) -> Result<Report, String> {
    answer.map(report).map_err(text)
}

fn text(status: Status) -> String {
    RpcError::from(status).to_string()
}

fn request(question: Question) -> health::WatchEndpointRequest {
    let candidates = question.candidates.into_iter();
    health::WatchEndpointRequest {
        endpoint: question.endpoint.to_string(),
        holder: question.holder.unwrap_or_default(),
        candidates: candidates
            .map(|candidate| health::Candidate {
                provider_id: candidate.provider_id,
                address: candidate.address.to_string(),
                cordoned: candidate.cordoned,
                deleting: candidate.deleting,
                refused: question.refused.contains(&candidate.node),
                node: candidate.node,
            })
            .collect(),
        revision: question.revision,
        holder_unknown: question.holder_unknown,
        own_addresses_only: question.own_addresses_only,
    }
}

fn duration(duration: Option<prost_types::Duration>) -> Duration {
    duration
        .and_then(|duration| Duration::try_from(duration).ok())
        .unwrap_or_default()
}

fn report(answer: health::WatchEndpointResponse) -> Report {
    let why = match answer.cause() {
        health::Cause::Unspecified => None,
        health::Cause::Dead => Some(Why::Dead),
        health::Cause::Unheld => Some(Why::Unheld),
        health::Cause::Cordoned | health::Cause::Deleting => Some(Why::Leaving),
    };
    let observations = answer.observations.into_iter();
    Report {
        why,
        move_to: (!answer.move_to.is_empty()).then_some(answer.move_to),
        reason: answer.reason,
        detected_after: duration(answer.detected_after),
        revision: answer.revision,
        verdict: answer.verdict,
        observations: observations
            .map(|seen| Observation {
                node: seen.node,
                ready: seen.ready,
                misses: seen.misses,
                detail: seen.detail,
                age: duration(seen.age),
                took: duration(seen.took),
            })
            .collect(),
    }
}
