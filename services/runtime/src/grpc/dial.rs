//! Opens TLS connections: with the newest certificates, and known to be accepted before anything is sent on them.
//!
//! In TLS 1.3 a client has finished before its server has looked at the client's certificate, and learns of a refusal only
//! when it next reads. So a connection counts as open once the server's first bytes are there, which it sends unasked.

use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::Uri;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint};
use tracing::{debug, warn};

use crate::telemetry::seldom::Seldom;
use crate::tls::failure::Side;
use crate::tls::{ClientCredentials, Renew, TlsFailure};

/// How long the server's first bytes are awaited. One that waits for ours first is believed to have accepted us.
const FIRST_BYTES: Duration = Duration::from_secs(1);

/// The HTTP/2 settings of most servers fit.
const FIRST_ROOM: usize = 512;

/// The same failure is logged so often.
const LOG_EVERY: Duration = Duration::from_secs(30);

/// Why there is no connection.
pub(super) type DialError = Box<dyn Error + Send + Sync>;

/// Opens TLS connections to one server.
pub(super) struct Dialer {
    host: String,
    port: u16,
    name: ServerName<'static>,
    credentials: ClientCredentials,
    /// Which version of the credentials the last connection was made with; 0 before the first.
    made_with: AtomicU64,
    said: Seldom<&'static str>,
}

impl Dialer {
    /// To the server of this URI; `None` if its name, or the one that was configured, is none.
    pub(super) fn new(uri: &Uri, credentials: ClientCredentials) -> Option<Self> {
        // A host in brackets is an IPv6 address.
        let host = uri
            .host()?
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let name = credentials.server_name().unwrap_or(&host).to_owned();
        Some(Self {
            port: uri.port_u16().unwrap_or(443),
            name: ServerName::try_from(name).ok()?,
            host,
            credentials,
            made_with: AtomicU64::new(0),
            said: Seldom::every(LOG_EVERY),
        })
    }

    async fn dial(&self) -> Result<Opened, DialError> {
        let (config, version) = self.credentials.fresh();
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        let shaken = self.shake(TlsConnector::from(config), stream).await;
        let opened = shaken.map_err(|error| match TlsFailure::explain(Side::Client, &error) {
            Some(failure) => self.report(failure.known_by(&self.credentials.settings())),
            None => error.into(),
        })?;
        if opened.stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            return Err(self.report(TlsFailure::no_http2()));
        }
        self.made_with.store(version, Ordering::Relaxed);
        Ok(opened)
    }

    async fn shake(&self, connector: TlsConnector, stream: TcpStream) -> io::Result<Opened> {
        let mut stream = connector.connect(self.name.clone(), stream).await?;
        let mut first = vec![0; FIRST_ROOM];
        let read = match tokio::time::timeout(FIRST_BYTES, stream.read(&mut first)).await {
            Ok(Ok(0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => read?,
            Err(_) => 0,
        };
        first.truncate(read);
        Ok(Opened {
            stream,
            first,
            given: 0,
        })
    }

    fn report(&self, failure: TlsFailure) -> DialError {
        if let Some(kept_back) = self.said.now(failure.reason()) {
            warn!(
                peer = format_args!("{}:{}", self.host, self.port),
                reason = failure.reason(),
                help = failure.help(),
                kept_back,
                "no connection: {}",
                failure.what()
            );
        }
        failure.into()
    }
}

/// A dialer as tonic wants one.
#[derive(Clone)]
struct Connector(Arc<Dialer>);

impl tower::Service<Uri> for Connector {
    type Response = TokioIo<Opened>;
    type Error = DialError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, DialError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let dialer = Arc::clone(&self.0);
        Box::pin(async move { dialer.dial().await.map(TokioIo::new) })
    }
}

/// A connection that is replaced when the certificates are, shared by the clones of a channel.
pub(super) struct Renewed {
    endpoint: Endpoint,
    dialer: Arc<Dialer>,
    current: Mutex<Channel>,
    generation: AtomicU64,
}

impl Renewed {
    /// Connects when first used.
    pub(super) fn lazy(endpoint: Endpoint, dialer: Dialer) -> Arc<Self> {
        let dialer = Arc::new(dialer);
        let this = Arc::new(Self {
            current: Mutex::new(endpoint.connect_with_connector_lazy(Connector(Arc::clone(&dialer)))),
            endpoint,
            generation: AtomicU64::new(1),
            dialer,
        });
        let weak = Arc::downgrade(&this);
        this.dialer.credentials.register(weak);
        this
    }

    /// The connection, and its generation.
    pub(super) fn current(&self) -> (Channel, u64) {
        let current = self.current.lock();
        (current.clone(), self.generation.load(Ordering::Acquire))
    }

    /// The connection, if it is another than that of this generation.
    pub(super) fn newer(&self, generation: u64) -> Option<(Channel, u64)> {
        // Looked at by every call: no lock, unless something has changed.
        if self.generation.load(Ordering::Acquire) == generation {
            return None;
        }
        Some(self.current())
    }
}

impl Renew for Renewed {
    /// The new connection is made, and accepted by the server, before the old one is left. Calls that are under way there
    /// end there.
    fn renew(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let made_with = self.dialer.made_with.load(Ordering::Relaxed);
            if made_with == 0 || made_with == self.dialer.credentials.version() {
                return;
            }
            let connector = Connector(Arc::clone(&self.dialer));
            match self.endpoint.connect_with_connector(connector).await {
                Ok(channel) => {
                    let mut current = self.current.lock();
                    *current = channel;
                    self.generation.fetch_add(1, Ordering::AcqRel);
                    drop(current);
                    debug!(
                        host = self.dialer.host,
                        "connected again, with renewed certificates"
                    );
                }
                Err(error) => debug!(
                    host = self.dialer.host,
                    error = &error as &dyn Error,
                    "no connection with renewed certificates yet; the old one stays"
                ),
            }
        })
    }
}

/// A TLS connection whose first bytes were read already.
pub(super) struct Opened {
    stream: TlsStream<TcpStream>,
    first: Vec<u8>,
    given: usize,
}

impl AsyncRead for Opened {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.given < self.first.len() {
            let this = &mut *self;
            let rest = this.first.get(this.given..).unwrap_or_default();
            let part = rest.get(..rest.len().min(buf.remaining())).unwrap_or_default();
            buf.put_slice(part);
            this.given += part.len();
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Opened {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
