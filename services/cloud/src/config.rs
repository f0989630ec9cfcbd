//! Which driver, and how it reaches its cloud: the sections `driver`, `static`, `equinix`, `cherry` and `remote` of the configuration
//! file.

mod check;
mod cherry;
mod remote;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

pub use groundplane_core::{DriverName, UnknownDriver};
use groundplane_runtime::Context;
use groundplane_runtime::config::{Problem, SecretFile, duration};
use groundplane_runtime::grpc::{ChannelError, ParseTargetError};
use groundplane_runtime::tls::TlsError;
use serde::{Deserialize, Serialize};

pub use self::cherry::{CherryBgp, CherryConfig};
pub(crate) use self::remote::check_target;
pub use self::remote::{Capability, RemoteConfig, RemoteTls};
use crate::http::HttpMetrics;
use crate::remote as provider;
use crate::{Cloud, EndpointSelector, MachineAddressKind, equinix, fixed};

/// Everything that choosing a cloud takes. Sections of drivers that are not chosen are neither checked nor used.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct CloudConfig {
    /// Which one.
    pub driver: DriverName,
    /// Of the `static` driver.
    #[serde(rename = "static")]
    pub fixed: StaticConfig,
    /// Of the `equinix` driver.
    pub equinix: EquinixConfig,
    /// Of the `cherry` driver.
    pub cherry: CherryConfig,
    /// Of the `remote` driver.
    pub remote: RemoteConfig,
    /// Which elastic IP is the API endpoint; from section `endpoint`, which others read, too. `None`: none is moved.
    #[serde(skip)]
    pub endpoint: Option<EndpointSelector>,
}

/// Section `static`: tables kept by hand.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct StaticConfig {
    /// Machines; empty: a node is what it says of itself.
    pub machines: Vec<StaticMachine>,
    /// Peers; absent: no BGP.
    pub bgp: Option<StaticBgp>,
}

/// A machine.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct StaticMachine {
    /// Its name in this table.
    pub name: String,
    /// As in `spec.providerID`; empty: `static://<name>`.
    pub provider_id: String,
    /// Its host name; empty: its name.
    pub hostname: String,
    /// In the order in which the node shows them.
    pub addresses: Vec<StaticAddress>,
    /// Label `node.kubernetes.io/instance-type`.
    pub instance_type: String,
    /// Label `topology.kubernetes.io/zone`.
    pub zone: String,
    /// Label `topology.kubernetes.io/region`.
    pub region: String,
    /// More labels.
    pub labels: BTreeMap<String, String>,
}

/// An address of a machine.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct StaticAddress {
    /// What sort.
    #[serde(rename = "type")]
    pub kind: AddressType,
    /// An IP address, or a name.
    pub address: String,
}

/// What sort of address, in Kubernetes' words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum AddressType {
    /// Its host name.
    Hostname,
    /// Within the cluster's network.
    #[serde(rename = "InternalIP")]
    InternalIp,
    /// For the world.
    #[serde(rename = "ExternalIP")]
    ExternalIp,
    /// A name within the cluster's network.
    #[serde(rename = "InternalDNS")]
    InternalDns,
    /// A name for the world.
    #[serde(rename = "ExternalDNS")]
    ExternalDns,
}

impl From<AddressType> for MachineAddressKind {
    fn from(kind: AddressType) -> Self {
        match kind {
            AddressType::Hostname => Self::Hostname,
            AddressType::InternalIp => Self::InternalIp,
            AddressType::ExternalIp => Self::ExternalIp,
            AddressType::InternalDns => Self::InternalDns,
            AddressType::ExternalDns => Self::ExternalDns,
        }
    }
}

/// Peers.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct StaticBgp {
    /// Our AS number, where a peer names no other.
    pub local_asn: u32,
    /// The routers.
    #[serde(default)]
    pub peers: Vec<BgpPeer>,
}

