//! Older controllers that still run in the cluster: while one does, two would write to the same objects and the same cloud.
//!
//! ```text
//! look (a Lease, workloads, and ──► Judge (pure) ──► Verdict ──► may the lease be taken? readiness, log, event, metric
//!       who wrote what we follow)
//! ```
//!
//! Until the first verdict, nobody leads. One that cannot be read, since the API server is away, stays as it was last seen; one that we
//! may not read counts as none, with a word in the log: older roles do not let us.

mod judge;
mod writes;

use std::sync::Arc;
use std::time::Duration;

use groundplane_core::older::{LEASE, NAMESPACE, Workload, WorkloadKind};
use groundplane_core::{Clock, DriverName, names};
use groundplane_runtime::{Context, Tasks};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event as KubeEvent, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use kube::api::PostParams;
use kube::{Api, Client};
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info, warn};

use super::Index;
use super::objects::{NodeObject, ServiceObject, Slim, Written, written_by};
use judge::{Judge, Renewal, Seen, Sight};
pub(crate) use judge::{Rival, Verdict};
use writes::Write;

/// A lease that does not say how long it lasts: as theirs do by default.
const DURATION: i32 = 15;

/// A call takes no longer.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often to look while there is something to wait for: as often as their lease is renewed.
const ALERT: Duration = Duration::from_secs(2);

/// How often to look while nothing is there.
const CALM: Duration = Duration::from_secs(10);

/// What is known of them. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Rivals {
    verdict: watch::Receiver<Verdict>,
    allowed: watch::Receiver<bool>,
    refuse: bool,
}

impl Rivals {
    /// Nobody is looked for: there was no older controller.
    pub(crate) fn none() -> Self {
        Self {
            verdict: watch::Sender::new(Verdict::Clear).subscribe(),
            allowed: watch::Sender::new(true).subscribe(),
            refuse: false,
        }
    }

    /// Looks for those of the driver's cloud until the process stops. `refuse`: nobody leads while one is there.
    pub(crate) fn watch(
        client: Client,
        driver: DriverName,
        refuse: bool,
        tracks: Tracks,
        context: &Context,
    ) -> Self {
        let (verdict, follow) = watch::channel(Verdict::Undecided);
        let (allow, allowed) = watch::channel(!refuse);
        let gauge = Gauge::<i64>::default();
        context.metrics.register(|registry| {
            let help = "Older controllers that run beside this one";
            registry.register("gateway_rivals", help, gauge.clone());
        });
        let watcher = Watcher {
            client,
            clock: Arc::clone(&context.clock),
            judge: Judge::new(driver),
            tracks,
            refuse,
            verdict,
            allow,
            gauge,
            told: false,
        };
        let tasks: &Tasks = &context.tasks;
        let stopping = tasks.token();
        tasks.spawn("rivals", async move {
            tokio::select! {
                () = stopping.cancelled() => {}
                () = watcher.run() => {}
            }
        });
        Self {
            verdict: follow,
            allowed,
            refuse,
        }
    }

    /// May the lease be taken and kept?
    pub(crate) fn allowed(&self) -> watch::Receiver<bool> {
        self.allowed.clone()
    }

    /// What is known of them now.
    pub(crate) fn verdict(&self) -> Verdict {
        self.verdict.borrow().clone()
    }

    /// Tells whenever that changes.
    pub(crate) fn changes(&self) -> watch::Receiver<Verdict> {
        self.verdict.clone()
    }

    /// Who is proven to run, and how each is stopped; `None`: nobody is.
    pub(crate) fn proven(&self) -> Option<String> {
        match &*self.verdict.borrow() {
            Verdict::Rivals(rivals) => Some(describe(rivals)),
            Verdict::Clear | Verdict::Undecided => None,
        }
    }

    /// Does nobody lead while one is there?
    pub(crate) fn refuses(&self) -> bool {
        self.refuse
    }

    /// Why nobody may lead, and what helps; `None`: somebody may.
    pub(crate) fn bar(&self) -> Option<String> {
        if !self.refuse {
            return None;
        }
        match &*self.verdict.borrow() {
            Verdict::Clear => None,
            Verdict::Undecided => {
                Some("it is not known yet whether an older controller still runs in this cluster".to_owned())
            }
            Verdict::Rivals(rivals) => Some(describe(rivals)),
        }
    }
}

