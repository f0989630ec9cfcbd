use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use pretty_assertions::assert_eq;
use tokio::sync::mpsc;
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use tracing::info_span;

use super::*;
use crate::Context;
use crate::grpc::{BoundAddress, Listen, Server};

struct Collector(mpsc::UnboundedSender<ExportTraceServiceRequest>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.0
            .send(request.into_inner())
            .map_err(|_| Status::aborted("the test is over"))?;
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

async fn collector(context: &Context) -> (String, mpsc::UnboundedReceiver<ExportTraceServiceRequest>) {
    let (send, receive) = mpsc::unbounded_channel();
    let addresses = Server::new("collector", context)
        .listen(Listen::Tcp(([127, 0, 0, 1], 0).into()))
        .routes(Routes::new(TraceServiceServer::new(Collector(send))))
        .start()
        .await
        .unwrap();
    let [BoundAddress::Tcp(address)] = addresses[..] else {
        panic!("{addresses:?}")
    };
    (format!("http://{address}"), receive)
}

/// Trap: flushing on a runtime with one thread, from within it, must not lose the spans.
#[tokio::test]
async fn the_last_spans_are_sent_before_the_process_ends() {
    let context = Context::new();
    let (endpoint, mut received) = collector(&context).await;
    let args = TelemetryArgs {
        otlp_endpoint: Some(endpoint),
        ..TelemetryArgs::default()
    };
    let provider = provider("ipam", &args).unwrap().unwrap();
    tracing::subscriber::with_default(Registry::default().with(traces(&provider)), || {
        info_span!(target: "h2", "noise").in_scope(|| assert_eq!(trace::current_trace_id(), None));
        info_span!("work", rpc.service = "s").in_scope(|| {
            assert!(trace::current_trace_id().is_some_and(|id| id.len() == 32));
        });
    });
    TelemetryGuard {
        provider: Some(provider),
        filter: LogFilter::detached("info").unwrap(),
    }
    .shutdown()
    .await;
    let export = received.recv().await.unwrap();
    let resource = export.resource_spans[0].resource.as_ref().unwrap();
    let name = resource
        .attributes
        .iter()
        .find(|attribute| attribute.key == "service.name")
        .unwrap();
    assert!(format!("{:?}", name.value).contains("groundplane-ipam"));
    assert_eq!(export.resource_spans[0].scope_spans[0].spans[0].name, "work");
    context.tasks.drain(Duration::from_secs(10)).await.unwrap();
}

#[test]
fn a_share_that_is_none_is_refused() {
    for ratio in [-0.1, 1.1, f64::NAN] {
        let args = TelemetryArgs {
            trace_ratio: ratio,
            ..TelemetryArgs::default()
        };
        assert!(matches!(provider("ipam", &args), Err(TelemetryError::Ratio(_))));
    }
}

#[test]
fn a_filter_that_is_none_is_refused_with_an_example() {
    let args = TelemetryArgs {
        log: "info,=!".to_owned(),
        ..TelemetryArgs::default()
    };
    let error = Telemetry::init("ipam", &args).unwrap_err();
    assert!(
        error.to_string().starts_with("--log: `info,=!` is no filter"),
        "{error}"
    );
}

#[test]
fn without_traces_there_is_no_trace_id() {
    assert_eq!(trace::current_trace_id(), None);
    let mut headers = http::HeaderMap::new();
    trace::inject(&info_span!("x"), &mut headers);
    assert!(headers.is_empty());
}

#[test]
fn a_panics_formatted_text_is_withheld() {
    use std::any::Any;
    let fixed: Box<dyn Any + Send> = Box::new("index out of range");
    let formatted: Box<dyn Any + Send> = Box::new(format!("token {}", "s3cret"));
    assert_eq!(panics::text(&*fixed), "index out of range");
    assert_eq!(panics::text(&*formatted), "(text withheld)");
}

#[derive(Clone, Default)]
struct Lines(std::sync::Arc<parking_lot::Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[derive(Debug, thiserror::Error)]
#[error("first")]
struct First {
    source: std::io::Error,
}

#[test]
fn a_line_of_text_leaves_out_what_only_traces_need() {
    let lines = Lines::default();
    let writer = lines.clone();
    let layer = tracing_subscriber::fmt::layer()
        .without_time()
        .with_ansi(false)
        .with_target(false)
        .fmt_fields(text::ForPeople)
        .with_writer(move || writer.clone());
    tracing::subscriber::with_default(Registry::default().with(layer), || {
        let span = info_span!(
            "grpc",
            otel.kind = "server",
            rpc.method = "Allocate",
            trace_id = tracing::field::Empty
        );
        span.in_scope(|| tracing::info!(pool = "public", "allocated"));
        let source = std::io::Error::other("second");
        let error = First { source };
        tracing::error!(error = &error as &dyn std::error::Error, "stopping");
    });
    let text = String::from_utf8(lines.0.lock().clone()).unwrap();
    assert_eq!(
        text,
        " INFO grpc{rpc.method=\"Allocate\"}: allocated pool=\"public\"\nERROR stopping error=\"first: second\"\n"
    );
}
