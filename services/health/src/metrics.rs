//! What the service counts.

use std::time::Duration;

use groundplane_runtime::{Metrics as Registry, label_values};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Unit;

use crate::domain::{Cause, Outcome, Sign};

/// Bounds of the durations, in seconds: the tuned and the default timeouts lie between two of them.
const BUCKETS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 0.5, 0.75, 1.0];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Target {
    Endpoint,
    Candidate,
}

label_values!(Target {
    Endpoint => "endpoint",
    Candidate => "candidate",
});

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Found {
    Ready,
    Alive,
    Silent,
}

label_values!(Found {
    Ready => "ready",
    Alive => "alive",
    Silent => "silent",
});

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProbeLabels {
    target: Target,
    outcome: Found,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerdictLabels {
    cause: String,
}

/// The metrics of this service. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    probes: Family<ProbeLabels, Counter>,
    took: Histogram,
    verdicts: Family<VerdictLabels, Counter>,
    watched: Gauge,
}

impl Metrics {
    pub(crate) fn register(registry: &Registry) -> Self {
        let metrics = Self {
            probes: Family::default(),
            took: Histogram::new(BUCKETS),
            verdicts: Family::default(),
            watched: Gauge::default(),
        };
        registry.register(|registry| {
            let probes = metrics.probes.clone();
            registry.register("health_probes", "Probes, by what they found", probes);
            let took = metrics.took.clone();
            registry.register_with_unit(
                "health_probe_duration",
                "How long probes took",
                Unit::Seconds,
                took,
            );
            let verdicts = metrics.verdicts.clone();
            registry.register("health_verdicts", "Verdicts given, again, too", verdicts);
            let watched = metrics.watched.clone();
            registry.register("health_endpoints", "Endpoints that are watched", watched);
        });
        metrics
    }

    pub(crate) fn probed(&self, endpoint: bool, outcome: &Outcome) {
        let labels = ProbeLabels {
            target: if endpoint {
                Target::Endpoint
            } else {
                Target::Candidate
            },
            outcome: match outcome.sign {
                Sign::Ready => Found::Ready,
                Sign::Alive => Found::Alive,
                Sign::Silent => Found::Silent,
            },
        };
        self.probes.get_or_create(&labels).inc();
        self.took.observe(Duration::as_secs_f64(&outcome.took));
    }

    pub(crate) fn judged(&self, cause: Cause) {
        let cause = cause.to_string();
        self.verdicts.get_or_create(&VerdictLabels { cause }).inc();
    }

    pub(crate) fn watched(&self, endpoints: usize) {
        self.watched.set(i64::try_from(endpoints).unwrap_or(i64::MAX));
    }
}
