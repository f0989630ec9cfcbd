//! BGP.

use std::net::IpAddr;
use std::num::NonZeroU32;

use async_trait::async_trait;
use groundplane_core::{Family, ProviderId};
use secrecy::SecretString;

use crate::CloudError;

/// BGP of a whole project.
#[derive(Clone, Debug)]
pub struct BgpProject {
    /// It is on (or asked for, see `pending`).
    pub enabled: bool,
    /// The cloud has not approved it yet.
    pub pending: bool,
    /// Our AS number.
    pub local_asn: u32,
    /// TCP MD5 password.
    pub password: Option<SecretString>,
    /// So many prefixes of a family may a machine announce; one more ends its sessions. `None`: not told.
    pub max_prefixes: Option<NonZeroU32>,
}

/// One neighbour of a machine.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its address.
    pub address: IpAddr,
    /// Its AS number.
    pub asn: u32,
    /// Our AS number towards it.
    pub local_asn: u32,
    /// The address that we must speak from.
    pub source: Option<IpAddr>,
    /// TCP MD5 password.
    pub password: Option<SecretString>,
    /// It is more than one hop away.
    pub multihop: bool,
    /// TCP port, where it is not 179.
    pub port: Option<u16>,
}

/// Everything that a machine needs to peer.
#[derive(Clone, Debug, Default)]
pub struct Neighbors {
    /// Ordered by address.
    pub peers: Vec<Peer>,
    /// The network that the machine's private management address is in, as CIDR.
    pub private_network: Option<String>,
    /// The router next to that address, by which peers beyond are reached; `None`: the cloud does not say.
    pub gateway: Option<IpAddr>,
}

/// A session of a machine, by the cloud's word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The cloud's id.
    pub id: String,
    /// The machine.
    pub machine: ProviderId,
    /// Its family.
    pub family: Family,
    /// `up`, `down`, `unknown`, `up,down`.
    pub status: String,
}

/// A cloud (or a table) that knows BGP.
#[async_trait]
pub trait BgpFabric: Send + Sync + 'static {
    /// Do machines need sessions made for them? No, where peers come from a table.
    fn needs_sessions(&self) -> bool;

    /// BGP of the project; `None`: never enabled.
    async fn project(&self) -> Result<Option<BgpProject>, CloudError>;

    /// Switches it on as configured. What the project has already cannot be changed: read it first.
    async fn enable(&self) -> Result<BgpProject, CloudError>;

    /// Every session of the project, all pages. Complete, or an error.
    async fn sessions(&self) -> Result<Vec<Session>, CloudError>;

    /// Makes a session. There already is success.
    async fn create_session(&self, machine: &ProviderId, family: Family) -> Result<(), CloudError>;

    /// The neighbours of a machine. `node`, `labels` and `addresses` are what Kubernetes knows of it, for tables.
    ///
    /// # Errors
    /// `NotFound`: no such machine.
    async fn neighbors(&self, query: &NeighborQuery) -> Result<Neighbors, CloudError>;
}

/// Whose neighbours?
#[derive(Clone, Debug)]
pub struct NeighborQuery {
    /// The machine.
    pub machine: ProviderId,
    /// Its node's name.
    pub node: String,
    /// Its node's labels.
    pub labels: std::collections::BTreeMap<String, String>,
    /// Its node's addresses.
    pub addresses: Vec<IpAddr>,
}
