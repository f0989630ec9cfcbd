//! Events on objects: what a user reads when they ask why.
//!
//! ```text
//! record (never waits) ──bounded──► Aggregator (pure: create, count, or keep quiet) ──► API, through the gate
//! ```
//!
//! What repeats becomes one event with a count. A queue that is full drops, and counts what it dropped.

mod aggregate;

use std::sync::Arc;

use groundplane_core::{Clock, names};
use groundplane_runtime::telemetry::trace;
use groundplane_runtime::{Metrics, Tasks};
use k8s_openapi::api::core::v1::{Event as KubeEvent, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use kube::{Api, Client};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use serde_json::json;
use tokio::sync::mpsc;
use tracing::{debug, warn};

use super::objects::{Key, Slim};
use super::writer::{WriteError, Writer};
use aggregate::{Aggregator, Step, Subject};

/// Events that wait to be sent: one each for 4,000 objects at once.
const QUEUE: usize = 4096;

/// Events that are sent at a time; reconciles come first.
const SENDERS: usize = 8;

/// `source.component` of our events.
const COMPONENT: &str = "groundplane";

/// Events of objects without a namespace go here, as they do everywhere.
const DEFAULT_NAMESPACE: &str = "default";

/// Normal or warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum EventKind {
    Normal,
    Warning,
}

/// Something to tell about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) kind: EventKind,
    /// `UpperCamel`, stable: programs read it.
    pub(crate) reason: &'static str,
    /// For people; without secrets.
    pub(crate) message: String,
}

impl Event {
    /// All is well.
    pub(crate) fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            kind: EventKind::Normal,
            reason,
            message: message.into(),
        }
    }

    /// Something is not.
    pub(crate) fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            kind: EventKind::Warning,
            reason,
            message: message.into(),
        }
    }
}

/// An event on its way.
struct Entry {
    subject: Subject,
    event: Event,
    trace: Option<String>,
}

/// Where events are handed in. Cheap to clone; all clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    queue: mpsc::Sender<Entry>,
    dropped: Counter,
}

impl Events {
    /// Sends events until the process stops.
    pub(crate) fn start(
        client: Client,
        writer: Writer,
        clock: Arc<dyn Clock>,
        tasks: &Tasks,
        metrics: &Metrics,
    ) -> Self {
        let (queue, entries) = mpsc::channel(QUEUE);
        let dropped = Counter::default();
        metrics.register(|registry| {
            registry.register(
                "gateway_events_dropped",
                "Events that nobody will read",
                dropped.clone(),
            );
        });
        let sender = Arc::new(Sender {
            client,
            writer,
            clock,
            aggregator: Mutex::new(Aggregator::default()),
        });
        let stopping = tasks.token();
        tasks.spawn("events", async move {
            let stream = futures::stream::unfold(entries, |mut entries| async move {
                let entry = entries.recv().await?;
                Some((entry, entries))
            });
            let sending = futures::StreamExt::for_each_concurrent(stream, SENDERS, |entry| {
                let sender = Arc::clone(&sender);
                async move { sender.send(entry).await }
            });
            tokio::select! {
                () = stopping.cancelled() => {}
                () = sending => {}
            }
        });
        Self { queue, dropped }
    }

    /// Tells something about an object. Never waits.
    pub(crate) fn record<T: Slim>(&self, object: &T, event: Event) {
        self.record_about(T::KIND, object.key(), object.uid(), event);
    }

    /// The same about an object of which we have only the name.
    pub(crate) fn record_about(&self, kind: &'static str, key: &Key, uid: &str, event: Event) {
        let subject = Subject {
            kind,
            key: key.clone(),
            uid: uid.into(),
        };
        let trace = trace::current_trace_id();
        debug!(kind, object = %subject.key, reason = event.reason, message = event.message, "event");
        if self
            .queue
            .try_send(Entry {
                subject,
                event,
                trace,
            })
            .is_err()
        {
            self.dropped.inc();
        }
    }

