//! Elastic IPs from the cloud. The only place that makes and deletes reservations.
//!
//! Order of effects: the owner's turn, a list, the plan, and if the plan writes, a list that began after the call; then creates, then
//! deletes of duplicates. Whatever ends the call in between, the next one begins with what the cloud says.

use std::sync::Arc;
use std::time::Duration;

use groundplane_cloud::{
    CloudErrorKind, ElasticIps, Inventory, NewReservation, Reservation, ReservationState, Snapshot, keep,
};
use groundplane_core::{ClusterId, Family, Kinded as _, Owner, Prefix};
use groundplane_runtime::{Component, Context, Tasks};
use jiff::Timestamp;
use tracing::{info, instrument, warn};

use super::turns::Turns;
use crate::domain::{Ask, Choice, Held, Needs, Plan, Refusal, Wanted, covers, settle};
use crate::error::EipError;
use crate::metrics::{Effect, Metrics};

/// How old facts may be where somebody waits for others to change them. Keeps a hundred waiting Services from being a hundred lists.
const RECENT: Duration = Duration::from_secs(10);

/// An address that the owner got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    /// `None` while the cloud has not decided.
    pub(crate) prefix: Option<Prefix>,
    /// The reservation's id; empty where the user brought one that the project does not know.
    pub(crate) origin: String,
    pub(crate) pending: bool,
    pub(crate) user_provided: bool,
}

/// A family that the owner went without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    pub(crate) family: Family,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// What became of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) given: Vec<Given>,
    pub(crate) missing: Vec<Missing>,
}

struct Inner {
    cloud: Arc<dyn ElasticIps>,
    inventory: Inventory<Reservation>,
    turns: Turns,
    max_age: Duration,
    /// What tells that a reservation was made by us, for whichever cluster.
    marks: Vec<String>,
    metrics: Metrics,
}

/// Elastic IPs from the cloud. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(crate) struct CloudEips(Arc<Inner>);

impl std::fmt::Debug for CloudEips {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CloudEips")
            .field("inventory", &self.0.inventory)
            .finish_non_exhaustive()
    }
}

impl CloudEips {
    pub(crate) fn new(
        cloud: Arc<dyn ElasticIps>,
        max_age: Duration,
        metrics: Metrics,
        context: &Context,
    ) -> Self {
        let source = Arc::clone(&cloud);
        let list = move || {
            let source = Arc::clone(&source);
            async move { source.list().await }
        };
        let inventory = Inventory::new(list, Arc::clone(&context.clock), context.tasks.clone());
        let marks = marks(&*cloud);
        Self(Arc::new(Inner {
            cloud,
            inventory,
            turns: Turns::default(),
            max_age,
            marks,
            metrics,
        }))
    }

    /// Keeps the inventory warm for as long as the process runs.
    pub(crate) fn keep(&self, component: Component, tasks: &Tasks) {
        keep(&self.0.inventory, component, self.0.max_age, tasks);
    }

    /// Gives the owner what it asks for.
    #[instrument(skip_all, fields(owner = %ask.owner, cluster = %ask.owner.cluster), err(level = "info"))]
    pub(crate) async fn ensure(&self, ask: &Ask) -> Result<Answer, EipError> {
        let _turn = self.0.turns.take(&ask.owner).await;
        let plan = self.plan(ask).await?;
        let mut answer = Answer::default();
        for (wanted, choice) in ask.wanted.iter().zip(plan.choices) {
            match self.carry_out(ask, wanted, choice).await {
                Ok(given) => answer.given.push(given),
                Err(error) if wanted.optional && error.is_definite() => answer.missing.push(Missing {
                    family: wanted.family,
                    reason: error.reason(),
                    message: error.to_string(),
                }),
                Err(error) => return Err(error),
            }
        }
        for duplicate in &plan.surplus {
            // The owner has its address: what is left over must not keep it from using that. The next call tries again.
            if let Err(error) = self.delete(duplicate, Effect::Settle).await {
                warn!(reservation = duplicate.id, %error, "duplicate reservation is still there");
            }
        }
        Ok(answer)
    }

    /// Deletes every reservation that carries the owner's tags.
    #[instrument(skip_all, fields(owner = %owner, cluster = %owner.cluster), err(level = "info"))]
    pub(crate) async fn release(&self, owner: &Owner) -> Result<Vec<Given>, EipError> {
        let _turn = self.0.turns.take(owner).await;
        // Nothing but a list that began now proves what is there, and that nothing is left.
        let mine = self.mine(&*self.0.inventory.fresh().await?, owner);
        let mut released = Vec::with_capacity(mine.len());
        for reservation in mine {
            self.delete(&reservation, Effect::Delete).await?;
            released.push(Given::from(reservation));
        }
        Ok(released)
    }

    /// Every usable reservation of a cluster, ordered by id, and when that was read.
    pub(crate) async fn list(&self, cluster: &ClusterId) -> Result<(Vec<Reservation>, Timestamp), EipError> {
        let snapshot = self.0.inventory.get(self.0.max_age).await?;
        let tags = self.0.cloud.cluster_tags(cluster);
        let mut found: Vec<_> = match tags.last() {
            None => Vec::new(),
            Some(tag) => snapshot
                .find(tag)
                .filter(|item| has_all(item, &tags))
                .cloned()
                .collect(),
        };
        found.sort_by(|a, b| a.id.cmp(&b.id));
        Ok((found, snapshot.read_at))
    }

