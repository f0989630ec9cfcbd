//! What the service tells of itself.

mod endpoint;

use groundplane_runtime::label_values;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

pub(crate) use endpoint::{EndpointCall, EndpointMetrics, MoveOutcome};

/// What was written to the cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Effect {
    Create,
    Delete,
    /// A duplicate was deleted.
    Settle,
    /// What an older controller left got our tags.
    Adopt,
    /// A shared one became another owner's.
    PassOn,
    /// An orphan was deleted.
    Reclaim,
}

label_values!(Effect {
    Create => "create",
    Delete => "delete",
    Settle => "settle",
    Adopt => "adopt",
    PassOn => "pass_on",
    Reclaim => "reclaim",
});

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    Done,
    Failed,
}

label_values!(Outcome {
    Done => "done",
    Failed => "failed",
});

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    effect: Effect,
    outcome: Outcome,
}

/// Counters of the service. Cheap to clone; all clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    writes: Family<Labels, Counter>,
}

impl Metrics {
    /// Registers all of them.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help = "Reservations made, changed and deleted in the cloud";
        registry.register("eip_cloud_writes", help, metrics.writes.clone());
        metrics
    }

    /// Counts a write.
    pub(crate) fn wrote(&self, effect: Effect, done: bool) {
        let outcome = if done { Outcome::Done } else { Outcome::Failed };
        self.writes.get_or_create(&Labels { effect, outcome }).inc();
    }
}
