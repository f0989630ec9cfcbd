//! For tests: a gateway whose API server and services are in memory, and scripted.

mod api;
mod pools;
mod services;

use std::sync::Arc;
use std::time::Duration;

use groundplane_core::ClusterId;
use groundplane_runtime::Context;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

pub(crate) use api::FakeApi;
pub(crate) use pools::{FakeEip, FakeIpam};
pub(crate) use services::{FakeBgp, FakeInstances, rpc_error};

use crate::announcers::Backend;
use crate::clients::Services;
use crate::cluster::objects::{Key, NodeObject, ServiceObject};
use crate::cluster::{
    Cluster, ClusterIdentity, Events, Index, Leader, Objects, Recorded, WriteMetrics, Writer,
};
use crate::config::Config;
use crate::gateway::{Gateway, Queues};
use crate::{controllers, domain};

/// A gateway in a world of its own.
pub(crate) struct World {
    pub(crate) api: FakeApi,
    pub(crate) instances: Arc<FakeInstances>,
    pub(crate) bgp: Arc<FakeBgp>,
    pub(crate) eip: Arc<FakeEip>,
    pub(crate) ipam: Arc<FakeIpam>,
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) events: Recorded,
    /// Until when the gateway leads.
    pub(crate) leads: watch::Sender<Option<Instant>>,
    pub(crate) context: Context,
}

impl World {
    /// A gateway that leads for a day, with this configuration.
    pub(crate) fn new(config: Config) -> Self {
        let backend = controllers::backend(&config);
        Self::with(config, backend)
    }

    /// The same, with this behind its announcer.
    pub(crate) fn with(config: Config, backend: Arc<dyn Backend>) -> Self {
        let api = FakeApi::default();
        let client = api.client();
        let leads = watch::Sender::new(Some(Instant::now() + Duration::from_secs(86_400)));
        let leader = Leader::given(leads.subscribe());
        let context = Context::new();
        let metrics = WriteMetrics::default();
        let writer = Writer::new(client.clone(), leader.clone(), Duration::from_secs(10), metrics);
        let (events, recorded) = Events::recorded();
        let cluster = Cluster {
            nodes: Objects::new(Index::new(0), client.clone(), writer.clone()),
            services: Objects::new(Index::marked(0, domain::service::named), client.clone(), writer),
            identity: ClusterIdentity::new(Some("cluster-1".parse::<ClusterId>().unwrap())),
            client,
            leader,
            events,
        };
        let (instances, bgp) = (Arc::new(FakeInstances::default()), Arc::new(FakeBgp::default()));
        let (eip, ipam) = (Arc::new(FakeEip::default()), Arc::new(FakeIpam::default()));
        let services = Services {
            instances: Arc::clone(&instances) as _,
            bgp: Arc::clone(&bgp) as _,
            eip: Arc::clone(&eip) as _,
            ipam: Arc::clone(&ipam) as _,
            pools: Arc::clone(&ipam) as _,
        };
        let gateway = Arc::new(Gateway::new(
            config,
            cluster,
            services,
            Queues::new(),
            backend,
            &context,
        ));
        Self {
            api,
            instances,
            bgp,
            eip,
            ipam,
            gateway,
            events: recorded,
            leads,
            context,
        }
    }

    /// Puts a node into the API server, and into the cache as a watch would.
    pub(crate) fn node(&self, node: Value) -> Key {
        let stored = self.api.put("/api/v1/nodes", node);
        let node: NodeObject = serde_json::from_value(stored).unwrap();
        let key = node.key.clone();
        self.gateway.cluster.nodes.index.apply(node);
        key
    }

    /// Puts a Service into the API server, and into the cache as a watch would.
    pub(crate) fn service(&self, service: Value) -> Key {
        let namespace = service["metadata"]["namespace"]
            .as_str()
            .unwrap_or("default")
            .to_owned();
        let stored = self
            .api
            .put(&format!("/api/v1/namespaces/{namespace}/services"), service);
        let service: ServiceObject = serde_json::from_value(stored).unwrap();
        let key = service.key.clone();
        self.gateway.cluster.services.index.apply(service);
        key
    }

    /// The cache catches up with the API server.
    pub(crate) fn catch_up(&self, key: &Key) {
        match self.api.get(&format!("/api/v1/nodes/{}", key.name)) {
            Some(node) => {
                self.gateway
                    .cluster
                    .nodes
                    .index
                    .apply(serde_json::from_value(node).unwrap());
            }
            None => {
                if let Some(node) = self.gateway.cluster.nodes.get(key) {
                    self.gateway.cluster.nodes.index.delete(&node);
                }
            }
        }
    }
}

/// A node as kubelet registers it where a cloud is to initialise it.
pub(crate) fn fresh_node(name: &str) -> Value {
    json!({
        "metadata": { "name": name, "labels": { "role": "worker" } },
        "spec": { "taints": [
            { "key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule" },
            { "key": "other", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z" },
        ] },
        "status": {
            "addresses": [{ "type": "Hostname", "address": name }],
            "conditions": [{ "type": "Ready", "status": "True" }],
        },
    })
}

/// A node that was initialised, and says this of being ready.
pub(crate) fn settled_node(name: &str, ready: &str) -> Value {
    json!({
        "metadata": { "name": name, "labels": { "role": "worker" } },
        "spec": { "providerID": format!("equinixmetal://{name}") },
        "status": {
            "addresses": [{ "type": "InternalIP", "address": "10.0.0.1" }],
            "conditions": [{ "type": "Ready", "status": ready }],
        },
    })
}
