use std::time::Duration;

use groundplane_core::ErrorKind;
use pretty_assertions::assert_eq;
use tokio::io::AsyncReadExt as _;

use super::super::connection::PREFACE_WAIT;
use super::super::{BoundAddress, Limits, RpcError};
use super::fixture::*;
use crate::Context;
use crate::shutdown::DRAIN;

/// Trap: an open stream makes a graceful stop hang.
#[tokio::test(start_paused = true)]
async fn a_stop_ends_open_streams() {
    let fixture = Fixture::start(Limits {
        drain: Duration::from_secs(86_400),
        ..Limits::default()
    })
    .await;
    let mut stream = watch(&fixture.channel()).await.unwrap();
    assert_eq!(stream.message().await.unwrap().unwrap(), "first");
    let tasks = fixture.context.tasks.clone();
    let (drained, ended) = tokio::join!(tasks.drain(DRAIN), stream.message());
    drained.unwrap();
    let error = RpcError::from(ended.unwrap_err());
    assert_eq!(
        error.kind,
        ErrorKind::Unavailable,
        "a client may begin again elsewhere"
    );
    assert_eq!(fixture.handled("Watch", "UNAVAILABLE"), 1);
}

/// Trap: a connection that never spoke (a port scanner, a probe) makes a graceful stop hang.
#[tokio::test]
async fn a_stop_closes_connections_that_never_spoke() {
    let context = Context::new();
    let limits = Limits {
        drain: Duration::from_secs(86_400),
        ..Limits::default()
    };
    let (server, _did) = server(&context);
    let addresses = server
        .listen("127.0.0.1:0".parse().unwrap())
        .limits(limits)
        .start()
        .await
        .unwrap();
    let [BoundAddress::Tcp(address)] = addresses[..] else {
        panic!("{addresses:?}")
    };
    let mut silent = tokio::net::TcpStream::connect(address).await.unwrap();
    // Accepted in order: once this is answered, the silent one has been taken in.
    echo(&described(&format!("http://{address}").parse().unwrap()))
        .await
        .unwrap();
    // Less than the silent one would be granted while the server runs.
    context.tasks.drain(PREFACE_WAIT / 2).await.unwrap();
    // Settings may have been sent; then comes the end.
    let mut rest = Vec::new();
    drop(silent.read_to_end(&mut rest).await);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_never_speaks_is_closed_in_time() {
    let fixture = Fixture::start(Limits::default()).await;
    let mut silent = fixture.connector.connect().await.unwrap();
    let mut rest = Vec::new();
    silent.read_to_end(&mut rest).await.unwrap();
}

/// Trap: a call that hangs makes a graceful stop hang.
#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_calls_and_not_for_ever() {
    let mut fixture = Fixture::start(Limits::default()).await;
    let channel = fixture.channel();
    let mut request = tonic::Request::new(String::new());
    request.set_timeout(Duration::from_secs(3_600));
    let call = async {
        let answer = unary(&channel, "Hang", request).await;
        RpcError::from(answer.unwrap_err()).kind
    };
    let stop = async {
        assert_eq!(fixture.did.recv().await, Some(Did::HangBegun));
        fixture.context.tasks.drain(DRAIN).await.unwrap();
    };
    let (kind, ()) = tokio::join!(call, stop);
    assert_eq!(kind, ErrorKind::Unavailable);
}

#[tokio::test]
async fn once_stopped_a_server_is_unavailable() {
    let fixture = Fixture::start(Limits::default()).await;
    let channel = fixture.channel();
    echo(&channel).await.unwrap();
    fixture.context.tasks.drain(DRAIN).await.unwrap();
    let error = RpcError::from(echo(&channel).await.unwrap_err());
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
}
