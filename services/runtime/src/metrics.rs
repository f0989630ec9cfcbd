//! Prometheus metrics of a process: one registry, into which each component registers its own.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

use crate::grpc::metrics::RpcMetrics;
use crate::tls::metrics::TlsMetrics;

/// Every metric starts with this.
const PREFIX: &str = "groundplane";

/// The values of a label as they are written: in snake case, each once. `label_values!(Outcome { Done => "done", Failed => "failed" });`
#[macro_export]
macro_rules! label_values {
    ($label:ty { $($value:ident => $text:literal),+ $(,)? }) => {
        impl ::prometheus_client::encoding::EncodeLabelValue for $label {
            fn encode(
                &self,
                encoder: &mut ::prometheus_client::encoding::LabelValueEncoder<'_>,
            ) -> ::std::result::Result<(), ::std::fmt::Error> {
                ::std::fmt::Write::write_str(encoder, match self {
                    $(Self::$value => $text),+
                })
            }
        }
    };
}

/// The registry of a process. Cheap to clone; all clones are the same.
///
/// The lock is held while registering and while a scrape is encoded, never while counting.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    rpc: RpcMetrics,
    tls: TlsMetrics,
}

impl Metrics {
    /// A registry that holds the metrics of RPC and TLS only.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix(PREFIX);
        let rpc = RpcMetrics::register(&mut registry);
        let tls = TlsMetrics::register(&mut registry);
        Self {
            registry: Arc::new(Mutex::new(registry)),
            rpc,
            tls,
        }
    }

    /// Registers metrics. Names get the prefix `groundplane_`; begin them with the service: `ipam_free_addresses`.
    pub fn register<T>(&self, register: impl FnOnce(&mut Registry) -> T) -> T {
        register(&mut self.registry.lock())
    }

    /// All metrics in the text format of `OpenMetrics`.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut out = String::new();
        text::encode(&mut out, &self.registry.lock())?;
        Ok(out)
    }

    pub(crate) fn rpc(&self) -> &RpcMetrics {
        &self.rpc
    }

    pub(crate) fn tls(&self) -> &TlsMetrics {
        &self.tls
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}
