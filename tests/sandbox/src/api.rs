//! The calls of the Equinix Metal API: one function a call, from what was asked to what is answered, with the
//! cloud in hand. [`CALLS`] is the whole surface.

mod bgp;
mod devices;
mod ips;

use axum::http::StatusCode;
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cloud::{Access, Cloud};
use crate::error::ApiError;
use crate::paging::{Meta, Query};

/// What all paths of the API begin with.
pub(crate) const BASE: &str = "/metal/v1";

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
    fn json<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
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
    fn id<T: std::str::FromStr>(&self) -> Result<T, ApiError> {
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

    fn ok(body: &impl Serialize) -> Result<Self, ApiError> {
        Self::json(StatusCode::OK, body)
    }

    fn created(body: &impl Serialize) -> Result<Self, ApiError> {
        Self::json(StatusCode::CREATED, body)
    }

    fn no_content() -> Self {
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
            body: error.body().to_string().into_bytes(),
        }
    }
}

/// A call of the API.
pub(crate) type Call = fn(&mut Cloud, &Ask<'_>) -> Result<Reply, ApiError>;

/// Every call, with its route as the journal and the fault rules name it.
pub(crate) const CALLS: &[(&str, &str, Call)] = &[
    ("GET", "/projects/{pid}/devices", devices::list),
    ("GET", "/devices/{id}", devices::get),
    ("GET", "/devices/{id}/ips", ips::list_of_device),
    ("POST", "/devices/{id}/ips", ips::assign),
    ("GET", "/projects/{pid}/ips", ips::list),
    ("POST", "/projects/{pid}/ips", ips::reserve),
    ("GET", "/ips/{id}", ips::get),
    ("PATCH", "/ips/{id}", ips::update),
    ("DELETE", "/ips/{id}", ips::delete),
    ("GET", "/projects/{pid}/bgp-config", bgp::config),
    ("POST", "/projects/{pid}/bgp-configs", bgp::enable),
    ("GET", "/projects/{pid}/bgp/sessions", bgp::list_sessions),
    ("GET", "/devices/{id}/bgp/sessions", bgp::list_sessions_of_device),
    ("POST", "/devices/{id}/bgp/sessions", bgp::add_session),
    ("GET", "/bgp/sessions/{id}", bgp::session),
    ("DELETE", "/bgp/sessions/{id}", bgp::remove_session),
    ("GET", "/devices/{id}/bgp/neighbors", bgp::neighbors),
];

/// A list of devices, by its name in the API.
#[derive(Debug, Serialize)]
struct Devices<T> {
    devices: Vec<T>,
    meta: Meta,
}

/// A list of addresses.
#[derive(Debug, Serialize)]
struct Ips<T> {
    ip_addresses: Vec<T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    meta: Option<Meta>,
}

/// A list of BGP sessions.
#[derive(Debug, Serialize)]
struct Sessions<T> {
    bgp_sessions: Vec<T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    meta: Option<Meta>,
}
