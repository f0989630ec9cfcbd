//! Against a provider that knows nothing of our generated code: it sees paths and bytes, and answers with bytes.

use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use std::task::{Context as Poller, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use groundplane_runtime::Context;
use parking_lot::Mutex;
use pretty_assertions::assert_eq;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::server::{NamedService, UnaryService};
use tonic::service::Routes;

use super::*;
use crate::conformance::Raw;
use crate::testing::loopback::serve;

type Outcome = Result<(), Box<dyn Error>>;
type Answer = Arc<dyn Fn() -> Result<Bytes, Status> + Send + Sync>;

#[derive(Clone)]
struct Bare {
    seen: Arc<Mutex<Vec<(String, Bytes)>>>,
    answer: Answer,
}

impl NamedService for Bare {
    const NAME: &'static str = "rpc.IPProviderService";
}

impl Service<http::Request<Body>> for Bare {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Poller<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let call = Call(request.uri().path().to_owned(), self.clone());
        Box::pin(async move { Ok(tonic::server::Grpc::new(Raw).unary(call, request).await) })
    }
}

struct Call(String, Bare);

impl UnaryService<Bytes> for Call {
    type Response = Bytes;
    type Future = BoxFuture<'static, Result<Response<Bytes>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        self.1.seen.lock().push((self.0.clone(), request.into_inner()));
        let answer = (self.1.answer)();
        Box::pin(async move { answer.map(Response::new) })
    }
}

/// A client, and the calls that its provider has seen.
async fn galaxy(
    context: &Context,
    answer: impl Fn() -> Result<Bytes, Status> + Send + Sync + 'static,
) -> Result<(Galaxy, Arc<Mutex<Vec<(String, Bytes)>>>), Box<dyn Error>> {
    let bare = Bare {
        seen: Arc::default(),
        answer: Arc::new(answer),
    };
    let seen = Arc::clone(&bare.seen);
    let target = serve(Routes::new(bare), context).await?;
    Ok((Galaxy::to(&target, &RemoteTls::default())?, seen))
}

fn node() -> Result<NodeName, groundplane_core::ParseNameError> {
    "n1".parse()
}

const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);

/// Written by hand: field 1 `n1`, field 2 `192.0.2.7`, in the order of their numbers.
const NODE_AND_ADDRESS: &[u8] = b"\x0a\x02n1\x12\x09192.0.2.7";
const ADDRESS_ALONE: &[u8] = b"\x12\x09192.0.2.7";
/// Field 1 true; and field 2 alone, with `success` left out, which is false.
const SUCCESS: &[u8] = b"\x08\x01";
const FAILURE: &[u8] = b"\x12\x07no slot";

#[tokio::test]
async fn paths_and_bytes_are_those_that_galaxy_sends() -> Outcome {
    let context = Context::new();
    let (galaxy, seen) = galaxy(&context, || Ok(Bytes::from_static(SUCCESS))).await?;
    galaxy.assign(&node()?, ADDRESS).await?;
    galaxy.unassign(Some(&node()?), ADDRESS).await?;
    galaxy.unassign(None, ADDRESS).await?;
    let seen = seen.lock().clone();
    let (assign, unassign) = (
        "/rpc.IPProviderService/AssignIP",
        "/rpc.IPProviderService/UnAssignIP",
    );
    assert_eq!(
        seen,
        [
            (assign.to_owned(), Bytes::from_static(NODE_AND_ADDRESS)),
            (unassign.to_owned(), Bytes::from_static(NODE_AND_ADDRESS)),
            (unassign.to_owned(), Bytes::from_static(ADDRESS_ALONE)),
        ]
    );
    Ok(())
}

#[tokio::test]
async fn a_failure_in_an_ok_answer_is_a_failure_with_the_providers_words() -> Outcome {
    let context = Context::new();
    for (answer, words) in [(FAILURE, "no slot"), (b"", "does not say why")] {
        let (galaxy, _) = galaxy(&context, move || Ok(Bytes::from_static(answer))).await?;
        for result in [
            galaxy.assign(&node()?, ADDRESS).await,
            galaxy.unassign(Some(&node()?), ADDRESS).await,
        ] {
            let error = result.err().ok_or("it was taken for a success")?;
            assert!(error.is(CloudErrorKind::Unavailable), "{error:?}");
            assert!(error.to_string().contains(words), "{error}");
            assert!(
                error.operation.contains("192.0.2.7") && error.operation.contains("n1"),
                "{error}"
            );
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_status_says_what_may_be_done() -> Outcome {
    let context = Context::new();
    for (code, kind) in [
        (tonic::Code::Unavailable, CloudErrorKind::Unavailable),
        (tonic::Code::Unknown, CloudErrorKind::Unavailable),
        (tonic::Code::NotFound, CloudErrorKind::Refused),
        (tonic::Code::Unimplemented, CloudErrorKind::Refused),
        (tonic::Code::PermissionDenied, CloudErrorKind::Denied),
        (tonic::Code::Unauthenticated, CloudErrorKind::Unauthenticated),
        (tonic::Code::ResourceExhausted, CloudErrorKind::RateLimited),
        (tonic::Code::DeadlineExceeded, CloudErrorKind::Timeout),
    ] {
        let (galaxy, seen) = galaxy(&context, move || Err(Status::new(code, "its words"))).await?;
        let error = galaxy
            .assign(&node()?, ADDRESS)
            .await
            .err()
            .ok_or("it succeeded")?;
        assert!(error.is(kind), "{code:?}: {error:?}");
        assert!(error.to_string().contains("its words"), "{error}");
        assert_eq!(seen.lock().len(), 1, "{code:?} was sent again");
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_never_answers_is_given_up_after_a_minute() -> Outcome {
    let begun = tokio::time::Instant::now();
    let call = futures::future::pending::<Result<Response<()>, Status>>();
    let error = answer("assign", call).await.err().ok_or("it answered")?;
    assert!(error.is(CloudErrorKind::Timeout), "{error:?}");
    assert_eq!(begun.elapsed().as_secs(), 60);
    let sent = bounded(()).metadata().get("grpc-timeout").cloned();
    assert_eq!(sent.ok_or("no deadline")?.to_str()?, "60000000u");
    Ok(())
}

#[test]
fn plaintext_is_for_loopback_unless_configured() {
    let problems = |address: &str, insecure| {
        let config = GalaxyConfig {
            address: address.to_owned(),
            insecure,
            ..GalaxyConfig::default()
        };
        config
            .problems()
            .into_iter()
            .map(|problem| problem.path)
            .collect::<Vec<_>>()
    };
    assert_eq!(problems("http://10.0.0.1:9500", false), ["address"]);
    assert!(problems("http://10.0.0.1:9500", true).is_empty());
    assert!(problems("http://127.0.0.1:9500", false).is_empty());
    assert!(problems("unix:/run/galaxy.sock", false).is_empty());
    assert_eq!(problems("https://10.0.0.1:9500", true), ["tls.caFile"]);
    assert_eq!(problems("10.0.0.1:9500", true), ["address"], "it lacks a scheme");
    assert_eq!(problems("", true), ["address"]);
}
