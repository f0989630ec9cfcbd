use axum::body::{Body, to_bytes};
use axum::http::Request;
use tower::Service as _;

use super::*;

/// A log of its own, that nobody writes to.
fn log() -> LogFilter {
    LogFilter::detached("info").unwrap()
}

async fn get(context: &Context, path: &str) -> (StatusCode, String) {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let response = router(context, &log()).call(request).await.unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn readyz_names_what_is_not_ready_and_why() {
    let context = Context::new();
    let store = context.health.component("store");
    let cloud = context.health.component("cloud");
    cloud.not_ready("answers 503");
    let text = "cloud: answers 503\nstore: starting\n".to_owned();
    assert_eq!(
        get(&context, "/readyz").await,
        (StatusCode::SERVICE_UNAVAILABLE, text)
    );
    store.ready();
    cloud.ready();
    assert_eq!(
        get(&context, "/readyz").await,
        (StatusCode::OK, "ok\n".to_owned())
    );
    context.tasks.token().cancel();
    let text = "process: stopping\n".to_owned();
    assert_eq!(
        get(&context, "/readyz").await,
        (StatusCode::SERVICE_UNAVAILABLE, text)
    );
    assert_eq!(
        get(&context, "/livez").await.0,
        StatusCode::OK,
        "it is alive until it has stopped"
    );
}

#[tokio::test]
async fn metrics_have_our_prefix() {
    let context = Context::new();
    let gauge = prometheus_client::metrics::gauge::Gauge::<i64>::default();
    context
        .metrics
        .register(|registry| registry.register("ipam_free_addresses", "Free", gauge.clone()));
    gauge.set(7);
    let (status, text) = get(&context, "/metrics").await;
    assert_eq!(status, StatusCode::OK);
    assert!(text.contains("groundplane_ipam_free_addresses 7\n"), "{text}");
    assert!(text.ends_with("# EOF\n"));
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let context = Context::new();
    let address = start(&AdminArgs::default(), &context, &log()).await.unwrap();
    let error = start(
        &AdminArgs {
            admin_listen: address,
        },
        &context,
        &log(),
    )
    .await
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("--admin-listen: cannot listen on {address}")
    );
    context
        .tasks
        .drain(std::time::Duration::from_secs(10))
        .await
        .unwrap();
}

async fn put(log: &LogFilter, peer: &str, filter: &str) -> (StatusCode, String) {
    let mut request = Request::put("/log-level")
        .body(Body::from(filter.to_owned()))
        .unwrap();
    let peer: SocketAddr = peer.parse().unwrap();
    request.extensions_mut().insert(ConnectInfo(peer));
    let response = router(&Context::new(), log).call(request).await.unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn the_log_level_is_changed_from_the_machine_itself_only() {
    let log = log();
    let (status, text) = put(&log, "127.0.0.1:5000", "info,groundplane_ipam=debug\n").await;
    assert_eq!(status, StatusCode::OK, "{text}");
    assert!(text.contains("groundplane_ipam=debug") && log.text().contains("groundplane_ipam=debug"));
    let before = log.text();
    for peer in ["192.0.2.1:5000", "[2001:db8::1]:5000"] {
        assert_eq!(put(&log, peer, "trace").await.0, StatusCode::FORBIDDEN, "{peer}");
    }
    let (status, text) = put(&log, "[::1]:5000", "ipam=loud").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(text.contains("`ipam=loud` is no filter"), "{text}");
    let (status, _) = put(&log, "127.0.0.1:5000", &"x".repeat(LONGEST_FILTER + 1)).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(log.text(), before);
}
