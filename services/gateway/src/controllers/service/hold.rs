//! A Service of ours: from the finalizer to the event.

use std::sync::Arc;
use std::time::Duration;

use groundplane_core::ErrorKind;
use groundplane_proto::eip::v1::{EnsureAddressResponse, ReleaseAddressRequest};
use groundplane_runtime::grpc::RpcError;
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};

use super::answer::desired;
use super::{ServiceController, Stop, company, patch};
use crate::announcers::{self, StatusWriter};
use crate::clients::messages;
use crate::cluster::objects::{Key, ServiceObject};
use crate::cluster::{Event, Part};
use crate::domain::service::{Desired, Refusal, Wish, condition, has_finalizer, status_says};
use crate::failpoint::{Point, pass};
use crate::gateway::{Known, Standing, WAITS_FOR_ANNOUNCER, WAITS_FOR_SERVICE};
use crate::queue::Outcome;

/// Adoption is waited for this long at a time; it takes milliseconds where ipam is there.
const ADOPTION_PATIENCE: Duration = Duration::from_secs(10);

/// Tries of one call that lost a race, or that had to make room first.
const TRIES: usize = 3;

impl ServiceController {
    /// Sees to it that the Service holds what it wants, and that everybody knows.
    pub(super) async fn hold(&self, service: Arc<ServiceObject>, wish: &Wish) -> Result<Outcome, Stop> {
        // What others gave it is taken over before anything is written: where that fails, nothing is.
        let mut service = if wish.foreign {
            service
        } else {
            self.finalized(service).await?
        };
        // Only here are there gaps to die in: what is settled passes without a step.
        let unsettled = !condition::is_ours(&service);
        let desired = self.addressed(&service, wish).await?;
        if unsettled {
            pass(Point::AfterEnsure);
        }
        service = self.finalized(service).await?;
        if !self.placed(&service, &desired)? {
            return Ok(Outcome::Parked(WAITS_FOR_ANNOUNCER));
        }
        service = self.announced(service, &desired).await?;
        if unsettled {
            pass(Point::AfterAnnounce);
        }
        self.told(&service, wish, &desired).await?;
        Ok(Outcome::Done)
    }

    /// The finalizer: whatever happens from here on, the Service does not go without us.
    async fn finalized(&self, service: Arc<ServiceObject>) -> Result<Arc<ServiceObject>, Stop> {
        if has_finalizer(&service) {
            return Ok(service);
        }
        let service = self
            .patch(&service, Part::Main, "finalizer", patch::finalizer(&service))
            .await?;
        pass(Point::AfterFinalizer);
        Ok(service)
    }

    /// The addresses: from memory, if they were asked for the same wish a short while ago.
    async fn addressed(&self, service: &ServiceObject, wish: &Wish) -> Result<Desired, Stop> {
        let known = self.gateway.held.get(&service.key);
        let fresh_for = self.gateway.config.cloud_resync.0 * 2;
        // As it was before the call: an answer that comes in another term counts for this one.
        let term = self.gateway.cluster.leader.term();
        let held = known
            .as_ref()
            .and_then(|known| known.holds(&service.uid, wish.fingerprint, term, fresh_for));
        // What somebody else gave it has to be taken over first, whatever it held before.
        let held = held.filter(|_| !wish.foreign);
        if let Some(desired) = held {
            return Ok(desired.clone());
        }
        // A cloud's tags tell owners by their names alone: there, what it held is this one's now.
        let before = known.filter(|known| known.uid != service.uid && known.verified.is_some());
        if let Some(before) = before.filter(|_| self.scope.pin) {
            // The Service of this name that we knew is gone, and its finalizer did not hold it.
            self.give_back(&service.key, &before.uid).await?;
            self.gateway.held.forget(&service.key);
        }
        // From this look at who has the addresses that it names until it has them, nobody else looks.
        let names: Vec<_> = company::named(wish).filter(|_| !self.scope.pin).collect();
        let _alone = self.gateway.rooms.enter(&names).await;
        let sharers = self.company(service, wish)?;
        self.within_limit(service, wish).await?;
        let answer = self.ensure(service, wish, &sharers).await?;
        let desired = desired(service, wish, &answer).map_err(Stop::Refused)?;
        let mut known = Known::new(&service.uid);
        known.fingerprint = wish.fingerprint;
        known.term = term;
        known.verified = Some((desired.clone(), Instant::now()));
        self.gateway.held.put(&service.key, known);
        Ok(desired)
    }

