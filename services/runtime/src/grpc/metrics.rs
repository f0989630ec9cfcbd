//! Rate, errors and duration of the calls that servers answer.
//!
//! A call is counted as handled exactly once: with its code, or as CANCELLED if it is dropped before it has one.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use tokio::time::Instant;
use tonic::Code;

use super::methods::Method;
use super::status::code_name;

/// Seconds: from an allocation in memory to the longest deadline that a server grants.
const BUCKETS: [f64; 12] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 20.0, 60.0,
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MethodLabels {
    service: Arc<str>,
    method: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabels {
    service: Arc<str>,
    method: Arc<str>,
    code: &'static str,
}

/// The metrics of all servers of a process. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct RpcMetrics {
    started: Family<MethodLabels, Counter>,
    handled: Family<CodeLabels, Counter>,
    duration: Family<MethodLabels, Histogram, fn() -> Histogram>,
}

impl RpcMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            started: Family::default(),
            handled: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
        };
        registry.register(
            "grpc_server_started",
            "Calls that were begun",
            metrics.started.clone(),
        );
        registry.register(
            "grpc_server_handled",
            "Calls that ended, by code",
            metrics.handled.clone(),
        );
        registry.register_with_unit(
            "grpc_server_handling",
            "Time from the request's head to the answer's end",
            Unit::Seconds,
            metrics.duration.clone(),
        );
        metrics
    }

    /// Counts a call as begun.
    pub(crate) fn start(&self, method: &Method) -> Observer {
        let labels = MethodLabels {
            service: Arc::clone(&method.service),
            method: Arc::clone(&method.name),
        };
        self.started.get_or_create(&labels).inc();
        Observer {
            metrics: self.clone(),
            labels,
            begun: Instant::now(),
            code: Some(Code::Cancelled),
        }
    }
}

/// Follows one call to its end.
#[derive(Debug)]
pub(crate) struct Observer {
    metrics: RpcMetrics,
    labels: MethodLabels,
    begun: Instant,
    /// What is counted when this is dropped.
    code: Option<Code>,
}

impl Observer {
    /// The call ended with this code.
    pub(crate) fn finish(mut self, code: Code) {
        self.code = Some(code);
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        let Some(code) = self.code.take() else { return };
        let labels = CodeLabels {
            service: Arc::clone(&self.labels.service),
            method: Arc::clone(&self.labels.method),
            code: code_name(code),
        };
        self.metrics.handled.get_or_create(&labels).inc();
        self.metrics
            .duration
            .get_or_create(&self.labels)
            .observe(self.begun.elapsed().as_secs_f64());
    }
}
