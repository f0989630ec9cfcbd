//! Elastic IPs from the cloud. The only place that makes and deletes reservations.
//!
//! Order of effects: the owner's turn, a list, the plan, and if the plan writes, a list that began after the call; then creates and
//! changes of tags, then deletes of duplicates. Whatever ends the call in between, the next one begins with what the cloud says.

mod audit;
mod writes;

use std::sync::Arc;
use std::time::Duration;

use groundplane_cloud::{
    ElasticIps, EndpointSelector, Former, Inventory, Reservation, ReservationState, Snapshot, keep,
};
use groundplane_core::{ClusterId, Family, Kinded as _, Owner, Prefix};
use groundplane_runtime::{Component, Context, Tasks};
use jiff::Timestamp;
use tracing::{instrument, warn};

use super::turns::Turns;
use crate::domain::{Ask, Bequest, Heir, Held, Needs, Plan, covers, has_all, is_endpoint, own_tag, settle};
use crate::error::EipError;
use crate::metrics::{Effect, Metrics};

pub(crate) use audit::Audited;

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

/// What became of what an owner held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Released {
    /// Given back to the cloud.
    pub(crate) deleted: Vec<Given>,
    /// Another's now.
    pub(crate) inherited: Vec<Given>,
}

struct Inner {
    cloud: Arc<dyn ElasticIps>,
    /// The API endpoint's reservation, which is never anybody's.
    endpoint: Option<EndpointSelector>,
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
        endpoint: Option<EndpointSelector>,
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
            endpoint,
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

    /// Gives back every reservation that carries the owner's tags, save what an heir goes on using.
    #[instrument(skip_all, fields(owner = %owner, cluster = %owner.cluster), err(level = "info"))]
    pub(crate) async fn release(&self, owner: &Owner, heirs: &[Heir]) -> Result<Released, EipError> {
        let _turn = self.0.turns.take(owner).await;
        // Nothing but a list that began now proves what is there, and that nothing is left.
        let mine = self.mine(&*self.0.inventory.fresh().await?, owner);
        let mut released = Released::default();
        for reservation in mine {
            let uses = |heir: &&Heir| {
                heir.addresses
                    .iter()
                    .any(|address| covers(&reservation, *address))
            };
            if let Some(heir) = heirs.iter().find(uses) {
                released
                    .inherited
                    .push(self.pass_on(reservation, owner, &heir.owner).await?.into());
            } else {
                self.delete(&reservation, Effect::Delete).await?;
                released.deleted.push(Given::from(reservation));
            }
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
                .filter(|item| has_all(&item.tags, &tags))
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
            former: self.former(snapshot, ask),
            ..Held::default()
        };
        for address in ask.wanted.iter().filter_map(|wanted| wanted.address) {
            if self.is_endpoint(snapshot, address) {
                held.endpoint.push(address);
            }
            if held.mine.iter().any(|reservation| covers(reservation, address)) {
                continue;
            }
            let shared = ask.sharers.iter().flat_map(|owner| self.mine(snapshot, owner));
            held.shared
                .extend(shared.filter(|reservation| covers(reservation, address)));
            // Over all items, for brought addresses alone.
            for reservation in snapshot.iter().filter(|reservation| covers(reservation, address)) {
                let ours = !self.0.marks.is_empty() && has_all(&reservation.tags, &self.0.marks);
                if ours || self.0.cloud.is_of_older_controller(&reservation.tags) {
                    held.others.push(reservation.clone());
                } else {
                    held.untagged.push(reservation.clone());
                }
            }
        }
        held
    }

    /// Is this address the API endpoint's? In a block of which the endpoint has one address, the others are anybody's.
    fn is_endpoint(&self, snapshot: &Snapshot<Reservation>, address: Prefix) -> bool {
        match &self.0.endpoint {
            None => false,
            Some(EndpointSelector::Address(endpoint)) => Prefix::host(*endpoint) == address,
            Some(EndpointSelector::Tag(_)) => {
                let mut holding = snapshot.iter().filter(|reservation| covers(reservation, address));
                holding.any(|reservation| self.holds_endpoint(reservation))
            }
        }
    }

    fn holds_endpoint(&self, reservation: &Reservation) -> bool {
        let selector = self.0.endpoint.as_ref();
        selector.is_some_and(|selector| is_endpoint(selector, reservation))
    }

    fn mine(&self, snapshot: &Snapshot<Reservation>, owner: &Owner) -> Vec<Reservation> {
        let tags = self.0.cloud.tags_of(owner);
        let shared = self.0.cloud.cluster_tags(&owner.cluster);
        // By the tag that others do not have, so that the lookup does not pass the whole cluster.
        let Some(rarest) = own_tag(&tags, &shared) else {
            return Vec::new();
        };
        let mut mine: Vec<_> = snapshot
            .find(rarest)
            // The API endpoint's is nobody's, whatever tags it has: it is neither used nor given back.
            .filter(|item| item.usable && has_all(&item.tags, &tags) && !self.holds_endpoint(item))
            .cloned()
            .collect();
        mine.sort_by(|a, b| a.id.cmp(&b.id));
        mine
    }

    /// What an older controller left for an owner of this name.
    fn former(&self, snapshot: &Snapshot<Reservation>, ask: &Ask) -> Vec<Bequest> {
        let cloud = &self.0.cloud;
        let (tags, cluster) = (cloud.tags_of(&ask.owner), &ask.owner.cluster);
        let shared = cloud.cluster_tags(cluster);
        let Some(own) = own_tag(&tags, &shared).filter(|_| cloud.retags()) else {
            return Vec::new();
        };
        let left = snapshot
            .find(own)
            .filter(|item| item.usable && !self.holds_endpoint(item));
        left.filter_map(|reservation| {
            let says = cloud.former(cluster, &reservation.tags)?;
            Some(Bequest {
                proven: says == Former::OfCluster || ask.adopt.contains(&reservation.id),
                reservation: reservation.clone(),
            })
        })
        .collect()
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
