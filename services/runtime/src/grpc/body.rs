//! The body of an answer on its way out: observed to its end, and ended when the server stops.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::body::Body;
use tonic::{Code, Status};
use tracing::Span;

use super::layer::record;
use super::metrics::Observer;

/// A body that counts its call when it ends, however it ends.
#[derive(Debug)]
pub(crate) struct Observed {
    inner: Body,
    observer: Option<Observer>,
    span: Span,
    stopping: Pin<Box<WaitForCancellationFutureOwned>>,
    ended: bool,
}

impl Observed {
    pub(crate) fn new(inner: Body, observer: Observer, span: Span, stopping: CancellationToken) -> Self {
        Self {
            inner,
            observer: Some(observer),
            span,
            stopping: Box::pin(stopping.cancelled_owned()),
            ended: false,
        }
    }

    fn finish(&mut self, code: Code) {
        self.ended = true;
        record(&self.span, code);
        if let Some(observer) = self.observer.take() {
            observer.finish(code);
        }
    }
}

impl HttpBody for Observed {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let span = self.span.clone();
        let polled = span.in_scope(|| Pin::new(&mut self.inner).poll_frame(cx));
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(trailers) = frame.trailers_ref() {
                    let code =
                        Status::from_header_map(trailers).map_or(Code::Unknown, |status| status.code());
                    self.finish(code);
                }
            }
            Poll::Ready(Some(Err(status))) => self.finish(status.code()),
            Poll::Ready(None) => self.finish(Code::Unknown),
            // The answer to a unary call is never pending, so this ends streams alone.
            Poll::Pending => {
                if self.stopping.as_mut().poll(cx).is_ready() {
                    let status = Status::unavailable("the server is stopping");
                    self.finish(status.code());
                    return Poll::Ready(Some(trailers(&status)));
                }
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.ended || self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

fn trailers(status: &Status) -> Result<Frame<Bytes>, Status> {
    let mut headers = http::HeaderMap::new();
    status.add_header(&mut headers)?;
    Ok(Frame::trailers(headers))
}
