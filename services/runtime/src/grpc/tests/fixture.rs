//! A service that echoes, hangs, fails and streams, and a client for it.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use http::uri::PathAndQuery;
use prost::Message as _;
use prost_types::{FileDescriptorProto, FileDescriptorSet, MethodDescriptorProto, ServiceDescriptorProto};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tower::{Service, service_fn};

use super::super::{Channel, Limits, Listen, MemoryConnector, Server, Target, channel, memory};
use crate::Context;

pub(super) const SERVICE: &str = "test.v1.TestService";

/// What the service did, as it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Did {
    /// `Hang` was called.
    HangBegun,
    /// `Hang` was dropped.
    HangDropped,
    /// The stream of `Watch` was dropped.
    WatchDropped,
}

/// `Echo` answers what it gets, `Trace` the id of its trace, `Hang` never, `Watch` once and then never again.
#[derive(Clone, Debug)]
pub(super) struct TestService(mpsc::UnboundedSender<Did>);

impl NamedService for TestService {
    const NAME: &'static str = SERVICE;
}

/// Says so when it is dropped.
struct Dropped(mpsc::UnboundedSender<Did>, Did);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.send(self.1).ok();
    }
}

type Answer = Result<Response<String>, Status>;
type Texts = Pin<Box<dyn Stream<Item = Result<String, Status>> + Send>>;

impl TestService {
    async fn unary(self, method: String, request: Request<String>) -> Answer {
        match method.as_str() {
            "Trace" => Ok(Response::new(
                crate::telemetry::trace::current_trace_id().unwrap_or_default(),
            )),
            "Hang" => {
                let _guard = Dropped(self.0.clone(), Did::HangDropped);
                self.0.send(Did::HangBegun).ok();
                std::future::pending().await
            }
            _ => Ok(Response::new(request.into_inner())),
        }
    }

    fn watch(self) -> Texts {
        let guard = Dropped(self.0, Did::WatchDropped);
        Box::pin(futures::stream::unfold(
            (true, guard),
            |(first, guard)| async move {
                if !first {
                    std::future::pending::<()>().await;
                }
                Some((Ok("first".to_owned()), (false, guard)))
            },
        ))
    }
}

impl Service<http::Request<Body>> for TestService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let method = request
            .uri()
            .path()
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .to_owned();
        let this = self.clone();
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(ProstCodec::<String, String>::default());
            if method == "Watch" {
                let serve = service_fn(move |_: Request<String>| {
                    let this = this.clone();
                    async move { Ok::<_, Status>(Response::new(this.watch())) }
                });
                return Ok(grpc.server_streaming(serve, request).await);
            }
            let serve =
                service_fn(move |request: Request<String>| this.clone().unary(method.clone(), request));
            Ok(grpc.unary(serve, request).await)
        })
    }
}

/// The descriptor set of the service, as a contract's crate has it.
pub(super) fn descriptor_set() -> &'static [u8] {
    let method = |name: &str, server_streaming| MethodDescriptorProto {
        name: Some(name.to_owned()),
        input_type: Some(".google.protobuf.StringValue".to_owned()),
        output_type: Some(".google.protobuf.StringValue".to_owned()),
        server_streaming: Some(server_streaming),
        ..MethodDescriptorProto::default()
    };
    let service = ServiceDescriptorProto {
        name: Some("TestService".to_owned()),
        method: vec![
            method("Echo", false),
            method("Hang", false),
            method("Trace", false),
            method("Watch", true),
        ],
        ..ServiceDescriptorProto::default()
    };
    let file = FileDescriptorProto {
        name: Some("test.proto".to_owned()),
        package: Some("test.v1".to_owned()),
        service: vec![service],
        syntax: Some("proto3".to_owned()),
        ..FileDescriptorProto::default()
    };
    FileDescriptorSet { file: vec![file] }.encode_to_vec().leak()
}

/// A running server.
pub(super) struct Fixture {
    pub(super) context: Context,
    pub(super) connector: MemoryConnector,
    pub(super) did: mpsc::UnboundedReceiver<Did>,
}

impl Fixture {
    /// Serves in memory.
    pub(super) async fn start(limits: Limits) -> Self {
        let context = Context::new();
        let (listener, connector) = memory();
        let (server, did) = server(&context);
        server
            .listen(Listen::Memory(listener))
            .limits(limits)
            .start()
            .await
            .unwrap();
        Self {
            context,
            connector,
            did,
        }
    }

    /// A client of it.
    pub(super) fn channel(&self) -> Channel {
        described(&Target::Memory(self.connector.clone()))
    }

    /// Everything that a scrape would get.
    pub(super) fn metrics(&self) -> String {
        self.context.metrics.encode().unwrap()
    }

    /// How often calls of `method` ended with `code`.
    pub(super) fn handled(&self, method: &str, code: &str) -> u64 {
        let line = format!(
            "groundplane_grpc_server_handled_total{{service=\"{SERVICE}\",method=\"{method}\",code=\"{code}\"}} "
        );
        let text = self.metrics();
        text.lines()
            .find_map(|text| text.strip_prefix(&line))
            .map_or(0, |count| count.parse().unwrap())
    }
}

/// A server of the test service, and what the service tells.
pub(super) fn server(context: &Context) -> (Server, mpsc::UnboundedReceiver<Did>) {
    let (told, did) = mpsc::unbounded_channel();
    let server = Server::new("test", context)
        .routes(Routes::new(TestService(told)))
        .reflection(false, descriptor_set());
    (server, did)
}

pub(super) fn described(target: &Target) -> Channel {
    channel(target, None).unwrap().describe(descriptor_set()).unwrap()
}

fn path(method: &str) -> PathAndQuery {
    format!("/{SERVICE}/{method}").parse().unwrap()
}

/// Calls as a generated client does.
pub(super) async fn unary(channel: &Channel, method: &str, request: Request<String>) -> Answer {
    let mut client = tonic::client::Grpc::new(channel.clone());
    client
        .ready()
        .await
        .map_err(|error| Status::from_error(Box::new(error)))?;
    client
        .unary(request, path(method), ProstCodec::<String, String>::default())
        .await
}

pub(super) async fn echo(channel: &Channel) -> Answer {
    unary(channel, "Echo", Request::new("hello".to_owned())).await
}

pub(super) async fn hang(channel: &Channel) -> Answer {
    unary(channel, "Hang", Request::new(String::new())).await
}

pub(super) async fn watch(channel: &Channel) -> Result<Streaming<String>, Status> {
    let mut client = tonic::client::Grpc::new(channel.clone());
    client
        .ready()
        .await
        .map_err(|error| Status::from_error(Box::new(error)))?;
    let codec = ProstCodec::<String, String>::default();
    Ok(client
        .server_streaming(Request::new(String::new()), path("Watch"), codec)
        .await?
        .into_inner())
}
