//! MetalLB as what stands behind an announcer: the other controllers tell it what they want, and ask what came of it.

use std::net::IpAddr;
use std::sync::Arc;

use groundplane_proto::bgp::v1::{EnsureMachineResponse, Peer as ProtoPeer};
use groundplane_runtime::Context;

use super::MetallbController;
use crate::announcers::metallb::world::{Peer, Peers, Settings};
use crate::announcers::metallb::{Board, HOSTNAME, board};
use crate::announcers::{Backend, Seat, Trouble};
use crate::cluster::Change;
use crate::cluster::objects::{Key, NodeObject, ServiceObject};
use crate::config::{Announcer, Config};
use crate::gateway::Gateway;
use crate::queue::Queue;

/// Where a peer listens that does not say otherwise.
pub(super) const BGP_PORT: u16 = 179;

/// MetalLB, in either form.
#[derive(Debug)]
pub(crate) struct Metallb {
    pub(super) board: Board,
    pub(super) queue: Queue,
    pub(super) settings: Settings,
    pub(super) by_config_map: bool,
}

impl Metallb {
    /// As the configuration says.
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            board: Board::default(),
            queue: Queue::new("metallb"),
            settings: Settings {
                peer_mode: config.metallb.peer_mode,
                advertisement: config.metallb.advertisement,
                hold_time: config.metallb.hold_time.0,
            },
            by_config_map: config.announcer == Announcer::MetallbConfigmap,
        }
    }
}

impl Backend for Metallb {
    fn start(self: Arc<Self>, gateway: &Arc<Gateway>, context: &Context) {
        if gateway.config.controllers.service {
            let controller = MetallbController::new(Arc::clone(gateway), self);
            crate::controllers::run(controller, gateway, &context.tasks);
        }
    }

    fn queue(&self) -> Option<&Queue> {
        Some(&self.queue)
    }

    fn wake(&self) {
        self.queue.wake(key());
    }

    fn place(&self, service: &ServiceObject, addresses: &[IpAddr], term: i64) -> Seat {
        if let Some(trouble) = board::refused(addresses, &self.settings, self.by_config_map) {
            return Seat::Trouble(trouble);
        }
        let (seat, news) = self.board.place(&service.key, &service.uid, addresses, term);
        if news {
            self.wake();
        }
        seat
    }

    fn is_placed(&self, service: &ServiceObject, addresses: &[IpAddr], term: i64) -> bool {
        self.board.is_placed(&service.key, &service.uid, addresses, term)
    }

    fn withdrawn(&self, service: &ServiceObject, term: i64) -> bool {
        let gone = self.board.withdraw(&service.key, &service.uid, term);
        if !gone {
            self.wake();
        }
        gone
    }

    fn complaint(&self) -> Option<Trouble> {
        self.board.complaint()
    }

    fn node_changed(&self, change: &Change<NodeObject>) {
        let host = |node: &Arc<NodeObject>| node.labels.get(HOSTNAME).map(str::to_owned);
        let selected = change.before.as_ref().map(host) != change.after.as_ref().map(host);
        let relabelled =
            change.before.as_ref().map(|node| &node.labels) != change.after.as_ref().map(|node| &node.labels);
        if selected || relabelled {
            self.wake();
        }
    }

    fn learn(&self, node: &NodeObject, answer: Option<&EnsureMachineResponse>, term: i64) {
        let peers = answer.map_or_else(|| Peers::Exactly(Vec::new()), peers);
        if self.board.learn(&node.key, peers, term) {
            self.wake();
        }
    }
}

/// The peers of an answer.
fn peers(answer: &EnsureMachineResponse) -> Peers {
    let peers: Vec<Peer> = answer.peers.iter().filter_map(peer).collect();
    let whole = peers.len() == answer.peers.len() && !answer.pending;
    if whole {
        Peers::Exactly(peers)
    } else {
        Peers::AtLeast(peers)
    }
}

fn peer(peer: &ProtoPeer) -> Option<Peer> {
    Some(Peer {
        address: peer.peer_address.parse().ok()?,
        port: match u16::try_from(peer.port).ok()? {
            0 => BGP_PORT,
            port => port,
        },
        peer_asn: peer.peer_asn,
        my_asn: peer.local_asn,
        source: match &*peer.source_address {
            "" => None,
            source => Some(source.parse().ok()?),
        },
        password: peer.password.clone(),
        multihop: peer.multihop,
    })
}

/// The one key in the queue: it stands for all of MetalLB's configuration.
pub(super) fn key() -> Key {
    Key::cluster_wide("metallb")
}
