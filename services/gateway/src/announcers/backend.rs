//! What stands behind an announcer: a program that has to be told of an address before a Service asks it for that one.
//!
//! ```text
//!  Service controller ──place / withdrawn──►          ──tells──► its objects in Kubernetes
//!                     ◄──── Seat ───────────  Backend
//!  BGP controller     ──learn──────────────►          ◄──reads── what it thinks of them
//!  watch of nodes     ──node_changed───────►
//! ```
//!
//! The controllers know this trait and no backend by name. Another one is written against it, and named in
//! [`crate::controllers::backend`].

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use groundplane_proto::bgp::v1::EnsureMachineResponse;
use groundplane_runtime::Context;

use crate::cluster::Change;
use crate::cluster::objects::{NodeObject, ServiceObject};
use crate::gateway::Gateway;
use crate::queue::Queue;

/// Why a Service is not announced, for its condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// `CamelCase`.
    pub(crate) reason: &'static str,
    /// For people, with what would help.
    pub(crate) message: String,
}

/// What came of the wish to be announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seat {
    /// The backend has the addresses.
    Placed,
    /// Not yet; the Service is woken when it is known.
    Waits,
    /// It cannot be, or not now.
    Trouble(Trouble),
}

/// What an announcer has behind it. `term` is the number of our term as the leader: what was said in another one counts no more.
pub(crate) trait Backend: fmt::Debug + Send + Sync + 'static {
    /// Starts what tells it, if the configuration asks for it.
    fn start(self: Arc<Self>, gateway: &Arc<Gateway>, context: &Context);
    /// The queue of what tells it, for metrics.
    fn queue(&self) -> Option<&Queue>;
    /// Something has changed that it may have to be told: looks again.
    fn wake(&self);
    /// The Service wants to be announced by these addresses.
    fn place(&self, service: &ServiceObject, addresses: &[IpAddr], term: i64) -> Seat;
    /// Has it these addresses for the Service, by what is known?
    fn is_placed(&self, service: &ServiceObject, addresses: &[IpAddr], term: i64) -> bool;
    /// The Service is to be announced no more. Has the backend nothing of it any more? If not, the Service is woken when that is so.
    fn withdrawn(&self, service: &ServiceObject, term: i64) -> bool;
    /// What it has against what it was told, by its own word.
    fn complaint(&self) -> Option<Trouble>;
    /// A node has changed.
    fn node_changed(&self, change: &Change<NodeObject>);
    /// A node's BGP peers are known; `None`: it shall have none any more.
    fn learn(&self, node: &NodeObject, peers: Option<&EnsureMachineResponse>, term: i64);
}

/// There is nobody to be told beforehand: what is written to the Service is enough.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nobody;

impl Backend for Nobody {
    fn start(self: Arc<Self>, _: &Arc<Gateway>, _: &Context) {}

    fn queue(&self) -> Option<&Queue> {
        None
    }

    fn wake(&self) {}

    fn place(&self, _: &ServiceObject, _: &[IpAddr], _: i64) -> Seat {
        Seat::Placed
    }

    fn is_placed(&self, _: &ServiceObject, _: &[IpAddr], _: i64) -> bool {
        true
    }

    fn withdrawn(&self, _: &ServiceObject, _: i64) -> bool {
        true
    }

    fn complaint(&self) -> Option<Trouble> {
        None
    }

    fn node_changed(&self, _: &Change<NodeObject>) {}

    fn learn(&self, _: &NodeObject, _: Option<&EnsureMachineResponse>, _: i64) {}
}
