//! Logs and traces of a process.
//!
//! Logs go to standard error, as text or JSON. Traces go by OTLP over gRPC where an endpoint is configured; what is logged
//! while a call is answered carries its trace id. [`TelemetryGuard::shutdown`] is the last thing that a process does.

mod filter;
pub(crate) mod panics;
pub(crate) mod seldom;
mod text;
pub mod trace;

use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use tracing::Level;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, Registry, reload};

pub use self::filter::LogFilter;
use crate::args::{LogFormat, TelemetryArgs};

/// Time for one batch of spans to reach the collector.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(3);

/// Time for the last spans to reach it when the process ends.
const FLUSH: Duration = Duration::from_secs(5);

/// Why there are no logs or traces.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The log filter is not one.
    #[error(
        "--log: `{filter}` is no filter; write a level (`info`) or directives (`info,groundplane_ipam=debug`)"
    )]
    Filter {
        /// What was given.
        filter: String,
        /// Why it is none.
        source: tracing_subscriber::filter::ParseError,
    },
    /// The share of traces to keep is not one.
    #[error("--trace-ratio: {0} is not between 0 and 1")]
    Ratio(f64),
    /// The collector's address is not one.
    #[error("--otlp-endpoint: `{endpoint}` cannot be used")]
    Exporter {
        /// What was given.
        endpoint: String,
        /// Why.
        source: opentelemetry_otlp::ExporterBuildError,
    },
    /// The log's filter cannot be changed any more.
    #[error("logging has ended")]
    Ended(#[source] reload::Error),
    /// Somebody set up logging before.
    #[error("logging is set up already")]
    Twice(#[source] tracing_subscriber::util::TryInitError),
}

/// Sets telemetry up.
#[derive(Debug)]
pub struct Telemetry;

impl Telemetry {
    /// Sets up logs, traces and the panic hook of the process that runs `service` (`ipam`, `all`). Needs a tokio
    /// runtime where traces are configured. Once a process.
    pub fn init(service: &str, args: &TelemetryArgs) -> Result<TelemetryGuard, TelemetryError> {
        let filter = filter::parse(&args.log)?;
        let provider = provider(service, args)?;
        let (filter, handle) = reload::Layer::new(filter);
        Registry::default()
            .with(provider.as_ref().map(traces))
            .with(logs(args.log_format).with_filter(filter))
            .try_init()
            .map_err(TelemetryError::Twice)?;
        panics::hook();
        Ok(TelemetryGuard {
            provider,
            filter: LogFilter::new(handle),
        })
    }
}

/// Our own spans, whatever the log's filter says. Those of the libraries below would trace the export of traces, too.
fn traces<S>(provider: &SdkTracerProvider) -> impl Layer<S> + use<S>
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("groundplane"))
        .with_location(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_filter(filter_fn(|metadata| {
            *metadata.level() <= Level::INFO && metadata.target().starts_with("groundplane")
        }))
}

fn logs<S>(format: LogFormat) -> Box<dyn Layer<S> + Send + Sync>
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    match format {
        LogFormat::Text => layer
            .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
            .fmt_fields(text::ForPeople)
            .boxed(),
        LogFormat::Json => layer.json().flatten_event(true).with_current_span(true).boxed(),
    }
}

fn provider(service: &str, args: &TelemetryArgs) -> Result<Option<SdkTracerProvider>, TelemetryError> {
    if !(0.0..=1.0).contains(&args.trace_ratio) {
        return Err(TelemetryError::Ratio(args.trace_ratio));
    }
    let Some(endpoint) = args
        .otlp_endpoint
        .as_deref()
        .filter(|endpoint| !endpoint.is_empty())
    else {
        return Ok(None);
    };
    let exporter = SpanExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint)
        .with_timeout(EXPORT_TIMEOUT)
        .build()
        .map_err(|source| TelemetryError::Exporter {
            endpoint: endpoint.to_owned(),
            source,
        })?;
    let resource = Resource::builder()
        .with_service_name(format!("groundplane-{service}"))
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build();
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(
            args.trace_ratio,
        ))))
        .with_resource(resource)
        .build();
    Ok(Some(provider))
}

/// Holds the traces that are not yet sent.
#[derive(Debug)]
#[must_use = "call `shutdown` last, or the last traces are lost"]
pub struct TelemetryGuard {
    provider: Option<SdkTracerProvider>,
    filter: LogFilter,
}

impl TelemetryGuard {
    /// What is logged, to be read and changed.
    pub fn log_filter(&self) -> &LogFilter {
        &self.filter
    }

    /// Sends what is left, for at most 5 s. The last thing that a process does.
    ///
    /// The exporter blocks the thread that flushes while the runtime's other threads send, so it gets one of its own.
    pub async fn shutdown(self) {
        let Some(provider) = self.provider else { return };
        let flush = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(FLUSH));
        match tokio::time::timeout(FLUSH, flush).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => tracing::warn!(%error, "the last traces are lost"),
            Ok(Err(error)) => tracing::warn!(%error, "the last traces are lost"),
            Err(_) => tracing::warn!("the last traces are lost: the collector does not answer"),
        }
    }
}

#[cfg(test)]
mod tests;
