//! Galaxy's contract, `rpc.IPProviderService`: floating addresses of pods, which a cloud attaches to nodes.
//!
//! Clouds that implement it today work unchanged: messages, paths, deadline and keepalive are those that they know. It says less than
//! `provider.v1`: there is no list, no key and no code that tells failures apart. So both calls are safe to repeat, one call moves an
//! address, and whoever calls keeps its own account of what is where.
//!
//! [`NodeAddresses`] is what floating pod addresses are built on; no driver of Services and nodes uses it.

#[cfg(test)]
mod tests;

use std::fmt;
use std::net::Ipv4Addr;
use std::time::Duration;

use async_trait::async_trait;
use groundplane_core::{ErrorKind, NodeName};
use groundplane_proto::rpc::ip_provider_service_client::IpProviderServiceClient;
use groundplane_proto::rpc::{AssignIpRequest, UnAssignIpRequest};
use groundplane_runtime::config::Problem;
use groundplane_runtime::grpc::{Channel, ChannelError, KeepAlive, RpcError, Target, channel_abroad};
use groundplane_runtime::tls::ClientSettings;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use tonic::{Request, Response, Status};

use crate::config::check_target;
use crate::error::answered;
use crate::{CloudError, CloudErrorKind, RemoteTls};

/// Bound of a call, as long as galaxy's: attaching an interface to a machine takes clouds tens of seconds.
const DEADLINE: Duration = Duration::from_secs(60);
/// As galaxy's. More often, and servers with the usual limits end the connection under a call that takes long.
const KEEP_ALIVE: KeepAlive = KeepAlive {
    interval: Duration::from_secs(120),
    timeout: Duration::from_secs(60),
    while_idle: true,
};

/// By its own keys, as [`GalaxyConfig::problems`] names them.
const SETTINGS: ClientSettings = ClientSettings {
    side: "galaxy",
    ca: "tls.caFile",
    certificate: "tls.certificateFile",
    key: "tls.keyFile",
    server_name: "tls.serverName",
};

/// A cloud that attaches addresses to nodes.
///
/// # Errors
/// Of both calls: [`CloudErrorKind::Refused`] where the cloud will not do it as things are, [`CloudErrorKind::Timeout`] where the effect is
/// not known, else what a later call may overcome.
#[async_trait]
pub trait NodeAddresses: Send + Sync {
    /// Attaches an address to a node. Where another node has it, it moves: nobody need take it away first. May be repeated.
    async fn assign(&self, node: &NodeName, address: Ipv4Addr) -> Result<(), CloudError>;

    /// Detaches an address from the node that had it last, `None` where nobody knows. Detached already: OK. May be repeated.
    async fn unassign(&self, node: Option<&NodeName>, address: Ipv4Addr) -> Result<(), CloudError>;
}

/// Where a provider of galaxy's contract is.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct GalaxyConfig {
    /// `https://host:port`, `http://host:port`, `unix:/path`.
    pub address: String,
    /// How it is trusted, and we prove who we are.
    pub tls: RemoteTls,
    /// Allows `http://` beyond loopback, which is how galaxy speaks to its providers.
    pub insecure: bool,
}

impl GalaxyConfig {
    /// What is wrong with it, by its own keys; empty: nothing.
    pub fn problems(&self) -> Vec<Problem> {
        check_target(&self.address, &self.tls, self.insecure)
    }
}

