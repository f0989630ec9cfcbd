//! The client's side of a connection: one type for TCP, TLS, unix sockets and memory.
//!
//! Connects when first used, and again whenever the connection broke. A peer that vanished without a word is found by
//! pings, also while nothing is being asked. Every unary call has a deadline, its own or [`CALL_DEADLINE`].

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use tonic::Status;
use tonic::body::Body;
use tonic::transport::Endpoint;
use tower::Service;
use tracing::{Instrument as _, info_span};

use super::dial::{Dialer, Renewed};
use super::layer::{GRPC_TIMEOUT, parse_timeout, timeout_value};
use super::memory::MemoryConnector;
use super::methods::{Methods, Shape};
use super::status::{Details, code_name, status};
use crate::telemetry::trace;
use crate::tls::{ClientCredentials, ClientTls, TlsError, TlsFailure};

/// What a call gets that names no deadline of its own.
pub const CALL_DEADLINE: Duration = Duration::from_secs(10);

/// Time for TCP, TLS and HTTP/2 together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// When a connection is asked whether its other end is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// After so long without a word.
    pub interval: Duration,
    /// And taken for dead after so long without an answer.
    pub timeout: Duration,
    /// Also while no call is under way. Servers of others take that amiss where it comes often: they end the connection.
    pub while_idle: bool,
}

impl KeepAlive {
    /// Towards our own servers: a silent partition is noticed within 7 s.
    pub const OURS: Self = Self {
        interval: Duration::from_secs(5),
        timeout: Duration::from_secs(2),
        while_idle: true,
    };
}

/// Stands for the host where there is none.
const LOCAL: &str = "http://localhost";

/// Where a service is.
#[derive(Clone, Debug)]
pub enum Target {
    /// `http://host:port` or `https://host:port`.
    Tcp(Uri),
    /// `unix:/path`.
    Unix(PathBuf),
    /// Within the process.
    Memory(MemoryConnector),
}

impl Target {
    /// Is it spoken to by TLS? Then its client needs credentials.
    pub fn is_secure(&self) -> bool {
        matches!(self, Self::Tcp(uri) if uri.scheme_str() == Some("https"))
    }
}

/// Why a text is no target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither `http://host:port`, `https://host:port` nor `unix:/path`")]
pub struct ParseTargetError(String);

impl FromStr for Target {
    type Err = ParseTargetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseTargetError(text.to_owned());
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.starts_with('/') {
                Ok(Self::Unix(path.into()))
            } else {
                Err(error())
            };
        }
        let uri: Uri = text.parse().map_err(|_| error())?;
        let scheme = uri
            .scheme_str()
            .is_some_and(|scheme| scheme == "http" || scheme == "https");
        if !scheme || uri.host().is_none_or(str::is_empty) || uri.path() != "/" || uri.query().is_some() {
            return Err(error());
        }
        Ok(Self::Tcp(uri))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(uri) => fmt::Display::fmt(uri, f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Memory(_) => f.write_str("memory"),
        }
    }
}

/// Why there can be no channel.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The files of TLS are not in order.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// No server's certificate can be for this name.
    #[error("TLS towards {uri} cannot be set up: neither its host nor what `{field}` says is a name")]
    Name {
        /// Where the server is.
        uri: Uri,
        /// Which setting may say its name.
        field: &'static str,
    },
    /// `https://` without the authority to trust.
    #[error("{0} asks for TLS, and no certificate authority is configured to trust")]
    NoAuthority(Uri),
}

/// A connection to a service, for tonic's clients: `IpamServiceClient::new(channel)`. Cheap to clone.
#[derive(Clone)]
pub struct Channel {
    inner: tonic::transport::Channel,
    /// With TLS: where a newer connection comes from, and the generation of `inner`.
    renewed: Option<(Arc<Renewed>, u64)>,
    target: Arc<str>,
    methods: Arc<Methods>,
}

/// A channel to `target`. Does not connect yet, so it never fails because the service is away. Each new connection uses the
/// files of `tls` as they are then.
pub fn channel(target: &Target, tls: Option<&ClientTls>) -> Result<Channel, ChannelError> {
    // Files that nobody would use need not be there.
    let used = tls.filter(|_| target.is_secure());
    let credentials = used.map(ClientCredentials::load).transpose()?;
    open(target, credentials.as_ref(), KeepAlive::OURS)
}

/// As [`channel()`], with credentials that channels share and that may be watched: then open connections are renewed, too.
pub fn channel_with(
    target: &Target,
    credentials: Option<&ClientCredentials>,
) -> Result<Channel, ChannelError> {
    open(target, credentials, KeepAlive::OURS)
}

/// As [`channel_with()`], to a server of others, which may not take our pings well.
pub fn channel_abroad(
    target: &Target,
    credentials: Option<&ClientCredentials>,
    keep_alive: KeepAlive,
) -> Result<Channel, ChannelError> {
    open(target, credentials, keep_alive)
}

