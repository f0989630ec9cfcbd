//! What is told of the endpoint's moves.

use groundplane_runtime::Metrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use super::values::Record;

/// Seconds, from a detection that is tuned to one that was in doubt.
const SECONDS: [f64; 9] = [0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

/// Counters of an agent.
#[derive(Clone, Debug)]
pub(super) struct AgentMetrics {
    reads: Family<Outcome, Counter>,
    degraded: Gauge,
    verdicts: Counter,
    moves: Family<Outcome, Counter>,
    detection: Histogram,
    took: Histogram,
}

impl AgentMetrics {
    pub(super) fn register(metrics: &Metrics) -> Self {
        let new = Self {
            reads: Family::default(),
            degraded: Gauge::default(),
            verdicts: Counter::default(),
            moves: Family::default(),
            detection: Histogram::new(SECONDS),
            took: Histogram::new(SECONDS),
        };
        metrics.register(|registry| {
            registry.register(
                "agent_endpoint_reads",
                "Reads of the API endpoint's holder, by how they ended",
                new.reads.clone(),
            );
            registry.register(
                "agent_endpoint_degraded",
                "1 while the API endpoint cannot be read from the cloud, and so could not be moved; else 0",
                new.degraded.clone(),
            );
            registry.register(
                "agent_endpoint_verdicts",
                "Verdicts that the API endpoint should move, as this agent heard them",
                new.verdicts.clone(),
            );
            registry.register(
                "agent_endpoint_moves",
                "Moves of the API endpoint that this agent asked for, by how they ended",
                new.moves.clone(),
            );
            registry.register(
                "agent_endpoint_detection_seconds",
                "From the API endpoint's last answer to the verdict that led to a move",
                new.detection.clone(),
            );
            registry.register(
                "agent_endpoint_move_seconds",
                "From the verdict to the cloud's acceptance of a move, the wait by rank included",
                new.took.clone(),
            );
        });
        new
    }

    pub(super) fn read(&self, answered: bool) {
        let outcome = if answered { "read" } else { "failed" };
        self.reads.get_or_create(&Outcome { outcome }).inc();
        self.degraded.set(i64::from(!answered));
    }

    pub(super) fn judged(&self) {
        self.verdicts.inc();
    }

    pub(super) fn moved(&self, record: &Record) {
        let outcome = match (record.moved, record.outcome.as_str()) {
            (true, _) => "moved",
            (false, "lost the race") => "lost",
            (false, _) => "failed",
        };
        self.moves.get_or_create(&Outcome { outcome }).inc();
        if record.moved {
            self.detection.observe(record.detection.as_secs_f64());
            self.took.observe(record.took.as_secs_f64());
        }
    }
}
