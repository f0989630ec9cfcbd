//! Tells MetalLB what to announce, and by which peers: the one writer of its configuration.
//!
//! One key in its queue stands for all of it: MetalLB reads its configuration whole, and so is it written. A round looks at what there
//! is, plans, writes what differs, and wakes the Services that waited. What becomes known during a round is for the next one, so that a
//! thousand Services cost a few writes.

mod config_map;
mod present;
mod refusals;
mod resources;
mod world;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use groundplane_core::Kinded as _;
use groundplane_proto::bgp::v1::EnsureMachineResponse;
use groundplane_runtime::Context;
use tracing::{debug, warn};

use crate::announcers::metallb::world::{Peer, Peers, Settings};
use crate::announcers::metallb::{HOSTNAME, Round, Trouble};
use crate::backoff::Backoff;
use crate::cluster::objects::{Key, NodeObject};
use crate::cluster::{Change, WriteError};
use crate::config::{Announcer, Config};
use crate::controllers::Controller;
use crate::gateway::Gateway;
use crate::queue::{Outcome, Queue};

/// Pauses after failures. MetalLB's webhook is away whenever its controller is, and Services wait meanwhile.
const FAILURES: Backoff = Backoff {
    first: Duration::from_secs(1),
    longest: Duration::from_secs(30),
};

/// What could not be removed for want of knowledge is tried again after this.
const INCOMPLETE: Duration = Duration::from_secs(2);

/// Where a peer listens that does not say otherwise.
const BGP_PORT: u16 = 179;

/// Is MetalLB told at all?
pub(crate) fn is_on(config: &Config) -> bool {
    matches!(config.announcer, Announcer::Metallb | Announcer::MetallbConfigmap)
}

/// How it is told.
pub(crate) fn settings(config: &Config) -> Settings {
    Settings {
        peer_mode: config.metallb.peer_mode,
        advertisement: config.metallb.advertisement,
        hold_time: config.metallb.hold_time.0,
    }
}

/// Starts it, if the configuration asks for it.
pub(crate) fn start(gateway: &Arc<Gateway>, context: &Context) {
    if is_on(&gateway.config) && gateway.config.controllers.service {
        super::run(
            MetallbController::new(Arc::clone(gateway)),
            gateway,
            &context.tasks,
        );
    }
}

/// Something has changed that MetalLB is to be told.
pub(crate) fn wake(gateway: &Gateway) {
    if is_on(&gateway.config) {
        gateway.queues.metallb.wake(key());
    }
}

/// A node has changed.
pub(crate) fn changed(gateway: &Gateway, change: &Change<NodeObject>) {
    let host = |node: &Arc<NodeObject>| node.labels.get(HOSTNAME).map(str::to_owned);
    let selected = change.before.as_ref().map(host) != change.after.as_ref().map(host);
    let relabelled =
        change.before.as_ref().map(|node| &node.labels) != change.after.as_ref().map(|node| &node.labels);
    if selected || relabelled {
        wake(gateway);
    }
}

/// A node's peers are known.
pub(crate) fn learn(gateway: &Gateway, node: &NodeObject, answer: &EnsureMachineResponse, term: i64) {
    if !is_on(&gateway.config) {
        return;
    }
    let peers: Vec<Peer> = answer.peers.iter().filter_map(peer).collect();
    let whole = peers.len() == answer.peers.len() && !answer.pending;
    let peers = if whole {
        Peers::Exactly(peers)
    } else {
        Peers::AtLeast(peers)
    };
    if gateway.metallb.learn(&node.key, peers, term) {
        wake(gateway);
    }
}

/// A node shall have no peers any more.
pub(crate) fn learn_none(gateway: &Gateway, node: &NodeObject) {
    let term = gateway.cluster.leader.term();
    if is_on(&gateway.config) && gateway.metallb.learn(&node.key, Peers::Exactly(Vec::new()), term) {
        wake(gateway);
    }
}

