use std::time::Duration;

use groundplane_core::ErrorKind;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use pretty_assertions::assert_eq;
use tonic::Request;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::super::{BindError, BoundAddress, Limits, Listen, RpcError, Server, Target, channel};
use super::fixture::*;
use crate::Context;

const SOON: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_server_answers_on_tcp_unix_and_memory_at_once() {
    let context = Context::new();
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("test.sock");
    let (listener, connector) = super::super::memory();
    let (server, _did) = server(&context);
    let addresses = server
        .listen("127.0.0.1:0".parse().unwrap())
        .listen(format!("unix:{}", socket.display()).parse().unwrap())
        .listen(Listen::Memory(listener))
        .start()
        .await
        .unwrap();
    let BoundAddress::Tcp(tcp) = addresses[0] else {
        panic!("{addresses:?}")
    };
    assert_ne!(tcp.port(), 0);
    for target in [
        format!("http://{tcp}").parse().unwrap(),
        format!("unix:{}", socket.display()).parse().unwrap(),
        Target::Memory(connector),
    ] {
        assert_eq!(
            echo(&described(&target)).await.unwrap().into_inner(),
            "hello",
            "{target}"
        );
    }
    context.tasks.drain(SOON).await.unwrap();
    assert!(!socket.exists(), "the socket is removed");
}

#[tokio::test]
async fn a_server_within_the_process_is_reached_by_its_channel() {
    let context = Context::new();
    let (server, _did) = server(&context);
    let channel = server.within(descriptor_set()).await.unwrap();
    assert_eq!(echo(&channel).await.unwrap().into_inner(), "hello");
    let broken = Server::new("test", &context).within(b"no descriptors");
    assert!(broken.await.is_err());
}

#[tokio::test]
async fn a_stale_unix_socket_is_replaced_and_a_live_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("test.sock");
    // What a process leaves behind that was killed.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let context = Context::new();
    let listen = Listen::Unix(socket.clone());
    server(&context).0.listen(listen.clone()).start().await.unwrap();
    let error = server(&context).0.listen(listen).start().await.unwrap_err();
    assert!(matches!(error, BindError::Io { .. }), "{error}");
    echo(&described(&Target::Unix(socket))).await.unwrap();
    context.tasks.drain(SOON).await.unwrap();
}

#[tokio::test]
async fn plaintext_is_for_loopback_unless_somebody_insists() {
    let context = Context::new();
    let listen = || "0.0.0.0:0".parse::<Listen>().unwrap();
    let error = server(&context).0.listen(listen()).bind().await.unwrap_err();
    assert!(matches!(error, BindError::Plaintext(_)), "{error}");
    drop(
        server(&context)
            .0
            .listen(listen())
            .insecure(true)
            .bind()
            .await
            .unwrap(),
    );
    assert!(matches!(
        Server::new("test", &context).bind().await,
        Err(BindError::Nowhere("test"))
    ));
}

#[test]
fn places_are_parsed() {
    assert!(matches!("[::]:9000".parse(), Ok(Listen::Tcp(_))));
    for text in ["", "9000", "localhost", "unix:relative", "http://127.0.0.1:1"] {
        assert!(text.parse::<Listen>().is_err(), "{text}");
    }
    assert!(matches!("https://ipam.ns.svc:9000".parse(), Ok(Target::Tcp(_))));
    for text in [
        "",
        "ipam:9000",
        "ftp://ipam:1",
        "unix:relative",
        "http://ipam/path",
        "http://",
    ] {
        assert!(text.parse::<Target>().is_err(), "{text}");
    }
}

#[tokio::test]
async fn a_call_is_counted_once_by_its_code() {
    let fixture = Fixture::start(Limits::default()).await;
    echo(&fixture.channel()).await.unwrap();
    assert_eq!(fixture.handled("Echo", "OK"), 1);
    let metrics = fixture.metrics();
    let started = format!("groundplane_grpc_server_started_total{{service=\"{SERVICE}\",method=\"Echo\"}} 1");
    assert!(metrics.contains(&started), "{metrics}");
    assert!(
        metrics.contains("groundplane_grpc_server_handling_seconds_count"),
        "{metrics}"
    );
}

