//! What a cloud can do for us, as capability traits, and the drivers that implement them.
//!
//! A service asks a [`Cloud`] for the capability that it needs, and refuses to start, with a clear error, where the driver lacks it
//! and the configuration asks for it. The traits are shaped so that the provider contract (`provider.v1`) can carry them: values in,
//! values out, lists complete or an error, absence an error of its own ([`CloudErrorKind::NotFound`]).
//!
//! Drivers do not cache. Whoever owns a kind of object keeps one [`Inventory`] of it.

mod address;
mod bgp;
mod cherry;
mod config;
pub mod conformance;
mod endpoint;
mod equinix;
mod error;
mod fixed;
mod galaxy;
pub mod http;
mod inventory;
mod machine;
mod pages;
mod remote;
mod tags;
#[cfg(feature = "testing")]
pub mod testing;
mod tries;
mod upkeep;

use std::sync::Arc;

pub use address::{Assignment, ElasticIps, Former, NewReservation, Placement, Reservation, ReservationState};
pub use bgp::{BgpFabric, BgpProject, NeighborQuery, Neighbors, Peer, Session};
pub use config::{
    AddressType, BgpPeer, Capability, CherryBgp, CherryConfig, CloudConfig, ConnectError, DriverName,
    EquinixBgp, EquinixConfig, RemoteConfig, RemoteTls, StaticAddress, StaticBgp, StaticConfig,
    StaticMachine, UnknownDriver, connect,
};
pub use endpoint::{Endpoint, EndpointAssignment, EndpointIps, EndpointSelector};
pub use error::{CloudError, CloudErrorKind};
pub use galaxy::{Galaxy, GalaxyConfig, GalaxyError, NodeAddresses};
pub use inventory::{Inventory, InventoryConfig, Keyed, Snapshot};
pub use machine::{Machine, MachineAddress, MachineAddressKind, MachineSource, PowerState};
pub use upkeep::keep;

/// Where elastic IPs come from.
#[derive(Clone)]
pub enum AddressBackend {
    /// From ipam's pools.
    Ipam,
    /// From the cloud, whose tags say who holds what.
    Cloud(Arc<dyn ElasticIps>),
}

/// A driver, as configured: what it can do.
#[derive(Clone)]
pub struct Cloud {
    /// `static`, `equinix`, `cherry`, `remote`: for logs and `ctl`.
    pub name: &'static str,
    /// Machines. `None`: a node is what it says of itself.
    pub machines: Option<Arc<dyn MachineSource>>,
    /// Elastic IPs.
    pub addresses: AddressBackend,
    /// The API endpoint. `None`: the driver cannot move one, or none is configured.
    pub endpoint: Option<ConfiguredEndpoint>,
    /// BGP. `None`: not configured.
    pub bgp: Option<Arc<dyn BgpFabric>>,
}

impl Cloud {
    /// A cloud whose driver does everything; what moves the endpoint and BGP only where they are configured.
    fn of<Driver>(name: &'static str, driver: Driver, endpoint: Option<EndpointSelector>, bgp: bool) -> Self
    where
        Driver: MachineSource + ElasticIps + EndpointIps + BgpFabric,
    {
        let driver = Arc::new(driver);
        let endpoint = endpoint.map(|selector| ConfiguredEndpoint {
            selector,
            ips: Arc::clone(&driver) as _,
        });
        Self {
            name,
            machines: Some(Arc::clone(&driver) as _),
            addresses: AddressBackend::Cloud(Arc::clone(&driver) as _),
            endpoint,
            bgp: bgp.then_some(driver as _),
        }
    }
}

/// The API endpoint that is configured, and what moves it.
#[derive(Clone)]
pub struct ConfiguredEndpoint {
    /// Which elastic IP it is.
    pub selector: EndpointSelector,
    /// What moves it.
    pub ips: Arc<dyn EndpointIps>,
}

impl std::fmt::Debug for ConfiguredEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConfiguredEndpoint")
            .field("selector", &self.selector)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for AddressBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ipam => "Ipam",
            Self::Cloud(_) => "Cloud",
        })
    }
}

impl std::fmt::Debug for Cloud {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cloud")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
