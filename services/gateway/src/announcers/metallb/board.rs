//! What the controllers tell each other about MetalLB: which Service wants which addresses announced, which node has which peers,
//! and what came of it.
//!
//! Owner: the Service controller writes the seats, the BGP controller the peers, the MetalLB controller the rest. One lock, never
//! held across an await. Nothing in it is needed after a restart: each controller says it all again.
//!
//! Everything is said in a term of ours as the leader, and counts in that term alone: what a Service wanted in an earlier one, another
//! leader may have undone since, and given its address to somebody else.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use groundplane_core::Family;
use parking_lot::Mutex;

use super::world::{Peers, Settings};
use crate::announcers::{Seat, Trouble};
use crate::cluster::objects::Key;
use crate::config::{Advertisement, PeerMode};

#[derive(Debug)]
struct Wish {
    uid: Box<str>,
    /// In which term of ours as the leader it was said.
    term: i64,
    /// Empty: it is to be announced no more.
    addresses: BTreeSet<IpAddr>,
    /// Was it told that it waits? It is woken, then.
    waits: bool,
    /// Number of the change by which it came to be so.
    generation: u64,
}

#[derive(Debug)]
struct Known {
    /// In which term of ours as the leader it was said.
    term: i64,
    peers: Peers,
}

/// What MetalLB has, as it was last seen or written.
#[derive(Debug, Default)]
struct Seen {
    term: i64,
    placed: BTreeSet<IpAddr>,
    /// The last of the changes that it accounts for.
    generation: u64,
    /// Was what had to go removed?
    complete: bool,
    /// Services that cannot be announced.
    refused: BTreeMap<Key, Trouble>,
}

#[derive(Debug, Default)]
struct State {
    services: HashMap<Key, Wish>,
    nodes: HashMap<Key, Known>,
    seen: Option<Seen>,
    /// Why the last round failed, and in which term.
    trouble: Option<(i64, Trouble)>,
    /// What MetalLB has against its configuration.
    complaint: Option<Trouble>,
    generation: u64,
}

/// What came of a round of the MetalLB controller that came to its end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Round {
    /// As it was when the round began: [`Wishes::generation`].
    pub(crate) generation: u64,
    pub(crate) term: i64,
    /// Addresses that some pool covers.
    pub(crate) placed: BTreeSet<IpAddr>,
    /// Was everything removed that had to go?
    pub(crate) complete: bool,
    /// Services that cannot be announced.
    pub(crate) refused: BTreeMap<Key, Trouble>,
}

/// What Services want.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wishes {
    /// By Service; empty: nothing any more.
    pub(crate) services: BTreeMap<Key, BTreeSet<IpAddr>>,
    /// Number of the last change that is in it.
    pub(crate) generation: u64,
    /// Services that said something in an earlier term only, and have to say it again.
    pub(crate) outdated: Vec<Key>,
}

/// The board.
#[derive(Debug, Default)]
pub(crate) struct Board(Mutex<State>);

impl Board {
    /// A Service wants to be announced by these addresses. `true`: the MetalLB controller has to be woken for it.
    pub(crate) fn place(&self, key: &Key, uid: &str, addresses: &[IpAddr], term: i64) -> (Seat, bool) {
        let addresses: BTreeSet<IpAddr> = addresses.iter().copied().collect();
        let mut state = self.0.lock();
        let seat = state.seat(key, &addresses, term);
        let waits = seat != Seat::Placed;
        let known = state.set(key, uid, addresses, waits, term);
        (seat, !known || waits)
    }

    /// A Service is to be announced no more. `true`: it is not, as far as that is in our hands; else the MetalLB controller has to be
    /// woken.
    pub(crate) fn withdraw(&self, key: &Key, uid: &str, term: i64) -> bool {
        let mut state = self.0.lock();
        let withdrawn = state
            .services
            .get(key)
            .filter(|wish| *wish.uid == *uid && wish.addresses.is_empty() && wish.term == term)
            .map(|wish| wish.generation);
        let gone = state
            .seen
            .as_ref()
            .zip(withdrawn)
            .is_some_and(|(seen, withdrawn)| {
                seen.term == term && seen.complete && seen.generation >= withdrawn
            });
        state.set(key, uid, BTreeSet::new(), !gone, term);
        gone
    }

    /// Has the Service been placed, by what is known?
    pub(crate) fn is_placed(&self, key: &Key, uid: &str, addresses: &[IpAddr], term: i64) -> bool {
        let addresses: BTreeSet<IpAddr> = addresses.iter().copied().collect();
        let state = self.0.lock();
        let wish = state.services.get(key);
        wish.is_some_and(|wish| *wish.uid == *uid && wish.addresses == addresses && wish.term == term)
            && state.seat(key, &addresses, term) == Seat::Placed
    }

    /// What Services want in this term. Those that are not `alive` are forgotten, and so is what was wanted in another term.
    pub(crate) fn wishes(&self, term: i64, alive: impl Fn(&Key, &str) -> bool) -> Wishes {
        let mut state = self.0.lock();
        let mut outdated = Vec::new();
        state.services.retain(|key, wish| {
            let alive = alive(key, &wish.uid);
            if alive && wish.term != term {
                outdated.push(key.clone());
            }
            alive && wish.term == term
        });
        let services = state.services.iter();
        Wishes {
            services: services
                .map(|(key, wish)| (key.clone(), wish.addresses.clone()))
                .collect(),
            generation: state.generation,
            outdated,
        }
    }

