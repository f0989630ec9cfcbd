//! Peers that vanish without a word: a relay between client and server that stops carrying bytes.

use std::time::Duration;

use pretty_assertions::assert_eq;
use tokio_util::sync::CancellationToken;

use super::super::{Limits, MemoryConnector, Policy, Target, call, memory};
use super::fixture::*;
use crate::Tasks;

/// Carries connections to `server`; the ones that exist when `cut` is cancelled stall for ever. Later ones work.
fn relay(tasks: &Tasks, server: MemoryConnector, cut: CancellationToken) -> MemoryConnector {
    let (listener, connector) = memory();
    let mut incoming = listener.take().unwrap();
    let all = tasks.clone();
    tasks.spawn("relay", async move {
        while let Some(mut near) = incoming.recv().await {
            let mut far = server.connect().await.unwrap();
            let fragile = !cut.is_cancelled();
            let cut = cut.clone();
            all.spawn("carry", async move {
                let carry = tokio::io::copy_bidirectional(&mut near, &mut far);
                tokio::select! {
                    carried = carry => drop(carried),
                    () = cut.cancelled(), if fragile => {}
                }
                // Neither end is told: both pipes stay open and carry nothing.
                std::future::pending::<()>().await;
            });
        }
    });
    connector
}

/// Trap: without pings, a channel never recovers from a silent partition.
#[tokio::test(start_paused = true)]
async fn a_channel_recovers_from_a_silent_partition() {
    let fixture = Fixture::start(Limits::default()).await;
    let cut = CancellationToken::new();
    let tasks = Tasks::new();
    let connector = relay(&tasks, fixture.connector.clone(), cut.clone());
    let channel = described(&Target::Memory(connector));
    echo(&channel).await.unwrap();
    cut.cancel();
    let policy = Policy {
        total: Duration::from_secs(30),
        ..Policy::default()
    };
    assert_eq!(call(policy, || echo(&channel)).await.unwrap(), "hello");
}

#[tokio::test(start_paused = true)]
async fn a_clients_stream_ends_when_its_server_vanishes() {
    let fixture = Fixture::start(Limits::default()).await;
    let cut = CancellationToken::new();
    let tasks = Tasks::new();
    let connector = relay(&tasks, fixture.connector.clone(), cut.clone());
    let mut stream = watch(&described(&Target::Memory(connector))).await.unwrap();
    stream.message().await.unwrap();
    cut.cancel();
    let ended = tokio::time::timeout(Duration::from_secs(60), stream.message())
        .await
        .unwrap();
    let error = super::super::RpcError::from(ended.unwrap_err());
    assert_eq!(error.kind, groundplane_core::ErrorKind::Unavailable, "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_server_drops_the_stream_of_a_client_that_vanished() {
    let mut fixture = Fixture::start(Limits::default()).await;
    let cut = CancellationToken::new();
    let tasks = Tasks::new();
    let connector = relay(&tasks, fixture.connector.clone(), cut.clone());
    let mut stream = watch(&described(&Target::Memory(connector))).await.unwrap();
    stream.message().await.unwrap();
    cut.cancel();
    let did = tokio::time::timeout(Duration::from_secs(120), fixture.did.recv())
        .await
        .unwrap();
    assert_eq!(did, Some(Did::WatchDropped));
    assert_eq!(fixture.handled("Watch", "CANCELLED"), 1);
}
