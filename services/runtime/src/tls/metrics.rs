//! How long certificates are good, and how their renewal goes.

use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::label_values;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Side {
    side: &'static str,
}

/// How a reload ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    /// The new files are in use.
    Ok,
    /// The old ones stay in use.
    Failed,
}

label_values!(Outcome {
    Ok => "ok",
    Failed => "failed",
});

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reload {
    side: &'static str,
    outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Failure {
    side: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Denial {
    caller: &'static str,
    service: String,
    method: String,
}

/// The metrics of TLS in a process. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsMetrics {
    expiry: Family<Side, Gauge>,
    reloads: Family<Reload, Counter>,
    failures: Family<Failure, Counter>,
    denials: Family<Denial, Counter>,
}

impl TlsMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register_with_unit(
            "tls_certificate_expiry_timestamp",
            "When the certificate in use expires, since 1970",
            Unit::Seconds,
            metrics.expiry.clone(),
        );
        registry.register(
            "tls_reloads",
            "Changed certificate files, by whether they could be used",
            metrics.reloads.clone(),
        );
        registry.register(
            "tls_handshake_failures",
            "Connections that TLS prevented, by reason",
            metrics.failures.clone(),
        );
        registry.register(
            "grpc_server_denied",
            "Calls that their caller may not make",
            metrics.denials.clone(),
        );
        metrics
    }

    pub(super) fn expires(&self, side: &'static str, at: Timestamp) {
        self.expiry.get_or_create(&Side { side }).set(at.as_second());
    }

    pub(super) fn reloaded(&self, side: &'static str, outcome: Outcome) {
        self.reloads.get_or_create(&Reload { side, outcome }).inc();
    }

    pub(crate) fn failed(&self, side: &'static str, reason: &'static str) {
        self.failures.get_or_create(&Failure { side, reason }).inc();
    }

    /// `service` and `method` are described ones, or `unknown`.
    pub(crate) fn denied(&self, caller: &'static str, service: &str, method: &str) {
        let denial = Denial {
            caller,
            service: service.to_owned(),
            method: method.to_owned(),
        };
        self.denials.get_or_create(&denial).inc();
    }
}
