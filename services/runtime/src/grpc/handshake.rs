//! From an accepted socket to a connection of which we know who is at the other end.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::connection::{Connection, Peer, Socket, Standing};
use super::listen::Listener;
use crate::Context;
use crate::telemetry::seldom::Seldom;
use crate::tls::failure::Side;
use crate::tls::metrics::TlsMetrics;
use crate::tls::{Identity, ServerCredentials, TlsFailure};

/// Pause after a connection could not be accepted, most likely for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a handshake may take. A client of ours gives up as early.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// Handshakes at once; more wait in the listener's queue. A silent stranger holds a place for [`HANDSHAKE`] only.
const HANDSHAKES: usize = 1024;

/// The same failure of the same peer is logged so often.
const LOG_EVERY: Duration = Duration::from_secs(30);

/// How sockets become connections.
pub(crate) struct Greeter {
    name: &'static str,
    credentials: Option<ServerCredentials>,
    trust_domain: Arc<str>,
    metrics: TlsMetrics,
    said: Seldom<(Option<std::net::IpAddr>, &'static str)>,
    stopping: CancellationToken,
    severed: CancellationToken,
}

impl Greeter {
    pub(crate) fn new(
        name: &'static str,
        context: &Context,
        credentials: Option<ServerCredentials>,
        trust_domain: Arc<str>,
        severed: CancellationToken,
    ) -> Self {
        Self {
            name,
            credentials,
            trust_domain,
            metrics: context.metrics.tls().clone(),
            said: Seldom::every(LOG_EVERY),
            stopping: context.tasks.token(),
            severed,
        }
    }

    fn connection(&self, socket: Socket, address: Option<SocketAddr>, standing: Standing) -> Connection {
        let peer = Peer { address, standing };
        Connection::new(socket, peer, self.stopping.clone(), self.severed.clone())
    }

    /// A socket that needs no TLS is a connection at once.
    fn greet(self: &Arc<Self>, socket: Socket, address: Option<SocketAddr>) -> Greeted {
        match (socket, &self.credentials) {
            (Socket::Tcp(stream), Some(credentials)) => {
                let acceptor = TlsAcceptor::from(credentials.config());
                let (this, asks) = (Arc::clone(self), credentials.asks_clients());
                Greeted::Later(Box::pin(async move {
                    this.shake(stream, address, acceptor, asks).await
                }))
            }
            (socket, _) => {
                let near = address.is_none_or(|address| address.ip().to_canonical().is_loopback());
                let standing = if near { Standing::Local } else { Standing::Anybody };
                Greeted::Now(Box::new(self.connection(socket, address, standing)))
            }
        }
    }

    async fn shake(
        &self,
        stream: TcpStream,
        address: Option<SocketAddr>,
        acceptor: TlsAcceptor,
        asks: bool,
    ) -> Option<Connection> {
        let shaken = match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
            Ok(shaken) => shaken,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        };
        let stream = match shaken {
            Ok(stream) => stream,
            Err(error) => {
                self.failed(address, &error);
                return None;
            }
        };
        let standing = if asks {
            let leaf = stream.get_ref().1.peer_certificates().and_then(<[_]>::first)?;
            match Identity::of(leaf, &self.trust_domain) {
                Ok(identity) => Standing::Certified(Arc::new(identity)),
                Err(error) => {
                    warn!(server = self.name, peer = ?address, %error, "a client's certificate cannot be read");
                    return None;
                }
            }
        } else if address.is_some_and(|address| address.ip().to_canonical().is_loopback()) {
            Standing::Local
        } else {
            Standing::Anybody
        };
        Some(self.connection(Socket::Tls(Box::new(stream)), address, standing))
    }

    fn failed(&self, address: Option<SocketAddr>, error: &io::Error) {
        let peer = address.map(|address| address.to_string());
        let Some(failure) = TlsFailure::explain(Side::Server, error) else {
            debug!(server = self.name, peer, %error, "a client went away during the handshake");
            return;
        };
        self.metrics.failed(Side::Server.name(), failure.reason());
        let key = (address.map(|address| address.ip()), failure.reason());
        if let Some(kept_back) = self.said.now(key) {
            warn!(
                server = self.name,
                peer,
                reason = failure.reason(),
                help = failure.help(),
                kept_back,
                "a connection is refused: {}",
                failure.what()
            );
        }
    }
}

enum Greeted {
    Now(Box<Connection>),
    Later(BoxFuture<'static, Option<Connection>>),
}

struct Accepting {
    listener: Listener,
    greeter: Arc<Greeter>,
    shaking: FuturesUnordered<BoxFuture<'static, Option<Connection>>>,
}

/// Connections, for as long as the process runs. A failed accept is no reason to stop serving, nor is a failed handshake.
pub(crate) fn connections(
    listener: Listener,
    greeter: Arc<Greeter>,
) -> impl Stream<Item = Result<Connection, io::Error>> {
    let accepting = Accepting {
        listener,
        greeter,
        shaking: FuturesUnordered::new(),
    };
    futures::stream::unfold(accepting, |mut accepting| async move {
        let connection = accepting.next().await?;
        Some((Ok(connection), accepting))
    })
}

impl Accepting {
    async fn next(&mut self) -> Option<Connection> {
        loop {
            let room = self.shaking.len() < HANDSHAKES;
            tokio::select! {
                accepted = self.listener.accept(), if room => match accepted {
                    Some(Ok((socket, address))) => match self.greeter.greet(socket, address) {
                        Greeted::Now(connection) => return Some(*connection),
                        Greeted::Later(shaking) => self.shaking.push(shaking),
                    },
                    Some(Err(error)) => {
                        warn!(server = self.greeter.name, %error, "a connection cannot be accepted");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                    // Every in-memory connector is gone: nobody will call, but nothing is wrong.
                    None => {
                        self.greeter.stopping.cancelled().await;
                        return None;
                    }
                },
                Some(shaken) = self.shaking.next(), if !self.shaking.is_empty() => {
                    if let Some(connection) = shaken {
                        return Some(connection);
                    }
                }
            }
        }
    }
}
