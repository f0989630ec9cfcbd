//! Allocate and what goes with it: answers, codes, reasons.

use std::collections::BTreeSet;

use pretty_assertions::assert_eq;

use super::*;

#[tokio::test]
async fn an_address_is_given_found_and_taken_back() {
    let mut ipam = Ipam::new(&[pool("a", &["192.0.2.0/24", "2001:db8::/64"])]).await;
    let answer = ipam
        .client
        .allocate(request("web", &["v4", "v6"]))
        .await
        .unwrap()
        .into_inner();
    let first = &answer.allocations[0];
    assert_eq!(
        (first.prefix.as_str(), first.network.as_str()),
        ("192.0.2.1/32", "default")
    );
    assert_eq!(first.pool.as_ref().unwrap().name, "a");
    assert_eq!(first.allocated_at.as_ref().unwrap().seconds, 1_000_000);
    assert_eq!(answer.allocations[1].prefix, "2001:db8::1/128");
    assert_eq!(
        ipam.allocate("web", &["v6", "v4"]).await.unwrap(),
        ["2001:db8::1/128", "192.0.2.1/32"]
    );
    assert_eq!(ipam.holder("192.0.2.1").await.as_deref(), Some("web"));
    assert_eq!(ipam.holder("192.0.2.2").await, None);
    assert_eq!(ipam.release("web").await.unwrap(), 2);
    assert_eq!(ipam.release("web").await.unwrap(), 0, "that is no error");
    assert_eq!(ipam.holder("192.0.2.1").await, None);
    let pools = ipam
        .client
        .list_pools(pb::ListPoolsRequest {})
        .await
        .unwrap()
        .into_inner()
        .pools;
    assert_eq!((pools[0].used, pools[0].cooling), (0, 2));
    assert_eq!(
        (pools[0].total, pools[0].free),
        (u64::MAX, u64::MAX),
        "counts saturate"
    );
    ipam.stop().await;
}

#[tokio::test]
async fn each_refusal_has_its_code_and_reason() {
    let mut system = pool("system", &["198.51.100.0/30"]);
    system.namespaces = vec!["kube-system".to_owned()];
    let mut ipam = Ipam::new(&[pool("a", &["192.0.2.0/30"]), system]).await;
    ipam.allocate("web", &["v4"]).await.unwrap();
    for (wants, kind, reason) in [
        (&["192.0.2.1"], ErrorKind::AlreadyExists, "ADDRESS_TAKEN"),
        (&["192.0.2.0"], ErrorKind::Precondition, "ADDRESS_RESERVED"),
        (&["203.0.113.1"], ErrorKind::Precondition, "OUTSIDE_POOLS"),
        (&["198.51.100.1"], ErrorKind::Precondition, "OUTSIDE_POOLS"),
        (&["v6"], ErrorKind::NotFound, "POOL_NOT_FOUND"),
        (&["nonsense"], ErrorKind::Invalid, "INVALID_REQUEST"),
    ] {
        assert_eq!(
            refusal(ipam.allocate("api", wants).await),
            (kind, reason.to_owned()),
            "{wants:?}"
        );
    }
    let error = ipam.allocate("api", &["192.0.2.1"]).await.unwrap_err();
    assert_eq!(error.metadata["holder"], "service default/web");
    assert_eq!(error.message, "192.0.2.1/32 is taken by service default/web");
    ipam.allocate("api", &["v4"]).await.unwrap();
    let full = ipam.allocate("new", &["v4"]).await;
    assert_eq!(refusal(full), (ErrorKind::Exhausted, "POOL_EXHAUSTED".to_owned()));
    let other = ipam.allocate("web", &["192.0.2.2"]).await;
    assert_eq!(
        refusal(other),
        (ErrorKind::Precondition, "ALREADY_HOLDS".to_owned())
    );
    let mut first = request("web", &["v4"]);
    first.owner_uid = "one".to_owned();
    ipam.client.allocate(first.clone()).await.unwrap();
    first.owner_uid = "two".to_owned();
    let mismatch = ipam.client.allocate(first).await;
    assert_eq!(
        refusal(mismatch),
        (ErrorKind::Precondition, "UID_MISMATCH".to_owned())
    );
    ipam.stop().await;
}