    /// Asks the address service.
    async fn ensure(
        &self,
        service: &ServiceObject,
        wish: &Wish,
        sharers: &[Key],
    ) -> Result<EnsureAddressResponse, Stop> {
        self.adopted().await?;
        let cluster = self.gateway.cluster.identity.known().await;
        let _open = self.gateway.doors.pass().await;
        for left in (0..TRIES).rev() {
            let mut request = messages::ensure(&cluster, service, wish);
            request.sharers = sharers.iter().map(|key| messages::owner(&cluster, key)).collect();
            let answer = self.while_leading(self.gateway.services.eip.ensure_address(request));
            let error = match answer.await? {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            match &*error.reason {
                "UID_MISMATCH" if left > 0 => self.make_room(service, &error).await?,
                "ADOPTING" => {
                    self.gateway.adoption.want();
                    return Err(Stop::from_rpc(&error));
                }
                _ if error.kind == ErrorKind::Conflict && left > 0 => {}
                _ => return Err(Stop::from_rpc(&error)),
            }
        }
        Err(Stop::Stale)
    }

    /// Where addresses come from pools, ipam must first know what is held, in the store that the cluster trusts.
    async fn adopted(&self) -> Result<(), Stop> {
        if !self.scope.pin {
            return Ok(());
        }
        let standing = self.gateway.adoption.settled(ADOPTION_PATIENCE).await;
        if let Some(message) = standing.refusal() {
            return Err(Stop::Outage {
                refusal: Refusal::new("UnknownStore", message),
                tell: true,
                at_least: Duration::ZERO,
            });
        }
        if matches!(standing, Standing::Adopted { .. }) {
            return Ok(());
        }
        Err(Stop::Outage {
            refusal: Refusal::new(
                "Adopting",
                "ipam has not been told yet what this cluster holds. It is tried again as soon as it has.",
            ),
            tell: false,
            at_least: Duration::ZERO,
        })
    }

    /// Another Service of this name holds addresses, by the word of the address service. Gives them back once it is proven that the
    /// name is ours now: by a read of the API server, since the cache may be behind.
    async fn make_room(&self, service: &ServiceObject, error: &RpcError) -> Result<(), Stop> {
        if self.live_uid(&service.key).await?.as_deref() != Some(&*service.uid) {
            return Err(Stop::Stale);
        }
        let uid = error.metadata.get("holder_uid").map_or("", String::as_str);
        info!(
            uid,
            "the Service that had this name is gone; its addresses go back"
        );
        self.give_back(&service.key, uid).await
    }

    /// The UID of the Service with this name, by a read of the API server; `None`: there is none.
    pub(super) async fn live_uid(&self, key: &Key) -> Result<Option<Box<str>>, Stop> {
        Ok(self.live(key).await?.map(|service| service.uid.clone()))
    }

    /// The Service with this name, by a read of the API server; `None`: there is none.
    pub(super) async fn live(&self, key: &Key) -> Result<Option<Arc<ServiceObject>>, Stop> {
        let live = self.gateway.cluster.services.read(key).await;
        live.map_err(|error| {
            warn!(%error, "the Service could not be read");
            unanswered()
        })
    }

    /// Gives back what the Service of this name and UID holds; of any UID, if that is empty.
    pub(super) async fn give_back(&self, key: &Key, uid: &str) -> Result<(), Stop> {
        // A store that is not the one which the cluster trusts would say that there is nothing to give back.
        self.adopted().await?;
        let cluster = self.gateway.cluster.identity.known().await;
        let left = if self.scope.pin {
            Vec::new()
        } else {
            self.leaves(key).await?
        };
        let _alone = self.gateway.rooms.enter(&left).await;
        let request = ReleaseAddressRequest {
            owner: Some(messages::owner(&cluster, key)),
            owner_uid: uid.to_owned(),
            network: String::new(),
            request_id: groundplane_runtime::telemetry::trace::current_trace_id().unwrap_or_default(),
            heirs: self.heirs(key, &left).await?,
        };
        let answer = self
            .while_leading(self.gateway.services.eip.release_address(request))
            .await?;
        let released = answer.map_err(|error| {
            if error.reason == "ADOPTING" {
                self.gateway.adoption.want();
            }
            let (refusal, at_least) = (Refusal::from_error(&error), error.retry_after.unwrap_or_default());
            // Whatever it says, it is tried until it succeeds: nothing else frees the address.
            Stop::Outage {
                refusal,
                tell: false,
                at_least,
            }
        })?;
        if !released.released.is_empty() {
            let prefixes: Vec<&str> = released.released.iter().map(|address| &*address.prefix).collect();
            info!(addresses = prefixes.join(", "), "given back");
        }
        self.gateway.prefixes.leave(key);
        self.gateway.queues.services.unpark(WAITS_FOR_SERVICE);
        Ok(())
    }

    /// Makes a call that changes who holds what, if we lead, and gives it no more time than that is sure for: a cloud's tags do not
    /// tell this Service from the next of its name, which another leader may be serving.
    async fn while_leading<T>(&self, call: impl Future<Output = T>) -> Result<T, Stop> {
        let valid = self.gateway.cluster.leader.valid_until().ok_or(Stop::Stale)?;
        timeout_at(valid, call).await.map_err(|_| Stop::Stale)
    }

    /// The announcer knows.
    async fn announced(
        &self,
        service: Arc<ServiceObject>,
        desired: &Desired,
    ) -> Result<Arc<ServiceObject>, Stop> {
        let changes =
            announcers::apply(&*self.announcer, &service, &desired.addresses).map_err(|contradiction| {
                let message = format!("{contradiction}. Remove it, or ask for that address by it.");
                Stop::Refused(Refusal::new("AnnouncerConflict", message))
            })?;
        if changes.is_empty() {
            return Ok(service);
        }
        self.patch(
            &service,
            Part::Main,
            "announcement",
            patch::announce(&service, &changes),
        )
        .await
    }

    /// The status says it, and one event.
    async fn told(&self, service: &ServiceObject, wish: &Wish, desired: &Desired) -> Result<(), Stop> {
        let Desired {
            addresses, condition, ..
        } = desired;
        let backend = self.announcer.status_writer() == StatusWriter::Backend;
        // How the backend writes an address is its own affair.
        let adopted = backend || wish.foreign || condition::is_adopted(service);
        let says = status_says(service, addresses, adopted);
        let waits = (backend && !says).then(|| {
            let complaint = self.gateway.backend.complaint();
            condition::announcing(service, addresses, self.announcer.name(), complaint)
        });
        let condition = waits.as_ref().unwrap_or(condition);
        if (says || backend) && condition.is_told(service.condition.as_ref()) {
            return Ok(());
        }
        let ingress = (!says && !backend).then_some(&**addresses);
        let patch = patch::status(service, ingress, condition, self.gateway.clock.now());
        let service = self.patch(service, Part::Status, "status", patch).await?;
        pass(Point::AfterStatus);
        if !condition.ready {
            return Ok(());
        }
        let list = condition::list(addresses);
        info!(addresses = list, "the Service has its addresses");
        let events = &self.gateway.cluster.events;
        events.record(
            &*service,
            Event::normal(
                "EnsuredLoadBalancer",
                format!("Ensured load balancer with {list}"),
            ),
        );
        let nodes = &self.gateway.cluster.nodes.index;
        if nodes.is_synced() && nodes.len() == 0 {
            let message =
                format!("There are no available nodes for LoadBalancer; {list} is held all the same");
            events.record(&*service, Event::warning("UnAvailableLoadBalancer", message));
        }
        Ok(())
    }
}

/// The API server does not answer a read.
pub(super) fn unanswered() -> Stop {
    Stop::Outage {
        refusal: Refusal::new(
            "Unavailable",
            "The API server does not answer. It is tried again.",
        ),
        tell: false,
        at_least: Duration::ZERO,
    }
}
