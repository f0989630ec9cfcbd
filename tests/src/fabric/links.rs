//! TCP links that lead somewhere, nowhere, or somewhere else from one moment to the next.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// Where the packets of a link go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// To this server. Connections that lead to another one are reset, as a machine does with packets of a connection that it
    /// does not know.
    To(SocketAddr),
    /// They are dropped. Nothing is refused: connections freeze, and go on where they were when the way is open again.
    Nowhere,
}

/// Several links with a runtime of their own, so that they outlive the test that made them.
#[derive(Debug)]
pub struct Links {
    runtime: Option<Runtime>,
}

impl Links {
    /// None yet.
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub fn new() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("links")
            .enable_all()
            .build()
            .context("start a runtime")?;
        Ok(Self {
            runtime: Some(runtime),
        })
    }

    /// Has the runtime do this, too.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.runtime {
            drop(runtime.spawn(task));
        }
    }

    /// Another link: what connects to `address` is led where `passage` says.
    ///
    /// # Errors
    /// When nobody may listen there.
    pub fn add(&self, address: SocketAddr, passage: watch::Receiver<Passage>) -> Result<()> {
        let listener = TcpListener::bind(address).with_context(|| format!("listen on {address}"))?;
        listener.set_nonblocking(true)?;
        self.spawn(async move {
            // Only a runtime can take it over, and this one runs.
            if let Ok(listener) = tokio::net::TcpListener::from_std(listener) {
                accept(&listener, passage).await;
            }
        });
        Ok(())
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // One that waits for its tasks must not be dropped by a task of another.
            runtime.shutdown_background();
        }
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "the runtime ends with the links, and its tasks with it"
)]
async fn accept(listener: &tokio::net::TcpListener, passage: watch::Receiver<Passage>) {
    loop {
        match listener.accept().await {
            Ok((client, _)) => drop(tokio::spawn(carry(client, passage.clone()))),
            // No file descriptor is free: one will be.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Waits until packets go through, and says where to; `None`: never again.
async fn open(passage: &mut watch::Receiver<Passage>) -> Option<SocketAddr> {
    let found = passage
        .wait_for(|passage| matches!(passage, Passage::To(_)))
        .await;
    match found.ok().as_deref() {
        Some(Passage::To(server)) => Some(*server),
        _ => None,
    }
}

async fn carry(client: TcpStream, mut passage: watch::Receiver<Passage>) {
    // Whoever is dropped from here on is told by a reset, and at once.
    if client.set_zero_linger().is_err() || client.set_nodelay(true).is_err() {
        return;
    }
    let Some(server) = open(&mut passage).await else {
        return;
    };
    let Ok(upstream) = TcpStream::connect(server).await else {
        return;
    };
    if upstream.set_nodelay(true).is_err() {
        return;
    }
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), upstream.into_split());
    // Whoever ends first ends both.
    tokio::select! {
        ended = pump(from_client, to_server, server, passage.clone()) => drop(ended),
        ended = pump(from_server, to_client, server, passage) => drop(ended),
    }
}

async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    server: SocketAddr,
    mut passage: watch::Receiver<Passage>,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        if open(&mut passage).await != Some(server) {
            return Ok(());
        }
        tokio::select! {
            changed = passage.changed() => if changed.is_err() { return Ok(()); },
            read = from.read(&mut buffer) => match read? {
                0 => return to.shutdown().await,
                read => to.write_all(&buffer[..read]).await?,
            },
        }
    }
}

#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    reason = "these tasks end with their test's runtime"
)]
mod tests {
    use std::net::Ipv4Addr;

    use pretty_assertions::assert_eq;

    use super::*;

    /// A server that says `word` to everybody, and then what it hears.
    async fn server(word: &'static [u8]) -> io::Result<SocketAddr> {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    stream.write_all(word).await?;
                    let (mut from, mut to) = stream.split();
                    tokio::io::copy(&mut from, &mut to).await
                });
            }
        });
        Ok(address)
    }

    async fn heard(stream: &mut TcpStream) -> io::Result<[u8; 1]> {
        let mut word = [0];
        stream.read_exact(&mut word).await.map(|_| word)
    }

    #[tokio::test]
    async fn a_link_freezes_goes_on_and_leads_elsewhere() -> Result<()> {
        let (one, other) = (server(b"1").await?, server(b"2").await?);
        let [port] = crate::processes::free_ports()?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let (passage, receiver) = watch::channel(Passage::To(one));
        let links = Links::new()?;
        links.add(address, receiver)?;
        let mut client = TcpStream::connect(address).await?;
        assert_eq!(heard(&mut client).await?, *b"1");

        passage.send_replace(Passage::Nowhere);
        let mut late = TcpStream::connect(address).await?;
        client.write_all(b"x").await?;
        let silence = tokio::time::timeout(Duration::from_millis(50), heard(&mut client)).await;
        assert!(silence.is_err(), "{silence:?}");
        passage.send_replace(Passage::To(one));
        assert_eq!(heard(&mut client).await?, *b"x", "it was kept");
        assert_eq!(heard(&mut late).await?, *b"1");

        passage.send_replace(Passage::To(other));
        assert!(
            heard(&mut client).await.is_err(),
            "the other server does not know this connection"
        );
        assert_eq!(heard(&mut TcpStream::connect(address).await?).await?, *b"2");
        Ok(())
    }
}
