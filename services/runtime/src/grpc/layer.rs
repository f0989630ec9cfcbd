//! What happens to every call before and after a service sees it: trace, who may call, deadline, limit, metrics.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use groundplane_core::ErrorKind;
use http::{HeaderName, HeaderValue, Request, Response};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::service::Routes;
use tonic::{Code, Status};
use tower::{Layer, Service};
use tracing::{Instrument as _, Span, debug, info_span};

use super::body::Observed;
use super::callers::Gatekeeper;
use super::connection::Peer;
use super::methods::{Method, Methods, Shape};
use super::metrics::{Observer, RpcMetrics};
use super::status::code_name;
use crate::telemetry::trace;

/// How a client says when it gives up.
pub(crate) const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// No unary call is worked on for longer.
const LONGEST_DEADLINE: Duration = Duration::from_secs(60);

/// The service that probes ask.
const HEALTH: &str = "grpc.health.v1.Health";

/// Shared by all calls of one server.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) name: &'static str,
    pub(crate) methods: Methods,
    pub(crate) metrics: RpcMetrics,
    pub(crate) permits: Arc<Semaphore>,
    pub(crate) gatekeeper: Gatekeeper,
    pub(crate) stopping: CancellationToken,
}

#[derive(Clone, Debug)]
pub(crate) struct RpcLayer(pub(crate) Arc<Shared>);

impl Layer<Routes> for RpcLayer {
    type Service = RpcService;

    fn layer(&self, inner: Routes) -> RpcService {
        RpcService {
            inner,
            shared: Arc::clone(&self.0),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct RpcService {
    inner: Routes,
    shared: Arc<Shared>,
}

impl Service<Request<Body>> for RpcService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // Routes are always ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let shared = Arc::clone(&self.shared);
        let method = shared
            .methods
            .get(request.uri().path())
            .cloned()
            .unwrap_or_else(Method::unknown);
        let observer = shared.metrics.start(&method);
        let span = span(shared.name, &method);
        trace::adopt(&span, request.headers());
        trace::record_id(&span);
        let peer = request.extensions().get::<Peer>();
        if let Err(status) = span.in_scope(|| shared.gatekeeper.check(peer, &method)) {
            finish(observer, &span, status.code());
            return Box::pin(std::future::ready(Ok(status.into_http())));
        }
        // A busy server is alive: health is answered whatever the load.
        let permit = match Arc::clone(&shared.permits).try_acquire_owned() {
            Ok(permit) => Some(permit),
            Err(_) if *method.service == *HEALTH => None,
            Err(_) => {
                let status = overloaded(shared.name);
                finish(observer, &span, status.code());
                return Box::pin(std::future::ready(Ok(status.into_http())));
            }
        };
        let deadline = deadline(&method, request.headers().get(GRPC_TIMEOUT));
        let mut inner = self.inner.clone();
        let work = span.in_scope(|| inner.call(request));
        let outer = span.clone();
        Box::pin(
            async move {
                let answer = match within(deadline, work).await {
                    Some(Ok(answer)) => answer,
                    None => Status::deadline_exceeded("the time for this call is up").into_http(),
                    Some(Err(never)) => match never {},
                };
                drop(permit);
                Ok(observe(answer, observer, outer, shared.stopping.clone()))
            }
            .instrument(span),
        )
    }
}

fn span(server: &'static str, method: &Method) -> Span {
    info_span!(
        "grpc",
        otel.name = format_args!("{}/{}", method.service, method.name),
        otel.kind = "server",
        otel.status_code = tracing::field::Empty,
        groundplane.service = server,
        rpc.system = "grpc",
        rpc.service = &*method.service,
        rpc.method = &*method.name,
        rpc.grpc.status_code = tracing::field::Empty,
        trace_id = tracing::field::Empty,
    )
}

fn overloaded(server: &'static str) -> Status {
    #[derive(Debug, thiserror::Error)]
    #[error("too many calls at once")]
    struct Overloaded;
    impl groundplane_core::Kinded for Overloaded {
        fn kind(&self) -> ErrorKind {
            ErrorKind::Unavailable
        }
        fn reason(&self) -> &'static str {
            "OVERLOADED"
        }
    }
    super::status::status(server, &Overloaded, super::Details::default())
}

/// How long the service may work: as long as the client waits, less the way back; never longer than our own limit.
/// Streams end when one side wants them to.
fn deadline(method: &Method, header: Option<&HeaderValue>) -> Option<Duration> {
    if method.shape == Shape::Stream {
        return None;
    }
    let asked = header.and_then(parse_timeout);
    let cap = match method.shape {
        Shape::Unary => Some(LONGEST_DEADLINE),
        Shape::Stream | Shape::Unknown => None,
    };
    let way_back = |asked: Duration| (asked / 50).clamp(Duration::from_millis(2), Duration::from_millis(50));
    let asked = asked.map(|asked| asked.saturating_sub(way_back(asked)));
    match (asked, cap) {
        (Some(asked), Some(cap)) => Some(asked.min(cap)),
        (asked, cap) => asked.or(cap),
    }
}

async fn within<T>(deadline: Option<Duration>, work: impl Future<Output = T>) -> Option<T> {
    match deadline {
        Some(deadline) => tokio::time::timeout(deadline, work).await.ok(),
        None => Some(work.await),
    }
}

fn observe(
    answer: Response<Body>,
    observer: Observer,
    span: Span,
    stopping: CancellationToken,
) -> Response<Body> {
    // An answer of trailers alone carries its status in the head.
    if let Some(status) = Status::from_header_map(answer.headers()) {
        finish(observer, &span, status.code());
        return answer;
    }
    answer.map(|body| Body::new(Observed::new(body, observer, span, stopping)))
}

fn finish(observer: Observer, span: &Span, code: Code) {
    record(span, code);
    observer.finish(code);
}

/// Notes how a call ended in its span.
pub(crate) fn record(span: &Span, code: Code) {
    span.record("rpc.grpc.status_code", code_name(code));
    let failed = matches!(
        code,
        Code::Unknown
            | Code::DeadlineExceeded
            | Code::Unimplemented
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss
    );
    if failed {
        span.record("otel.status_code", "ERROR");
    }
    span.in_scope(|| debug!(code = code_name(code), "answered"));
}

/// Reads `10S`, `500m` and so on. `None` for what is not a timeout.
pub(crate) fn parse_timeout(value: &HeaderValue) -> Option<Duration> {
    let text = value.to_str().ok()?;
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if number.is_empty() || number.len() > 8 || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = number.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(number * 60 * 60)),
        "M" => Some(Duration::from_secs(number * 60)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

/// Writes a timeout, to the millisecond.
pub(crate) fn timeout_value(timeout: Duration) -> HeaderValue {
    // The format allows eight digits: a bit more than a day.
    let millis = timeout.as_millis().min(99_999_999);
    HeaderValue::from_str(&format!("{millis}m")).unwrap_or_else(|_| HeaderValue::from_static("10S"))
}
