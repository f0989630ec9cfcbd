//! Where a server listens: TCP, a unix socket, or memory. All are bound before anything is served.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc;

use super::MemoryListener;
use super::connection::Socket;

/// The owner and the group may connect to a unix socket.
const SOCKET_MODE: u32 = 0o660;

/// A place to listen at.
#[derive(Clone, Debug)]
pub enum Listen {
    /// TCP; port 0 takes a free one.
    Tcp(SocketAddr),
    /// A unix socket at this path. A stale one is replaced.
    Unix(PathBuf),
    /// Within the process.
    Memory(MemoryListener),
}

/// Why a text is no place to listen at.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither `address:port` (`127.0.0.1:9000`, `[::]:9000`) nor `unix:/path`")]
pub struct ParseListenError(String);

impl FromStr for Listen {
    type Err = ParseListenError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("unix:") {
            Some(path) if path.starts_with('/') => Ok(Self::Unix(path.into())),
            Some(_) => Err(ParseListenError(text.to_owned())),
            None => text
                .parse()
                .map(Self::Tcp)
                .map_err(|_| ParseListenError(text.to_owned())),
        }
    }
}

/// Why a server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The system refuses.
    #[error("cannot listen on {address}")]
    Io {
        /// Where.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// Plaintext where others can reach it.
    #[error(
        "{0} is not loopback and has no TLS; configure a certificate and a key, or accept plaintext with `--insecure`"
    )]
    Plaintext(SocketAddr),
    /// TLS where others can reach it, and everybody is let in.
    #[error(
        "{0} is not loopback and lets everybody in; name with --tls-client-ca whose clients are let in, or accept anybody with `--insecure`"
    )]
    Anybody(SocketAddr),
    /// An in-memory listener that another server has.
    #[error("the in-memory listener is taken by another server")]
    Taken,
    /// Nothing to listen at.
    #[error("server `{0}` has no address to listen at; give one with `--listen`")]
    Nowhere(&'static str),
    /// TLS is not in order.
    #[error(transparent)]
    Tls(#[from] crate::tls::TlsError),
}

/// Where a server listens in fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BoundAddress {
    /// TCP, with the port that was taken.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
    /// Within the process.
    Memory,
}

impl fmt::Display for BoundAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => fmt::Display::fmt(address, f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Memory => f.write_str("memory"),
        }
    }
}

/// How callers prove who they are, on TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// By a certificate.
    Certificate,
    /// They need not: somebody asked for that.
    NotAsked,
    /// They cannot, although there is TLS.
    None,
    /// They cannot: there is no TLS.
    Plaintext,
}

/// A place that is bound.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
    Memory(mpsc::Receiver<tokio::io::DuplexStream>),
}

impl Listener {
    /// Binds. Beyond loopback only where callers prove who they are, or somebody asked for it.
    pub(crate) async fn bind(listen: &Listen, proof: Proof) -> Result<(Self, BoundAddress), BindError> {
        match listen {
            Listen::Tcp(address) => {
                let beyond = !address.ip().is_loopback();
                match proof {
                    Proof::Plaintext if beyond => return Err(BindError::Plaintext(*address)),
                    Proof::None if beyond => return Err(BindError::Anybody(*address)),
                    _ => {}
                }
                let failed = |source| BindError::Io {
                    address: address.to_string(),
                    source,
                };
                let listener = TcpListener::bind(address).await.map_err(failed)?;
                let bound = listener.local_addr().map_err(failed)?;
                Ok((Self::Tcp(listener), BoundAddress::Tcp(bound)))
            }
            Listen::Unix(path) => {
                let listener = bind_unix(path).await.map_err(|source| BindError::Io {
                    address: format!("unix:{}", path.display()),
                    source,
                })?;
                Ok((
                    Self::Unix(listener, path.clone()),
                    BoundAddress::Unix(path.clone()),
                ))
            }
            Listen::Memory(listener) => {
                let incoming = listener.take().ok_or(BindError::Taken)?;
                Ok((Self::Memory(incoming), BoundAddress::Memory))
            }
        }
    }

    /// The next connection; `None` when there can be no more.
    pub(crate) async fn accept(&mut self) -> Option<io::Result<(Socket, Option<SocketAddr>)>> {
        match self {
            Self::Tcp(listener) => Some(listener.accept().await.map(|(stream, peer)| {
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "TCP_NODELAY cannot be set");
                }
                (Socket::Tcp(stream), Some(peer))
            })),
            Self::Unix(listener, _) => Some(
                listener
                    .accept()
                    .await
                    .map(|(stream, _)| (Socket::Unix(stream), None)),
            ),
            Self::Memory(incoming) => incoming.recv().await.map(|pipe| Ok((Socket::Memory(pipe), None))),
        }
    }

    pub(crate) fn is_tcp(&self) -> bool {
        matches!(self, Self::Tcp(_))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self
            && let Err(error) = std::fs::remove_file(&*path)
        {
            tracing::debug!(path = %path.display(), %error, "socket cannot be removed");
        }
    }
}

async fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let stale = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    if stale {
        // Somebody who answers is alive and keeps it.
        if tokio::net::UnixStream::connect(path).await.is_ok() {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                "another process listens there",
            ));
        }
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(SOCKET_MODE))?;
    Ok(listener)
}
