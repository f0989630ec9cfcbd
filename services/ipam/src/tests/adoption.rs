//! Adoption: nothing is given to a cluster that has not told what it holds.

use pretty_assertions::assert_eq;

use super::*;

#[tokio::test]
async fn until_a_cluster_has_told_what_it_holds_nothing_is_given_or_taken() {
    let mut ipam = Ipam::over(Box::new(MemoryStore::new()), &[pool("a", &["192.0.2.0/24"])]).await;
    let adopting = (ErrorKind::Unavailable, "ADOPTING".to_owned());
    assert_eq!(refusal(ipam.allocate("web", &["v4"]).await), adopting);
    assert_eq!(refusal(ipam.release("web").await), adopting);
    let request = pb::MoveRequest {
        from: Some(owner("a")),
        to: Some(owner("b")),
        ..Default::default()
    };
    assert_eq!(refusal(ipam.client.r#move(request).await), adopting);
    assert_eq!(ipam.holder("192.0.2.1").await, None, "reading is allowed");
    ipam.adopt(vec![holding("old", &["192.0.2.1"])]).await;
    assert_eq!(ipam.allocate("web", &["v4"]).await.unwrap(), ["192.0.2.2/32"]);
    let mut west = request_of("west");
    west.requests = vec![want("v4")];
    assert_eq!(
        refusal(ipam.client.allocate(west).await),
        adopting,
        "another cluster has to speak for itself"
    );
    ipam.stop().await;
}

fn request_of(cluster: &str) -> pb::AllocateRequest {
    let mut request = request("web", &[]);
    request.owner.as_mut().unwrap().cluster = cluster.to_owned();
    request
}

#[tokio::test]
async fn a_store_that_the_cluster_does_not_know_is_refused_and_named() {
    let mut ipam = Ipam::over(Box::new(MemoryStore::new()), &[]).await;
    let id = ipam.store().await.store_id;
    let foreign = pb::AdoptRequest {
        store_id: "another".to_owned(),
        ..adoption(Vec::new())
    };
    let error: RpcError = ipam.client.adopt(foreign).await.unwrap_err().into();
    assert_eq!(
        (error.kind, error.reason.as_str()),
        (ErrorKind::Precondition, "UNKNOWN_STORE")
    );
    assert_eq!(error.metadata["store_id"], id);
    let ours = pb::AdoptRequest {
        store_id: id,
        ..adoption(Vec::new())
    };
    ipam.client.adopt(ours).await.unwrap();
    ipam.stop().await;
}

/// A backup from before the last allocations knows neither them nor the releases.
#[tokio::test]
async fn a_store_restored_from_an_old_backup_gives_no_live_address_again() {
    let folder = tempfile::tempdir().unwrap();
    let (path, backup) = (folder.path().join("ipam.redb"), folder.path().join("backup.redb"));
    let pools = [pool("a", &["192.0.2.1-192.0.2.9"])];
    let mut ipam = Ipam::in_file(&path, &pools).await;
    ipam.adopt(Vec::new()).await;
    ipam.allocate("gone", &["v4"]).await.unwrap();
    ipam.allocate("web", &["v4"]).await.unwrap();
    std::fs::copy(&path, &backup).unwrap();
    ipam.release("gone").await.unwrap();
    ipam.allocate("taker", &["192.0.2.1"]).await.unwrap();
    ipam.allocate("new", &["v4"]).await.unwrap();
    let store = ipam.store().await;
    ipam.stop().await;

    let mut ipam = Ipam::in_file(&backup, &pools).await;
    assert!(ipam.store().await.revision < store.revision);
    let holdings = vec![
        holding("taker", &["192.0.2.1"]),
        holding("web", &["192.0.2.2"]),
        holding("new", &["192.0.2.3"]),
    ];
    let request = pb::AdoptRequest {
        store_id: store.store_id.clone(),
        store_revision: store.revision,
        ..adoption(holdings)
    };
    let answer = ipam.client.adopt(request.clone()).await.unwrap().into_inner();
    assert_eq!(
        (answer.adopted, answer.conflicts.len(), answer.evicted.len()),
        (2, 0, 1)
    );
    assert_eq!(answer.evicted[0].owner.as_ref().unwrap().name, "gone");
    assert!(
        answer.revision > store.revision,
        "revisions do not repeat themselves"
    );
    assert_eq!(ipam.store().await.revision, answer.revision);
    assert_eq!(ipam.allocate("next", &["v4"]).await.unwrap(), ["192.0.2.4/32"]);
    for (address, name) in [("192.0.2.1", "taker"), ("192.0.2.2", "web"), ("192.0.2.3", "new")] {
        assert_eq!(ipam.holder(address).await.as_deref(), Some(name));
    }
    let again = ipam.client.adopt(request).await.unwrap().into_inner();
    assert_eq!(
        (again.adopted, again.evicted.len(), again.conflicts.len()),
        (0, 0, 0),
        "it may be told again"
    );
    ipam.stop().await;
}

#[tokio::test]
async fn what_cannot_be_taken_over_is_told() {
    let mut ipam = Ipam::over(Box::new(MemoryStore::new()), &[pool("a", &["192.0.2.0/24"])]).await;
    let answer = ipam
        .adopt(vec![
            holding("one", &["192.0.2.1", "203.0.113.1"]),
            holding("two", &["192.0.2.1"]),
            holding("three", &["lb.example.org"]),
        ])
        .await;
    assert_eq!(answer.adopted, 1);
    let conflict = &answer.conflicts[0];
    assert_eq!(
        conflict.holding.as_ref().unwrap().owner.as_ref().unwrap().name,
        "two"
    );
    assert_eq!(
        (
            conflict.prefix.as_str(),
            conflict.holder.as_ref().unwrap().name.as_str()
        ),
        ("192.0.2.1/32", "one")
    );
    let mut uncovered: Vec<_> = answer
        .uncovered
        .iter()
        .flat_map(|holding| holding.prefixes.clone())
        .collect();
    uncovered.sort();
    assert_eq!(uncovered, ["203.0.113.1/32", "lb.example.org"]);
    let foreign = pb::Holding {
        owner: request_of("west").owner,
        ..holding("x", &[])
    };
    let refused = ipam.client.adopt(adoption(vec![foreign])).await;
    assert_eq!(refusal(refused).0, ErrorKind::Invalid);
    ipam.stop().await;
}

/// The file is lost, the cluster is not.
#[tokio::test]
async fn an_empty_store_learns_from_the_cluster() {
    let mut ipam = Ipam::over(Box::new(MemoryStore::new()), &[pool("a", &["10.0.0.0/16"])]).await;
    let holdings: Vec<_> = (1..=2000_u32)
        .map(|number| {
            holding(
                &format!("s{number}"),
                &[&format!("10.0.{}.{}", number / 200, number % 200 + 1)],
            )
        })
        .collect();
    let answer = ipam.adopt(holdings.clone()).await;
    assert_eq!((answer.adopted, answer.revision), (2000, 2000));
    assert_eq!(ipam.adopt(holdings).await.adopted, 0);
    assert_eq!(ipam.allocate("s7", &["v4"]).await.unwrap(), ["10.0.0.8/32"]);
    ipam.stop().await;
}
