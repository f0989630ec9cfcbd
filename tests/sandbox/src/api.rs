//! What the APIs of all clouds have in common: a request and an answer, each without its transport.

use axum::http::StatusCode;
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cloud::{Access, Cloud};
use crate::equinix;
use crate::error::ApiError;
use crate::query::Query;

/// A request, without its transport.
#[derive(Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) access: Access,
    /// The one parameter of the path.
    pub(crate) id: &'a str,
    pub(crate) query: &'a Query,
    pub(crate) body: &'a [u8],
    pub(crate) now: Timestamp,
}

impl Ask<'_> {
    /// The body: 400 where it is not JSON, 422 where it is not what the call takes. Fields that are not known
    /// are ignored, as the real API does.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        let body = if self.body.is_empty() { b"{}" } else { self.body };
        serde_json::from_slice(body).map_err(|error| {
            if error.is_data() {
                ApiError::Unprocessable(error.to_string())
            } else {
                ApiError::BadRequest(error.to_string())
            }
        })
    }

    /// The path's parameter as an id; a text that is none is an object that is not there.
    pub(crate) fn id<T: std::str::FromStr>(&self) -> Result<T, ApiError> {
        self.id.parse().map_err(|_| ApiError::NotFound)
    }
}

/// An answer, without its transport.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Result<Self, ApiError> {
        let body = serde_json::to_vec(body).map_err(|error| ApiError::BadRequest(error.to_string()))?;
        Ok(Self { status, body })
    }

    pub(crate) fn ok(body: &impl Serialize) -> Result<Self, ApiError> {
        Self::json(StatusCode::OK, body)
    }

    pub(crate) fn created(body: &impl Serialize) -> Result<Self, ApiError> {
        Self::json(StatusCode::CREATED, body)
    }

    pub(crate) fn no_content() -> Self {
        Self {
            status: StatusCode::NO_CONTENT,
            body: Vec::new(),
        }
    }
}

impl From<ApiError> for Reply {
    fn from(error: ApiError) -> Self {
        Self {
            status: error.status(),
            body: equinix::refusal(&error).to_string().into_bytes(),
        }
    }
}

/// A call of the API.
pub(crate) type Call = fn(&mut Cloud, &Ask<'_>) -> Result<Reply, ApiError>;