/// Why there can be no client.
#[derive(Debug, thiserror::Error)]
pub enum GalaxyError {
    /// The configuration is wrong.
    #[error("{}: {}; {}", .0.path, .0.message, .0.help)]
    Config(Problem),
    /// TLS cannot be set up.
    #[error(transparent)]
    Channel(#[from] ChannelError),
}

/// The client of a provider. Cheap to clone; all clones share a connection.
#[derive(Clone)]
pub struct Galaxy {
    client: IpProviderServiceClient<Channel>,
    target: String,
}

impl fmt::Debug for Galaxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Galaxy")
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

impl Galaxy {
    /// A client of the provider that is configured. Does not connect yet: the provider may be away.
    ///
    /// # Errors
    /// The configuration is wrong.
    pub fn new(config: &GalaxyConfig) -> Result<Self, GalaxyError> {
        if let Some(problem) = config.problems().into_iter().next() {
            return Err(GalaxyError::Config(problem));
        }
        let target =
            config
                .address
                .parse()
                .map_err(|error: groundplane_runtime::grpc::ParseTargetError| {
                    GalaxyError::Config(Problem::new("address", error.to_string(), ""))
                })?;
        Self::to(&target, &config.tls)
    }

    fn to(target: &Target, tls: &RemoteTls) -> Result<Self, GalaxyError> {
        let credentials = tls.credentials(target, &SETTINGS).map_err(ChannelError::Tls)?;
        let channel = channel_abroad(target, credentials.as_ref(), KEEP_ALIVE)?;
        Ok(Self {
            client: IpProviderServiceClient::new(channel),
            target: target.to_string(),
        })
    }
}

#[async_trait]
impl NodeAddresses for Galaxy {
    async fn assign(&self, node: &NodeName, address: Ipv4Addr) -> Result<(), CloudError> {
        let operation = format!("assign {address} to {node}");
        let request = bounded(AssignIpRequest {
            node_name: node.to_string(),
            ip_address: address.to_string(),
        });
        let mut client = self.client.clone();
        let reply = answer(&operation, client.assign_ip(request)).await?;
        judge(&operation, reply.success, reply.msg)
    }

    async fn unassign(&self, node: Option<&NodeName>, address: Ipv4Addr) -> Result<(), CloudError> {
        let operation = match node {
            Some(node) => format!("unassign {address} from {node}"),
            None => format!("unassign {address}"),
        };
        let request = bounded(UnAssignIpRequest {
            node_name: node.map(ToString::to_string).unwrap_or_default(),
            ip_address: address.to_string(),
        });
        let mut client = self.client.clone();
        let reply = answer(&operation, client.un_assign_ip(request)).await?;
        judge(&operation, reply.success, reply.msg)
    }
}

fn bounded<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(DEADLINE);
    request
}

/// What the provider answered in time.
async fn answer<T>(
    operation: &str,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, CloudError> {
    let status = match timeout(DEADLINE, call).await {
        Ok(Ok(reply)) => return Ok(reply.into_inner()),
        Ok(Err(status)) => status,
        Err(_) => Status::deadline_exceeded(format!("no answer within {DEADLINE:?}")),
    };
    let error = RpcError::from(status);
    let kind = match error.kind {
        ErrorKind::Timeout => CloudErrorKind::Timeout,
        ErrorKind::Unauthenticated => CloudErrorKind::Unauthenticated,
        ErrorKind::Denied => CloudErrorKind::Denied,
        ErrorKind::Exhausted => CloudErrorKind::RateLimited,
        ErrorKind::Invalid
        | ErrorKind::NotFound
        | ErrorKind::AlreadyExists
        | ErrorKind::Precondition
        | ErrorKind::Unsupported
        | ErrorKind::Compacted => CloudErrorKind::Refused,
        ErrorKind::Unavailable | ErrorKind::Conflict | ErrorKind::Internal | ErrorKind::Corrupt => {
            CloudErrorKind::Unavailable
        }
    };
    Err(answered(kind, operation, error))
}

/// An OK status says nothing yet. The contract doesn't say whether a failure is for good, and galaxy tries each again; so do we.
fn judge(operation: &str, success: bool, message: String) -> Result<(), CloudError> {
    if success {
        return Ok(());
    }
    let message = if message.is_empty() {
        "the provider failed, and does not say why".to_owned()
    } else {
        message
    };
    Err(CloudError::new(CloudErrorKind::Unavailable, operation, message))
}
