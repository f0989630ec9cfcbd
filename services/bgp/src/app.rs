//! Use cases: project, session, peers, in this order.

mod project;
mod refusals;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use groundplane_cloud::{
    BgpFabric, BgpProject, CloudErrorKind, Inventory, NeighborQuery, Neighbors, Session, Snapshot, keep,
};
use groundplane_core::{Family, Kinded as _, ProviderId};
use groundplane_runtime::{Component, Context, Tasks};
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{info, instrument, warn};

use crate::config::Config;
use crate::domain::{Known, Peering, Step, families};
use crate::error::BgpError;
use project::Project;
use refusals::Refusals;

/// When to ask again after an answer failed to come, and the old one was given.
const AGAIN: Duration = Duration::from_secs(60);

/// A machine, and what its node says.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) query: NeighborQuery,
    /// What an earlier answer said.
    pub(crate) seed: Neighbors,
    /// Ask the cloud anew.
    pub(crate) fresh: bool,
}

/// What a machine needs to peer.
#[derive(Clone, Debug)]
pub(crate) struct Peers {
    pub(crate) neighbors: Neighbors,
    pub(crate) pending: bool,
    pub(crate) unverified: bool,
}

/// One machine of the overview.
#[derive(Clone, Debug)]
pub(crate) struct Overview {
    pub(crate) machine: ProviderId,
    pub(crate) node: String,
    pub(crate) neighbors: Neighbors,
    /// By family.
    pub(crate) sessions: BTreeMap<String, String>,
}

/// BGP, as configured.
pub(crate) struct Bgp {
    fabric: Arc<dyn BgpFabric>,
    project: Project,
    sessions: Inventory<Session>,
    /// Held for lookups only.
    known: Mutex<Known>,
    refusals: Refusals,
    refresh: Duration,
    /// In order.
    families: Vec<Family>,
}

/// Whom a machine speaks BGP with, as far as we ask for it.
#[derive(Clone, Debug)]
struct Spoken {
    /// In order.
    families: Vec<Family>,
    /// Those of them whose session was made just now.
    made: Vec<Family>,
}

impl std::fmt::Debug for Bgp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bgp")
            .field("sessions", &self.sessions)
            .finish_non_exhaustive()
    }
}

impl Bgp {
    pub(crate) fn new(fabric: Arc<dyn BgpFabric>, config: &Config, context: &Context) -> Self {
        let refresh = config.refresh.0;
        let mut families = config.families.clone();
        families.sort_unstable();
        families.dedup();
        let source = Arc::clone(&fabric);
        let list = move || {
            let source = Arc::clone(&source);
            async move { source.sessions().await }
        };
        Self {
            project: Project::new(Arc::clone(&fabric)),
            sessions: Inventory::new(list, Arc::clone(&context.clock), context.tasks.clone()),
            known: Mutex::new(Known::new(refresh, now())),
            fabric,
            refusals: Refusals::default(),
            refresh,
            families,
        }
    }

    /// Keeps the list of sessions warm. Ready at once where there are none.
    pub(crate) fn keep(&self, component: Component, tasks: &Tasks) {
        if self.fabric.needs_sessions() {
            keep(&self.sessions, component, self.refresh, tasks);
        } else {
            component.ready();
        }
    }

    /// BGP of the project, switched on where it was off. `fresh`: as it was a moment ago at most.
    pub(crate) async fn project(&self, fresh: bool) -> Result<BgpProject, BgpError> {
        let age = if fresh { project::RECENT } else { self.refresh };
        Ok(self.project.ensure(age).await?)
    }

    /// Sessions and peers of a machine.
    #[instrument(skip_all, fields(machine = %asked.query.machine, node = asked.query.node), err(level = "debug"))]
    pub(crate) async fn machine(&self, asked: Asked) -> Result<Peers, BgpError> {
        let project = self.project.ensure(self.refresh).await?;
        let machine = &asked.query.machine;
        if !self.fabric.needs_sessions() {
            // A table: asking costs nothing, and labels may have changed.
            let neighbors = self
                .fabric
                .neighbors(&asked.query)
                .await
                .map_err(|error| BgpError::of_machine(machine, error))?;
            self.known
                .lock()
                .told(machine, &asked.query.node, neighbors.clone(), now());
            return Ok(Peers {
                neighbors,
                pending: project.pending,
                unverified: false,
            });
        }
        let spoken = self.ensure_sessions(&asked).await?;
        let peering = self.peering(&asked, &spoken).await?;
        let pending = project.pending || peering.neighbors.peers.is_empty();
        Ok(Peers {
            neighbors: peering.neighbors,
            pending,
            unverified: peering.unverified,
        })
    }

