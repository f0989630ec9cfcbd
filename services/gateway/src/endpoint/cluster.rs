//! What an agent sees of the cluster, and tells it: through the API server on its own machine, never through the endpoint.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use groundplane_core::Clock;
use groundplane_runtime::{Context, Tasks};
use k8s_openapi::api::core::v1::{Event as KubeEvent, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::api::PostParams;
use kube::{Api, Client};
use serde::{Deserialize, Deserializer};
use tokio::sync::watch;
use tracing::debug;

use super::candidate::{ApiServer, ClusterView, Machine};
use super::ports::Witness;
use super::values::Record;
use crate::cluster::objects::{Key, Slim};
use crate::cluster::{Change, Index, OnChange, Scope, follow};

/// Nodes with one of these are of the control plane, unless told otherwise.
const ROLES: [&str; 2] = [
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
];

/// An event takes no longer; it is worth less than a move.
const EVENT_PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    resource_version: String,
    deletion_timestamp: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
}

/// A node, as far as the endpoint is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ControlNode {
    key: Key,
    uid: String,
    version: String,
    /// Does it carry a label of the control plane?
    role: bool,
    machine: Machine,
}

impl<'de> Deserialize<'de> for ControlNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        struct Spec {
            #[serde(default, rename = "providerID")]
            provider_id: String,
            #[serde(default)]
            unschedulable: bool,
        }
        #[derive(Deserialize)]
        struct Address {
            #[serde(rename = "type")]
            kind: String,
            address: String,
        }
        #[derive(Default, Deserialize)]
        struct Status {
            addresses: Option<Vec<Address>>,
        }
        #[derive(Deserialize)]
        struct Wire {
            metadata: Metadata,
            #[serde(default)]
            spec: Spec,
            #[serde(default)]
            status: Status,
        }
        let Wire {
            metadata,
            spec,
            status,
        } = Wire::deserialize(deserializer)?;
        let addresses = status.addresses.unwrap_or_default();
        let of = |wanted: &'static str| {
            addresses
                .iter()
                .filter(move |address| address.kind == wanted)
                .filter_map(|address| address.address.parse().ok())
        };
        let labels = metadata.labels.unwrap_or_default();
        Ok(Self {
            key: Key::cluster_wide(&metadata.name),
            uid: metadata.uid,
            version: metadata.resource_version,
            role: ROLES.iter().any(|role| labels.contains_key(*role)),
            machine: Machine {
                node: metadata.name,
                provider_id: spec.provider_id,
                addresses: of("InternalIP").chain(of("ExternalIP")).collect(),
                cordoned: spec.unschedulable,
                deleting: metadata.deletion_timestamp.is_some(),
            },
        })
    }
}

impl Slim for ControlNode {
    type Scope = ClusterResourceScope;
    const KIND: &'static str = "Node";
    const PLURAL: &'static str = "nodes";

    fn key(&self) -> &Key {
        &self.key
    }

    fn uid(&self) -> &str {
        &self.uid
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn says_the_same(&self, other: &Self) -> bool {
        (self.role, &self.machine) == (other.role, &other.machine)
    }
}

/// An `EndpointSlice` of `default/kubernetes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerSlice {
    key: Key,
    uid: String,
    version: String,
    servers: Vec<ApiServer>,
}

impl ServerSlice {
    /// The API servers that are ready.
    pub(crate) fn servers(&self) -> &[ApiServer] {
        &self.servers
    }
}

impl<'de> Deserialize<'de> for ServerSlice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        struct Conditions {
            ready: Option<bool>,
        }
        #[derive(Deserialize)]
        struct Endpoint {
            #[serde(default)]
            addresses: Vec<String>,
            #[serde(default)]
            conditions: Conditions,
        }
        #[derive(Deserialize)]
        struct Port {
            name: Option<String>,
            port: Option<u16>,
        }
        #[derive(Deserialize)]
        struct Wire {
            metadata: Metadata,
            endpoints: Option<Vec<Endpoint>>,
            ports: Option<Vec<Port>>,
        }
        let Wire {
            metadata,
            endpoints,
            ports,
        } = Wire::deserialize(deserializer)?;
        let ports = ports.unwrap_or_default();
        let port = ports
            .iter()
            .find(|port| port.name.as_deref() == Some("https"))
            .or_else(|| ports.first())
            .and_then(|port| port.port);
        let addresses = endpoints
            .unwrap_or_default()
            .into_iter()
            // Unknown counts as ready, as the API says.
            .filter(|endpoint| endpoint.conditions.ready != Some(false))
            .flat_map(|endpoint| endpoint.addresses)
            .filter_map(|address| address.parse::<IpAddr>().ok());
        let mut servers: Vec<ApiServer> = port
            .map(|port| addresses.map(|address| ApiServer { address, port }).collect())
            .unwrap_or_default();
        servers.sort_unstable();
        servers.dedup();
        Ok(Self {
            key: Key::namespaced(&metadata.namespace, &metadata.name),
            uid: metadata.uid,
            version: metadata.resource_version,
            servers,
        })
    }
}

impl Slim for ServerSlice {
    type Scope = NamespaceResourceScope;
    const KIND: &'static str = "EndpointSlice";
    const PLURAL: &'static str = "endpointslices";
    const GROUP: &'static str = "discovery.k8s.io";

    fn key(&self) -> &Key {
        &self.key
    }

