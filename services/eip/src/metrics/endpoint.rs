//! What is told of the API endpoint.

use std::time::Duration;

use groundplane_runtime::label_values;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Seconds: from a fast cloud's answer to where people call each other.
const BUCKETS: [f64; 10] = [0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// How a move ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum MoveOutcome {
    Moved,
    /// It was there already.
    Unchanged,
    /// It was not where the caller decided on.
    Changed,
    /// Several machines hold it.
    Shared,
    /// The cloud refuses.
    Refused,
    /// The cloud does not answer.
    Failed,
}

label_values!(MoveOutcome {
    Moved => "moved",
    Unchanged => "unchanged",
    Changed => "changed",
    Shared => "shared",
    Refused => "refused",
    Failed => "failed",
});

/// A call to the cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum EndpointCall {
    Read,
    Remove,
    Assign,
    Reassign,
}

label_values!(EndpointCall {
    Read => "read",
    Remove => "remove",
    Assign => "assign",
    Reassign => "reassign",
});

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MoveLabels {
    outcome: MoveOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    call: EndpointCall,
    outcome: super::Outcome,
}

/// Counters of the endpoint. Cheap to clone; all clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct EndpointMetrics {
    moves: Family<MoveLabels, Counter>,
    calls: Family<CallLabels, Counter>,
    duration: Histogram,
    gap: Histogram,
}

impl EndpointMetrics {
    /// Registers all of them.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            moves: Family::default(),
            calls: Family::default(),
            duration: Histogram::new(BUCKETS),
            gap: Histogram::new(BUCKETS),
        };
        registry.register(
            "eip_endpoint_moves",
            "Moves of the API endpoint that were asked for, by how they ended",
            metrics.moves.clone(),
        );
        registry.register(
            "eip_endpoint_calls",
            "Calls to the cloud about the API endpoint",
            metrics.calls.clone(),
        );
        registry.register_with_unit(
            "eip_endpoint_move_duration",
            "Time of a move that brought the API endpoint to another machine",
            Unit::Seconds,
            metrics.duration.clone(),
        );
        registry.register_with_unit(
            "eip_endpoint_gap_duration",
            "Time in which no machine held the API endpoint, because of a move",
            Unit::Seconds,
            metrics.gap.clone(),
        );
        metrics
    }

    /// Counts a call to the cloud.
    pub(crate) fn called(&self, call: EndpointCall, done: bool) {
        let outcome = if done {
            super::Outcome::Done
        } else {
            super::Outcome::Failed
        };
        self.calls.get_or_create(&CallLabels { call, outcome }).inc();
    }

    /// Counts a move.
    pub(crate) fn ended(&self, outcome: MoveOutcome, took: Duration, gap: Option<Duration>) {
        self.moves.get_or_create(&MoveLabels { outcome }).inc();
        if outcome == MoveOutcome::Moved {
            self.duration.observe(took.as_secs_f64());
        }
        if let Some(gap) = gap {
            self.gap.observe(gap.as_secs_f64());
        }
    }
}