    /// A node has these peers. `true`: that is news.
    pub(crate) fn learn(&self, node: &Key, peers: Peers, term: i64) -> bool {
        let mut state = self.0.lock();
        let same = state
            .nodes
            .get(node)
            .is_some_and(|known| known.term == term && known.peers == peers);
        state.nodes.insert(node.clone(), Known { term, peers });
        !same
    }

    /// What is known of a node's peers in this term.
    pub(crate) fn peers(&self, node: &Key, term: i64) -> Peers {
        let state = self.0.lock();
        let known = state.nodes.get(node).filter(|known| known.term == term);
        known.map_or(Peers::Unknown, |known| known.peers.clone())
    }

    /// Forgets nodes that are gone.
    pub(crate) fn retain_nodes(&self, alive: impl Fn(&Key) -> bool) {
        self.0.lock().nodes.retain(|key, _| alive(key));
    }

    /// A round came to its end. Returns the Services that waited for it.
    pub(crate) fn written(&self, round: Round) -> Vec<Key> {
        let Round {
            generation,
            term,
            placed,
            complete,
            refused,
        } = round;
        let mut state = self.0.lock();
        state.trouble = None;
        let before = state.seen.take().map(|seen| seen.refused).unwrap_or_default();
        let mut woken = Vec::new();
        let accounted = |wish: &Wish| wish.waits && wish.generation <= generation;
        for (key, wish) in state.services.iter_mut().filter(|(_, wish)| accounted(wish)) {
            let told = before.get(key) != refused.get(key);
            let done = if wish.addresses.is_empty() {
                complete
            } else {
                wish.addresses.is_subset(&placed)
            };
            if told || done {
                wish.waits = false;
                woken.push(key.clone());
            }
        }
        state.seen = Some(Seen {
            term,
            placed,
            generation,
            complete,
            refused,
        });
        woken
    }

    /// Not everything could be written. Returns the Services that wait, if they do not know yet.
    pub(crate) fn failed(&self, trouble: Trouble, term: i64) -> Vec<Key> {
        let mut state = self.0.lock();
        let trouble = Some((term, trouble));
        let news = state.trouble != trouble;
        state.trouble = trouble;
        let waiting = state.services.iter().filter(|(_, wish)| news && wish.waits);
        waiting.map(|(key, _)| key.clone()).collect()
    }

    /// What MetalLB has against its configuration; `None`: nothing. `true`: that is news.
    pub(crate) fn complains(&self, complaint: Option<Trouble>) -> bool {
        let mut state = self.0.lock();
        let news = state.complaint != complaint;
        state.complaint = complaint;
        news
    }

    /// What MetalLB has against its configuration, as it was last read.
    pub(crate) fn complaint(&self) -> Option<Trouble> {
        self.0.lock().complaint.clone()
    }
}

impl State {
    /// Notes a wish; `true`: it was known.
    fn set(&mut self, key: &Key, uid: &str, addresses: BTreeSet<IpAddr>, waits: bool, term: i64) -> bool {
        if let Some(wish) = self.services.get_mut(key)
            && *wish.uid == *uid
            && wish.addresses == addresses
            && wish.term == term
        {
            wish.waits = waits;
            return true;
        }
        self.generation += 1;
        let wish = Wish {
            uid: uid.into(),
            term,
            addresses,
            waits,
            generation: self.generation,
        };
        self.services.insert(key.clone(), wish);
        false
    }

    fn seat(&self, key: &Key, addresses: &BTreeSet<IpAddr>, term: i64) -> Seat {
        let seen = self.seen.as_ref().filter(|seen| seen.term == term);
        if let Some(refused) = seen.and_then(|seen| seen.refused.get(key)) {
            return Seat::Trouble(refused.clone());
        }
        if seen.is_some_and(|seen| addresses.is_subset(&seen.placed)) {
            return Seat::Placed;
        }
        let trouble = self.trouble.as_ref().filter(|(said, _)| *said == term);
        trouble.map_or(Seat::Waits, |(_, trouble)| Seat::Trouble(trouble.clone()))
    }
}

/// What cannot be said to MetalLB at all, whatever it has.
pub(crate) fn refused(addresses: &[IpAddr], settings: &Settings, by_config_map: bool) -> Option<Trouble> {
    let v6 = addresses.iter().any(|address| Family::of(*address) == Family::V6);
    if by_config_map && addresses.len() > 1 {
        return Some(Trouble {
            reason: "AnnouncerCannot",
            message: "A MetalLB that is told by a ConfigMap takes one address a Service, from spec.loadBalancerIP. Make the Service \
                      SingleStack, or update MetalLB and set gateway.announcer to `metallb`."
                .to_owned(),
        });
    }
    let native = by_config_map || settings.peer_mode == PeerMode::Native;
    (v6 && native && settings.advertisement == Advertisement::Bgp).then(|| Trouble {
        reason: "AnnouncerCannot",
        message: "MetalLB's native mode announces no IPv6 by BGP, and one such address would make all of its configuration invalid. Run \
                  MetalLB in an FRR mode and set gateway.metallb.peerMode to `frr`, or make the Service SingleStack IPv4."
            .to_owned(),
    })
}

#[cfg(test)]
mod tests;
