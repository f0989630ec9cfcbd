//! The driver `remote`: a cloud that implements `provider.v1`, the contract which `docs/provider.md` specifies.
//!
//! ```text
//!  traits ──► capabilities (asked first, and again after what was lost) ──► call (slot, deadline, repeats) ──► the provider
//!               │                                                             │
//!               └─ lacking one: Refused, with the way out                      └─ code ──► CloudErrorKind; pages ──► a whole list
//! ```
//!
//! The provider is somebody else's program. Nothing that it says wrongly is taken for absence: what cannot be read, is there twice, is
//! another than was asked for or comes without an end is `Unavailable`, with what is wrong. Until it has answered once, its provider ids
//! are not known: then any id with a scheme may be its own, and nothing proves absence.

mod addresses;
mod bgp;
mod call;
mod capabilities;
mod convert;
mod endpoint;
mod machines;
mod metrics;
mod pages;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use groundplane_core::DriverName;
use groundplane_runtime::Context;
use groundplane_runtime::grpc::{Channel, KeepAlive, Target, channel_abroad};
use groundplane_runtime::tls::{ClientCredentials, ClientSettings};
use tokio::sync::Semaphore;

use crate::config::{Capability, RemoteConfig};
use crate::{AddressBackend, Cloud, ConfiguredEndpoint, ConnectError, EndpointSelector};
use capabilities::Capabilities;
pub(crate) use metrics::CallMetrics;

/// Its name in configuration, metrics and messages.
pub(crate) const NAME: &str = DriverName::Remote.as_str();

/// The keys that name the provider's files, as people write them.
const SETTINGS: ClientSettings = ClientSettings {
    side: "provider",
    ca: "remote.tls.caFile",
    certificate: "remote.tls.certificateFile",
    key: "remote.tls.keyFile",
    server_name: "remote.tls.serverName",
};

/// The driver. Cheap to clone; all clones share connection, slots and what the provider said of itself.
#[derive(Clone)]
pub(crate) struct Remote {
    inner: Arc<Inner>,
}

struct Inner {
    target: String,
    channel: Channel,
    deadline: Duration,
    page_size: u32,
    slots: Semaphore,
    metrics: CallMetrics,
    capabilities: Capabilities,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("target", &self.inner.target)
            .finish_non_exhaustive()
    }
}

/// The driver as configured. The configuration has been validated. Renewed certificates are used as soon as they are seen.
pub(crate) fn connect(
    config: &RemoteConfig,
    endpoint: Option<&EndpointSelector>,
    metrics: CallMetrics,
    context: &Context,
) -> Result<Cloud, ConnectError> {
    let target: Target = config.address.parse().map_err(ConnectError::Address)?;
    let credentials = config.tls.credentials(&target, &SETTINGS);
    let credentials = credentials.map_err(ConnectError::Tls)?;
    if let Some(credentials) = &credentials {
        credentials.watch(context);
    }
    let remote = Remote::new(config, &target, credentials.as_ref(), metrics)?;
    Ok(remote.cloud(&config.capabilities, endpoint))
}

impl Remote {
    pub(crate) fn new(
        config: &RemoteConfig,
        target: &Target,
        credentials: Option<&ClientCredentials>,
        metrics: CallMetrics,
    ) -> Result<Self, ConnectError> {
        let inner = Inner {
            target: target.to_string(),
            channel: channel_abroad(target, credentials, keep_alive(config.request_timeout))
                .map_err(ConnectError::Channel)?,
            deadline: config.request_timeout,
            page_size: config.page_size,
            slots: Semaphore::new(config.max_concurrency),
            metrics,
            capabilities: Capabilities::default(),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// What is used of it. The rest comes from elsewhere, as with the driver `static`.
    pub(crate) fn cloud(&self, capabilities: &[Capability], endpoint: Option<&EndpointSelector>) -> Cloud {
        let uses = |capability| capabilities.contains(&capability);
        let moves = endpoint.filter(|_| uses(Capability::Endpoint));
        Cloud {
            name: NAME,
            machines: if uses(Capability::Machines) {
                Some(Arc::new(self.clone()))
            } else {
                None
            },
            addresses: if uses(Capability::Addresses) {
                AddressBackend::Cloud(Arc::new(self.clone()))
            } else {
                AddressBackend::Ipam
            },
            endpoint: moves.map(|selector| ConfiguredEndpoint {
                selector: selector.clone(),
                ips: Arc::new(self.clone()),
            }),
            bgp: if uses(Capability::Bgp) {
                Some(Arc::new(self.clone()))
            } else {
                None
            },
        }
    }
}

/// Of no call is the server asked more than twice whether it is there, and never without one: common servers end a connection at the
/// third ping within five minutes that has no answer to a call in between.
fn keep_alive(call: Duration) -> KeepAlive {
    KeepAlive {
        interval: (call / 2).max(KeepAlive::OURS.interval),
        timeout: KeepAlive::OURS.timeout,
        while_idle: false,
    }
}
