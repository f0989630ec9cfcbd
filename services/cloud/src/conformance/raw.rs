//! Calls of bytes: for messages that hold more than we know of.

use bytes::{Buf as _, BufMut as _, Bytes};
use groundplane_runtime::grpc::Channel;
use http::uri::PathAndQuery;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Request, Response, Status};

/// Messages as they are on the wire.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, target: &mut EncodeBuf<'_>) -> Result<(), Status> {
        target.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, source: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let length = source.remaining();
        Ok(Some(source.copy_to_bytes(length)))
    }
}

/// One call, by its path.
pub(crate) async fn unary(
    channel: Channel,
    path: &str,
    request: Request<Bytes>,
) -> Result<Response<Bytes>, Status> {
    let path: PathAndQuery = path
        .parse()
        .map_err(|_| Status::internal(format!("`{path}` is not a path")))?;
    let mut client = tonic::client::Grpc::new(channel);
    client
        .ready()
        .await
        .map_err(|error| Status::unavailable(error.to_string()))?;
    client.unary(request, path, Raw).await
}