#[tokio::test]
async fn malformed_requests_name_the_field() {
    let mut ipam = Ipam::new(&[pool("a", &["192.0.2.0/24"])]).await;
    let twice = ipam.allocate("web", &["v4", "192.0.2.7"]).await.unwrap_err();
    assert!(
        twice
            .message
            .starts_with("requests[1]: asks for IPv4 a second time"),
        "{twice}"
    );
    let none = ipam.allocate("web", &[]).await.unwrap_err();
    assert!(none.message.starts_with("requests: "), "{none}");
    let mut nobody = request("web", &["v4"]);
    nobody.owner = None;
    let nobody: RpcError = ipam.client.allocate(nobody).await.unwrap_err().into();
    assert_eq!(
        (nobody.kind, nobody.message.as_str()),
        (ErrorKind::Invalid, "owner: must be set")
    );
    let mut odd = request("web", &["v4"]);
    odd.owner.as_mut().unwrap().kind = "thing".to_owned();
    let odd: RpcError = ipam.client.allocate(odd).await.unwrap_err().into();
    assert!(odd.message.starts_with("owner.kind: "), "{odd}");
    let mut wrong = request("web", &["192.0.2.7"]);
    wrong.requests[0].family = Family::Ipv6.into();
    let wrong: RpcError = ipam.client.allocate(wrong).await.unwrap_err().into();
    assert_eq!(wrong.message, "requests[0].address: 192.0.2.7/32 is not IPv6");
    ipam.stop().await;
}

#[tokio::test]
async fn an_optional_family_that_cannot_be_had_comes_back_as_missing() {
    let mut ipam = Ipam::new(&[pool("a", &["192.0.2.0/24"])]).await;
    let mut both = request("web", &["v4", "v6"]);
    both.requests[1].optional = true;
    let answer = ipam.client.allocate(both).await.unwrap().into_inner();
    assert_eq!(answer.allocations.len(), 1);
    assert_eq!(answer.missing[0].family, i32::from(Family::Ipv6));
    assert_eq!(answer.missing[0].reason, "POOL_NOT_FOUND");
    ipam.stop().await;
}

/// 64 at once: everybody gets an address of their own, and a retry the same again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_at_once_never_share_an_address() {
    let folder = tempfile::tempdir().unwrap();
    let mut ipam = Ipam::in_file(&folder.path().join("ipam.redb"), &[pool("a", &["10.0.0.0/20"])]).await;
    ipam.adopt(Vec::new()).await;
    let tasks = (0..64).map(|task| {
        let mut client = ipam.client.clone();
        async move {
            let mut given = Vec::new();
            for number in 0..10 {
                let request = request(&format!("s{task}-{number}"), &["v4"]);
                let mut other = client.clone();
                let (first, second) = tokio::join!(other.allocate(request.clone()), client.allocate(request));
                let prefix = first.unwrap().into_inner().allocations.remove(0).prefix;
                assert_eq!(second.unwrap().into_inner().allocations[0].prefix, prefix);
                given.push(prefix);
            }
            given
        }
    });
    let given: Vec<_> = futures::future::join_all(tasks)
        .await
        .into_iter()
        .flatten()
        .collect();
    assert_eq!(given.iter().collect::<BTreeSet<_>>().len(), 640);
    let list = pb::ListAllocationsRequest {
        page_size: 5000,
        ..Default::default()
    };
    let listed = ipam.client.list_allocations(list).await.unwrap().into_inner();
    assert_eq!(listed.allocations.len(), 640);
    ipam.stop().await;
}