    /// Makes the sessions that the machine lacks. A machine that speaks one family is not kept from it by the next.
    async fn ensure_sessions(&self, asked: &Asked) -> Result<Spoken, BgpError> {
        let machine = &asked.query.machine;
        let mut spoken = Spoken {
            families: families::wanted(&self.families, &asked.query.addresses),
            made: Vec::new(),
        };
        let Some(&first) = spoken.families.first() else {
            return Err(BgpError::NoFamily {
                machine: machine.clone(),
                families: self.families.clone(),
            });
        };
        let missing: Vec<_> = {
            let snapshot = if asked.fresh {
                self.sessions.fresh().await?
            } else {
                self.sessions.get(self.refresh).await?
            };
            let mut missing = spoken.families.clone();
            missing.retain(|family| !has(&snapshot, machine, *family));
            missing
        };
        for family in missing {
            if family != first && !asked.fresh && self.refusals.stands(machine, family) {
                continue;
            }
            match self.fabric.create_session(machine, family).await {
                Ok(()) => {}
                Err(error) if family == first || error.is(CloudErrorKind::NotFound) => {
                    return Err(BgpError::of_machine(machine, error));
                }
                Err(error) => {
                    warn!(%family, %error, "BGP session not made; the machine's peers of other families are told all the same");
                    if !error.kind().is_retryable() {
                        self.refusals.remember(machine, family);
                    }
                    continue;
                }
            }
            info!(%family, "BGP session made");
            spoken.made.push(family);
            // Known by its machine and family until the list tells its id.
            let id = format!("{}/{family}", machine.id());
            self.sessions.put(Session {
                id,
                machine: machine.clone(),
                family,
                status: String::new(),
            });
        }
        Ok(spoken)
    }

    async fn peering(&self, asked: &Asked, spoken: &Spoken) -> Result<Peering, BgpError> {
        let NeighborQuery { machine, node, .. } = &asked.query;
        let made = !spoken.made.is_empty();
        // Of a session that was made just now, nobody can have told before; and what tells of other families than we ask for was told when
        // others were asked for.
        let is_good = !made && !asked.fresh && families::are_those_of(&spoken.families, &asked.seed);
        let seed = is_good.then(|| asked.seed.clone());
        let step = self
            .known
            .lock()
            .step(machine, node, seed, fastrand::f64(), now());
        let before = match step {
            Step::Answer(peering) if !made && !asked.fresh => return Ok(peering),
            Step::Answer(peering) => Some(peering),
            Step::Ask(before) => before,
        };
        let asking = self.fabric.neighbors(&asked.query).await;
        match asking.map(|told| families::only(&spoken.families, told)) {
            Ok(neighbors) if neighbors.peers.is_empty() && before.is_some() && !made && !asked.fresh => {
                // A machine with sessions has peers. That it has none suddenly is more likely a fault than the truth.
                warn!("the cloud tells no peers of a machine that had some; keeping those");
                Ok(self
                    .postponed(machine, before)
                    .unwrap_or_else(|| self.told(asked, neighbors)))
            }
            Ok(neighbors) => {
                // Peers of a new session may come after those of an old one, which are no reason to be content.
                let lacks = families::lacks(&spoken.made, &neighbors);
                let peering = self.told(asked, neighbors);
                if lacks {
                    self.known.lock().postpone(machine, AGAIN, now());
                }
                Ok(peering)
            }
            Err(error) if error.is(CloudErrorKind::NotFound) => {
                self.known.lock().forget(machine);
                Err(BgpError::MachineNotFound(machine.clone()))
            }
            Err(error) if !asked.fresh => {
                let Some(peering) = self.postponed(machine, before) else {
                    return Err(error.into());
                };
                warn!(%error, "peers could not be checked; keeping those");
                Ok(peering)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn told(&self, asked: &Asked, neighbors: Neighbors) -> Peering {
        let NeighborQuery { machine, node, .. } = &asked.query;
        self.known.lock().told(machine, node, neighbors, now())
    }

    fn postponed(&self, machine: &ProviderId, before: Option<Peering>) -> Option<Peering> {
        self.known.lock().postpone(machine, AGAIN, now());
        before
    }

    /// Every machine that was asked for, ordered by provider id. Calls nobody.
    pub(crate) fn overview(&self) -> Vec<Overview> {
        let sessions = self.sessions.cached();
        let known = self.known.lock();
        let overview = |(machine, peering): (&ProviderId, &Peering)| Overview {
            machine: machine.clone(),
            node: peering.node.clone(),
            neighbors: peering.neighbors.clone(),
            sessions: sessions
                .as_ref()
                .map(|snapshot| status(snapshot, machine))
                .unwrap_or_default(),
        };
        known.all().map(overview).collect()
    }
}

/// The machine's sessions. The list calls a machine by one form of its id, and its node may have another.
fn of<'a>(sessions: &'a Snapshot<Session>, machine: &ProviderId) -> Vec<&'a Session> {
    let found: Vec<_> = sessions.find(machine.as_str()).collect();
    if found.is_empty() {
        return sessions
            .iter()
            .filter(|session| session.machine.id() == machine.id())
            .collect();
    }
    found
}

fn has(sessions: &Snapshot<Session>, machine: &ProviderId, family: Family) -> bool {
    of(sessions, machine)
        .into_iter()
        .any(|session| session.family == family)
}

fn status(sessions: &Snapshot<Session>, machine: &ProviderId) -> BTreeMap<String, String> {
    let told = of(sessions, machine)
        .into_iter()
        .filter(|session| !session.status.is_empty());
    told.map(|session| (session.family.to_string(), session.status.clone()))
        .collect()
}

/// Now, for the domain. Of tokio, since tests stop that clock.
fn now() -> std::time::Instant {
    Instant::now().into_std()
}
