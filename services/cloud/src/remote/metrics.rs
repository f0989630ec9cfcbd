//! Rate, errors and duration of the calls to a provider. Labels are methods and codes, never ids.

use groundplane_runtime::grpc::status::code_name;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use tokio::time::Instant;
use tonic::Code;

/// Seconds: from a call within a data centre to the longest deadline that makes sense.
const BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    method: &'static str,
    code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MethodLabels {
    method: &'static str,
}

/// The metrics of all calls to a provider. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct CallMetrics {
    calls: Family<Labels, Counter>,
    duration: Family<MethodLabels, Histogram, fn() -> Histogram>,
}

impl CallMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            calls: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
        };
        registry.register(
            "cloud_provider_calls",
            "Calls to the provider, by gRPC code; `gone` where the caller went away",
            metrics.calls.clone(),
        );
        registry.register_with_unit(
            "cloud_provider_call_duration",
            "Time from sending a call to the provider to its answer",
            Unit::Seconds,
            metrics.duration.clone(),
        );
        metrics
    }

    pub(super) fn start(&self, method: &'static str) -> Observer {
        Observer {
            metrics: self.clone(),
            method,
            begun: Instant::now(),
            code: "gone",
        }
    }
}

/// Follows one call to its end. Dropped without an end, the caller went away.
pub(super) struct Observer {
    metrics: CallMetrics,
    method: &'static str,
    begun: Instant,
    code: &'static str,
}

impl Observer {
    pub(super) fn finish(mut self, code: Code) {
        self.code = code_name(code);
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        let (method, code) = (self.method, self.code);
        self.metrics.calls.get_or_create(&Labels { method, code }).inc();
        self.metrics
            .duration
            .get_or_create(&MethodLabels { method })
            .observe(self.begun.elapsed().as_secs_f64());
    }
}