/// A router that machines peer with.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct BgpPeer {
    /// Its address.
    pub address: IpAddr,
    /// Its AS number.
    pub asn: u32,
    /// Our AS number towards it.
    #[serde(default)]
    pub local_asn: Option<u32>,
    /// TCP MD5 password.
    #[serde(default)]
    pub password_file: Option<SecretFile>,
    /// TCP port, where it is not 179.
    #[serde(default)]
    pub port: Option<u16>,
    /// It is more than one hop away.
    #[serde(default)]
    pub multihop: bool,
    /// The address that machines speak from; absent: the node's first of the peer's family.
    #[serde(default)]
    pub source_address: Option<IpAddr>,
    /// Nodes that peer with it, by labels; empty: all.
    #[serde(default)]
    pub node_selector: BTreeMap<String, String>,
}

/// Section `equinix`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct EquinixConfig {
    /// Where the API is.
    pub base_url: String,
    /// Holds the API token. Read again when it changes.
    pub api_token_file: Option<SecretFile>,
    /// The project's id.
    pub project_id: String,
    /// Where addresses are reserved.
    pub metro: String,
    /// Where addresses are reserved if no metro is known; the API's makers want metros.
    pub facility: String,
    /// Objects a page, 1 to 1000. Long pages cost few calls.
    pub page_size: u32,
    /// Bound of a call, its repetitions and its answer's body included.
    #[serde(with = "duration")]
    pub request_timeout: Duration,
    /// Calls at once.
    pub max_concurrency: usize,
    /// BGP.
    pub bgp: EquinixBgp,
}

impl Default for EquinixConfig {
    fn default() -> Self {
        Self {
            base_url: "https://api.equinix.com/metal/v1".to_owned(),
            api_token_file: None,
            project_id: String::new(),
            metro: String::new(),
            facility: String::new(),
            page_size: 1000,
            request_timeout: Duration::from_secs(10),
            max_concurrency: 16,
            bgp: EquinixBgp::default(),
        }
    }
}

/// BGP of the project.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct EquinixBgp {
    /// Do machines speak BGP?
    pub enabled: bool,
    /// Our AS number, where the project has none yet.
    pub local_asn: u32,
    /// TCP MD5 password, where the project has none yet: 10 to 20 letters and digits of all three kinds.
    pub password_file: Option<SecretFile>,
}

impl Default for EquinixBgp {
    fn default() -> Self {
        Self {
            enabled: false,
            local_asn: 65_000,
            password_file: None,
        }
    }
}

/// Why a driver cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The configuration is wrong.
    #[error("the configuration of the cloud is wrong: {}", lines(.0))]
    Config(Vec<Problem>),
    /// The driver needs a token and was given none.
    #[error("{0}: missing")]
    NoToken(&'static str),
    /// There can be no HTTP client.
    #[error("cannot set up an HTTP client")]
    Client(#[source] reqwest::Error),
    /// The provider's address is none.
    #[error("remote.address: {0}")]
    Address(#[source] ParseTargetError),
    /// The files of TLS towards the provider are not in order.
    #[error(transparent)]
    Tls(TlsError),
    /// There can be no connection to the provider.
    #[error("remote: {0}")]
    Channel(#[source] ChannelError),
}

fn lines(problems: &[Problem]) -> String {
    let line = |problem: &Problem| format!("{}: {}; {}", problem.path, problem.message, problem.help);
    problems.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The driver that is configured. Calls no cloud: one that is away at start is none of our trouble here. Once a process, since its
/// metrics are registered.
///
/// # Errors
/// What [`CloudConfig::validate`] finds.
pub fn connect(config: &CloudConfig, context: &Context) -> Result<Cloud, ConnectError> {
    let problems = config.validate();
    if !problems.is_empty() {
        return Err(ConnectError::Config(problems));
    }
    match config.driver {
        DriverName::Static => Ok(fixed::connect(&config.fixed)),
        DriverName::Equinix => {
            let metrics = context.metrics.register(HttpMetrics::register);
            equinix::connect(&config.equinix, config.endpoint.clone(), metrics, context)
        }
        DriverName::Cherry => {
            let metrics = context.metrics.register(HttpMetrics::register);
            crate::cherry::connect(&config.cherry, config.endpoint.clone(), metrics, context)
        }
        DriverName::Remote => {
            let metrics = context.metrics.register(provider::CallMetrics::register);
            provider::connect(&config.remote, config.endpoint.as_ref(), metrics, context)
        }
    }
}
