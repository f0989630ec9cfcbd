//! A Service that is not ours any more: everything back, the finalizer last.

use std::sync::Arc;

use groundplane_core::names;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use tokio::time::timeout;
use tracing::{debug, info};

use super::hold::unanswered;
use super::{ServiceController, Stop, patch};
use crate::announcers;
use crate::cluster::objects::{Key, ServiceObject, ServiceType};
use crate::cluster::{Event, Part};
use crate::domain::service::{Plan, condition, has_finalizer, plan};
use crate::failpoint::{Point, pass};
use crate::gateway::WAITS_FOR_ANNOUNCER;
use crate::queue::Outcome;

impl ServiceController {
    /// Takes everything back. `finalizer`: the one that it carries is ours.
    pub(super) async fn release(
        &self,
        service: Arc<ServiceObject>,
        finalizer: bool,
    ) -> Result<Outcome, Stop> {
        let mut service = service;
        let held = finalizer || condition::is_ours(&service);
        let changes = announcers::remove(&service);
        // Where the whole object goes, its fields go with it.
        if !service.deleting && !changes.is_empty() {
            let patch = patch::announce(&service, &changes);
            service = self.patch(&service, Part::Main, "announcement", patch).await?;
            self.still_over(&service)?;
        }
        if held && !self.withdrawn(&service) {
            // Who has the address next must not share it with this one.
            return Ok(Outcome::Parked(WAITS_FOR_ANNOUNCER));
        }
        pass(Point::ReleaseAfterAnnounce);
        if held {
            service = self.unasked(service).await?;
            self.still_over(&service)?;
            self.give_back(&service.key, &service.uid).await?;
            self.gateway.held.forget(&service.key);
        }
        pass(Point::ReleaseAfterRelease);
        let emptied = held && !self.by_backend() && !condition::is_foreign(&service);
        if emptied && !service.deleting && !service.ingress.is_empty() {
            service = self
                .patch(&service, Part::Status, "status", patch::empty_status(&service))
                .await?;
        }
        pass(Point::ReleaseAfterStatus);
        let finalizer = finalizer && has_finalizer(&service);
        if finalizer || service.condition.is_some() {
            let patch = patch::farewell(&service, finalizer);
            self.patch(&service, Part::Status, "finalizer", patch).await?;
        }
        if held {
            info!("the Service is released");
            let event = Event::normal("DeletedLoadBalancer", "Deleted load balancer");
            self.gateway.cluster.events.record(&*service, event);
        }
        Ok(Outcome::Done)
    }

    /// The answer to a write says what the Service is now. One that is ours again is looked at anew: it keeps what it has.
    fn still_over(&self, service: &ServiceObject) -> Result<(), Stop> {
        match plan(service, &self.scope) {
            // Where there is nothing to do, our last trace was what that write took away.
            Plan::Release { .. } | Plan::Ignore => Ok(()),
            Plan::Hold(_) | Plan::Refuse(_) => Err(Stop::Stale),
        }
    }

    /// A Service that the cache does not have. If we remember that it holds addresses, its finalizer was removed by force:
    /// gives them back, once the API server says that it is gone.
    pub(super) async fn vanished(&self, key: &Key) -> Outcome {
        let Some(known) = self
            .gateway
            .held
            .get(key)
            .filter(|known| known.verified.is_some())
        else {
            self.gateway.held.forget(key);
            self.gateway.prefixes.leave(key);
            return Outcome::Done;
        };
        let gone = async {
            let live = self.live_uid(key).await?;
            // To a cloud, a Service of the same name is the same owner: the cache is about to show it.
            let successor = live.is_some() && !self.scope.pin;
            if successor || live.as_deref() == Some(&*known.uid) {
                return Err(Stop::Stale);
            }
            self.give_back(key, &known.uid).await
        };
        match gone.await {
            Ok(()) => {
                self.gateway.held.forget(key);
                // Nobody withdrew it.
                self.gateway.backend.wake();
                Outcome::Done
            }
            Err(stop) => self.stopped(key, stop).await,
        }
    }

    /// Did we set the finalizer of a Service that is none of our business, as far as it says itself? So it is where only a class is ours, and a
    /// Service lost its type, and its class with it, before anything but the finalizer was on it. The API server knows who set what; it is
    /// asked only where nobody should need the finalizer any more.
    pub(super) async fn set_finalizer(&self, service: &ServiceObject) -> Result<bool, Stop> {
        let needed = service.kind == ServiceType::LoadBalancer && !service.deleting;
        if needed || !has_finalizer(service) {
            return Ok(false);
        }
        let api: Api<Service> = Api::namespaced(self.gateway.cluster.client.clone(), &service.key.namespace);
        let patience = self.gateway.config.write_timeout.0;
        let Ok(Ok(live)) = timeout(patience, api.get_metadata_opt(&service.key.name)).await else {
            return Err(unanswered());
        };
        Ok(live.is_some_and(|live| {
            live.metadata.uid.as_deref() == Some(&*service.uid) && has_set_finalizer(&live.metadata)
        }))
    }

    /// A Service that is none of our business. If we remember that it holds addresses, somebody took our traces off it.
    pub(super) async fn left_alone(&self, service: &ServiceObject) -> Outcome {
        let known = self.gateway.held.get(&service.key);
        if let Some(known) = known.filter(|known| known.verified.is_some()) {
            if !self.withdrawn(service) {
                return Outcome::Parked(WAITS_FOR_ANNOUNCER);
            }
            debug!("the Service lost our traces; what it holds goes back");
            if let Err(stop) = self.give_back(&service.key, &known.uid).await {
                return self.stopped(&service.key, stop).await;
            }
        }
        self.gateway.held.forget(&service.key);
        self.gateway.prefixes.leave(&service.key);
        Outcome::Done
    }
}

/// Is it our write by which the object has its finalizer?
fn has_set_finalizer(metadata: &ObjectMeta) -> bool {
    let value = format!("v:\"{}\"", names::SERVICE_FINALIZER);
    let entries = metadata.managed_fields.iter().flatten();
    entries
        .filter(|entry| entry.manager.as_deref() == Some(names::FIELD_MANAGER))
        .filter_map(|entry| entry.fields_v1.as_ref())
        .any(|fields| !fields.0["f:metadata"]["f:finalizers"][&value].is_null())
}
