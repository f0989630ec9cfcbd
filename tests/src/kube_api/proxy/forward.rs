//! Serves connections, and passes requests on to the API server.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use axum::body::{Body, Bytes};
use futures::StreamExt as _;
use futures::stream;
use http::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, RETRY_AFTER, TRANSFER_ENCODING,
};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_rustls::TlsAcceptor;

use super::call::Call;
use super::fault::{Fault, Faults};
use super::journal::Journal;

/// Larger than any object that the API server takes.
const BODY: usize = 8 << 20;
/// What concerns one connection alone.
const HOP: [HeaderName; 4] = [CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING];

/// What every connection needs.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) upstream: String,
    pub(super) client: reqwest::Client,
    pub(super) faults: Mutex<Faults>,
    pub(super) journal: Journal,
    /// Until when watches tell nothing new.
    pub(super) held: Mutex<Option<Instant>>,
    /// Objects a page, where the client asks for more.
    pub(super) page: Option<u32>,
}

/// A connection that is dropped on purpose.
#[derive(Debug)]
struct Dropped;

impl std::fmt::Display for Dropped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the connection is dropped on purpose")
    }
}

impl std::error::Error for Dropped {}

/// Accepts until it is dropped, and its connections with it. A change of `severed` drops those that are open.
pub(super) async fn serve(
    listener: TcpListener,
    tls: TlsAcceptor,
    shared: Arc<Shared>,
    severed: watch::Receiver<u64>,
) -> Infallible {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                let mut severed = severed.clone();
                severed.mark_unchanged();
                let serving = connection(stream, tls.clone(), Arc::clone(&shared));
                connections.spawn(async move {
                    tokio::select! {
                        _severed = severed.changed() => {}
                        () = serving => {}
                    }
                });
            }
            // Out of file descriptors: somebody else has to let go of some.
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

async fn connection(stream: TcpStream, tls: TlsAcceptor, shared: Arc<Shared>) {
    // Should it fail, small answers are merely slow.
    stream.set_nodelay(true).ok();
    let Ok(stream) = tls.accept(stream).await else {
        return;
    };
    let service = service_fn(move |request| answer(request, Arc::clone(&shared)));
    // An error is a client that left, or a connection that we dropped: both are meant to happen.
    http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await
        .ok();
}

async fn answer(request: Request<Incoming>, shared: Arc<Shared>) -> Result<Response<Body>, Dropped> {
    let call = Call::of(request.method(), request.uri());
    let fault = shared.faults.lock().decide(&call);
    let watch = call.verb == "watch";
    let number = shared.journal.note(call, fault);
    match fault {
        Some(Fault::Status(code)) => return Ok(status(code, None)),
        Some(Fault::TooMany(seconds)) => return Ok(status(429, Some(seconds))),
        Some(Fault::ErrorEvent(code)) => return Ok(error_event(code)),
        Some(Fault::DropBefore) => return Err(Dropped),
        Some(Fault::Hang) => std::future::pending().await,
        Some(Fault::Slow(pause)) => tokio::time::sleep(pause).await,
        Some(Fault::DropAfter | Fault::HalfBody | Fault::Cut(_)) | None => {}
    }
    // An API server that is away drops the connection, too.
    let response = forward(request, &shared).await.map_err(|_away| Dropped)?;
    shared.journal.answered(number, response.status().as_u16());
    match fault {
        // A watch has no end to wait for.
        Some(Fault::DropAfter) if watch => Err(Dropped),
        Some(Fault::DropAfter) => {
            response.bytes().await.map_err(|_away| Dropped)?;
            Err(Dropped)
        }
        Some(Fault::HalfBody) => {
            let head = head(&response);
            let body = response.bytes().await.map_err(|_away| Dropped)?;
            let half = body.slice(..body.len() / 2);
            let pieces = stream::iter([Ok(half), Err(io::Error::other(Dropped))]);
            Ok(head.map(|()| Body::from_stream(pieces)))
        }
        Some(Fault::Cut(pieces)) => {
            let head = head(&response);
            let cut = stream::once(async { Err(io::Error::other(Dropped)) });
            let some = chunks(response).take(usize::try_from(pieces).unwrap_or(usize::MAX));
            Ok(head.map(|()| Body::from_stream(some.chain(cut))))
        }
        _ if watch => {
            let head = head(&response);
            let told = chunks(response).then(move |piece| {
                let shared = Arc::clone(&shared);
                async move {
                    held(&shared).await;
                    piece
                }
            });
            Ok(head.map(|()| Body::from_stream(told)))
        }
        _ => {
            let head = head(&response);
            Ok(head.map(|()| Body::from_stream(chunks(response))))
        }
    }
}

/// Waits as long as watches tell nothing new.
async fn held(shared: &Shared) {
    loop {
        let until = *shared.held.lock();
        match until {
            Some(until) if Instant::now() < until => sleep_until(until).await,
            _ => return,
        }
    }
}

async fn forward(request: Request<Incoming>, shared: &Shared) -> Result<reqwest::Response> {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(Body::new(body), BODY)
        .await
        .context("read a request")?;
    let url = format!("{}{}", shared.upstream, target(&parts.uri, shared.page));
    let request = shared.client.request(parts.method, url);
    let request = request.headers(passed_on(&parts.headers)).body(body);
    request.send().await.context("pass a request on")
}

/// Path and query, with smaller pages.
fn target(uri: &Uri, page: Option<u32>) -> String {
    let (Some(query), Some(page)) = (uri.query(), page) else {
        return uri.to_string();
    };
    let smaller = |pair: &str| match pair.strip_prefix("limit=").and_then(|limit| limit.parse().ok()) {
        Some(limit) if page < limit => format!("limit={page}"),
        _ => pair.to_owned(),
    };
    let query: Vec<String> = query.split('&').map(smaller).collect();
    format!("{}?{}", uri.path(), query.join("&"))
}

fn passed_on(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    for name in HOP {
        headers.remove(name);
    }
    headers
}

fn head(response: &reqwest::Response) -> Response<()> {
    let mut head = Response::new(());
    *head.status_mut() = response.status();
    *head.headers_mut() = passed_on(response.headers());
    head
}

/// The answer's body as it comes.
fn chunks(response: reqwest::Response) -> impl futures::Stream<Item = io::Result<Bytes>> + Send + 'static {
    stream::try_unfold(response, |mut response| async move {
        let chunk = response.chunk().await.map_err(io::Error::other)?;
        Ok(chunk.map(|chunk| (chunk, response)))
    })
}

/// What the API server says of this code.
fn failure(code: u16) -> serde_json::Value {
    let (reason, message) = match code {
        404 => ("NotFound", "the object was not found"),
        409 => (
            "Conflict",
            "the object has been modified; please apply your changes to the latest version",
        ),
        410 => ("Expired", "too old resource version"),
        429 => (
            "TooManyRequests",
            "the server has received too many requests and has asked us to try again later",
        ),
        503 => (
            "ServiceUnavailable",
            "the server is currently unable to handle the request",
        ),
        504 => ("Timeout", "request did not complete within the allotted timeout"),
        _ => (
            "InternalError",
            "an error on the server has prevented the request from succeeding",
        ),
    };
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "code": code, "reason": reason, "message": message,
    })
}

fn status(code: u16, retry_after: Option<u32>) -> Response<Body> {
    let mut response = reply(failure(code).to_string());
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Some(seconds) = retry_after {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}

fn error_event(code: u16) -> Response<Body> {
    reply(format!(
        "{}\n",
        json!({ "type": "ERROR", "object": failure(code) })
    ))
}

fn reply(body: String) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
