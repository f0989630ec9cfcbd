//! The external Service: the API endpoint as the cluster's own nodes see it, kept by the replica that leads.
//!
//! Moves nothing; agents do. It lets kube-proxy lead the endpoint's address and port to the API servers that are ready, without anything
//! being set up on the machines. Written by server-side apply without force, and only where something differs: what another manager
//! has taken over stays as that one wants it, with a word in the log. What an older controller has left under this name is taken over
//! (`takeover`): the Service as it is, with its cluster address; its slices once ours are there. Where that one goes on writing, or is
//! known to run, the Service is its own until it has gone.

mod plan;
mod takeover;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use groundplane_proto::eip::v1::GetEndpointRequest;
use groundplane_runtime::Context;
use k8s_openapi::api::core::v1::{Endpoints, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::ListParams;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::cluster::objects::Key;
use crate::cluster::{Change, Event, OnChange, Part, Verdict, WriteError, Writer, follow};
use crate::config::ExternalService;
use crate::endpoint::ApiServer;
use crate::endpoint::cluster::server_slices;
use crate::endpoint::objects::{ServerSlice, all_servers};
use crate::gateway::Gateway;
use plan::{External, MANAGED_BY, covers, target};
use takeover::{Dispute, Disputed, Step};

/// Who looks after slices that mirror an `Endpoints` object, and which label says so.
const MIRRORING: &str = "endpointslicemirroring-controller.k8s.io";
const MANAGER_LABEL: &str = "endpointslice.kubernetes.io/managed-by";

/// A call to the API server that reads takes no longer.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
enum EnsureError {
    #[error("the endpoint's address is not known: {0}")]
    Address(String),
    #[error("the API server cannot be read")]
    Read(#[source] Box<kube::Error>),
    #[error("the API server did not answer in time")]
    Timeout,
    #[error("{what} cannot be written: {source}")]
    Write {
        what: String,
        #[source]
        source: Box<WriteError>,
    },
}

/// Keeps the external Service, where there is an endpoint.
pub(crate) fn start(gateway: &Arc<Gateway>, writer: Writer, context: &Context) {
    let Some(config) = gateway.config.external.clone() else {
        return;
    };
    let client = gateway.cluster.client.clone();
    let changed = Arc::new(Notify::new());
    let wake = Arc::clone(&changed);
    let on_change: OnChange<ServerSlice> = Arc::new(move |_: &Change<ServerSlice>| wake.notify_one());
    let scope = server_slices(&client);
    context.tasks.spawn(
        "watch",
        follow(
            scope,
            gateway.servers.clone(),
            on_change,
            gateway.stopping.clone(),
        ),
    );
    let keeper = Keeper {
        services: Api::namespaced(client.clone(), &config.namespace),
        owned: Api::namespaced(client.clone(), &config.namespace),
        endpoints: Api::namespaced(client, &config.namespace),
        gateway: Arc::clone(gateway),
        writer,
        config,
        changed,
        address: None,
        dispute: Dispute::default(),
        look: None,
    };
    context.tasks.spawn("endpoint service", keeper.run());
}

struct Keeper {
    gateway: Arc<Gateway>,
    writer: Writer,
    config: ExternalService,
    changed: Arc<Notify>,
    services: Api<Service>,
    owned: Api<EndpointSlice>,
    endpoints: Api<Endpoints>,
    /// The endpoint, and when it was asked for.
    address: Option<(IpAddr, Instant)>,
    dispute: Dispute,
    /// When to look again at what an older controller has for now.
    look: Option<Instant>,
}

/// The external Service as it is.
struct Present {
    service: Option<Service>,
    /// Is it ours to write?
    is_ours: bool,
}

impl Keeper {
    async fn run(mut self) {
        let stopping = self.gateway.stopping.clone();
        let leader = self.gateway.cluster.leader.clone();
        loop {
            tokio::select! {
                () = stopping.cancelled() => return,
                () = async { leader.acquired().await; self.gateway.servers.synced().await; } => {}
            }
            tokio::select! {
                () = stopping.cancelled() => return,
                ensured = self.ensure() => if let Err(error) = ensured {
                    let cause = std::error::Error::source(&error).map(ToString::to_string);
                    warn!(%error, cause, service = %self.config.name, "the external Service of the API endpoint is not as it should be");
                },
            }
            tokio::select! {
                () = stopping.cancelled() => return,
                () = self.changed.notified() => {}
                () = tokio::time::sleep_until(self.next()) => {}
            }
        }
    }

    /// When to look again, if nothing happens before.
    fn next(&self) -> Instant {
        let next = Instant::now() + self.gateway.config.resync.0;
        self.look.map_or(next, |look| look.min(next))
    }

    async fn ensure(&mut self) -> Result<(), EnsureError> {
        let slices = self.gateway.servers.all();
        let servers: Vec<ApiServer> = all_servers(slices.iter().map(Arc::as_ref));
        let Some(target) = target(&servers) else {
            // An API server has just said so, and so there is one.
            debug!("default/kubernetes has no ready API server; the external Service stays as it is");
            return Ok(());
        };
        let address = self.address().await?;
        let config = self.config.clone();
        let present = self.adopt(&config.name).await?;
        let there = present.service.as_ref();
        let external = External {
            namespace: &config.namespace,
            name: &config.name,
            address,
            port: config.port.or(config.node_port).unwrap_or(target),
            ip_mode: config.ip_mode,
            servers: &servers,
        };
        if present.is_ours {
            self.ensure_service(&external, there).await?;
        }
        // Ours beside those of another lead to the same API servers.
        self.ensure_slices(&external, present.is_ours).await
    }

    /// The endpoint's address: as configured, else as eip has it, asked as often as the cloud is looked at.
    async fn address(&mut self) -> Result<IpAddr, EnsureError> {
        if let Some(address) = self.config.address {
            return Ok(address);
        }
        let fresh = self.gateway.config.cloud_resync.0;
        if let Some((address, asked)) = self.address
            && asked.elapsed() < fresh
        {
            return Ok(address);
        }
        let unknown = |text: String| EnsureError::Address(text);
        let cluster = self.gateway.cluster.identity.get();
        let cluster = cluster.ok_or_else(|| unknown("the cluster's id is not known yet".to_owned()))?;
        let request = GetEndpointRequest {
            cluster: cluster.to_string(),
        };
        let answer = self.gateway.services.eip.get_endpoint(request).await;
        let answer = answer.map_err(|error| unknown(error.to_string()))?;
        let address = answer.address.parse();
        let address = address.map_err(|_| unknown(format!("`{}` is not an address", answer.address)))?;
        self.address = Some((address, Instant::now()));
        Ok(address)
    }

    /// The Service as it is, its fields ours where an older controller had left them.
    async fn adopt(&mut self, name: &str) -> Result<Present, EnsureError> {
        let is = |service, is_ours| Ok(Present { service, is_ours });
        self.look = None;
        let Some(present) = read(self.services.get_opt(name)).await? else {
            return is(None, true);
        };
        let entries = present.metadata.managed_fields.as_deref().unwrap_or_default();
        // While it is not known that none runs, one may.
        let rival = self.gateway.cluster.leader.rivals().verdict() != Verdict::Clear;
        let fields = match self.dispute.step(entries, rival, Instant::now()) {
            Step::Go => return is(Some(present), true),
            Step::Leave(disputed) => {
                self.look = Some(disputed.until);
                self.tell(&present, &disputed);
                return is(Some(present), false);
            }
            Step::Take(fields) => fields,
        };
        let patch = json!({ "metadata": {
            "resourceVersion": present.metadata.resource_version,
            "managedFields": fields,
        }});
        match self.writer.merge(&self.services, "services", name, patch).await {
            Ok(taken) => {
                self.dispute.taken();
                info!(service = name, "taken over from an older controller");
                is(Some(taken), true)
            }
            Err(WriteError::NotLeader) => is(Some(present), false),
            Err(source) => Err(EnsureError::Write {
                what: format!("Service {name}"),
                source: Box::new(source),
            }),
        }
    }

    /// Tells of a Service that another keeps, too: people once, the log whenever that one has written.
    fn tell(&self, present: &Service, disputed: &Disputed) {
        let Disputed { who, is_news, .. } = disputed;
        if *is_news {
            warn!(
                service = %self.config.name,
                who,
                "an older controller still writes the external Service, which is left to it for now: stop that one"
            );
        }
        if disputed.is_first {
            let (key, uid) = (
                Key::namespaced(&self.config.namespace, &self.config.name),
                present.metadata.uid.as_deref().unwrap_or_default(),
            );
            let message = format!(
                "An older controller writes it as `{who}`. groundplane leaves it alone until that one has stopped and been quiet for a while. \
                 `groundplane ctl takeover plan` says how it is stopped, where that is known."
            );
            let event = Event::warning("ExternalServiceDisputed", message);
            self.gateway
                .cluster
                .events
                .record_about("Service", &key, uid, event);
        }
    }

    async fn ensure_service(
        &self,
        external: &External<'_>,
        present: Option<&Service>,
    ) -> Result<(), EnsureError> {
        let mut there = json(present);
        let name = format!("Service {}/{}", external.namespace, external.name);
        if let Some(inner) = external.cleared(&there) {
            let written = self
                .writer
                .offer(&self.services, "services", external.name, Part::Main, inner)
                .await;
            // With the type goes the status.
            there = written
                .as_ref()
                .map_or(Value::Null, |written| json(Some(written)));
            told(&name, written.map(drop))?;
        }
        for (part, wanted) in [
            (Part::Main, external.service(&there)),
            (Part::Status, external.status()),
        ] {
            if covers(&there, &wanted) {
                continue;
            }
            let written = self
                .writer
                .offer(&self.services, "services", external.name, part, wanted);
            let written = written.await.map(drop);
            told(&name, written)?;
        }
        Ok(())
    }

    async fn ensure_slices(&self, external: &External<'_>, alone: bool) -> Result<(), EnsureError> {
        let selector = format!("kubernetes.io/service-name={}", external.name);
        let all = read(self.owned.list(&ListParams::default().labels(&selector))).await?;
        let (there, others): (Vec<_>, Vec<_>) = all
            .items
            .into_iter()
            .partition(|slice| managed_by(slice) == Some(MANAGED_BY));
        let wanted = external.slices();
        for (name, slice) in &wanted {
            let present = there
                .iter()
                .find(|present| present.metadata.name.as_ref() == Some(name));
            if covers(&json(present), slice) {
                continue;
            }
            let written = self
                .writer
                .offer(&self.owned, "endpointslices", name, Part::Main, slice.clone());
            let written = written.await.map(drop);
            told(&format!("EndpointSlice {name}"), written)?;
        }
        let names: BTreeSet<&String> = wanted.keys().collect();
        for stale in there.iter().filter_map(|slice| slice.metadata.name.as_ref()) {
            if !names.contains(stale) {
                let removed = self.writer.remove(&self.owned, "endpointslices", stale).await;
                told(&format!("EndpointSlice {stale}"), removed)?;
            }
        }
        if alone {
            self.clear(external.name, &others).await?;
        }
        Ok(())
    }

    /// Removes what an older controller has left beside our slices: it would lead to API servers of yesterday.
    async fn clear(&self, service: &str, others: &[EndpointSlice]) -> Result<(), EnsureError> {
        let left = others.iter().filter(|slice| {
            let entries = slice.metadata.managed_fields.as_deref();
            takeover::is_left(entries.unwrap_or_default())
        });
        for name in left.filter_map(|slice| slice.metadata.name.as_ref()) {
            let removed = self.writer.remove(&self.owned, "endpointslices", name).await;
            told(&format!("EndpointSlice {name}"), removed)?;
        }
        if !others.iter().any(|slice| managed_by(slice) == Some(MIRRORING)) {
            return Ok(());
        }
        let mirrored = read(self.endpoints.get_metadata_opt(service)).await?;
        let entries = mirrored.and_then(|mirrored| mirrored.metadata.managed_fields);
        if takeover::is_left(&entries.unwrap_or_default()) {
            let removed = self.writer.remove(&self.endpoints, "endpoints", service).await;
            told(&format!("Endpoints {service}"), removed)?;
        }
        Ok(())
    }
}

/// Who says that it looks after a slice.
fn managed_by(slice: &EndpointSlice) -> Option<&str> {
    let labels = slice.metadata.labels.as_ref()?;
    labels.get(MANAGER_LABEL).map(String::as_str)
}

/// Says what was written.
fn told(what: &str, written: Result<(), WriteError>) -> Result<(), EnsureError> {
    match written {
        Ok(()) => {
            info!(what, "written for the API endpoint");
            Ok(())
        }
        // Whoever leads now does it.
        Err(WriteError::NotLeader) => Ok(()),
        Err(error) => Err(EnsureError::Write {
            what: what.to_owned(),
            source: Box::new(error),
        }),
    }
}

/// As the API writes it; null where there is none.
fn json<T: Serialize>(object: Option<&T>) -> Value {
    let Some(mut value) = object.and_then(|object| serde_json::to_value(object).ok()) else {
        return Value::Null;
    };
    // A typed object may come without them.
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    value
}

async fn read<T>(call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, EnsureError> {
    match tokio::time::timeout(PATIENCE, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(EnsureError::Read(Box::new(error))),
        Err(_) => Err(EnsureError::Timeout),
    }
}
