//! `grpc.health.v1` straight from [`crate::Health`]: each answer is what is true when it is given.

use std::pin::Pin;

use tokio_stream::Stream;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health as HealthApi;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::Health;

#[derive(Debug)]
pub(crate) struct HealthRpc(pub(crate) Health);

fn answer(serving: Option<bool>) -> HealthCheckResponse {
    let status = match serving {
        Some(true) => ServingStatus::Serving,
        Some(false) => ServingStatus::NotServing,
        None => ServingStatus::ServiceUnknown,
    };
    HealthCheckResponse {
        status: status.into(),
    }
}

#[tonic::async_trait]
impl HealthApi for HealthRpc {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let service = request.into_inner().service;
        let serving = self
            .0
            .serving(&service)
            .ok_or_else(|| Status::not_found(format!("service `{service}` is not served here")))?;
        Ok(Response::new(answer(Some(serving))))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let service = request.into_inner().service;
        let health = self.0.clone();
        // Subscribed before the first answer is read, so that no change falls between.
        let changes = health.changes();
        let first = (changes, None::<Option<bool>>);
        let stream = futures::stream::unfold(first, move |(mut changes, told)| {
            let (health, service) = (health.clone(), service.clone());
            async move {
                loop {
                    let now = health.serving(&service);
                    if told != Some(now) {
                        return Some((Ok(answer(now)), (changes, Some(now))));
                    }
                    if !changes.next().await {
                        return None;
                    }
                }
            }
        });
        Ok(Response::new(Box::pin(stream)))
    }
}
