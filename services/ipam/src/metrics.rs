//! What ipam counts. Pools are read from the ledger when somebody looks, so that allocating pays nothing for it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use groundplane_core::{Clock, Kinded};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::app::{IpamError, Shared};
use crate::domain::PoolStatus;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

/// Counters of one ipam.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    allocations: Family<Outcome, Counter>,
    batch: Histogram,
    commit: Histogram,
    failures: Counter,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            allocations: Family::default(),
            batch: Histogram::new(exponential_buckets(1.0, 2.0, 11)),
            commit: Histogram::new(exponential_buckets(0.0001, 2.0, 15)),
            failures: Counter::default(),
        };
        registry.register(
            "ipam_allocations",
            "Calls of Allocate, by outcome: `ok`, or the reason of the refusal",
            metrics.allocations.clone(),
        );
        registry.register(
            "ipam_commit_changes",
            "Changes made durable together",
            metrics.batch.clone(),
        );
        registry.register_with_unit(
            "ipam_commit_duration",
            "Time of a durable commit",
            Unit::Seconds,
            metrics.commit.clone(),
        );
        registry.register(
            "ipam_commit_failures",
            "Commits that the store refused",
            metrics.failures.clone(),
        );
        metrics
    }

    pub(crate) fn allocated<T>(&self, result: &Result<T, IpamError>) {
        let outcome = result.as_ref().map_or_else(Kinded::reason, |_| "ok");
        self.allocations.get_or_create(&Outcome { outcome }).inc();
    }

    pub(crate) fn committed(&self, changes: usize, took: Duration, ok: bool) {
        if ok {
            #[allow(clippy::cast_precision_loss, reason = "a batch is far below 2^52")]
            self.batch.observe(changes as f64);
            self.commit.observe(took.as_secs_f64());
        } else {
            self.failures.inc();
        }
    }
}

/// One number of a pool.
type Measure = fn(&PoolStatus) -> u128;

/// Reads the fill of every pool.
pub(crate) struct PoolCollector {
    pub(crate) shared: Arc<Shared>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl fmt::Debug for PoolCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PoolCollector")
    }
}

impl Collector for PoolCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let pools = self.shared.state.lock().ledger.pools(self.clock.now());
        let gauges: [(&str, &str, Measure); 4] = [
            (
                "ipam_pool_addresses",
                "Addresses that a pool could give",
                |pool| pool.total,
            ),
            (
                "ipam_pool_used_addresses",
                "Addresses of a pool that are held",
                |pool| pool.used,
            ),
            (
                "ipam_pool_free_addresses",
                "Addresses of a pool that are free",
                |pool| pool.free,
            ),
            (
                "ipam_pool_cooling_addresses",
                "Addresses of a pool that cool down",
                |pool| pool.cooling,
            ),
        ];
        for (name, help, value) in gauges {
            let gauge = |pool| ConstGauge::new(as_gauge(value(pool)));
            let Some(first) = pools.first() else { return Ok(()) };
            let mut family = encoder.encode_descriptor(name, help, None, gauge(first).metric_type())?;
            for pool in &pools {
                let (id, network) = (pool.spec.id.to_string(), pool.spec.network.to_string());
                let labels = [("network", network), ("pool", id)];
                gauge(pool).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

/// An IPv6 pool may be larger than any number that a scrape can carry exactly.
#[allow(
    clippy::cast_precision_loss,
    reason = "a gauge is a float; 53 bits are enough to look at"
)]
fn as_gauge(count: u128) -> f64 {
    count as f64
}
