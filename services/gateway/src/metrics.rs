//! What the gateway counts of its own work. Writes are counted where they pass, in [`crate::cluster`].

use std::fmt;
use std::time::Duration;

use groundplane_runtime::Metrics;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use crate::queue::{Depth, Outcome, Queue};

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

/// A gauge: its name without the unit, its meaning, its unit.
type Gauge = (&'static str, &'static str, Option<Unit>);

/// A gauge, and where its value stands.
type Row<T> = (Gauge, fn(&T) -> f64);

/// Writes a gauge with one label.
fn gauge<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help, unit): &Gauge,
    label: &str,
    values: impl Iterator<Item = (&'a str, f64)>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
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

/// What is told of a queue.
const QUEUE: [Row<Depth>; 4] = [
    (
        ("gateway_queue_ready", "Keys that could be worked on", None),
        |depth| count(depth.ready),
    ),
    (
        ("gateway_queue_running", "Keys that are being worked on", None),
        |depth| count(depth.running),
    ),
    (
        ("gateway_queue_waiting", "Keys that wait to be tried again", None),
        |depth| count(depth.waiting),
    ),
    (
        (
            "gateway_queue_oldest",
            "How long the first ready key has waited",
            Some(Unit::Seconds),
        ),
        |depth| depth.oldest.as_secs_f64(),
    ),
];

/// What is told of a cache.
const CACHE: [Row<(usize, Duration)>; 2] = [
    (
        ("gateway_cache_objects", "Objects in the cache", None),
        |(objects, _)| count(*objects),
    ),
    (
        (
            "gateway_cache_age",
            "How old the cache may be",
            Some(Unit::Seconds),
        ),
        |(_, age)| age.as_secs_f64(),
    ),
];

impl Collector for Readings {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let depths: Vec<_> = self
            .queues
            .iter()
            .map(|queue| (queue.name(), queue.depth()))
            .collect();
        for (what, value) in QUEUE {
            let values = depths.iter().map(|(name, depth)| (*name, value(depth)));
            gauge(&mut encoder, &what, "queue", values)?;
        }
        let caches: Vec<_> = self.caches.iter().map(|(kind, read)| (*kind, read())).collect();
        for (what, value) in CACHE {
            let values = caches.iter().map(|(kind, reading)| (*kind, value(reading)));
            gauge(&mut encoder, &what, "kind", values)?;
        }
        let help = "1 while this replica writes";
        let mut leader = encoder.encode_descriptor("gateway_leader", help, None, MetricType::Gauge)?;
        leader.encode_gauge(&i64::from((self.leads)()))
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text;
    use prometheus_client::registry::Registry;

    use super::*;

    /// A time is in seconds, and says so: by the end of its name, and by its unit.
    #[test]
    fn times_are_in_seconds_and_say_so() {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Readings {
            queues: vec![Queue::new("node")],
            caches: vec![("Node", Box::new(|| (3, Duration::from_millis(1500))))],
            leads: Box::new(|| true),
        }));
        let mut told = String::new();
        text::encode(&mut told, &registry).unwrap();
        for line in [
            "# UNIT gateway_queue_oldest_seconds seconds",
            "gateway_queue_oldest_seconds{queue=\"node\"} 0.0",
            "gateway_queue_ready{queue=\"node\"} 0.0",
            "# UNIT gateway_cache_age_seconds seconds",
            "gateway_cache_age_seconds{kind=\"Node\"} 1.5",
            "gateway_cache_objects{kind=\"Node\"} 3.0",
            "gateway_leader 1",
        ] {
            assert!(
                told.lines().any(|other| other == line),
                "{line} is not in\n{told}"
            );
        }
    }
}
