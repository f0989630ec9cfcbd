//! Trace context: where a span belongs, and how that travels (W3C `traceparent`).

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use opentelemetry::Context;
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator as _};
use opentelemetry::trace::TraceContextExt as _;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// The id of the trace that the current span is part of; `None` where there is none, or nothing is traced.
pub fn current_trace_id() -> Option<String> {
    trace_id(&Span::current())
}

/// Writes the trace's id into the field `trace_id` of a span that was made with it (empty), for the log's sake: every
/// line that is logged within the span then carries it.
pub fn record_id(span: &Span) {
    if let Some(id) = trace_id(span) {
        span.record("trace_id", id);
    }
}

fn trace_id(span: &Span) -> Option<String> {
    let context = span.context();
    let span = context.span().span_context().clone();
    span.is_valid().then(|| span.trace_id().to_string())
}

/// Makes `span` a child of what the headers name.
pub fn adopt(span: &Span, headers: &HeaderMap) {
    let parent = TraceContextPropagator::new().extract_with_context(&Context::new(), &Headers(headers));
    if parent.span().span_context().is_valid()
        && let Err(error) = span.set_parent(parent)
    {
        // Nothing is traced here, or the span was filtered out.
        tracing::trace!(%error, "no parent for the span");
    }
}

/// Names `span` in the headers, for whoever gets them. Leaves them alone where nothing is traced.
pub fn inject(span: &Span, headers: &mut HeaderMap) {
    TraceContextPropagator::new().inject_context(&span.context(), &mut HeadersMut(headers));
}

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

struct HeadersMut<'a>(&'a mut HeaderMap);

impl Injector for HeadersMut<'_> {
    fn set(&mut self, key: &str, value: String) {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(key), HeaderValue::try_from(value)) {
            self.0.insert(name, value);
        }
    }
}
