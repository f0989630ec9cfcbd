//! What the gateway counts of its own work. Writes are counted where they pass, in [`crate::cluster`].

use std::fmt;
use std::time::Duration;

use groundplane_runtime::Metrics;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::queue::{Outcome, Queue};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReconcileLabels {
    controller: &'static str,
    outcome: &'static str,
}

/// What controllers do. Cheap to clone; all clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReconcileMetrics {
    reconciles: Family<ReconcileLabels, Counter>,
}

impl ReconcileMetrics {
    /// Registers them.
    pub(crate) fn register(metrics: &Metrics) -> Self {
        let new = Self::default();
        metrics.register(|registry| {
            registry.register(
                "gateway_reconciles",
                "Objects that were looked at",
                new.reconciles.clone(),
            );
        });
        new
    }

    pub(crate) fn count(&self, controller: &'static str, outcome: Outcome) {
        let outcome = match outcome {
            Outcome::Done => "done",
            Outcome::After(_) => "later",
            Outcome::Conflict => "conflict",
            Outcome::Failed(_) => "failed",
            Outcome::Parked(_) => "parked",
        };
        self.reconciles
            .get_or_create(&ReconcileLabels { controller, outcome })
            .inc();
    }
}

/// Values that are read when they are asked for.
pub(crate) struct Readings {
    queues: Vec<Queue>,
    caches: Vec<(&'static str, Reading)>,
    leads: Box<dyn Fn() -> bool + Send + Sync>,
}

/// Tells how many objects are in a cache, and how old it may be.
pub(crate) type Reading = Box<dyn Fn() -> (usize, Duration) + Send + Sync>;

impl Readings {
    /// Registers the readings of these queues, caches and of leadership.
    pub(crate) fn register(
        metrics: &Metrics,
        queues: Vec<Queue>,
        caches: Vec<(&'static str, Reading)>,
        leads: Box<dyn Fn() -> bool + Send + Sync>,
    ) {
        let readings = Self {
            queues,
            caches,
            leads,
        };
        metrics.register(|registry| registry.register_collector(Box::new(readings)));
    }
}

impl fmt::Debug for Readings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readings").finish_non_exhaustive()
    }
}

/// A gauge with one label.
fn gauge<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    label: &str,
    values: impl Iterator<Item = (&'a str, f64)>,
) -> fmt::Result {
    let mut metric =
        encoder.encode_descriptor(name, help, None, prometheus_client::metrics::MetricType::Gauge)?;
    for (value_of, value) in values {
        let labels = [(label, value_of)];
        ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "counts of objects are far below 2^52")]
fn count(number: usize) -> f64 {
    number as f64
}

impl Collector for Readings {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let depths: Vec<_> = self
            .queues
            .iter()
            .map(|queue| (queue.name(), queue.depth()))
            .collect();
        let of = |value: fn(&crate::queue::Depth) -> f64| {
            depths
                .iter()
                .map(move |(name, depth)| (*name, value(depth)))
                .collect::<Vec<_>>()
                .into_iter()
        };
        let mut encode = |name, help, values| gauge(&mut encoder, name, help, "queue", values);
        encode(
            "gateway_queue_ready",
            "Keys that could be worked on",
            of(|d| count(d.ready)),
        )?;
        encode(
            "gateway_queue_running",
            "Keys that are being worked on",
            of(|d| count(d.running)),
        )?;
        encode(
            "gateway_queue_waiting",
            "Keys that wait to be tried again",
            of(|d| count(d.waiting)),
        )?;
        encode(
            "gateway_queue_oldest_seconds",
            "How long the first ready key has waited",
            of(|d| d.oldest.as_secs_f64()),
        )?;
        let caches: Vec<_> = self.caches.iter().map(|(kind, read)| (*kind, read())).collect();
        let objects = caches.iter().map(|(kind, (objects, _))| (*kind, count(*objects)));
        gauge(
            &mut encoder,
            "gateway_cache_objects",
            "Objects in the cache",
            "kind",
            objects,
        )?;
        let ages = caches.iter().map(|(kind, (_, age))| (*kind, age.as_secs_f64()));
        gauge(
            &mut encoder,
            "gateway_cache_age_seconds",
            "How old the cache may be",
            "kind",
            ages,
        )?;
        let mut leader = encoder.encode_descriptor(
            "gateway_leader",
            "1 while this replica writes",
            None,
            prometheus_client::metrics::MetricType::Gauge,
        )?;
        leader.encode_gauge(&i64::from((self.leads)()))
    }
}
