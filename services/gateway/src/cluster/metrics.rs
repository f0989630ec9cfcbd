//! What is counted of writes to Kubernetes.

use groundplane_runtime::{Metrics, label_values};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

/// How an object was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Verb {
    Create,
    Patch,
    Delete,
}

label_values!(Verb {
    Create => "create",
    Patch => "patch",
    Delete => "delete",
});

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabels {
    resource: &'static str,
    verb: Verb,
    outcome: &'static str,
}

/// Writes to Kubernetes. Cheap to clone; all clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct WriteMetrics {
    writes: Family<WriteLabels, Counter>,
}

impl WriteMetrics {
    /// Registers them.
    pub(crate) fn register(metrics: &Metrics) -> Self {
        let new = Self::default();
        metrics.register(|registry| {
            registry.register("gateway_writes", "Writes to Kubernetes", new.writes.clone());
        });
        new
    }

    /// Counts one. `result`: `OK`, or the reason of the failure.
    pub(crate) fn count(&self, resource: &'static str, verb: Verb, outcome: &'static str) {
        self.writes
            .get_or_create(&WriteLabels {
                resource,
                verb,
                outcome,
            })
            .inc();
    }
}
