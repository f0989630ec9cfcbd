//! Connections.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::credentials::Loaded;
use super::detail::Failure;

/// How far a probe has come, for whoever has to say why it did not end in time.
#[derive(Debug, Default)]
pub(super) struct Attempt(AtomicBool);

impl Attempt {
    /// Has a fresh connection been made? Of one that was kept, nobody knows.
    pub(super) fn is_connected(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Carries bytes.
pub(super) trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// A plain connection.
pub(super) async fn tcp(address: SocketAddr, attempt: &Attempt) -> Result<TcpStream, Failure> {
    let stream = TcpStream::connect(address)
        .await
        .map_err(|error| Failure::of_io(&error))?;
    attempt.0.store(true, Ordering::Relaxed);
    stream.set_nodelay(true).map_err(|error| Failure::of_io(&error))?;
    Ok(stream)
}

/// A connection, with TLS where that is configured.
pub(super) async fn dial(
    address: SocketAddr,
    loaded: &Loaded,
    attempt: &Attempt,
) -> Result<Box<dyn Wire>, Failure> {
    let stream = tcp(address, attempt).await?;
    let Some(tls) = &loaded.tls else {
        return Ok(Box::new(stream));
    };
    let name = loaded.server_name.clone();
    let name = name.unwrap_or_else(|| server_name(address.ip()));
    let stream = tls.connect(name, stream).await;
    Ok(Box::new(stream.map_err(|error| Failure::of_io(&error))?))
}

fn server_name(address: IpAddr) -> ServerName<'static> {
    ServerName::IpAddress(address.into())
}
