//! A provider that stands before another and changes what passes: by it a test breaks one rule, and leaves the others.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context as Poller, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use groundplane_proto::provider::v1::address_service_server as addresses;
use groundplane_proto::provider::v1::bgp_fabric_service_server as bgp;
use groundplane_proto::provider::v1::capability_service_server as capabilities;
use groundplane_proto::provider::v1::machine_service_server as machines;
use groundplane_runtime::grpc::Channel;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::server::{NamedService, UnaryService};
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use crate::conformance::{Raw, raw_unary};

/// A call that passes.
#[derive(Clone, Debug)]
pub struct Passing {
    /// The method's name: `ListMachines`.
    pub method: String,
    /// The request's message.
    pub request: Bytes,
    path: String,
    onward: Channel,
}

impl Passing {
    /// Passes it on with this message instead.
    ///
    /// # Errors
    /// Those of the provider behind.
    pub async fn with(&self, request: Bytes) -> Result<Bytes, Status> {
        let answer = raw_unary(self.onward.clone(), &self.path, Request::new(request)).await;
        answer.map(Response::into_inner)
    }

    /// Passes it on as it is.
    ///
    /// # Errors
    /// Those of the provider behind.
    pub async fn pass(&self) -> Result<Bytes, Status> {
        self.with(self.request.clone()).await
    }
}

type Handler = Arc<dyn Fn(Passing) -> BoxFuture<'static, Result<Bytes, Status>> + Send + Sync>;

/// What answers.
#[derive(Clone)]
struct Tap<const SERVICE: usize> {
    onward: Channel,
    handler: Handler,
}

macro_rules! named {
    ($($number:literal $name:expr),*) => {
        $(impl NamedService for Tap<$number> {
            const NAME: &'static str = $name;
        })*
    };
}

named! { 0 capabilities::SERVICE_NAME, 1 machines::SERVICE_NAME, 2 addresses::SERVICE_NAME, 3 bgp::SERVICE_NAME }

impl<const SERVICE: usize> Service<http::Request<Body>> for Tap<SERVICE> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Poller<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let path = request.uri().path().to_owned();
        let method = path.rsplit('/').next().unwrap_or_default().to_owned();
        let call = Call {
            method,
            path,
            tap: (self.onward.clone(), Arc::clone(&self.handler)),
        };
        Box::pin(async move { Ok(tonic::server::Grpc::new(Raw).unary(call, request).await) })
    }
}

struct Call {
    method: String,
    path: String,
    tap: (Channel, Handler),
}

impl UnaryService<Bytes> for Call {
    type Response = Bytes;
    type Future = BoxFuture<'static, Result<Response<Bytes>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let (onward, handler) = self.tap.clone();
        let passing = Passing {
            method: self.method.clone(),
            request: request.into_inner(),
            path: self.path.clone(),
            onward,
        };
        Box::pin(async move { handler(passing).await.map(Response::new) })
    }
}

/// A provider that asks `handler` about each call on its way to the one behind `onward`.
pub fn tap(
    onward: &Channel,
    handler: impl Fn(Passing) -> BoxFuture<'static, Result<Bytes, Status>> + Send + Sync + 'static,
) -> Routes {
    fn one<const SERVICE: usize>(onward: &Channel, handler: &Handler) -> Tap<SERVICE> {
        Tap {
            onward: onward.clone(),
            handler: Arc::clone(handler),
        }
    }
    let handler: Handler = Arc::new(handler);
    Routes::new(one::<0>(onward, &handler))
        .add_service(one::<1>(onward, &handler))
        .add_service(one::<2>(onward, &handler))
        .add_service(one::<3>(onward, &handler))
}