fn open(
    target: &Target,
    credentials: Option<&ClientCredentials>,
    keep_alive: KeepAlive,
) -> Result<Channel, ChannelError> {
    let tuned = |endpoint| tuned(endpoint, keep_alive);
    let mut renewed = None;
    let inner = match target {
        Target::Tcp(uri) => match (uri.scheme_str(), credentials) {
            (Some("https"), None) => return Err(ChannelError::NoAuthority(uri.clone())),
            (Some("https"), Some(credentials)) => {
                let dialer = Dialer::new(uri, credentials.clone()).ok_or_else(|| ChannelError::Name {
                    uri: uri.clone(),
                    field: credentials.settings().server_name,
                })?;
                // tonic must not add TLS of its own, so it is told of plain HTTP; requests name the true scheme.
                let endpoint = tuned(Endpoint::from_static(LOCAL)).origin(uri.clone());
                let shared = Renewed::lazy(endpoint, dialer);
                let (first, generation) = shared.current();
                renewed = Some((shared, generation));
                first
            }
            _ => tuned(Endpoint::from(uri.clone())).connect_lazy(),
        },
        Target::Unix(path) => {
            let path = path.clone();
            tuned(Endpoint::from_static(LOCAL)).connect_with_connector_lazy(tower::service_fn(
                move |_: Uri| {
                    let path = path.clone();
                    async move { tokio::net::UnixStream::connect(path).await.map(TokioIo::new) }
                },
            ))
        }
        Target::Memory(connector) => {
            let connector = connector.clone();
            tuned(Endpoint::from_static(LOCAL)).connect_with_connector_lazy(tower::service_fn(
                move |_: Uri| {
                    let connector = connector.clone();
                    async move { connector.connect().await.map(TokioIo::new) }
                },
            ))
        }
    };
    Ok(Channel {
        inner,
        renewed,
        target: target.to_string().into(),
        methods: Arc::default(),
    })
}

fn tuned(endpoint: Endpoint, keep_alive: KeepAlive) -> Endpoint {
    endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(keep_alive.interval)
        .keep_alive_timeout(keep_alive.timeout)
        .keep_alive_while_idle(keep_alive.while_idle)
}

impl Channel {
    /// Tells the channel which methods stream, by a serialised descriptor set. Unary methods that it describes send
    /// their deadline to the server; of a method that nobody described, only the wait for the answer's head is bounded.
    pub fn describe(mut self, descriptor_set: &[u8]) -> Result<Self, prost::DecodeError> {
        Arc::make_mut(&mut self.methods).describe(descriptor_set)?;
        Ok(self)
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel")
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

impl Service<Request<Body>> for Channel {
    type Response = Response<Body>;
    type Error = tonic::transport::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        if let Some((renewed, generation)) = &mut self.renewed
            && let Some((inner, newer)) = renewed.newer(*generation)
        {
            (self.inner, *generation) = (inner, newer);
        }
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let path = request.uri().path();
        let (service, method) = path.trim_start_matches('/').split_once('/').unwrap_or(("", path));
        let span = info_span!(
            "call",
            otel.name = format_args!("{service}/{method}"),
            otel.kind = "client",
            rpc.system = "grpc",
            rpc.service = service,
            rpc.method = method,
            server.address = &*self.target,
            rpc.grpc.status_code = tracing::field::Empty,
        );
        let shape = self
            .methods
            .get(path)
            .map_or(Shape::Unknown, |method| method.shape);
        let asked = request.headers().get(GRPC_TIMEOUT).and_then(parse_timeout);
        let deadline = match (asked, shape) {
            (Some(asked), _) => asked,
            (None, Shape::Unary) => {
                request
                    .headers_mut()
                    .insert(GRPC_TIMEOUT, timeout_value(CALL_DEADLINE));
                CALL_DEADLINE
            }
            // A stream's head comes as soon as the server has accepted it.
            (None, Shape::Stream | Shape::Unknown) => CALL_DEADLINE,
        };
        trace::inject(&span, request.headers_mut());
        let answer = self.inner.call(request);
        let recorded = span.clone();
        let call = async move {
            let result = match tokio::time::timeout(deadline, answer).await {
                // "transport error" helps nobody where we know better.
                Ok(Err(error)) => match tls_failure(&error) {
                    Some(failure) => Ok(status("client", failure, Details::default()).into_http()),
                    None => Err(error),
                },
                Ok(answer) => answer,
                Err(_) => Ok(Status::deadline_exceeded(format!("no answer within {deadline:?}")).into_http()),
            };
            if let Some(status) = result
                .as_ref()
                .ok()
                .and_then(|answer| Status::from_header_map(answer.headers()))
            {
                recorded.record("rpc.grpc.status_code", code_name(status.code()));
            }
            result
        };
        Box::pin(call.instrument(span))
    }
}

/// That TLS failed, if that is behind an error.
fn tls_failure<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a TlsFailure> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(failure) = error.downcast_ref() {
            return Some(failure);
        }
        cause = error.source();
    }
    None
}
