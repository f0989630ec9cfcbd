use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::SdkTracerProvider;
use pretty_assertions::assert_eq;
use tonic::Request;
use tracing::{Instrument as _, info_span};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt as _;

use super::super::Limits;
use super::fixture::*;
use crate::telemetry::trace::current_trace_id;

/// Trap: `set_parent` returns a `Result`; a span whose parent was not set begins a trace of its own.
#[tokio::test]
async fn one_trace_goes_through_client_and_server() {
    // With two dispatchers alive, a span that another test's thread meets first is not cached as disabled.
    let _second = tracing::Dispatch::new(Registry::default());
    let provider = SdkTracerProvider::builder().build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let _default = tracing::subscriber::set_default(Registry::default().with(layer));
    let fixture = Fixture::start(Limits::default()).await;
    let (channel, span) = (fixture.channel(), info_span!("reconcile"));
    let here = span.in_scope(current_trace_id).unwrap();
    let there = unary(&channel, "Trace", Request::new(String::new()))
        .instrument(span)
        .await
        .unwrap();
    assert_eq!(there.into_inner(), here);
    let another = unary(&channel, "Trace", Request::new(String::new()))
        .await
        .unwrap();
    assert_ne!(another.into_inner(), here);
}
