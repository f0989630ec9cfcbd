//! Equinix Metal, and whatever speaks its API: machines, elastic IPs, the API endpoint, BGP.
//!
//! Lists are complete or an error: every page is read, and where objects came or went meanwhile such that one may have been missed,
//! the list is read again. What the published API leaves open is answered on the side of doubt: 403 is not absence, a status that we do
//! not know is not "disabled".

mod addresses;
mod bgp;
mod endpoint;
mod machines;
mod networks;
mod pages;
#[cfg(test)]
mod tests;
mod wire;

use std::fmt;
use std::sync::Arc;

use groundplane_core::{DriverName, ProviderId};
use http::HeaderName;

use crate::config::EquinixConfig;
use crate::http::{ErrorBodies, Http, HttpMetrics, HttpOptions, is_plain};
use crate::{Cloud, CloudError, CloudErrorKind, ConnectError, EndpointSelector};
use groundplane_runtime::Context;

/// Its name in configuration, metrics and messages.
pub(crate) const NAME: &str = DriverName::Equinix.as_str();
/// Scheme of the provider ids that it gives out.
const SCHEME: &str = "equinixmetal";
/// Scheme of the provider ids that its predecessor gave out.
const OLD_SCHEME: &str = "packet";

/// The setting that names the file of the token.
const TOKEN_FIELD: &str = "equinix.apiTokenFile";
/// The setting that names the file of the BGP password.
const PASSWORD_FIELD: &str = "equinix.bgp.passwordFile";

/// The driver.
pub(crate) struct Equinix {
    http: Http,
    config: EquinixConfig,
    networks: networks::Networks,
}

impl fmt::Debug for Equinix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Equinix")
            .field("http", &self.http)
            .finish_non_exhaustive()
    }
}

/// The driver as configured. The configuration has been validated.
pub(crate) fn connect(
    config: &EquinixConfig,
    endpoint: Option<EndpointSelector>,
    metrics: HttpMetrics,
    context: &Context,
) -> Result<Cloud, ConnectError> {
    let driver = Equinix::new(config, metrics, context)?;
    Ok(Cloud::of(NAME, driver, endpoint, config.bgp.enabled))
}

impl Equinix {
    pub(crate) fn new(
        config: &EquinixConfig,
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
            token_header: HeaderName::from_static("x-auth-token"),
            token_prefix: "",
            errors: ErrorBodies::Texts,
            token,
            token_field: TOKEN_FIELD,
            hidden: config
                .bgp
                .password_file
                .iter()
                .map(|file| (file.clone(), PASSWORD_FIELD))
                .collect(),
            deadline: config.request_timeout,
            concurrency: config.max_concurrency,
        };
        let http = Http::new(options, metrics, Arc::clone(&context.clock)).map_err(ConnectError::Client)?;
        Ok(Self {
            http,
            config: config.clone(),
            networks: networks::Networks::default(),
        })
    }

    /// A path below the project.
    fn in_project(&self, rest: &str) -> String {
        format!("/projects/{}/{rest}", self.config.project_id)
    }
}

/// The id in `id`, where it is one of ours. A bare one must look like a UUID: other clouds have bare ids, too.
fn device_of(id: &ProviderId) -> Option<&str> {
    let bare = id.id();
    let fits = match id.scheme() {
        Some(SCHEME | OLD_SCHEME) => is_plain(bare),
        Some(_) => false,
        None => is_uuid(bare),
    };
    fits.then_some(bare)
}

/// As [`device_of`], for a call that needs one.
fn need_device(id: &ProviderId, operation: &str) -> Result<String, CloudError> {
    device_of(id).map(str::to_owned).ok_or_else(|| {
        CloudError::new(
            CloudErrorKind::Refused,
            operation,
            format!("`{id}` is not a machine of this cloud"),
        )
    })
}

fn is_uuid(id: &str) -> bool {
    let groups = [8, 4, 4, 4, 12];
    id.split('-').count() == groups.len()
        && id.split('-').zip(groups).all(|(group, length)| {
            group.len() == length && group.bytes().all(|byte| byte.is_ascii_hexdigit())
        })
}

/// A provider id of ours.
fn provider_id(device: &str, operation: &str) -> Result<ProviderId, CloudError> {
    format!("{SCHEME}://{device}").parse().map_err(|error| {
        CloudError::new(
            CloudErrorKind::Unavailable,
            operation,
            format!("machine with a strange id: {error}"),
        )
    })
}
