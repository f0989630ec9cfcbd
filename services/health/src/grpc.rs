//! The RPC surface: parse, call, convert.

mod convert;

use std::pin::Pin;

use futures::Stream;
use groundplane_proto::health::v1 as proto;
use groundplane_proto::health::v1::health_service_server::HealthService;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use crate::app::{Asked, Follower, Health};
use crate::error::HealthError;
use crate::ports::Probe;

/// The service as tonic sees it.
#[derive(Debug)]
pub(crate) struct Rpc<P> {
    health: Health<P>,
    stop: CancellationToken,
}

impl<P> Rpc<P> {
    pub(crate) fn new(health: Health<P>, stop: CancellationToken) -> Self {
        Self { health, stop }
    }
}

type Answers = Pin<Box<dyn Stream<Item = Result<proto::WatchEndpointResponse, Status>> + Send>>;

#[tonic::async_trait]
impl<P: Probe> HealthService for Rpc<P> {
    type WatchEndpointStream = Answers;

    async fn watch_endpoint(
        &self,
        request: Request<Streaming<proto::WatchEndpointRequest>>,
    ) -> Result<Response<Self::WatchEndpointStream>, Status> {
        let talk = Talk {
            health: self.health.clone(),
            stop: self.stop.clone(),
            requests: Some(request.into_inner()),
            follower: None,
            over: false,
        };
        let answers = futures::stream::unfold(talk, |mut talk| async move {
            let answer = talk.next().await?;
            talk.over = answer.is_err();
            Some((answer, talk))
        });
        Ok(Response::new(Box::pin(answers)))
    }

    async fn probe(
        &self,
        request: Request<proto::ProbeRequest>,
    ) -> Result<Response<proto::ProbeResponse>, Status> {
        let address = convert::address("address", &request.into_inner().address)?;
        let outcome = self.health.probe(address).await;
        Ok(Response::new(convert::outcome(outcome)))
    }
}

/// One stream: requests that come in, reports that go out.
struct Talk<P> {
    health: Health<P>,
    stop: CancellationToken,
    /// `None`: the caller has said everything.
    requests: Option<Streaming<proto::WatchEndpointRequest>>,
    /// `None`: the caller has said nothing yet.
    follower: Option<Follower>,
    over: bool,
}

enum Next {
    Asked(Option<proto::WatchEndpointRequest>),
    Told(proto::WatchEndpointResponse),
}

impl<P: Probe> Talk<P> {
    /// The next answer; `None` at the end.
    async fn next(&mut self) -> Option<Result<proto::WatchEndpointResponse, Status>> {
        if self.over {
            return None;
        }
        loop {
            if self.requests.is_none() && self.follower.is_none() {
                // Nothing was asked, and nothing will be.
                return None;
            }
            let stop = self.stop.clone();
            let next = tokio::select! {
                biased;
                () = stop.cancelled() => Err(HealthError::Stopping.into()),
                asked = heard(&mut self.requests) => asked.map(Next::Asked),
                told = told(&mut self.follower) => told.map(Next::Told).map_err(Status::from),
            };
            match next {
                Err(status) => return Some(Err(status)),
                Ok(Next::Told(answer)) => return Some(Ok(answer)),
                Ok(Next::Asked(None)) => self.requests = None,
                Ok(Next::Asked(Some(request))) => match convert::asked(&request) {
                    Ok(asked) => self.take(asked),
                    Err(error) => return Some(Err(error.into())),
                },
            }
        }
    }

    fn take(&mut self, asked: Asked) {
        match &self.follower {
            Some(follower) if follower.endpoint() == asked.endpoint => self.health.say(asked),
            _ => self.follower = Some(self.health.watch(asked)),
        }
    }
}

async fn heard(
    requests: &mut Option<Streaming<proto::WatchEndpointRequest>>,
) -> Result<Option<proto::WatchEndpointRequest>, Status> {
    match requests {
        Some(requests) => requests.message().await,
        None => std::future::pending().await,
    }
}

async fn told(follower: &mut Option<Follower>) -> Result<proto::WatchEndpointResponse, HealthError> {
    match follower {
        Some(follower) => {
            let report = follower.next().await.ok_or(HealthError::Stopping)?;
            Ok(convert::report(&report, tokio::time::Instant::now().into_std()))
        }
        None => std::future::pending().await,
    }
}
