//! The transport: a listener whose connections can be cut in the middle of an answer, the API's routes, and the
//! admin's.

mod admin;
mod intercept;
mod spoil;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Query as QueryOf, RawPathParams, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Request, Response, Uri};
use axum::routing::{MethodFilter, on};
use groundplane_core::Clock;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service as _;

use crate::api::{Api, Ask, Call, Reply};
use crate::cloud::{Access, Cloud};
use crate::error::ApiError;
use crate::fault::Faults;
use crate::journal::Journal;
use crate::options::Clouds;
use crate::query::Query;
use spoil::Sever;

/// How long to wait after the machine refused a connection (out of file descriptors), so that the loop does not
/// spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// The header with the length of a list, at Cherry Servers.
pub(crate) const TOTAL_COUNT: &str = "x-total-count";

/// What every request needs.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) cloud: Arc<Mutex<Cloud>>,
    pub(crate) faults: Arc<Faults>,
    pub(crate) journal: Journal,
    pub(crate) clock: Arc<dyn Clock>,
    /// The API of Equinix Metal as clients see it, with `/metal/v1`.
    pub(crate) base_url: Arc<str>,
    /// The API of Cherry Servers as clients see it, with `/v1`.
    pub(crate) cherry_url: Arc<str>,
    pub(crate) clouds: Clouds,
    pub(crate) stop: CancellationToken,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("base_url", &self.base_url)
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// Now, to the second, as the API tells time.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_second(self.clock.now().as_second()).unwrap_or(Timestamp::UNIX_EPOCH)
    }
}

/// Serves until `shared.stop`; open connections are cut then.
pub(crate) async fn serve(listener: TcpListener, shared: Shared) {
    let stop = shared.stop.clone();
    let router = router(shared);
    let connections = TaskTracker::new();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, router.clone(), stop.clone()));
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
        }
    }
    connections.close();
    connections.wait().await;
}

/// A request whose connection is to be dropped has no answer.
#[derive(Debug, thiserror::Error)]
#[error("the connection is dropped on purpose")]
struct Dropped;

async fn connection(stream: TcpStream, router: Router, stop: CancellationToken) {
    // Without it small answers would wait for the client's acknowledgement. Should it fail, they are merely
    // slow.
    stream.set_nodelay(true).ok();
    let service = service_fn(move |request: Request<Incoming>| {
        let mut router = router.clone();
        async move {
            // A Router is always ready, and never fails.
            let Ok(response) = router.call(request.map(Body::new)).await;
            if response.extensions().get::<Sever>().is_some() {
                Err(Dropped)
            } else {
                Ok(response)
            }
        }
    });
    let serving = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        // An error is a client that left, or a connection that we dropped: both are meant to happen.
        _ended = serving => {}
    }
}

fn router(shared: Shared) -> Router {
    let served: &[Api] = match shared.clouds {
        Clouds::Equinix => &[Api::Equinix],
        Clouds::Cherry => &[Api::Cherry],
        Clouds::Both => &[Api::Equinix, Api::Cherry],
    };
    let mut router = Router::new();
    for api in served.iter().copied() {
        for (method, route, call) in api.calls() {
            let filter = match *method {
                "POST" => MethodFilter::POST,
                "PUT" => MethodFilter::PUT,
                "PATCH" => MethodFilter::PATCH,
                "DELETE" => MethodFilter::DELETE,
                _ => MethodFilter::GET,
            };
            let call: Call = *call;
            let handler = move |State(shared): State<Shared>,
                                axum::Extension(access): axum::Extension<Access>,
                                parameters: RawPathParams,
                                uri: Uri,
                                body: Bytes| async move {
                let id = parameters.iter().next().map_or("", |(_, value)| value);
                answer(&shared, (api, call), access, id, &uri, &body)
            };
            router = router.route(&format!("{}{route}", api.base()), on(filter, handler));
        }
    }
    router
        .fallback(|uri: Uri| async move { respond(Api::of(uri.path()).refuse(&ApiError::NotFound)) })
        .layer(axum::middleware::from_fn_with_state(
            shared.clone(),
            intercept::intercept,
        ))
        .merge(admin::router())
        .with_state(shared)
}

fn answer(
    shared: &Shared,
    (api, call): (Api, Call),
    access: Access,
    id: &str,
    uri: &Uri,
    body: &[u8],
) -> Response<Body> {
    let Ok(QueryOf(pairs)) = QueryOf::<Vec<(String, String)>>::try_from_uri(uri) else {
        return respond(api.refuse(&ApiError::BadRequest("the query cannot be read".to_owned())));
    };
    let query = Query::new(pairs, uri.query().unwrap_or_default());
    let ask = Ask {
        access,
        id,
        query: &query,
        body,
        now: shared.now(),
    };
    let reply = call(&mut shared.cloud.lock(), &ask);
    respond(reply.unwrap_or_else(|error| api.refuse(&error)))
}

/// An answer on the wire.
fn respond(reply: Reply) -> Response<Body> {
    let empty = reply.body.is_empty();
    let mut response = Response::new(Body::from(reply.body));
    *response.status_mut() = reply.status;
    if !empty {
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    if let Some(total) = reply.total {
        response
            .headers_mut()
            .insert(TOTAL_COUNT, HeaderValue::from(total));
    }
    response
}
