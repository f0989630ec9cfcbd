//! The endpoint for operators and probes: `/livez`, `/readyz`, `/metrics` over HTTP.

use std::fmt::Write as _;
use std::net::SocketAddr;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tracing::info;

use crate::args::AdminArgs;
use crate::{Context, Health, Metrics};

/// What Prometheus asks for, and what we write.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The endpoint cannot listen.
#[derive(Debug, thiserror::Error)]
#[error("--admin-listen: cannot listen on {address}")]
pub struct AdminError {
    address: SocketAddr,
    source: std::io::Error,
}

/// Serves until the process stops; returns the address, with the port that was taken.
pub async fn start(args: &AdminArgs, context: &Context) -> Result<SocketAddr, AdminError> {
    let failed = |source| AdminError {
        address: args.admin_listen,
        source,
    };
    let listener = TcpListener::bind(args.admin_listen).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    info!(server = "admin", %address, "listening");
    let stopping = context.tasks.token();
    let app = router(context);
    context.tasks.spawn_critical("admin", async move {
        // Not drained: a probe that is cut off asks again, and an idle connection must not hold the process.
        tokio::select! {
            served = axum::serve(listener, app) => served,
            () = stopping.cancelled() => Ok(()),
        }
    });
    Ok(address)
}

fn router(context: &Context) -> Router {
    Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz).with_state(context.health.clone()))
        .route("/metrics", get(metrics).with_state(context.metrics.clone()))
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

#[cfg(test)]
mod tests;
