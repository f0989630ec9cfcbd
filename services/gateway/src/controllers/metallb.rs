//! Tells MetalLB what to announce, and by which peers: the one writer of its configuration.
//!
//! One key in its queue stands for all of it: MetalLB reads its configuration whole, and so is it written. A round looks at what there
//! is, plans, writes what differs, and wakes the Services that waited. What becomes known during a round is for the next one, so that a
//! thousand Services cost a few writes.

mod backend;
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
use groundplane_runtime::Backoff;
use tracing::{debug, warn};

use self::backend::key;
use crate::announcers::Trouble;
use crate::announcers::metallb::Round;
use crate::cluster::WriteError;
use crate::cluster::objects::Key;
use crate::controllers::Controller;
use crate::gateway::Gateway;
use crate::queue::{Outcome, Queue};

pub(crate) use backend::Metallb;

/// Pauses after failures. MetalLB's webhook is away whenever its controller is, and Services wait meanwhile.
const FAILURES: Backoff = Backoff {
    first: Duration::from_secs(1),
    longest: Duration::from_secs(30),
};

/// What could not be removed for want of knowledge is tried again after this.
const INCOMPLETE: Duration = Duration::from_secs(2);

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
    metallb: Arc<Metallb>,
    api: present::Api,
    /// Rounds in a row that failed.
    failures: AtomicU32,
}

impl MetallbController {
    fn new(gateway: Arc<Gateway>, metallb: Arc<Metallb>) -> Self {
        let api = present::Api::new(
            gateway.cluster.client.clone(),
            gateway.config.metallb.namespace.clone(),
        );
        Self {
            gateway,
            metallb,
            api,
            failures: AtomicU32::new(0),
        }
    }

    /// One round, as the configuration has it.
    async fn round(&self) -> Result<Told, Stop> {
        if self.metallb.by_config_map {
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
        let term = self.gateway.cluster.leader.term();
        self.wake_services(self.metallb.board.failed(trouble, term));
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
        &self.metallb.queue
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
                self.wake_services(self.metallb.board.written(round));
                return outcome;
            }
        };
        let complete = round.complete;
        self.wake_services(self.metallb.board.written(round));
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
