//! gRPC within one process: the same HTTP/2, over pipes instead of sockets. Used by `groundplane all` and by tests.

use std::fmt;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;

use super::{BindError, Channel, ChannelError, Listen, Server, Target, channel};

/// Bytes that one side may be ahead of the other: an HTTP/2 window.
const PIPE: usize = 64 * 1024;

/// Connections that wait to be accepted; more than one a client is rare.
const BACKLOG: usize = 16;

/// A listener and a connector that belong together.
pub fn memory() -> (MemoryListener, MemoryConnector) {
    let (send, receive) = mpsc::channel(BACKLOG);
    (
        MemoryListener {
            incoming: Arc::new(Mutex::new(Some(receive))),
        },
        MemoryConnector { outgoing: send },
    )
}

/// Why a service cannot be served within its process. A defect, where the contracts are those that were compiled in.
#[derive(Debug, thiserror::Error)]
pub enum WithinError {
    /// The server's side.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The client's side.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// The contracts are no descriptor set.
    #[error("the contracts cannot be read")]
    Contracts(#[from] prost::DecodeError),
}

impl Server {
    /// Serves within the process, and returns the way there. Both sides know `contracts`, a serialised descriptor set.
    ///
    /// # Errors
    /// `contracts` are no descriptor set.
    pub async fn within(self, contracts: &'static [u8]) -> Result<Channel, WithinError> {
        let (listener, connector) = memory();
        let channel = channel(&Target::Memory(connector), None)?.describe(contracts)?;
        let server = self.listen(Listen::Memory(listener));
        server.reflection(false, contracts).start().await?;
        Ok(channel)
    }
}

/// Where in-memory connections arrive. One server takes it; clones are the same listener.
#[derive(Clone)]
pub struct MemoryListener {
    incoming: Arc<Mutex<Option<mpsc::Receiver<DuplexStream>>>>,
}

impl MemoryListener {
    /// The connections; `None` if a server took them before. Public for those who carry the bytes further: a simulated network.
    pub fn take(&self) -> Option<mpsc::Receiver<DuplexStream>> {
        self.incoming.lock().take()
    }
}

impl fmt::Debug for MemoryListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemoryListener")
    }
}

/// Opens in-memory connections. Cheap to clone.
#[derive(Clone)]
pub struct MemoryConnector {
    outgoing: mpsc::Sender<DuplexStream>,
}

impl MemoryConnector {
    /// Connects; refused once the server is gone. Public for the same reason as [`MemoryListener::take`].
    pub async fn connect(&self) -> io::Result<DuplexStream> {
        let (ours, theirs) = tokio::io::duplex(PIPE);
        self.outgoing
            .send(theirs)
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::ConnectionRefused, "the service has stopped"))?;
        Ok(ours)
    }
}

impl fmt::Debug for MemoryConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemoryConnector")
    }
}
