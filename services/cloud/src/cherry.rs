//! Cherry Servers: machines, floating IPs, the API endpoint, BGP.
//!
//! The API differs from that of Equinix Metal, from which its controller descends, in four ways that matter here. Tags are a map. A
//! floating IP is on one server at most, by a field of its own which one call changes, so that it moves in one step; there is no
//! assignment with an id, and no refusal where another holds it. BGP is switched on by a field of the project and one of the server, and
//! the peers are those of the server's region. Pages are counted in objects, and how many there are stands in a header.

mod addresses;
mod bgp;
mod endpoint;
mod machines;
mod pages;
#[cfg(test)]
mod tests;
mod wire;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use groundplane_core::{DriverName, ProviderId};
use http::{HeaderName, Method};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::config::CherryConfig;
use crate::http::{Call, ErrorBodies, Http, HttpMetrics, HttpOptions};
use crate::{BgpProject, Cloud, CloudError, CloudErrorKind, ConnectError, EndpointSelector};
use groundplane_runtime::Context;

/// Its name in configuration, metrics and messages.
pub(crate) const NAME: &str = DriverName::Cherry.as_str();
/// Scheme of the provider ids that it gives out.
const SCHEME: &str = "cherryservers";
/// The setting that names the file of the token.
const TOKEN_FIELD: &str = "cherry.apiTokenFile";

/// The driver.
pub(crate) struct Cherry {
    http: Http,
    config: CherryConfig,
    /// The floating IP that was looked for last: an address never gets another id while it is there, and a move need not look again.
    known: Mutex<Option<FloatingIp>>,
    /// BGP of the project, and when it was read. Held across that read, which makes it one.
    recent: tokio::sync::Mutex<Option<(Instant, BgpProject)>>,
}

/// What a floating IP is called.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FloatingIp {
    address: IpAddr,
    id: String,
    /// Where it is.
    region: String,
}

impl fmt::Debug for Cherry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cherry")
            .field("http", &self.http)
            .finish_non_exhaustive()
    }
}

/// The driver as configured. The configuration has been validated.
pub(crate) fn connect(
    config: &CherryConfig,
    endpoint: Option<EndpointSelector>,
    metrics: HttpMetrics,
    context: &Context,
) -> Result<Cloud, ConnectError> {
    let driver = Cherry::new(config, metrics, context)?;
    Ok(Cloud::of(NAME, driver, endpoint, config.bgp.enabled))
}

impl Cherry {
    pub(crate) fn new(
        config: &CherryConfig,
        metrics: HttpMetrics,
        context: &Context,
    ) -> Result<Self, ConnectError> {
        let token = config
            .api_token_file
            .clone()
            .ok_or(ConnectError::NoToken(TOKEN_FIELD))?;
        let options = HttpOptions {
            driver: NAME,
            base_url: config.base_url.trim_end_matches('/').to_owned(),
            token_header: HeaderName::from_static("authorization"),
            token_prefix: "Bearer ",
            errors: ErrorBodies::Coded,
            token,
            token_field: TOKEN_FIELD,
            hidden: Vec::new(),
            deadline: config.request_timeout,
            concurrency: config.max_concurrency,
        };
        let http = Http::new(options, metrics, Arc::clone(&context.clock)).map_err(ConnectError::Client)?;
        Ok(Self {
            http,
            config: config.clone(),
            known: Mutex::new(None),
            recent: tokio::sync::Mutex::new(None),
        })
    }

    /// A path below the project.
    fn in_project(&self, rest: &str) -> String {
        format!("/projects/{}/{rest}", self.config.project_id)
    }

    /// A server as it is now.
    ///
    /// # Errors
    /// `NotFound` proves that it does not exist.
    async fn server(&self, server: u64) -> Result<wire::Server, CloudError> {
        let call = Call::new(
            format!("read server {server}"),
            Method::GET,
            "/servers/{id}",
            format!("/servers/{server}"),
        );
        self.http.read(&call).await
    }
}

/// The number in `id`, where it is one of ours. 0 is none: the API takes it for nobody.
fn server_of(id: &ProviderId) -> Option<u64> {
    let bare = id.id();
    let ours = matches!(id.scheme(), Some(SCHEME) | None) && bare.bytes().all(|byte| byte.is_ascii_digit());
    bare.parse().ok().filter(|number| ours && *number != 0)
}

/// As [`server_of`], for a call that needs one.
fn need_server(id: &ProviderId, operation: &str) -> Result<u64, CloudError> {
    server_of(id).ok_or_else(|| {
        CloudError::new(
            CloudErrorKind::Refused,
            operation,
            format!("`{id}` is not a server of this cloud"),
        )
    })
}

/// A provider id of ours.
fn provider_id(server: u64, operation: &str) -> Result<ProviderId, CloudError> {
    format!("{SCHEME}://{server}").parse().map_err(|error| {
        CloudError::new(
            CloudErrorKind::Unavailable,
            operation,
            format!("server with a strange id: {error}"),
        )
    })
}
