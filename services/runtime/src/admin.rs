//! The endpoint for operators and probes: `/livez`, `/readyz`, `/metrics` and `/log-level` over HTTP.
//!
//! Everybody who reaches it may read. What changes something is for callers on loopback alone.

use std::fmt::Write as _;
use std::net::SocketAddr;

use axum::Router;
use axum::extract::{ConnectInfo, DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tracing::info;

use crate::args::AdminArgs;
use crate::telemetry::LogFilter;
use crate::{Context, Health, Metrics};

/// What Prometheus asks for, and what we write.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// No filter of a log is longer, in bytes.
const LONGEST_FILTER: usize = 4096;

/// The endpoint cannot listen.
#[derive(Debug, thiserror::Error)]
#[error("--admin-listen: cannot listen on {address}")]
pub struct AdminError {
    address: SocketAddr,
    source: std::io::Error,
}

/// Serves until the process stops; returns the address, with the port that was taken.
pub async fn start(args: &AdminArgs, context: &Context, log: &LogFilter) -> Result<SocketAddr, AdminError> {
    let failed = |source| AdminError {
        address: args.admin_listen,
        source,
    };
    let listener = TcpListener::bind(args.admin_listen).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    info!(server = "admin", %address, "listening");
    let stopping = context.tasks.token();
    let app = router(context, log).into_make_service_with_connect_info::<SocketAddr>();
    context.tasks.spawn_critical("admin", async move {
        // Not drained: a probe that is cut off asks again, and an idle connection must not hold the process.
        tokio::select! {
            served = axum::serve(listener, app) => served,
            () = stopping.cancelled() => Ok(()),
        }
    });
    Ok(address)
}

fn router(context: &Context, log: &LogFilter) -> Router {
    let log_level = get(log_level)
        .put(set_log_level)
        .layer(DefaultBodyLimit::max(LONGEST_FILTER))
        .with_state(log.clone());
    Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz).with_state(context.health.clone()))
        .route("/metrics", get(metrics).with_state(context.metrics.clone()))
        .route("/log-level", log_level)
}

async fn readyz(State(health): State<Health>) -> Response {
    let unready = health.unready();
    if unready.is_empty() {
        return "ok\n".into_response();
    }
    let mut text = String::new();
    for (name, reason) in unready {
        // Writing to a string does not fail.
        let _ok = writeln!(text, "{name}: {reason}").is_ok();
    }
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

async fn metrics(State(metrics): State<Metrics>) -> Response {
    match metrics.encode() {
        Ok(text) => ([(header::CONTENT_TYPE, OPENMETRICS)], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "metrics cannot be written");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

async fn log_level(State(log): State<LogFilter>) -> String {
    format!("{}\n", log.text())
}

/// `PUT /log-level` with a level or directives.
async fn set_log_level(
    State(log): State<LogFilter>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    wanted: String,
) -> Response {
    if !peer.ip().to_canonical().is_loopback() {
        let text = "this is for callers on the machine itself, or in the pod itself\n";
        return (StatusCode::FORBIDDEN, text).into_response();
    }
    match log.set(wanted.trim()) {
        Ok(()) => format!("{}\n", log.text()).into_response(),
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    }
}

#[cfg(test)]
mod tests;
