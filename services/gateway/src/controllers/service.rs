//! Services of type `LoadBalancer`: journey 1.
//!
//! ```text
//!            plan (pure)
//!  Hold ──► finalizer ──► eip.EnsureAddress ──► announcer ──► status + condition ──► one event
//!  Release: announcer ◄── nothing holds the Service ──► eip.ReleaseAddress ──► status ──► condition + finalizer
//! ```
//!
//! Each step is skipped where its outcome is there already, and each can be repeated after a failure at any point. A
//! settled Service costs a look into the cache, no call and no write. What this process remembers ([`crate::gateway::Memory`]) only spares calls.

mod announced;
mod answer;
mod company;
mod hold;
mod limit;
mod patch;
mod refusal;
mod release;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use groundplane_core::ErrorKind;
use groundplane_runtime::grpc::RpcError;
use groundplane_runtime::{Backoff, Context};
use tracing::{debug, warn};

use crate::announcers::{self, Announcer};
use crate::cluster::objects::{Key, ServiceObject, ServiceType};
use crate::cluster::{Change, Event, Part, WriteError};
use crate::controllers::{self, Controller, after_write};
use crate::domain::service::{
    Plan, Refusal, Scope, Want, addresses, condition, has_finalizer, plan, sharing,
};
use crate::gateway::{Gateway, WAITS_FOR_ADDRESS, WAITS_FOR_SERVICE};
use crate::queue::{Outcome, Queue};

/// Pauses while a service or a cloud is away.
const OUTAGES: Backoff = Backoff {
    first: Duration::from_millis(500),
    longest: Duration::from_secs(60),
};

/// A Service without an address is told of an outage from this failure on: a blink is not worth two writes.
const TELL_OUTAGE_FROM: u32 = 3;

/// The controller.
#[derive(Debug)]
pub(crate) struct ServiceController {
    gateway: Arc<Gateway>,
    scope: Scope,
    announcer: Arc<dyn Announcer>,
}

/// Why a reconcile did not come to its end.
#[derive(Debug)]
enum Stop {
    /// A write failed.
    Write { doing: &'static str, error: WriteError },
    /// What it asks for cannot be, until something changes.
    Refused(Refusal),
    /// Somebody has to be waited for. `tell`: at once, and not after a while.
    Outage {
        refusal: Refusal,
        tell: bool,
        at_least: Duration,
    },
    /// The cache is behind: look again.
    Stale,
}

impl Stop {
    /// The address service failed.
    fn from_rpc(error: &RpcError) -> Self {
        let refusal = Refusal::from_error(error);
        match error.kind {
            ErrorKind::Invalid
            | ErrorKind::NotFound
            | ErrorKind::AlreadyExists
            | ErrorKind::Precondition
            | ErrorKind::Exhausted => Self::Refused(refusal),
            _ => Self::Outage {
                refusal,
                tell: false,
                at_least: error.retry_after.unwrap_or_default(),
            },
        }
    }
}

impl ServiceController {
    /// The controller, as the gateway is configured.
    pub(crate) fn new(gateway: Arc<Gateway>) -> Self {
        let scope = Scope::of(&gateway.config);
        let announcer = announcers::configured(&gateway.config);
        Self {
            gateway,
            scope,
            announcer,
        }
    }

    /// Patches, and says which step it was if it fails.
    async fn patch(
        &self,
        service: &ServiceObject,
        part: Part,
        doing: &'static str,
        patch: kube::api::Patch<serde_json::Value>,
    ) -> Result<Arc<ServiceObject>, Stop> {
        let patched = self
            .gateway
            .cluster
            .services
            .patch(&service.key, part, &patch)
            .await;
        patched.map_err(|error| Stop::Write { doing, error })
    }

    /// Tells the Service why it does not have what it asks for: condition and event, and only if that is new to it.
    async fn tell(&self, service: &ServiceObject, refusal: &Refusal) -> Result<(), WriteError> {
        let condition = refusal.condition(service);
        if condition.is_told(service.condition.as_ref()) {
            return Ok(());
        }
        let patch = patch::status(service, None, &condition, self.gateway.clock.now());
        self.gateway
            .cluster
            .services
            .patch(&service.key, Part::Status, &patch)
            .await?;
        let message = format!("Error syncing load balancer: {}", condition.message);
        self.gateway
            .cluster
            .events
            .record(service, Event::warning("SyncLoadBalancerFailed", message));
        Ok(())
    }

    /// How it ends that did not come to its end.
    async fn stopped(&self, key: &Key, stop: Stop) -> Outcome {
        // As it is now: an earlier step may have written to it.
        let service = self.gateway.cluster.services.get(key);
        match stop {
            Stop::Stale => Outcome::Conflict,
            Stop::Write { doing, error } => self.write_failed(service.as_deref(), doing, &error),
            Stop::Refused(refusal) => {
                debug!(%refusal, "refused");
                let told = match &service {
                    Some(service) => self.tell(service, &refusal).await,
                    None => Ok(()),
                };
                match told {
                    Ok(()) if refusal.reason == condition::PENDING => Outcome::After(Duration::from_secs(30)),
                    Ok(()) => Outcome::Parked(self.waits_for(key, &refusal)),
                    Err(error) => self.write_failed(service.as_deref(), "condition", &error),
                }
            }
            Stop::Outage {
                refusal,
                tell,
                at_least,
            } => {
                let outages = self.gateway.held.outage(key);
                // One line a Service, and none for what the adoption has said for all of them.
                if outages == TELL_OUTAGE_FROM && !tell {
                    warn!(%refusal, outages, "waiting for a service");
                } else {
                    debug!(%refusal, outages, "waiting for a service");
                }
                if let Some(service) =
                    service.filter(|service| service.ingress.is_empty() && !service.deleting)
                    && (tell || outages >= TELL_OUTAGE_FROM)
                    && let Err(error) = self.tell(&service, &refusal).await
                {
                    debug!(%error, "the condition was not written");
                }
                if tell {
                    return Outcome::Parked(WAITS_FOR_ADDRESS);
                }
                Outcome::After(OUTAGES.pause(outages.saturating_sub(1)).max(at_least))
            }
        }
    }