#[tokio::test]
async fn allocations_come_by_pages_in_order() {
    let mut ipam = Ipam::new(&[pool("a", &["192.0.2.0/24"])]).await;
    for number in 0..7 {
        ipam.allocate(&format!("s{number}"), &["v4"]).await.unwrap();
    }
    let mut token = String::new();
    let mut pages = Vec::new();
    loop {
        let request = pb::ListAllocationsRequest {
            cluster: CLUSTER.to_owned(),
            page_size: 3,
            page_token: token,
            ..Default::default()
        };
        let page = ipam.client.list_allocations(request).await.unwrap().into_inner();
        assert_eq!(page.revision, 7);
        pages.push(page.allocations.len());
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(pages, [3, 3, 1]);
    let other = pb::ListAllocationsRequest {
        cluster: "west".to_owned(),
        ..Default::default()
    };
    assert_eq!(
        ipam.client
            .list_allocations(other)
            .await
            .unwrap()
            .into_inner()
            .allocations,
        []
    );
    let bad = pb::ListAllocationsRequest {
        page_token: "x".to_owned(),
        ..Default::default()
    };
    assert_eq!(
        refusal(ipam.client.list_allocations(bad).await).0,
        ErrorKind::Invalid
    );
    ipam.stop().await;
}

#[tokio::test]
async fn addresses_move_to_another_owner() {
    let mut ipam = Ipam::new(&[pool("a", &["192.0.2.0/24"])]).await;
    ipam.allocate("a", &["v4"]).await.unwrap();
    ipam.allocate("c", &["v4"]).await.unwrap();
    let to = |name: &str| pb::MoveRequest {
        from: Some(owner("a")),
        to: Some(owner(name)),
        ..Default::default()
    };
    let refused = ipam.client.r#move(to("c")).await;
    assert_eq!(
        refusal(refused),
        (ErrorKind::Precondition, "ALREADY_HOLDS".to_owned())
    );
    for _ in 0..2 {
        let moved = ipam
            .client
            .r#move(to("b"))
            .await
            .unwrap()
            .into_inner()
            .allocations;
        assert_eq!(moved[0].prefix, "192.0.2.1/32");
    }
    assert_eq!(ipam.holder("192.0.2.1").await.as_deref(), Some("b"));
    ipam.stop().await;
}

#[tokio::test]
async fn pools_of_a_source_are_replaced_or_refused_as_a_whole() {
    let mut ipam = Ipam::new(&[pool("a", &["192.0.2.0/24"])]).await;
    let pool = |name: &str, address: &str| pb::Pool {
        r#ref: Some(groundplane_proto::core::v1::PoolRef {
            name: name.to_owned(),
            ..Default::default()
        }),
        addresses: vec![address.to_owned()],
        ..Default::default()
    };
    let put = |revision, pools| pb::PutPoolsRequest {
        source: "configmaps".to_owned(),
        source_revision: revision,
        pools,
    };
    let bad = vec![
        pool("good", "10.0.0.0/24"),
        pool("overlap", "192.0.2.128/25"),
        pool("bits", "10.1.0.1/24"),
    ];
    let error: RpcError = ipam.client.put_pools(put(3, bad)).await.unwrap_err().into();
    assert_eq!(
        (error.kind, error.reason.as_str()),
        (ErrorKind::Invalid, "INVALID_POOLS")
    );
    assert!(error.message.contains("(and 1 more)"), "{error}");
    assert_eq!(
        ipam.client
            .list_pools(pb::ListPoolsRequest {})
            .await
            .unwrap()
            .into_inner()
            .pools
            .len(),
        1
    );
    ipam.client
        .put_pools(put(3, vec![pool("good", "10.0.0.0/24")]))
        .await
        .unwrap();
    let stale = ipam.client.put_pools(put(2, Vec::new())).await;
    assert_eq!(refusal(stale), (ErrorKind::Conflict, "STALE_SNAPSHOT".to_owned()));
    ipam.allocate("web", &["10.0.0.9"]).await.unwrap();
    ipam.client.put_pools(put(4, Vec::new())).await.unwrap();
    let draining = ipam.allocate("api", &["10.0.0.10"]).await;
    assert_eq!(
        refusal(draining),
        (ErrorKind::Precondition, "POOL_DRAINING".to_owned())
    );
    let pools = ipam
        .client
        .list_pools(pb::ListPoolsRequest {})
        .await
        .unwrap()
        .into_inner()
        .pools;
    assert_eq!(
        pools.iter().map(|pool| pool.draining).collect::<Vec<_>>(),
        [false, true]
    );
    ipam.stop().await;
}

#[tokio::test]
async fn what_is_not_there_yet_says_so() {
    let mut ipam = Ipam::new(&[]).await;
    let filter = ipam.client.filter(pb::FilterRequest::default()).await;
    assert_eq!(
        refusal(filter),
        (ErrorKind::Unsupported, "NOT_IMPLEMENTED".to_owned())
    );
    let bind = ipam.client.bind(pb::BindRequest::default()).await;
    assert_eq!(refusal(bind).0, ErrorKind::Unsupported);
    let nodes = ipam
        .client
        .sync_nodes(futures::stream::empty::<pb::SyncNodesRequest>())
        .await;
    assert_eq!(refusal(nodes).0, ErrorKind::Unsupported);
    ipam.stop().await;
}

#[tokio::test]
async fn pools_are_measured() {
    let mut ipam = Ipam::new(&[pool("a", &["192.0.2.0/24"])]).await;
    ipam.allocate("web", &["v4"]).await.unwrap();
    ipam.allocate("api", &["v6"]).await.unwrap_err();
    let text = ipam.context.metrics.encode().unwrap();
    for line in [
        r#"groundplane_ipam_pool_used_addresses{network="default",pool="file:a"} 1"#,
        r#"groundplane_ipam_pool_free_addresses{network="default",pool="file:a"} 253"#,
        r#"groundplane_ipam_allocations_total{outcome="ok"} 1"#,
        r#"groundplane_ipam_allocations_total{outcome="POOL_NOT_FOUND"} 1"#,
        "groundplane_ipam_commit_changes_count 1",
        "# UNIT groundplane_ipam_commit_duration_seconds seconds",
        "groundplane_ipam_commit_duration_seconds_count 1",
    ] {
        assert!(
            text.lines().any(|found| found.trim_end_matches(".0") == line),
            "{line} is not in:\n{text}"
        );
    }
    ipam.stop().await;
}
