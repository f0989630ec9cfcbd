//! What the monitor is told, and why it may want a move.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::time::Instant;

use groundplane_core::NodeName;

use super::Outcome;

/// A machine that could hold the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its own API server.
    pub address: SocketAddr,
    /// No new work shall come to it.
    pub cordoned: bool,
    /// It is on its way out.
    pub deleting: bool,
    /// The endpoint was not given to it a while ago.
    pub refused: bool,
}

/// Who holds the endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Holder {
    /// Nobody, as its owner says.
    Nobody,
    /// A machine that is none of the candidates.
    #[default]
    Unknown,
    /// This node. One that is no candidate is treated as [`Holder::Unknown`]: not being told of it is no proof that it is gone.
    Node(NodeName),
}

/// How things are, as the caller sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Situation {
    /// All candidates.
    pub candidates: BTreeMap<NodeName, Candidate>,
    /// Who holds the endpoint.
    pub holder: Holder,
    /// The endpoint's address is not probed, and says nothing: machines carry it themselves.
    pub own_addresses_only: bool,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Replaces the situation before it.
    Changed(Situation),
    /// A probe ended. Probes of one address are told in the order in which they began.
    Probed {
        /// Of a candidate; `None`: of the endpoint.
        node: Option<NodeName>,
        /// What it said.
        outcome: Outcome,
        /// When it ended, which may be before it is told.
        ended: Instant,
    },
}

/// Why the endpoint should move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// It, or its holder, missed as many probes as make a failure.
    Dead,
    /// Nobody holds it.
    Unheld,
    /// Its holder is cordoned.
    Cordoned,
    /// Its holder is being deleted.
    Deleting,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dead => "dead",
            Self::Unheld => "unheld",
            Self::Cordoned => "cordoned",
            Self::Deleting => "deleting",
        })
    }
}
