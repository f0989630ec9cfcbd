//! What an agent tells the cluster of moves: events on the node that got the endpoint, and on the external Service.

use std::sync::Arc;
use std::time::Duration;

use groundplane_core::Clock;
use groundplane_runtime::Tasks;
use k8s_openapi::api::core::v1::{Event as KubeEvent, EventSource, ObjectReference, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use kube::api::PostParams;
use kube::{Api, Client};
use tracing::debug;

use super::cluster::Nodes;
use super::ports::Witness;
use super::values::Record;
use crate::cluster::objects::{Key, Slim as _};

/// An event takes no longer; it is worth less than a move.
const PATIENCE: Duration = Duration::from_secs(5);
/// Events of objects without a namespace go here, as they do everywhere.
const DEFAULT_NAMESPACE: &str = "default";

/// Tells of moves by events.
#[derive(Clone)]
pub(super) struct Events {
    pub(super) client: Client,
    pub(super) node: String,
    /// Namespace and name.
    pub(super) service: Option<(String, String)>,
    /// Those that are known.
    pub(super) nodes: Nodes,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) tasks: Tasks,
}

/// What is told.
#[derive(Clone)]
struct Message {
    kind: &'static str,
    reason: &'static str,
    text: String,
}

impl Message {
    fn of(record: &Record) -> Self {
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
        let (to, outcome, why) = (&record.to, &record.outcome, &record.reason);
        let text = format!("API endpoint from {from} to {to}: {outcome}; {why}");
        Self { kind, reason, text }
    }
}

impl Witness for Events {
    fn moved(&self, record: &Record) {
        let message = Message::of(record);
        let node = self.on_node(&record.to);
        self.send("event", self.clone().create(self.event(&message, node)));
        if let Some((namespace, name)) = self.service.clone() {
            let events = self.clone();
            self.send("event", async move {
                let Some(service) = events.on_service(&namespace, &name).await? else {
                    // There is nothing that it could be told of.
                    return Ok(());
                };
                let event = events.event(&message, service);
                events.create(event).await
            });
        }
    }
}

impl Events {
    /// `kubectl describe` finds events by the object's UID; kubelet's own, and those of a node that we never saw, by its name.
    fn on_node(&self, name: &str) -> ObjectReference {
        let known = self.nodes.get(&Key::cluster_wide(name));
        ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(name.to_owned()),
            uid: Some(known.map_or_else(|| name.to_owned(), |node| node.uid().to_owned())),
            ..ObjectReference::default()
        }
    }

    /// The external Service; `None`: there is none.
    async fn on_service(&self, namespace: &str, name: &str) -> Result<Option<ObjectReference>, kube::Error> {
        let api: Api<Service> = Api::namespaced(self.client.clone(), namespace);
        let found = api.get_metadata_opt(name).await?;
        Ok(found.map(|found| ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Service".to_owned()),
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            uid: found.metadata.uid,
            ..ObjectReference::default()
        }))
    }

    /// Beside the agent's loop: an API server that hangs is in nobody's way.
    fn send(&self, what: &'static str, work: impl Future<Output = Result<(), kube::Error>> + Send + 'static) {
        let stopping = self.tasks.token();
        self.tasks.spawn(what, async move {
            tokio::select! {
                () = stopping.cancelled() => {}
                sent = tokio::time::timeout(PATIENCE, work) => match sent {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => debug!(%error, "event not sent"),
                    Err(_) => debug!("event not sent in time"),
                },
            }
        });
    }

    async fn create(self, event: KubeEvent) -> Result<(), kube::Error> {
        let namespace = event.metadata.namespace.clone().unwrap_or_default();
        let api: Api<KubeEvent> = Api::namespaced(self.client, &namespace);
        api.create(&PostParams::default(), &event).await.map(drop)
    }

    fn event(&self, message: &Message, subject: ObjectReference) -> KubeEvent {
        let now = self.clock.now();
        let name = subject.name.clone().unwrap_or_default();
        let namespace = subject.namespace.clone();
        KubeEvent {
            metadata: ObjectMeta {
                name: Some(format!("{name}.{}", uuid::Uuid::new_v4().simple())),
                namespace: Some(namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned())),
                ..ObjectMeta::default()
            },
            involved_object: subject,
            type_: Some(message.kind.to_owned()),
            reason: Some(message.reason.to_owned()),
            message: Some(message.text.clone()),
            source: Some(EventSource {
                component: Some("groundplane".to_owned()),
                host: Some(self.node.clone()),
            }),
            reporting_component: Some("groundplane".to_owned()),
            reporting_instance: Some(self.node.clone()),
            action: Some(message.reason.to_owned()),
            event_time: Some(MicroTime(now)),
            count: Some(1),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            ..KubeEvent::default()
        }
    }
}
