//! Elastic IPs that carry this cluster's tags, and no Service's that there is: what a Service left behind whose finalizer was taken by
//! force, or a create that came through after its release.
//!
//! ```text
//!  cache ──audit──► an orphan? ──no──► nothing, at no cost to the cloud
//!                      │ yes
//!   API, all Services ─┴─audit──► still one? ──► Ledger: since when ──grace──► Brake ──► dry-run: event, log
//!                                                                               │ on
//!        nobody gets an address ── API, all Services ── eip reads the cloud anew and deletes ──► event, log
//! ```
//!
//! eip tells orphans from the rest: only it knows what tags stand for. Tags cannot be read backwards, so absence is proven by a complete
//! list of Services from the API server, and no Service gets an address from before that list until the deletion has ended: one that came
//! since would find a reservation of its name, and lose it. Whatever goes wrong on the way, nothing is deleted.

mod ledger;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use groundplane_core::ClusterId;
use groundplane_proto::eip::v1::{
    AuditAddressesRequest, AuditedAddress, Population, ReclaimAddressesRequest, Standing,
};
use groundplane_runtime::Context;
use groundplane_runtime::grpc::RpcError;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};
use tracing::{info, warn};

use super::brake::Brake;
use crate::clients::messages;
use crate::cluster::objects::{Key, ServiceObject, ServiceType};
use crate::cluster::{Event, ReadError};
use crate::config::ReclaimMode;
use crate::domain::service::{addresses, has_finalizer, mentioned};
use crate::gateway::Gateway;
use ledger::Ledger;

/// The time over which the brake counts.
const WINDOW: Duration = Duration::from_secs(3600);

/// So many go by one list of Services and one of reservations, and so long other Services wait for an address.
const BATCH: usize = 20;

/// Whose events tell of it: the namespace whose UID stands for the cluster.
const CLUSTER: &str = "kube-system";

/// Starts it, where addresses are a cloud's.
pub(crate) fn start(gateway: &Arc<Gateway>, context: &Context) {
    let config = &gateway.config;
    if config.controllers.service && !config.has_pools() && config.reclaim.mode != ReclaimMode::Off {
        let metrics = ReclaimMetrics::register(&context.metrics);
        context
            .tasks
            .spawn("reclaim", Reclaimer::new(gateway, metrics).run());
    }
}

