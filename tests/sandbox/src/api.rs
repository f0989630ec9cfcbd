//! What the APIs of all clouds have in common: a request and an answer, each without its transport. [`Api`] is where they differ in
//! transport.

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cloud::{Access, Cloud};
use crate::error::ApiError;
use crate::query::Query;
use crate::{cherry, equinix};

/// Whose API it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Api {
    Equinix,
    Cherry,
}

impl Api {
    /// The API that a path belongs to; for a path of none, whoever is asked by default.
    pub(crate) fn of(path: &str) -> Self {
        if path.starts_with(cherry::BASE) {
            Self::Cherry
        } else {
            Self::Equinix
        }
    }

    /// What all its paths begin with.
    pub(crate) fn base(self) -> &'static str {
        match self {
            Self::Equinix => equinix::BASE,
            Self::Cherry => cherry::BASE,
        }
    }

    /// All its calls.
    pub(crate) fn calls(self) -> &'static [(&'static str, &'static str, Call)] {
        match self {
            Self::Equinix => equinix::CALLS,
            Self::Cherry => cherry::CALLS,
        }
    }

    /// The token of a request.
    pub(crate) fn token(self, headers: &HeaderMap) -> Option<&str> {
        match self {
            Self::Equinix => headers.get("x-auth-token")?.to_str().ok(),
            Self::Cherry => headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer "),
        }
    }

    /// A refusal, as its clients know it.
    pub(crate) fn refuse(self, error: &ApiError) -> Reply {
        let body = match self {
            Self::Equinix => equinix::refusal(error),
            Self::Cherry => cherry::refusal(error.status().as_u16(), &error.to_string()),
        };
        Reply {
            status: error.status(),
            body: body.to_string().into_bytes(),
            total: None,
        }
    }
}

/// A request, without its transport.
#[derive(Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) access: Access,
    /// The one parameter of the path; empty where it has none.
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
    /// How long a list is of which this is a page, where a header says so.
    pub(crate) total: Option<usize>,
}

impl Reply {
    pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Result<Self, ApiError> {
        let body = serde_json::to_vec(body).map_err(|error| ApiError::BadRequest(error.to_string()))?;
        Ok(Self {
            status,
            body,
            total: None,
        })
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
            total: None,
        }
    }
}

/// A call of the API.
pub(crate) type Call = fn(&mut Cloud, &Ask<'_>) -> Result<Reply, ApiError>;
