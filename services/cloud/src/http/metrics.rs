//! Rate, errors and duration of the calls to a cloud. Labels are patterns, never ids.

use http::Method;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use tokio::time::Instant;

/// Seconds: from a call within a data centre to the longest deadline that makes sense.
const BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    driver: &'static str,
    route: &'static str,
    method: &'static str,
    code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    driver: &'static str,
    route: &'static str,
    method: &'static str,
}

/// The metrics of all calls to clouds. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct HttpMetrics {
    requests: Family<Labels, Counter>,
    duration: Family<RouteLabels, Histogram, fn() -> Histogram>,
}

impl HttpMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            requests: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
        };
        registry.register(
            "cloud_requests",
            "Requests to the cloud, by HTTP status; `timeout`, `error` and `cancelled` where there was none",
            metrics.requests.clone(),
        );
        registry.register_with_unit(
            "cloud_request_duration",
            "Time from sending a request to the cloud to the end of its answer",
            Unit::Seconds,
            metrics.duration.clone(),
        );
        metrics
    }

    pub(super) fn start(&self, driver: &'static str, route: &'static str, method: &Method) -> Observer {
        let labels = RouteLabels {
            driver,
            route,
            method: method_name(method),
        };
        Observer {
            metrics: self.clone(),
            labels,
            begun: Instant::now(),
            code: "cancelled",
        }
    }
}

/// Follows one request to its end. Dropped without an end, it was cancelled.
pub(super) struct Observer {
    metrics: HttpMetrics,
    labels: RouteLabels,
    begun: Instant,
    code: &'static str,
}

impl Observer {
    pub(super) fn finish(mut self, code: &'static str) {
        self.code = code;
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        let RouteLabels {
            driver,
            route,
            method,
        } = self.labels;
        self.metrics
            .requests
            .get_or_create(&Labels {
                driver,
                route,
                method,
                code: self.code,
            })
            .inc();
        self.metrics
            .duration
            .get_or_create(&self.labels)
            .observe(self.begun.elapsed().as_secs_f64());
    }
}

fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        _ => "other",
    }
}

/// A status as a label: those that mean something to us by number, the others by class.
pub(super) fn code(status: u16) -> &'static str {
    match status {
        401 => "401",
        403 => "403",
        404 => "404",
        422 => "422",
        429 => "429",
        200..300 => "2xx",
        300..400 => "3xx",
        400..500 => "4xx",
        _ => "5xx",
    }
}
