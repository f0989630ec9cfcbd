//! gRPC in both directions. Servers are made only by [`Server`], clients only by [`channel()`]; both carry what
//! tonic leaves to its users: deadlines, keepalive, trace context, metrics, health, limits, a stop that ends.

mod body;
mod call;
mod callers;
mod channel;
mod connection;
mod dial;
mod handshake;
mod health;
mod invalid;
mod layer;
mod listen;
mod memory;
mod methods;
pub(crate) mod metrics;
mod page;
mod server;
pub mod status;
mod time;

pub use call::{Policy, call};
pub use channel::{
    CALL_DEADLINE, Channel, ChannelError, KeepAlive, ParseTargetError, Target, channel, channel_abroad,
    channel_with,
};
pub use connection::{Peer, Standing};
pub use invalid::InvalidField;
pub use listen::{BindError, BoundAddress, Listen, ParseListenError};
pub use memory::{MemoryConnector, MemoryListener, WithinError, memory};
pub use page::Page;
pub use server::{BoundServer, Limits, Server};
pub use status::{Details, RpcError, forward, status};
pub use time::timestamp;

#[cfg(test)]
mod tests;
