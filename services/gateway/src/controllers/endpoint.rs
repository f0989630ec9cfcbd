//! The external Service: the API endpoint as the cluster's own nodes see it, kept by the replica that leads.
//!
//! Moves nothing; agents do. It lets kube-proxy lead the endpoint's address and port to the API servers that are ready, without anything
//! being set up on the machines. Written by server-side apply without force, and only where something differs: what another manager
//! has taken over stays as that one wants it, with a word in the log.

mod plan;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use groundplane_proto::eip::v1::GetEndpointRequest;
use groundplane_runtime::Context;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::ListParams;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::cluster::{Change, Index, OnChange, Part, WriteError, Writer, follow};
use crate::config::ExternalService;
use crate::endpoint::ApiServer;
use crate::endpoint::cluster::{ServerSlice, server_slices};
use crate::gateway::Gateway;
use plan::{External, MANAGED_BY, covers};

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
    let slices: Index<ServerSlice> = Index::new(1);
    let changed = Arc::new(Notify::new());
    let wake = Arc::clone(&changed);
    let on_change: OnChange<ServerSlice> = Arc::new(move |_: &Change<ServerSlice>| wake.notify_one());
    let scope = server_slices(&client);
    context.tasks.spawn(
        "watch",
        follow(scope, slices.clone(), on_change, gateway.stopping.clone()),
    );
    let keeper = Keeper {
        services: Api::namespaced(client.clone(), &config.namespace),
        owned: Api::namespaced(client, &config.namespace),
        gateway: Arc::clone(gateway),
        writer,
        config,
        slices,
        changed,
        address: None,
    };
    context.tasks.spawn("endpoint service", keeper.run());
}

struct Keeper {
    gateway: Arc<Gateway>,
    writer: Writer,
    config: ExternalService,
    slices: Index<ServerSlice>,
    changed: Arc<Notify>,
    services: Api<Service>,
    owned: Api<EndpointSlice>,
    /// The endpoint, and when it was asked for.
    address: Option<(IpAddr, Instant)>,
}

impl Keeper {
    async fn run(mut self) {
        let stopping = self.gateway.stopping.clone();
        let leader = self.gateway.cluster.leader.clone();
        loop {
            tokio::select! {
                () = stopping.cancelled() => return,
                () = async { leader.acquired().await; self.slices.synced().await; } => {}
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
                () = tokio::time::sleep(self.gateway.config.resync.0) => {}
            }
        }
    }

    async fn ensure(&mut self) -> Result<(), EnsureError> {
        let mut servers: Vec<ApiServer> = self
            .slices
            .all()
            .iter()
            .flat_map(|slice| slice.servers().to_vec())
            .collect();
        servers.sort_unstable();
        servers.dedup();
        if servers.is_empty() {
            // An API server has just said so, and so there is one.
            debug!("default/kubernetes has no ready API server; the external Service stays as it is");
            return Ok(());
        }
        let address = self.address().await?;
        let config = self.config.clone();
        let external = External {
            namespace: &config.namespace,
            name: &config.name,
            address,
            port: config.port,
            servers: &servers,
        };
        self.ensure_service(&external).await?;
        self.ensure_slices(&external).await
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

    async fn ensure_service(&self, external: &External<'_>) -> Result<(), EnsureError> {
        let there = json(read(self.services.get_opt(external.name)).await?.as_ref());
        let name = format!("Service {}/{}", external.namespace, external.name);
        for (part, wanted) in [
            (Part::Main, external.service()),
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

    async fn ensure_slices(&self, external: &External<'_>) -> Result<(), EnsureError> {
        let selector = format!(
            "kubernetes.io/service-name={},endpointslice.kubernetes.io/managed-by={MANAGED_BY}",
            external.name
        );
        let there = read(self.owned.list(&ListParams::default().labels(&selector)))
            .await?
            .items;
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
        Ok(())
    }
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