#[tokio::test]
async fn a_method_that_nobody_described_is_no_label() {
    let fixture = Fixture::start(Limits::default()).await;
    let channel = fixture.channel();
    unary(&channel, "Invented", Request::new(String::new()))
        .await
        .unwrap();
    let metrics = fixture.metrics();
    assert!(!metrics.contains("Invented"), "{metrics}");
    assert!(metrics.contains("method=\"unknown\",code=\"OK\"} 1"), "{metrics}");
}

/// Trap: a call whose client went away must not be counted as a success.
#[tokio::test]
async fn a_dropped_call_is_counted_as_cancelled() {
    let mut fixture = Fixture::start(Limits::default()).await;
    let channel = fixture.channel();
    {
        let mut call = std::pin::pin!(hang(&channel));
        tokio::select! {
            answer = &mut call => panic!("{answer:?}"),
            did = fixture.did.recv() => assert_eq!(did, Some(Did::HangBegun)),
        }
    }
    assert_eq!(fixture.did.recv().await, Some(Did::HangDropped));
    // The connection's task may count a moment later; the next call on the same connection comes after that.
    let counted = async {
        while fixture.handled("Hang", "CANCELLED") == 0 {
            echo(&channel).await.unwrap();
        }
    };
    tokio::time::timeout(SOON, counted).await.unwrap();
    assert_eq!(fixture.handled("Hang", "OK"), 0);
}

/// Trap: a client's timeout must be a timeout, and the server must stop working at it.
#[tokio::test(start_paused = true)]
async fn a_call_without_a_deadline_gets_one_and_the_server_stops_at_it() {
    let mut fixture = Fixture::start(Limits::default()).await;
    let error = RpcError::from(hang(&fixture.channel()).await.unwrap_err());
    assert_eq!(error.kind, ErrorKind::Timeout, "{error}");
    assert_eq!(fixture.did.recv().await, Some(Did::HangBegun));
    assert_eq!(fixture.did.recv().await, Some(Did::HangDropped));
    assert_eq!(
        fixture.handled("Hang", "DEADLINE_EXCEEDED"),
        1,
        "{}",
        fixture.metrics()
    );
}