    /// Events that end here, for tests.
    #[cfg(test)]
    pub(crate) fn recorded() -> (Self, Recorded) {
        let (queue, entries) = mpsc::channel(QUEUE);
        (
            Self {
                queue,
                dropped: Counter::default(),
            },
            Recorded(entries),
        )
    }
}

/// What was recorded.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct Recorded(mpsc::Receiver<Entry>);

#[cfg(test)]
impl Recorded {
    /// All events since the last look: object and reason.
    pub(crate) fn take(&mut self) -> Vec<(String, &'static str)> {
        std::iter::from_fn(|| self.0.try_recv().ok())
            .map(|entry| (entry.subject.key.to_string(), entry.event.reason))
            .collect()
    }
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry")
            .field("event", &self.event)
            .finish_non_exhaustive()
    }
}

struct Sender {
    client: Client,
    writer: Writer,
    clock: Arc<dyn Clock>,
    aggregator: Mutex<Aggregator>,
}

impl Sender {
    async fn send(&self, entry: Entry) {
        let now = self.clock.now();
        let step = self.aggregator.lock().step(&entry.subject, &entry.event, now);
        let namespace = match &*entry.subject.key.namespace {
            "" => DEFAULT_NAMESPACE,
            namespace => namespace,
        };
        let api: Api<KubeEvent> = Api::namespaced(self.client.clone(), namespace);
        let result = match step {
            Step::Quiet => return,
            Step::Create { name } => {
                let event = build(&entry, namespace, &name, 1, now, now);
                self.writer.create(&api, "events", &event).await.map(drop)
            }
            Step::Count { name, count, first } => {
                let patch =
                    json!({ "count": count, "lastTimestamp": Time(now), "message": entry.event.message });
                match self.writer.merge(&api, "events", &name, patch).await {
                    // The API server forgets events after an hour.
                    Err(WriteError::Gone(_)) => {
                        let event = build(&entry, namespace, &name, count, first, now);
                        self.writer.create(&api, "events", &event).await.map(drop)
                    }
                    result => result.map(drop),
                }
            }
        };
        if let Err(WriteError::NotLeader) = result {
            // Whoever leads now says what there is to say.
            self.aggregator.lock().forget(&entry.subject, &entry.event);
        } else if let Err(error) = result {
            self.aggregator.lock().forget(&entry.subject, &entry.event);
            let (reason, object) = (entry.event.reason, &entry.subject.key);
            warn!(%error, cause = std::error::Error::source(&error), %object, reason, "event not sent");
        }
    }
}

fn build(
    entry: &Entry,
    namespace: &str,
    name: &str,
    count: i32,
    first: jiff::Timestamp,
    now: jiff::Timestamp,
) -> KubeEvent {
    let Entry {
        subject,
        event,
        trace,
    } = entry;
    let annotations = trace
        .iter()
        .map(|id| (names::TRACE_ID.to_owned(), id.clone()))
        .collect();
    KubeEvent {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some(subject.kind.to_owned()),
            namespace: (!subject.key.namespace.is_empty()).then(|| subject.key.namespace.to_string()),
            name: Some(subject.key.name.to_string()),
            uid: Some(subject.uid.to_string()),
            ..ObjectReference::default()
        },
        type_: Some(match event.kind {
            EventKind::Normal => "Normal".to_owned(),
            EventKind::Warning => "Warning".to_owned(),
        }),
        reason: Some(event.reason.to_owned()),
        message: Some(event.message.clone()),
        source: Some(EventSource {
            component: Some(COMPONENT.to_owned()),
            host: None,
        }),
        reporting_component: Some(COMPONENT.to_owned()),
        reporting_instance: Some(COMPONENT.to_owned()),
        action: Some(event.reason.to_owned()),
        event_time: Some(MicroTime(now)),
        count: Some(count),
        first_timestamp: Some(Time(first)),
        last_timestamp: Some(Time(now)),
        ..KubeEvent::default()
    }
}
