//! The Equinix Metal API: one function a call, from what was asked to what is answered, with the cloud in hand.
//! [`CALLS`] is the whole surface.

mod bgp;
mod devices;
mod ips;
mod paging;
mod shapes;

use serde::Serialize;
use serde_json::{Value, json};

use crate::api::Call;
use crate::error::ApiError;
use paging::Meta;

/// What all paths of the API begin with.
pub(crate) const BASE: &str = "/metal/v1";

/// The body of a refusal. The real API has two shapes, `error` and `errors`; both occur here, so that clients
/// read both.
pub(crate) fn refusal(error: &ApiError) -> Value {
    match error {
        ApiError::Unauthorized | ApiError::RateLimited => json!({ "error": error.to_string() }),
        _ => json!({ "errors": [error.to_string()] }),
    }
}

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