fn peer(peer: &groundplane_proto::bgp::v1::Peer) -> Option<Peer> {
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

fn key() -> Key {
    Key::cluster_wide("metallb")
}

/// A round that came to its end.
#[derive(Debug)]
struct Told {
    round: Round,
    /// Peers or Secrets were refused, and are to be tried again; all else was written.
    refusal: Option<Trouble>,
}

/// Why a round did not come to its end.
#[derive(Debug)]
enum Stop {
    /// There is no MetalLB, so that nothing is announced by it.
    Missing(Trouble),
    /// It could not be read or written.
    Failed(Trouble),
    /// Somebody else has written meanwhile, or leads: look again.
    Again,
}

struct MetallbController {
    gateway: Arc<Gateway>,
    api: present::Api,
    /// Rounds in a row that failed.
    failures: AtomicU32,
}

impl MetallbController {
    fn new(gateway: Arc<Gateway>) -> Self {
        let api = present::Api::new(
            gateway.cluster.client.clone(),
            gateway.config.metallb.namespace.clone(),
        );
        Self {
            gateway,
            api,
            failures: AtomicU32::new(0),
        }
    }

    /// One round, as the configuration has it.
    async fn round(&self) -> Result<Told, Stop> {
        if self.gateway.config.announcer == Announcer::MetallbConfigmap {
            self.by_config_map().await
        } else {
            self.by_custom_resources().await
        }
    }

    /// Nothing of ours is there, and nobody can be announced.
    fn missing(&self, trouble: &Trouble) -> Round {
        let (world, generation) = self.world();
        let refused = world.services.into_keys().map(|key| (key, trouble.clone()));
        Round {
            generation,
            term: self.gateway.cluster.leader.term(),
            placed: std::collections::BTreeSet::new(),
            complete: true,
            refused: refused.collect::<BTreeMap<_, _>>(),
        }
    }

    fn failed(&self, trouble: Trouble) -> Outcome {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed);
        warn!(
            reason = trouble.reason,
            message = trouble.message,
            failures = failures + 1,
            "MetalLB is not told"
        );
        self.wake_services(self.gateway.metallb.failed(trouble));
        Outcome::After(FAILURES.pause(failures))
    }

    fn wake_services(&self, keys: Vec<Key>) {
        for key in keys {
            self.gateway.queues.services.wake(key);
        }
    }

    /// How it ends whose write failed.
    fn stopped(&self, what: &str, error: &WriteError) -> Stop {
        let message = match error {
            WriteError::NotLeader | WriteError::Conflict(_) => return Stop::Again,
            WriteError::Gone(_) => format!(
                "{what} cannot be written: there is no namespace {}, or the object has just gone. It is tried again.",
                self.gateway.config.metallb.namespace
            ),
            WriteError::Refused(_) | WriteError::Denied(_) => {
                let cause = std::error::Error::source(error).map_or_else(String::new, ToString::to_string);
                return Stop::Failed(Trouble {
                    reason: "AnnouncerRefused",
                    message: format!("{what} is not accepted: {cause}. It is tried again."),
                });
            }
            // Each try may fail in other words, and Services shall not be told anew each time.
            WriteError::Timeout | WriteError::Unavailable(_) => {
                debug!(%error, cause = std::error::Error::source(error).map(tracing::field::display), what, "not written");
                format!(
                    "{what} cannot be written ({}): the API server, or the webhook of MetalLB's controller, does not answer. It is tried again.",
                    error.reason()
                )
            }
        };
        Stop::Failed(Trouble {
            reason: "AnnouncerUnavailable",
            message,
        })
    }
}

impl Controller for MetallbController {
    const KIND: &'static str = "MetalLB";

    fn queue(&self) -> &Queue {
        &self.gateway.queues.metallb
    }

    async fn reconcile(&self, _: &Key) -> Outcome {
        let cluster = &self.gateway.cluster;
        // What is not known yet would look like what is not there.
        cluster.services.index.synced().await;
        cluster.nodes.index.synced().await;
        let Told { round, refusal } = match self.round().await {
            Ok(told) => told,
            Err(Stop::Again) => return Outcome::Conflict,
            Err(Stop::Failed(trouble)) => return self.failed(trouble),
            Err(Stop::Missing(trouble)) => {
                let round = self.missing(&trouble);
                let outcome = self.failed(trouble);
                self.wake_services(self.gateway.metallb.written(round));
                return outcome;
            }
        };
        let complete = round.complete;
        self.wake_services(self.gateway.metallb.written(round));
        if let Some(trouble) = refusal {
            let failures = self.failures.fetch_add(1, Ordering::Relaxed);
            warn!(
                reason = trouble.reason,
                message = trouble.message,
                failures = failures + 1,
                "MetalLB is told without what it refuses"
            );
            return Outcome::After(FAILURES.pause(failures));
        }
        self.failures.store(0, Ordering::Relaxed);
        if complete {
            Outcome::Done
        } else {
            Outcome::After(INCOMPLETE)
        }
    }

    /// What others change is seen by looking: a list of each kind.
    fn due(&self) -> Vec<Key> {
        vec![key()]
    }

    fn all(&self) -> Vec<Key> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests;