/// Why nothing was decided.
#[derive(Debug, thiserror::Error)]
enum Doubt {
    #[error("the Services could not be listed: {0}")]
    Services(#[from] ReadError),
    #[error("the reservations could not be told apart: {0}")]
    Reservations(#[from] RpcError),
    #[error("another replica leads")]
    NotLeader,
    #[error("it took longer than our lease is sure to last")]
    Late,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

#[derive(Clone, Debug, Default)]
struct ReclaimMetrics {
    orphans: Gauge,
    outcomes: Family<Outcome, Counter>,
}

impl ReclaimMetrics {
    fn register(metrics: &groundplane_runtime::Metrics) -> Self {
        let new = Self::default();
        metrics.register(|registry| {
            let help = "Elastic IPs of this cluster that no Service has";
            registry.register("gateway_orphaned_addresses", help, new.orphans.clone());
            let help =
                "What became of them: reclaimed, spared by the brake, told of in a dry run, left in doubt";
            registry.register("gateway_reclaims", help, new.outcomes.clone());
        });
        new
    }

    fn count(&self, outcome: &'static str, by: usize) {
        let by = u64::try_from(by).unwrap_or_default();
        self.outcomes.get_or_create(&Outcome { outcome }).inc_by(by);
    }
}

struct Reclaimer {
    gateway: Arc<Gateway>,
    ledger: Ledger,
    brake: Brake,
    metrics: ReclaimMetrics,
}

impl Reclaimer {
    fn new(gateway: &Arc<Gateway>, metrics: ReclaimMetrics) -> Self {
        Self {
            brake: Brake::new(gateway.config.reclaim.max_fraction, WINDOW),
            gateway: Arc::clone(gateway),
            ledger: Ledger::default(),
            metrics,
        }
    }

    async fn run(mut self) {
        let gateway = Arc::clone(&self.gateway);
        let terms = async {
            loop {
                gateway.cluster.services.index.synced().await;
                gateway.cluster.leader.acquired().await;
                // What another leader saw in between, we did not.
                self.ledger.forget();
                tokio::select! {
                    () = gateway.cluster.leader.lost() => {}
                    () = self.rounds() => {}
                }
            }
        };
        tokio::select! {
            () = gateway.stopping.cancelled() => {}
            () = terms => {}
        }
    }

    async fn rounds(&mut self) {
        let mut period = interval(self.gateway.config.cloud_resync.0);
        period.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            period.tick().await;
            if let Err(doubt) = self.round().await {
                self.metrics.count("doubt", 1);
                warn!(%doubt, "nothing is reclaimed");
            }
        }
    }

    /// Looks once.
    async fn round(&mut self) -> Result<(), Doubt> {
        // The cache may lack Services, which makes more orphans and not less. An answer without any needs no proof.
        let cached = self.gateway.cluster.services.index.all();
        let found = self.audit(&cached).await?;
        if orphans(&found).next().is_none() {
            self.ledger.forget();
            self.metrics.orphans.set(0);
            return Ok(());
        }
        let listed = self.gateway.cluster.services.list().await?;
        let found = self.audit(&listed).await?;
        let ids: HashSet<String> = orphans(&found).map(|(id, _)| id.to_owned()).collect();
        self.metrics
            .orphans
            .set(i64::try_from(ids.len()).unwrap_or(i64::MAX));
        let now = Instant::now();
        let due = self.ledger.see(&ids, now, self.gateway.config.reclaim.grace.0);
        // What an older controller left may be another cluster's: none of those of which a share goes.
        let ours = found.iter().filter(|one| one.standing() != Standing::Former);
        let known = ours.filter_map(|one| Some(id(one)?.0));
        let verdict = self.brake.judge(due.iter().map(String::as_str), known, now);
        if !verdict.allowed {
            self.stopped(verdict.gone, verdict.all).await;
            return Ok(());
        }
        if self.gateway.config.reclaim.mode != ReclaimMode::On {
            self.rehearse(&found, &due).await;
            return Ok(());
        }
        for batch in due.chunks(BATCH) {
            self.reclaim(batch).await?;
        }
        Ok(())
    }

    async fn audit(&self, services: &[Arc<ServiceObject>]) -> Result<Vec<AuditedAddress>, Doubt> {
        let cluster = self.gateway.cluster.identity.known().await;
        let request = AuditAddressesRequest {
            population: Some(population(&cluster, services)),
            fresh: false,
            foreign: false,
        };
        Ok(self
            .gateway
            .services
            .eip
            .audit_addresses(request)
            .await?
            .addresses)
    }

    /// Deletes those of the batch that are nobody's by what both sides say now.
    async fn reclaim(&mut self, batch: &[String]) -> Result<(), Doubt> {
        let gateway = Arc::clone(&self.gateway);
        let cluster = gateway.cluster.identity.known().await;
        // From here on, nobody gets an address.
        let _closed = gateway.doors.close().await;
        let valid = gateway.cluster.leader.valid_until().ok_or(Doubt::NotLeader)?;
        let reclaimed = timeout_at(valid, async {
            let services = gateway.cluster.services.list().await?;
            let request = ReclaimAddressesRequest {
                population: Some(population(&cluster, &services)),
                reservations: batch.to_vec(),
                request_id: groundplane_runtime::telemetry::trace::current_trace_id().unwrap_or_default(),
            };
            // Any of them may go from now on, whatever the answer will be.
            let now = Instant::now();
            for id in batch {
                self.brake.went(id, now);
            }
            Ok::<_, Doubt>(gateway.services.eip.reclaim_addresses(request).await?.reclaimed)
        });
        let reclaimed = reclaimed.await.map_err(|_| Doubt::Late)??;
        self.metrics.count("reclaimed", reclaimed.len());
        let grace = gateway.config.reclaim.grace;
        for (id, prefix) in reclaimed.iter().filter_map(id) {
            info!(
                audit = true,
                reservation = id,
                address = prefix,
                "elastic IP given back: no Service has it"
            );
            let message = format!(
                "Gave elastic IP {prefix} (reservation {id}) back to the cloud: no Service of this cluster has had it for {grace}."
            );
            self.tell(Event::normal("ReclaimedElasticIP", message)).await;
        }
        Ok(())
    }

    /// Says what would be done.
    async fn rehearse(&mut self, found: &[AuditedAddress], due: &[String]) {
        for (id, prefix) in orphans(found) {
            if !due.iter().any(|due| due == id) || !self.ledger.tell(id) {
                continue;
            }
            self.metrics.count("dry-run", 1);
            info!(
                audit = true,
                reservation = id,
                address = prefix,
                "elastic IP without a Service; dry run: left alone"
            );
            let message = format!(
                "Elastic IP {prefix} (reservation {id}) carries this cluster's tags, and no Service has it. It is left alone, since \
                 gateway.reclaim.mode is `dry-run`; with `on`, it would go back to the cloud."
            );
            self.tell(Event::warning("OrphanedElasticIP", message)).await;
        }
    }

    async fn stopped(&self, gone: usize, all: usize) {
        self.metrics.count("brake", gone);
        let share = self.gateway.config.reclaim.max_fraction;
        warn!(
            gone,
            all, share, "too many elastic IPs look like nobody's: none is given back"
        );
        let message = format!(
            "{gone} of {all} elastic IPs of this cluster look as if no Service had them, which is more than gateway.reclaim.maxFraction \
             ({share}) lets go within an hour. None is given back."
        );
        self.tell(Event::warning("ReclaimStopped", message)).await;
    }

    async fn tell(&self, event: Event) {
        // The cluster is known by this namespace's UID, unless it was named otherwise.
        let uid = match &self.gateway.config.cluster {
            Some(_) => String::new(),
            None => self.gateway.cluster.identity.known().await.to_string(),
        };
        let key = Key::cluster_wide(CLUSTER);
        self.gateway
            .cluster
            .events
            .record_about("Namespace", &key, &uid, event);
    }
}

/// A reservation's id and address; `None`: an answer that cannot be used.
fn id(one: &AuditedAddress) -> Option<(&str, &str)> {
    let address = one.address.as_ref()?;
    (!address.origin.is_empty()).then_some((&*address.origin, &*address.prefix))
}

fn orphans(found: &[AuditedAddress]) -> impl Iterator<Item = (&str, &str)> {
    found
        .iter()
        .filter(|one| one.standing() == Standing::Orphan)
        .filter_map(id)
}

/// What the cluster has: every Service that is, or was, a load balancer, whoever serves it; every address that any Service shows or asks
/// for.
pub(crate) fn population(cluster: &ClusterId, services: &[Arc<ServiceObject>]) -> Population {
    let holds = |service: &&Arc<ServiceObject>| {
        service.kind == ServiceType::LoadBalancer || has_finalizer(service) || service.condition.is_some()
    };
    let in_use: BTreeSet<IpAddr> = services
        .iter()
        .flat_map(|service| addresses(service).chain(mentioned(service)))
        .collect();
    Population {
        cluster: cluster.to_string(),
        owners: services
            .iter()
            .filter(holds)
            .map(|service| messages::owner(cluster, &service.key))
            .collect(),
        in_use: in_use.iter().map(ToString::to_string).collect(),
    }
}
