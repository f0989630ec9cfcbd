//! One accepted connection, which can be told to end.
//!
//! hyper's graceful stop waits for a peer that connected and never spoke (a port scanner, a probe), and for a peer that
//! vanished. So this wrapper reads an end of file (a) where the client's preface is not there in time, or not there when
//! the server stops, and (b) always, once the server's patience has ended.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

use crate::tls::Identity;

/// Length of the HTTP/2 client preface. (TLS has its own limit: this counts what comes after its handshake.)
const PREFACE: usize = 24;

/// How long a client may take to send it.
pub(crate) const PREFACE_WAIT: Duration = Duration::from_secs(10);

/// Who is at the other end; in a request's extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its address; `None` for a unix socket or memory.
    pub address: Option<SocketAddr>,
    /// Why it is let in.
    pub standing: Standing,
}

/// Why a peer is let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The operating system let it get to a unix socket, to memory, or to a port on loopback.
    Local,
    /// It came over the network without a proof of who it is, which somebody asked for by `--insecure`.
    Anybody,
    /// Its certificate says who it is.
    Certified(Arc<Identity>),
}

/// What carries the bytes.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
    Memory(DuplexStream),
}

/// What is watched until the preface is there.
#[derive(Debug)]
struct Greeting {
    received: usize,
    patience: Pin<Box<Sleep>>,
    stopping: Pin<Box<WaitForCancellationFutureOwned>>,
}

#[derive(Debug)]
pub(crate) struct Connection {
    socket: Socket,
    peer: Peer,
    greeting: Option<Greeting>,
    severed: Pin<Box<WaitForCancellationFutureOwned>>,
    cut: bool,
}

impl Connection {
    /// `stopping`: the server stops; `severed`: it waits no longer.
    pub(crate) fn new(
        socket: Socket,
        peer: Peer,
        stopping: CancellationToken,
        severed: CancellationToken,
    ) -> Self {
        Self {
            socket,
            peer,
            greeting: Some(Greeting {
                received: 0,
                patience: Box::pin(tokio::time::sleep(PREFACE_WAIT)),
                stopping: Box::pin(stopping.cancelled_owned()),
            }),
            severed: Box::pin(severed.cancelled_owned()),
            cut: false,
        }
    }

    /// Registers for the end, and says whether it has come.
    fn is_cut(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.cut {
            self.cut = self.severed.as_mut().poll(cx).is_ready()
                || self.greeting.as_mut().is_some_and(|greeting| {
                    greeting.stopping.as_mut().poll(cx).is_ready()
                        || greeting.patience.as_mut().poll(cx).is_ready()
                });
        }
        self.cut
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = match &mut self.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Socket::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
            Socket::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
            Socket::Memory(pipe) => Pin::new(pipe).poll_read(cx, buf),
        };
        if read.is_ready() {
            if let Some(greeting) = &mut self.greeting {
                greeting.received += buf.filled().len() - before;
                if greeting.received >= PREFACE {
                    self.greeting = None;
                }
            }
            return read;
        }
        // Nothing to read: perhaps nothing will ever come.
        if self.is_cut(cx) {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = match &mut self.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Socket::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
            Socket::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
            Socket::Memory(pipe) => Pin::new(pipe).poll_write(cx, buf),
        };
        if written.is_pending() && self.is_cut(cx) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = match &mut self.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Socket::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Socket::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Socket::Memory(pipe) => Pin::new(pipe).poll_write_vectored(cx, bufs),
        };
        if written.is_pending() && self.is_cut(cx) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        match &self.socket {
            Socket::Tcp(stream) => stream.is_write_vectored(),
            Socket::Tls(stream) => stream.is_write_vectored(),
            Socket::Unix(stream) => stream.is_write_vectored(),
            Socket::Memory(pipe) => pipe.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Socket::Tls(stream) => Pin::new(stream).poll_flush(cx),
            Socket::Unix(stream) => Pin::new(stream).poll_flush(cx),
            Socket::Memory(pipe) => Pin::new(pipe).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Socket::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            Socket::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Socket::Memory(pipe) => Pin::new(pipe).poll_shutdown(cx),
        }
    }
}