    /// What would help a Service that was refused.
    fn waits_for(&self, key: &Key, refusal: &Refusal) -> &'static str {
        // Refused, it takes nobody's place.
        self.gateway.prefixes.leave(key);
        match &*refusal.reason {
            sharing::IN_USE | sharing::PORT_IN_USE | sharing::LOCAL_TRAFFIC | limit::PREFIX_LIMIT => {
                WAITS_FOR_SERVICE
            }
            _ => WAITS_FOR_ADDRESS,
        }
    }

    /// How it ends whose write failed. An object that is gone needs nothing any more.
    fn write_failed(&self, service: Option<&ServiceObject>, doing: &str, error: &WriteError) -> Outcome {
        if matches!(error, WriteError::Gone(_) | WriteError::NotLeader) {
            debug!(%error, doing, "not written");
            return Outcome::Done;
        }
        warn!(%error, cause = std::error::Error::source(error).map(tracing::field::display), doing, "not written");
        let api_is_away = matches!(error, WriteError::Timeout | WriteError::Unavailable(_));
        if let Some(service) = service.filter(|_| !api_is_away) {
            let message =
                format!("Error syncing load balancer: failed to update load balancer {doing}: {error}");
            self.gateway
                .cluster
                .events
                .record(service, Event::warning("SyncLoadBalancerFailed", message));
        }
        after_write(error)
    }

    /// Is nothing left to do for this Service, by what the cache holds?
    fn is_settled(&self, service: &ServiceObject) -> bool {
        match plan(service, &self.scope) {
            Plan::Ignore => true,
            Plan::Release { .. } => false,
            Plan::Refuse(refusal) => refusal.condition(service).is_told(service.condition.as_ref()),
            Plan::Hold(wish) => {
                let held: Vec<_> = addresses(service).collect();
                let ready = service
                    .condition
                    .as_ref()
                    .is_some_and(|condition| &*condition.status == "True");
                let served = |want: &Want| {
                    let address = held
                        .iter()
                        .find(|address| groundplane_core::Family::of(**address) == want.family);
                    want.optional
                        || address.is_some_and(|address| want.address.is_none_or(|wanted| wanted == *address))
                };
                ready
                    && has_finalizer(service)
                    && self.is_placed(service, &held)
                    && wish.wants.iter().all(served)
                    && announcers::apply(&*self.announcer, service, &held)
                        .is_ok_and(|changes| changes.is_empty())
            }
        }
    }
}

/// Starts it.
pub(crate) fn start(gateway: &Arc<Gateway>, context: &Context) {
    if gateway.config.controllers.service {
        controllers::run(
            ServiceController::new(Arc::clone(gateway)),
            gateway,
            &context.tasks,
        );
    }
}

/// A Service has changed.
pub(crate) fn changed(gateway: &Gateway, change: &Change<ServiceObject>) {
    // Most Services of most clusters are none of ours, and never were.
    let concerns = |service: &Arc<ServiceObject>| {
        service.kind == ServiceType::LoadBalancer || has_finalizer(service) || service.condition.is_some()
    };
    if change.before.as_ref().is_some_and(concerns) || change.after.as_ref().is_some_and(concerns) {
        gateway.queues.services.wake(change.key.clone());
    }
}

impl Controller for ServiceController {
    const KIND: &'static str = "Service";

    fn queue(&self) -> &Queue {
        &self.gateway.queues.services
    }

    async fn reconcile(&self, key: &Key) -> Outcome {
        let Some(service) = self.gateway.cluster.services.get(key) else {
            return self.vanished(key).await;
        };
        let done = match plan(&service, &self.scope) {
            Plan::Ignore => match self.set_finalizer(&service).await {
                Ok(true) => self.release(service, true).await,
                Ok(false) => return self.left_alone(&service).await,
                Err(stop) => Err(stop),
            },
            Plan::Refuse(refusal) => Err(Stop::Refused(refusal)),
            Plan::Hold(wish) => self.hold(service, &wish).await,
            Plan::Release { finalizer } => self.release(service, finalizer).await,
        };
        match done {
            Ok(outcome) => outcome,
            Err(stop) => self.stopped(key, stop).await,
        }
    }

    fn due(&self) -> Vec<Key> {
        self.gateway
            .cluster
            .services
            .index
            .keys(|service| !self.is_settled(service))
    }

    fn all(&self) -> Vec<Key> {
        self.gateway.held.reconsider_all();
        self.gateway
            .cluster
            .services
            .index
            .keys(|service| plan(service, &self.scope) != Plan::Ignore)
    }
}