    /// Decides on facts that are as fresh as the decision needs.
    async fn plan(&self, ask: &Ask) -> Result<Plan, EipError> {
        let mut read = if ask.fresh { Needs::Fresh } else { Needs::Cached };
        loop {
            let held = {
                let snapshot = match read {
                    Needs::Cached => self.0.inventory.get(self.0.max_age).await?,
                    Needs::Recent => self.0.inventory.get(RECENT.min(self.0.max_age)).await?,
                    Needs::Fresh => self.0.inventory.fresh().await?,
                };
                self.held(&snapshot, ask)
            };
            let plan = settle(&held, &ask.wanted, |family| self.0.cloud.supports(family));
            if plan.needs() <= read {
                return Ok(plan);
            }
            read = plan.needs();
        }
    }

    fn held(&self, snapshot: &Snapshot<Reservation>, ask: &Ask) -> Held {
        let mut held = Held {
            mine: self.mine(snapshot, &ask.owner),
            ..Held::default()
        };
        for address in ask.wanted.iter().filter_map(|wanted| wanted.address) {
            if held.mine.iter().any(|reservation| covers(reservation, address)) {
                continue;
            }
            // Over all items, for brought addresses alone.
            for reservation in snapshot.iter().filter(|reservation| covers(reservation, address)) {
                if !self.0.marks.is_empty() && has_all(reservation, &self.0.marks) {
                    held.others.push(reservation.clone());
                } else {
                    held.untagged.push(reservation.clone());
                }
            }
        }
        held
    }

    fn mine(&self, snapshot: &Snapshot<Reservation>, owner: &Owner) -> Vec<Reservation> {
        let tags = self.0.cloud.tags_of(owner);
        let shared = self.0.cloud.cluster_tags(&owner.cluster);
        // By the tag that others do not have, so that the lookup does not pass the whole cluster.
        let Some(rarest) = tags.iter().find(|tag| !shared.contains(tag)) else {
            return Vec::new();
        };
        let mut mine: Vec<_> = snapshot
            .find(rarest)
            .filter(|item| item.usable && has_all(item, &tags))
            .cloned()
            .collect();
        mine.sort_by(|a, b| a.id.cmp(&b.id));
        mine
    }

    async fn carry_out(&self, ask: &Ask, wanted: &Wanted, choice: Choice) -> Result<Given, EipError> {
        match choice {
            Choice::Use(reservation) => Ok(Given::from(reservation)),
            Choice::Brought(prefix, id) => Ok(Given {
                prefix: Some(prefix),
                origin: id.unwrap_or_default(),
                pending: false,
                user_provided: true,
            }),
            Choice::Create => self.create(ask, wanted.family).await,
            Choice::Refuse(refusal) => Err(self.refused(refusal)),
        }
    }

    fn refused(&self, refusal: Refusal) -> EipError {
        match refusal {
            Refusal::Taken(address, reservation, tags) => {
                let telling: Vec<_> = tags
                    .into_iter()
                    .filter(|tag| !self.0.marks.contains(tag))
                    .collect();
                EipError::Taken {
                    address,
                    reservation,
                    holder: telling.join(", "),
                }
            }
            Refusal::AlreadyHolds(held) => EipError::AlreadyHolds { held },
            Refusal::Denied(id) => EipError::Denied(id),
            Refusal::Unsupported(family) => EipError::FamilyUnsupported(family),
        }
    }

    async fn create(&self, ask: &Ask, family: Family) -> Result<Given, EipError> {
        let wanted = NewReservation {
            family,
            tags: self.0.cloud.tags_of(&ask.owner),
            placement: ask.placement.clone(),
        };
        let created = self.0.cloud.create(&wanted).await;
        self.0.metrics.wrote(Effect::Create, created.is_ok());
        let reservation = created.map_err(|error| match error.kind {
            CloudErrorKind::Timeout | CloudErrorKind::Unavailable => EipError::Unanswered(error),
            _ => EipError::Cloud(error),
        })?;
        info!(reservation = reservation.id, prefix = ?reservation.prefix, "reservation made");
        self.0.inventory.put(reservation.clone());
        if reservation.state == ReservationState::Denied {
            return Err(EipError::Denied(reservation.id));
        }
        Ok(Given::from(reservation))
    }

    async fn delete(&self, reservation: &Reservation, effect: Effect) -> Result<(), EipError> {
        let deleted = self.0.cloud.delete(&reservation.id).await;
        self.0.metrics.wrote(effect, deleted.is_ok());
        deleted?;
        info!(reservation = reservation.id, prefix = ?reservation.prefix, ?effect, "reservation deleted");
        self.0.inventory.remove(&reservation.id);
        Ok(())
    }
}

impl From<Reservation> for Given {
    /// A reservation of ours.
    fn from(reservation: Reservation) -> Self {
        Self {
            prefix: reservation.prefix,
            origin: reservation.id,
            pending: reservation.state != ReservationState::Ready || reservation.prefix.is_none(),
            user_provided: false,
        }
    }
}

fn has_all(reservation: &Reservation, tags: &[String]) -> bool {
    tags.iter().all(|tag| reservation.tags.contains(tag))
}

/// The tags that do not depend on the cluster.
fn marks(cloud: &dyn ElasticIps) -> Vec<String> {
    let tags = |cluster: &str| {
        cluster
            .parse()
            .map(|cluster: ClusterId| cloud.cluster_tags(&cluster))
    };
    match (tags("a"), tags("b")) {
        (Ok(one), Ok(other)) => one.into_iter().filter(|tag| other.contains(tag)).collect(),
        _ => Vec::new(),
    }
}
