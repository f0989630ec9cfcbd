//! Watches: a snapshot, then everything, in order; and resuming.

use groundplane_proto::ipam::v1::watch_response::Event;
use pretty_assertions::assert_eq;
use tonic::Streaming;

use super::*;

/// The next event as text: `allocated web 192.0.2.1/32`.
async fn next(stream: &mut Streaming<pb::WatchResponse>) -> String {
    let message = stream.message().await.unwrap().unwrap();
    let allocation =
        |what: &str, held: pb::Allocation| format!("{what} {} {}", held.owner.unwrap().name, held.prefix);
    match message.event.unwrap() {
        Event::Allocated(held) => allocation("allocated", held),
        Event::Released(held) => allocation("released", held),
        Event::Pool(status) => {
            format!(
                "pool {} used {}",
                status.pool.unwrap().r#ref.unwrap().name,
                status.used
            )
        }
        Event::PoolGone(id) => format!("gone {}", id.name),
        Event::Synced(_) => format!("synced {}", message.revision),
        Event::Freed(id) => format!("freed {}", id.name),
    }
}

async fn watch(ipam: &mut Ipam, revision: u64, pools_only: bool) -> Streaming<pb::WatchResponse> {
    ipam.client
        .watch(pb::WatchRequest { revision, pools_only })
        .await
        .unwrap()
        .into_inner()
}

#[tokio::test]
async fn a_watch_begins_with_a_snapshot_and_goes_on_without_a_gap() {
    let mut ipam = Ipam::new(&[pool("a", &["192.0.2.0/24"])]).await;
    ipam.allocate("web", &["v4"]).await.unwrap();
    let mut stream = watch(&mut ipam, 0, false).await;
    assert_eq!(next(&mut stream).await, "pool a used 1");
    assert_eq!(next(&mut stream).await, "allocated web 192.0.2.1/32");
    assert_eq!(next(&mut stream).await, "synced 1");
    ipam.allocate("api", &["v4"]).await.unwrap();
    assert_eq!(next(&mut stream).await, "allocated api 192.0.2.2/32");
    let request = pb::MoveRequest {
        from: Some(owner("api")),
        to: Some(owner("b")),
        ..Default::default()
    };
    ipam.client.r#move(request).await.unwrap();
    assert_eq!(next(&mut stream).await, "released api 192.0.2.2/32");
    assert_eq!(next(&mut stream).await, "allocated b 192.0.2.2/32");
    ipam.release("b").await.unwrap();
    assert_eq!(next(&mut stream).await, "released b 192.0.2.2/32");
    drop(stream);

    let mut stream = watch(&mut ipam, 2, false).await;
    assert_eq!(next(&mut stream).await, "synced 2");
    assert_eq!(
        next(&mut stream).await,
        "released api 192.0.2.2/32",
        "the move is told again as a whole"
    );
    assert_eq!(next(&mut stream).await, "allocated b 192.0.2.2/32");
    assert_eq!(next(&mut stream).await, "released b 192.0.2.2/32");
    drop(stream);
    ipam.stop().await;
}

#[tokio::test]
async fn a_watch_cannot_resume_from_a_revision_of_another_time() {
    let mut ipam = Ipam::new(&[]).await;
    let request = pb::WatchRequest {
        revision: 77,
        pools_only: false,
    };
    let refused = ipam.client.watch(request).await;
    assert_eq!(refusal(refused), (ErrorKind::Compacted, "COMPACTED".to_owned()));
    ipam.stop().await;
}

#[tokio::test]
async fn who_watches_pools_hears_how_full_they_are_and_when_addresses_come_free() {
    let mut ipam = Ipam::new(&[pool("a", &["192.0.2.1"])]).await;
    let mut stream = watch(&mut ipam, 0, true).await;
    assert_eq!(next(&mut stream).await, "pool a used 0");
    assert_eq!(next(&mut stream).await, "synced 0");
    ipam.allocate("web", &["v4"]).await.unwrap();
    assert_eq!(next(&mut stream).await, "pool a used 1");
    ipam.release("web").await.unwrap();
    assert_eq!(next(&mut stream).await, "pool a used 0");
    ipam.clock.advance(jiff::SignedDuration::from_secs(301));
    assert_eq!(next(&mut stream).await, "freed a", "it cooled down");
    assert_eq!(ipam.allocate("api", &["v4"]).await.unwrap(), ["192.0.2.1/32"]);
    drop(stream);
    ipam.stop().await;
}

#[tokio::test]
async fn pools_come_drain_and_go() {
    let mut ipam = Ipam::new(&[]).await;
    let mut stream = watch(&mut ipam, 0, false).await;
    assert_eq!(next(&mut stream).await, "synced 0");
    let id = groundplane_proto::core::v1::PoolRef {
        name: "b".to_owned(),
        ..Default::default()
    };
    let pool = pb::Pool {
        r#ref: Some(id),
        addresses: vec!["192.0.2.1".to_owned()],
        ..Default::default()
    };
    let put = |pools| pb::PutPoolsRequest {
        source: "configmaps".to_owned(),
        source_revision: 0,
        pools,
    };
    ipam.client.put_pools(put(vec![pool])).await.unwrap();
    assert_eq!(next(&mut stream).await, "pool b used 0");
    assert_eq!(next(&mut stream).await, "freed b");
    ipam.allocate("web", &["v4"]).await.unwrap();
    assert_eq!(next(&mut stream).await, "allocated web 192.0.2.1/32");
    ipam.client.put_pools(put(Vec::new())).await.unwrap();
    assert_eq!(next(&mut stream).await, "pool b used 1");
    ipam.release("web").await.unwrap();
    assert_eq!(next(&mut stream).await, "released web 192.0.2.1/32");
    assert_eq!(next(&mut stream).await, "gone b");
    drop(stream);
    ipam.stop().await;
}

#[tokio::test]
async fn a_watch_ends_when_the_process_stops() {
    let mut ipam = Ipam::new(&[]).await;
    let mut stream = watch(&mut ipam, 0, false).await;
    assert_eq!(next(&mut stream).await, "synced 0");
    ipam.stop().await;
    while let Ok(Some(_)) = stream.message().await {}
}
