//! What there should be: plain values, put together from what Kubernetes and the services said.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use crate::cluster::objects::Key;
use crate::config::{Advertisement, PeerMode};

/// What MetalLB should be told.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    /// Services with the addresses that they are to be announced by.
    pub(crate) services: BTreeMap<Key, BTreeSet<IpAddr>>,
    /// Addresses that Services name in whatever way. None of them is taken out of where it stands.
    pub(crate) mentioned: BTreeMap<IpAddr, BTreeSet<Key>>,
    /// What Services name that are to be announced no more.
    pub(crate) leaving: BTreeMap<IpAddr, BTreeSet<Key>>,
    /// The nodes, by name.
    pub(crate) nodes: BTreeMap<String, Node>,
    /// Does a Service that has addresses still have to say by which it is to be announced? So it is when a process has just begun to lead:
    /// what announces stays until then.
    pub(crate) awaited: bool,
    /// Are these all Services and all nodes? If not, nothing is removed because it is not among them.
    pub(crate) complete: bool,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// Value of its label [`super::HOSTNAME`].
    pub(crate) hostname: String,
    /// All its labels.
    pub(crate) labels: BTreeMap<String, String>,
    /// Its BGP peers.
    pub(crate) peers: Peers,
}

/// What is known of a node's peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Peers {
    /// Nobody has said yet, or could say: what is there stays.
    Unknown,
    /// These, and more may come.
    AtLeast(Vec<Peer>),
    /// These, and no others.
    Exactly(Vec<Peer>),
}

impl Peers {
    /// Those that are known.
    pub(crate) fn known(&self) -> &[Peer] {
        match self {
            Self::Unknown => &[],
            Self::AtLeast(peers) | Self::Exactly(peers) => peers,
        }
    }
}

/// One BGP neighbour of a node.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(clippy::struct_field_names, reason = "as MetalLB calls it, beside `my_asn`")]
pub(crate) struct Peer {
    /// Address of the neighbour.
    pub(crate) address: IpAddr,
    /// Its port.
    pub(crate) port: u16,
    pub(crate) peer_asn: u32,
    pub(crate) my_asn: u32,
    /// The address that our side speaks from; `None`: any.
    pub(crate) source: Option<IpAddr>,
    /// TCP MD5 password; empty: none.
    pub(crate) password: String,
    /// More than one hop away.
    pub(crate) multihop: bool,
}

impl Peer {
    /// MetalLB refuses the mark between machines of one AS, where it means nothing.
    pub(crate) fn ebgp_multihop(&self) -> bool {
        self.multihop && self.peer_asn != self.my_asn
    }
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peer")
            .field("address", &self.address)
            .field("port", &self.port)
            .field("peer_asn", &self.peer_asn)
            .field("my_asn", &self.my_asn)
            .field("source", &self.source)
            .field("multihop", &self.multihop)
            .finish_non_exhaustive()
    }
}

/// How it is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) peer_mode: PeerMode,
    pub(crate) advertisement: Advertisement,
    pub(crate) hold_time: Duration,
}

impl Settings {
    /// Are there peers to write at all?
    pub(crate) fn writes_peers(&self) -> bool {
        self.peer_mode != PeerMode::None && self.advertisement != Advertisement::L2
    }
}