/// Where an older controller leaves tracks when it writes.
#[derive(Debug)]
pub(crate) struct Tracks {
    pub(crate) nodes: Index<NodeObject>,
    pub(crate) services: Index<ServiceObject>,
    /// Namespace and name of `MetalLB`'s `ConfigMap`, where that is ours to write.
    pub(crate) config_map: Option<(String, String)>,
}

impl Tracks {
    /// Nothing is followed that they write.
    pub(crate) fn nowhere() -> Self {
        Self {
            nodes: Index::new(1),
            services: Index::new(1),
            config_map: None,
        }
    }

    /// Last writes to what is followed; `None`: it was not listed yet.
    fn followed(&self) -> Option<Vec<Write>> {
        if !self.nodes.is_synced() || !self.services.is_synced() {
            return None;
        }
        let mut found = Vec::new();
        for node in self.nodes.all() {
            collect(&mut found, &*node);
        }
        for service in self.services.all() {
            collect(&mut found, &*service);
        }
        Some(found)
    }
}

fn collect<T: Slim>(found: &mut Vec<Write>, object: &T) {
    let write = |written: &Written| Write {
        object: format!("{} {}", T::KIND, object.key()),
        uid: object.uid().into(),
        manager: written.manager,
        at: written.at,
    };
    found.extend(object.written().iter().map(write));
}

/// Who they are, and how each is stopped.
fn describe(rivals: &[Rival]) -> String {
    let each = rivals.iter().map(|rival| {
        let Rival { what, found, stop } = rival;
        format!("{what} is at work ({found}); stop it: {stop}")
    });
    each.collect::<Vec<_>>().join("; ")
}

struct Watcher {
    client: Client,
    clock: Arc<dyn Clock>,
    judge: Judge,
    tracks: Tracks,
    refuse: bool,
    verdict: watch::Sender<Verdict>,
    allow: watch::Sender<bool>,
    gauge: Gauge<i64>,
    /// Was it said that something may not be read?
    told: bool,
}

impl Watcher {
    async fn run(mut self) {
        loop {
            let sight = self.look().await;
            let verdict = self.judge.see(sight, Instant::now(), self.clock.now());
            let calm = verdict == Verdict::Clear;
            self.publish(verdict).await;
            sleep(if calm { CALM } else { ALERT }).await;
        }
    }

    async fn publish(&self, verdict: Verdict) {
        let before = self.verdict.send_replace(verdict.clone());
        // Before anything is told: whoever reads that one is there shall find that nobody leads.
        let allowed = !self.refuse || verdict == Verdict::Clear;
        self.allow.send_if_modified(|before| {
            let changed = *before != allowed;
            *before = allowed;
            changed
        });
        if before == verdict {
            return;
        }
        match &verdict {
            Verdict::Rivals(rivals) => {
                self.gauge.set(i64::try_from(rivals.len()).unwrap_or(i64::MAX));
                let new = !matches!(before, Verdict::Rivals(_));
                let (rivals, refused) = (describe(rivals), self.refuse);
                warn!(
                    rivals,
                    refused, "an older controller runs beside this one; two must not write at the same time"
                );
                if new {
                    self.event(rivals).await;
                }
            }
            Verdict::Clear => {
                self.gauge.set(0);
                if matches!(before, Verdict::Rivals(_)) {
                    info!("no older controller runs any more");
                }
            }
            Verdict::Undecided => {}
        }
    }