    fn uid(&self) -> &str {
        &self.uid
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn says_the_same(&self, other: &Self) -> bool {
        self.servers == other.servers
    }
}

/// The slices of `default/kubernetes`, and of nothing else.
pub(crate) fn server_slices(client: &Client) -> Scope<ServerSlice> {
    Scope {
        api: Api::namespaced(client.clone(), "default"),
        namespace: "default".into(),
        selector: "kubernetes.io/service-name=kubernetes".to_owned(),
        wanted: |_, key| &*key.namespace == "default",
        prefix: String::new(),
    }
}

/// Follows the cluster; `None` until it has answered.
pub(super) fn watch_cluster(
    client: &Client,
    selector: &str,
    prefix: &str,
    context: &Context,
) -> watch::Receiver<Option<ClusterView>> {
    let nodes: Index<ControlNode> = Index::new(1);
    let slices: Index<ServerSlice> = Index::new(1);
    let (view, seen) = watch::channel(None);
    let by_role = selector.is_empty();
    let publish: Arc<dyn Fn() + Send + Sync> = {
        let (nodes, slices) = (nodes.clone(), slices.clone());
        let view = Arc::new(view);
        Arc::new(move || {
            if !nodes.is_synced() || !slices.is_synced() {
                return;
            }
            let mut machines: Vec<Machine> = nodes
                .all()
                .into_iter()
                .filter(|node| !by_role || node.role)
                .map(|node| node.machine.clone())
                .collect();
            machines.sort_by(|one, other| one.node.cmp(&other.node));
            let mut servers: Vec<ApiServer> = slices
                .all()
                .iter()
                .flat_map(|slice| slice.servers.clone())
                .collect();
            servers.sort_unstable();
            servers.dedup();
            let now = Some(ClusterView { machines, servers });
            view.send_if_modified(|before| {
                let changed = *before != now;
                *before = now;
                changed
            });
        })
    };
    let tasks = &context.tasks;
    let told = Arc::clone(&publish);
    let changed: OnChange<ControlNode> = Arc::new(move |_: &Change<ControlNode>| told());
    let scope = Scope {
        api: Api::all(client.clone()),
        namespace: "".into(),
        selector: selector.to_owned(),
        wanted: |prefix: &str, key: &Key| key.name.starts_with(prefix),
        prefix: prefix.to_owned(),
    };
    tasks.spawn("watch", follow(scope, nodes.clone(), changed, tasks.token()));
    let told = Arc::clone(&publish);
    let changed: OnChange<ServerSlice> = Arc::new(move |_: &Change<ServerSlice>| told());
    tasks.spawn(
        "watch",
        follow(server_slices(client), slices.clone(), changed, tasks.token()),
    );
    let stopping = tasks.token();
    tasks.spawn("cluster", async move {
        let both = async {
            nodes.synced().await;
            slices.synced().await;
        };
        tokio::select! {
            () = stopping.cancelled() => {}
            () = both => publish(),
        }
    });
    seen
}

/// Tells of moves by events on the node that got the endpoint, and on the external Service.
pub(super) struct Events {
    pub(super) client: Client,
    pub(super) node: String,
    /// `namespace/name`.
    pub(super) service: Option<(String, String)>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) tasks: Tasks,
}

impl Witness for Events {
    fn moved(&self, record: &Record) {
        let (kind, reason) = if record.moved {
            ("Normal", "EndpointMoved")
        } else {
            ("Warning", "EndpointMoveFailed")
        };
        let from = if record.from.is_empty() {
            "nobody"
        } else {
            &record.from
        };
        let message = format!(
            "API endpoint from {from} to {}: {}; {}",
            record.to, record.outcome, record.reason
        );
        let node = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(record.to.clone()),
            // As kubelet does: nodes have no namespace, and their events are found by this.
            uid: Some(record.to.clone()),
            ..ObjectReference::default()
        };
        let service = self.service.clone().map(|(namespace, name)| ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Service".to_owned()),
            namespace: Some(namespace),
            name: Some(name),
            ..ObjectReference::default()
        });
        for subject in std::iter::once(node).chain(service) {
            let namespace = subject.namespace.clone().unwrap_or_else(|| "default".to_owned());
            let event = self.event(kind, reason, &message, subject, &namespace);
            let api: Api<KubeEvent> = Api::namespaced(self.client.clone(), &namespace);
            let stopping = self.tasks.token();
            self.tasks.spawn("event", async move {
                let parameters = PostParams::default();
                let create = tokio::time::timeout(EVENT_PATIENCE, api.create(&parameters, &event));
                tokio::select! {
                    () = stopping.cancelled() => {}
                    sent = create => match sent {
                        Ok(Ok(_)) => {}
                        Ok(Err(error)) => debug!(%error, "event not sent"),
                        Err(_) => debug!("event not sent in time"),
                    },
                }
            });
        }
    }
}

impl Events {
    fn event(
        &self,
        kind: &str,
        reason: &str,
        message: &str,
        subject: ObjectReference,
        namespace: &str,
    ) -> KubeEvent {
        let now = self.clock.now();
        let name = subject.name.clone().unwrap_or_default();
        KubeEvent {
            metadata: ObjectMeta {
                name: Some(format!("{name}.{}", uuid::Uuid::new_v4().simple())),
                namespace: Some(namespace.to_owned()),
                ..ObjectMeta::default()
            },
            involved_object: subject,
            type_: Some(kind.to_owned()),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            source: Some(EventSource {
                component: Some("groundplane".to_owned()),
                host: Some(self.node.clone()),
            }),
            reporting_component: Some("groundplane".to_owned()),
            reporting_instance: Some(self.node.clone()),
            action: Some(reason.to_owned()),
            event_time: Some(MicroTime(now)),
            count: Some(1),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            ..KubeEvent::default()
        }
    }
}
