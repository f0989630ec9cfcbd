//! What an agent is told, and what it says is to be done.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::candidate::Candidate;

/// The endpoint, as the cloud has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Its address.
    pub address: IpAddr,
    /// Provider id of the machine that holds it, and the id of the assignment; `None`: nobody.
    pub held: Option<(String, String)>,
    /// Provider ids of further holders. There should be none.
    pub others: Vec<String>,
}

/// Why the endpoint should move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It misses its probes.
    Dead,
    /// Nobody holds it.
    Unheld,
    /// Its holder is to be left while it works.
    Leaving,
}

/// What the last probe of an address said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Node; empty: the endpoint itself.
    pub node: String,
    /// Did it answer?
    pub ready: bool,
    /// Misses in a row.
    pub misses: u32,
    /// What went wrong.
    pub detail: String,
    /// How long ago, when it was told.
    pub age: Duration,
    /// How long it took.
    pub took: Duration,
}

/// What `health` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The node that should hold the endpoint.
    pub move_to: Option<String>,
    /// Why.
    pub why: Option<Why>,
    /// For people.
    pub reason: String,
    /// From the last answer to the verdict.
    pub detected_after: Duration,
    /// The request that this is about.
    pub revision: u64,
    /// Number of the verdict.
    pub verdict: u64,
    /// What was seen.
    pub observations: Vec<Observation>,
}

/// What `health` is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The endpoint.
    pub endpoint: SocketAddr,
    /// Node that holds it.
    pub holder: Option<String>,
    /// It is held by no candidate.
    pub holder_unknown: bool,
    /// Who could.
    pub candidates: Vec<Candidate>,
    /// The nodes among them whose machines were refused.
    pub refused: BTreeSet<String>,
    /// The endpoint's own address is not to be probed.
    pub own_addresses_only: bool,
    /// Number of this request.
    pub revision: u64,
}

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A race was lost: read again, judge again.
    Changed(String),
    /// No answer, or a promise of one later: it may or may not have happened.
    Unanswered(String),
    /// It will not be, until something changes.
    Refused(String),
    /// This machine does not get it, whoever asks; another one may.
    Unfit(String),
}

impl Failure {
    /// In words.
    pub fn text(&self) -> &str {
        match self {
            Self::Changed(text) | Self::Unanswered(text) | Self::Refused(text) | Self::Unfit(text) => text,
        }
    }
}

/// A move to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The endpoint.
    pub address: IpAddr,
    /// Provider id of the machine that shall hold it.
    pub to: String,
    /// The assignment that this was decided on.
    pub assignment: Option<String>,
}

/// A move that was made or tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Node, or provider id, that held it; empty: nobody.
    pub from: String,
    /// Node that was to hold it.
    pub to: String,
    /// Why.
    pub reason: String,
    /// `moved`, `lost the race`, or what went wrong.
    pub outcome: String,
    /// Did it?
    pub moved: bool,
    /// From the endpoint's last answer to the verdict.
    pub detection: Duration,
    /// From the verdict until now.
    pub took: Duration,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Ask `health` this from now on.
    Ask(Question),
    /// Read the endpoint.
    Read,
    /// Move it.
    Move(Order),
    /// Wait no longer for the move that is under way: eip ends it, unless it has taken the endpoint away by now.
    Abandon,
    /// Keep the candidates for a start without an API server.
    Remember,
    /// Tell of a move.
    Tell(Record),
    /// A verdict was given.
    Judged,
}

/// What an agent is told.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// Name of its node.
    pub(super) node: String,
    /// Port of the endpoint; `None`: that of the machines' own API servers.
    pub(super) port: Option<u16>,
    /// What each rank waits longer.
    pub(super) step: Duration,
    /// Between two reads where nothing happens.
    pub(super) refresh: Duration,
    /// The endpoint's own address says nothing, since machines carry it themselves.
    pub(super) own_addresses_only: bool,
}