    async fn look(&mut self) -> Sight {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), NAMESPACE);
        let lease = read("leases", leases.get_opt(LEASE)).await;
        let mut forbidden = matches!(lease, Err(Unread::Forbidden));
        let lease = match lease {
            Ok(lease) => lease.and_then(renewal_of).map_or(Seen::Free, Seen::Held),
            // What may not be read counts as nothing there; of what could not, nothing is known.
            Err(Unread::Forbidden) => Seen::Free,
            Err(Unread::Failed) => Seen::Unread,
        };
        let mut workloads = Vec::new();
        for workload in self.judge.workloads() {
            let pods = self.pods(workload).await;
            forbidden |= pods == Err(Unread::Forbidden);
            let pods = match pods {
                Ok(pods) => Some(pods.unwrap_or_default()),
                Err(Unread::Forbidden) => Some(0),
                Err(Unread::Failed) => None,
            };
            workloads.push((workload, pods));
        }
        if forbidden && !self.told {
            self.told = true;
            warn!(
                namespace = NAMESPACE,
                "older controllers cannot be looked for: the gateway's account may not get leases, daemonsets or deployments there. \
                 Give it the chart's role"
            );
        }
        Sight {
            lease,
            workloads,
            writes: self.writes().await,
        }
    }

    /// Last writes of those that are looked for; `None`: not all could be read.
    async fn writes(&self) -> Option<Vec<Write>> {
        let mut found = self.tracks.followed()?;
        if let Some((namespace, name)) = &self.tracks.config_map {
            let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
            match read("configmaps", api.get_metadata_opt(name)).await {
                Ok(None) | Err(Unread::Forbidden) => {}
                Ok(Some(object)) => {
                    let entries = object.metadata.managed_fields.unwrap_or_default();
                    let uid = object.metadata.uid.unwrap_or_default();
                    found.extend(written_by(&entries).iter().map(|written| Write {
                        object: format!("ConfigMap {namespace}/{name}"),
                        uid: uid.as_str().into(),
                        manager: written.manager,
                        at: written.at,
                    }));
                }
                Err(Unread::Failed) => return None,
            }
        }
        let managers: Vec<&str> = self
            .judge
            .suspects()
            .flat_map(|one| one.field_managers.iter().copied())
            .collect();
        found.retain(|write| managers.contains(&write.manager));
        Some(found)
    }

    /// How many pods of it are at work.
    async fn pods(&self, workload: Workload) -> Result<Option<i32>, Unread> {
        let (client, name) = (self.client.clone(), workload.name);
        if workload.kind == WorkloadKind::DaemonSet {
            let api: Api<DaemonSet> = Api::namespaced(client, NAMESPACE);
            let found = read("daemonsets", api.get_opt(name)).await?;
            let status = found.and_then(|found| found.status);
            return Ok(status.map(|status| status.number_ready.max(status.number_available.unwrap_or(0))));
        }
        let api: Api<Deployment> = Api::namespaced(client, NAMESPACE);
        let found = read("deployments", api.get_opt(name)).await?;
        let status = found.and_then(|found| found.status);
        Ok(status.map(|status| {
            let ready = status.ready_replicas.unwrap_or(0);
            ready.max(status.available_replicas.unwrap_or(0))
        }))
    }

    /// Tells of it where people look. Not by the leader's way: there is none.
    async fn event(&self, rivals: String) {
        let now = self.clock.now();
        let outcome = if self.refuse {
            "groundplane changes nothing until it has stopped."
        } else {
            "groundplane goes on, as gateway.rivals says."
        };
        let event = KubeEvent {
            metadata: ObjectMeta {
                generate_name: Some(format!("{NAMESPACE}.")),
                namespace: Some("default".to_owned()),
                ..ObjectMeta::default()
            },
            involved_object: ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Namespace".to_owned()),
                name: Some(NAMESPACE.to_owned()),
                ..ObjectReference::default()
            },
            type_: Some("Warning".to_owned()),
            reason: Some("OlderControllerRuns".to_owned()),
            message: Some(format!("{rivals}. {outcome}")),
            source: Some(EventSource {
                component: Some(names::FIELD_MANAGER.to_owned()),
                host: None,
            }),
            reporting_component: Some(names::FIELD_MANAGER.to_owned()),
            reporting_instance: Some(names::FIELD_MANAGER.to_owned()),
            action: Some("Refuse".to_owned()),
            event_time: Some(MicroTime(now)),
            count: Some(1),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            ..KubeEvent::default()
        };
        let api: Api<KubeEvent> = Api::namespaced(self.client.clone(), "default");
        let parameters = PostParams::default();
        if let Err(error) = read("events", api.create(&parameters, &event)).await {
            debug!(?error, "event not sent");
        }
    }
}

/// Why something could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unread {
    /// We may not.
    Forbidden,
    /// The API server is away, or says something else.
    Failed,
}

async fn read<T>(
    what: &'static str,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Unread> {
    match timeout(PATIENCE, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) if status.code == 403 => Err(Unread::Forbidden),
        Ok(Err(error)) => {
            debug!(what, %error, "older controllers cannot be looked for");
            Err(Unread::Failed)
        }
        Err(_) => Err(Unread::Failed),
    }
}

/// What the lease says; `None`: nobody holds it.
fn renewal_of(lease: Lease) -> Option<Renewal> {
    let spec = lease.spec?;
    let holder = spec.holder_identity.filter(|holder| !holder.is_empty())?;
    let seconds = spec.lease_duration_seconds.filter(|seconds| *seconds > 0);
    Some(Renewal {
        holder,
        renewed: spec.renew_time.map(|time| time.0),
        duration: Duration::from_secs(u64::from(seconds.unwrap_or(DURATION).unsigned_abs())),
    })
}
