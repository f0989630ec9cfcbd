//! The RPC surface.

use std::pin::Pin;

use groundplane_core::{ErrorKind, Kinded};
use groundplane_proto::health::v1 as proto;
use groundplane_proto::health::v1::health_service_server::HealthService;
use groundplane_runtime::grpc::{Details, status};
use tonic::{Request, Response, Status, Streaming};

/// The service as tonic sees it.
#[derive(Debug)]
pub(crate) struct Rpc;

#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the endpoint controller is not part of this release")]
struct NotImplemented;

impl Kinded for NotImplemented {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Unsupported
    }

    fn reason(&self) -> &'static str {
        "NOT_IMPLEMENTED"
    }
}

type Verdicts =
    Pin<Box<dyn tokio_stream::Stream<Item = Result<proto::WatchEndpointResponse, Status>> + Send>>;

#[tonic::async_trait]
impl HealthService for Rpc {
    type WatchEndpointStream = Verdicts;

    async fn watch_endpoint(
        &self,
        _: Request<Streaming<proto::WatchEndpointRequest>>,
    ) -> Result<Response<Self::WatchEndpointStream>, Status> {
        Err(status("health", &NotImplemented, Details::default()))
    }

    async fn probe(&self, _: Request<proto::ProbeRequest>) -> Result<Response<proto::ProbeResponse>, Status> {
        Err(status("health", &NotImplemented, Details::default()))
    }
}