#[tokio::test(start_paused = true)]
async fn a_deadline_of_the_calls_own_is_kept() {
    let fixture = Fixture::start(Limits::default()).await;
    let begun = tokio::time::Instant::now();
    let mut request = Request::new(String::new());
    request.set_timeout(Duration::from_secs(3));
    let error = RpcError::from(unary(&fixture.channel(), "Hang", request).await.unwrap_err());
    assert_eq!(error.kind, ErrorKind::Timeout);
    // Paused time moves only when everybody waits.
    assert!(begun.elapsed() <= Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn no_unary_call_is_worked_on_beyond_our_own_limit() {
    let mut fixture = Fixture::start(Limits::default()).await;
    let begun = tokio::time::Instant::now();
    let mut request = Request::new(String::new());
    request.set_timeout(Duration::from_secs(3_600));
    let error = RpcError::from(unary(&fixture.channel(), "Hang", request).await.unwrap_err());
    assert_eq!(error.kind, ErrorKind::Timeout);
    assert_eq!(fixture.did.recv().await, Some(Did::HangBegun));
    assert!(begun.elapsed() <= Duration::from_secs(61));
}

#[tokio::test(start_paused = true)]
async fn a_stream_has_no_deadline() {
    let mut fixture = Fixture::start(Limits::default()).await;
    let mut stream = watch(&fixture.channel()).await.unwrap();
    assert_eq!(stream.message().await.unwrap().unwrap(), "first");
    let hour = tokio::time::timeout(Duration::from_secs(3_600), stream.message()).await;
    assert!(hour.is_err(), "{hour:?}");
    assert!(fixture.did.try_recv().is_err(), "the server still has it");
}

#[tokio::test]
async fn too_many_calls_at_once_are_refused_and_health_is_not() {
    let mut fixture = Fixture::start(Limits {
        calls: 1,
        ..Limits::default()
    })
    .await;
    let channel = fixture.channel();
    let mut first = std::pin::pin!(hang(&channel));
    tokio::select! {
        answer = &mut first => panic!("{answer:?}"),
        did = fixture.did.recv() => assert_eq!(did, Some(Did::HangBegun)),
    }
    let error = tokio::select! {
        answer = &mut first => panic!("{answer:?}"),
        answer = echo(&channel) => RpcError::from(answer.unwrap_err()),
    };
    assert_eq!(
        (error.kind, &*error.reason),
        (ErrorKind::Unavailable, "OVERLOADED")
    );
    assert!(error.retry_after.is_some());
    let mut health = HealthClient::new(channel.clone());
    tokio::select! {
        answer = &mut first => panic!("{answer:?}"),
        answer = health.check(HealthCheckRequest::default()) => drop(answer.unwrap()),
    };
}

#[tokio::test]
async fn health_is_what_the_services_needs_are() {
    let fixture = Fixture::start(Limits::default()).await;
    let health = &fixture.context.health;
    health.serves(SERVICE, &["store"]);
    let store = health.component("store");
    let mut client = HealthClient::new(channel(&Target::Memory(fixture.connector.clone()), None).unwrap());
    let request = |service: &str| HealthCheckRequest {
        service: service.to_owned(),
    };
    let check = client.check(request(SERVICE)).await.unwrap().into_inner();
    assert_eq!(check.status(), ServingStatus::NotServing);
    let mut changes = client.watch(request(SERVICE)).await.unwrap().into_inner();
    assert_eq!(
        changes.message().await.unwrap().unwrap().status(),
        ServingStatus::NotServing
    );
    store.ready();
    assert_eq!(
        changes.message().await.unwrap().unwrap().status(),
        ServingStatus::Serving
    );
    let error = client.check(request("nobody.v1.Nobody")).await.unwrap_err();
    assert_eq!(error.code(), tonic::Code::NotFound);
    fixture.context.tasks.token().cancel();
    // The news of the stop, or the end of the stream by it: never SERVING again.
    match changes.message().await {
        Ok(Some(change)) => assert_eq!(change.status(), ServingStatus::NotServing),
        Ok(None) => {}
        Err(status) => assert_eq!(status.code(), tonic::Code::Unavailable),
    }
}

#[tokio::test]
async fn several_services_share_a_server_and_unknown_ones_are_unimplemented() {
    let context = Context::new();
    let (listener, connector) = super::super::memory();
    let other = tonic::service::Routes::new(TraceServiceServer::new(Nothing));
    server(&context)
        .0
        .routes(other)
        .listen(Listen::Memory(listener))
        .start()
        .await
        .unwrap();
    let channel = described(&Target::Memory(connector));
    echo(&channel).await.unwrap();
    let mut client = TraceServiceClient::new(channel.clone());
    client.export(ExportTraceServiceRequest::default()).await.unwrap();
    let mut stranger = tonic::client::Grpc::new(channel);
    stranger.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<String, String>::default();
    let path = "/nobody.v1.Nobody/Call".parse().unwrap();
    let error = stranger
        .unary(Request::new(String::new()), path, codec)
        .await
        .unwrap_err();
    assert_eq!(RpcError::from(error).kind, ErrorKind::Unsupported);
}

struct Nothing;

#[tonic::async_trait]
impl TraceService for Nothing {
    async fn export(
        &self,
        _: Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

#[tokio::test]
async fn reflection_is_there_only_when_asked_for() {
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
    use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};
    async fn ask(enabled: bool) -> Result<ServerReflectionResponse, tonic::Status> {
        let context = Context::new();
        let (listener, connector) = super::super::memory();
        let server = server(&context).0.reflection(enabled, descriptor_set());
        server.listen(Listen::Memory(listener)).start().await.unwrap();
        let mut client = ServerReflectionClient::new(channel(&Target::Memory(connector), None).unwrap());
        let message_request = Some(MessageRequest::ListServices(String::new()));
        let request = ServerReflectionRequest {
            message_request,
            ..ServerReflectionRequest::default()
        };
        let answers = client.server_reflection_info(tokio_stream::once(request)).await?;
        Ok(answers.into_inner().message().await?.unwrap())
    }
    assert_eq!(ask(false).await.unwrap_err().code(), tonic::Code::Unimplemented);
    let Some(MessageResponse::ListServicesResponse(list)) = ask(true).await.unwrap().message_response else {
        panic!("no list of services");
    };
    let names: Vec<_> = list.service.iter().map(|service| service.name.as_str()).collect();
    assert!(
        names.contains(&SERVICE) && names.contains(&"grpc.health.v1.Health"),
        "{names:?}"
    );
}
