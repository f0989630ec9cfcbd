//! The services that the gateway calls, as ports: one trait a service, implemented over gRPC here and by fakes in tests.
//!
//! One try a call, each with a deadline; the queue tries again. Messages are the contract's own.

pub(crate) mod messages;
mod ports;

use std::sync::Arc;
use std::time::Duration;

use groundplane_runtime::grpc::Channel;

#[cfg(test)]
pub(crate) use ports::PoolEvents;
pub(crate) use ports::{Bgp, Eip, Instances, Ipam, PoolFeed};

/// A call that only reads or decides takes no longer.
const DEADLINE: Duration = Duration::from_secs(10);

/// A call behind which a cloud may have to make something takes no longer.
const CLOUD_DEADLINE: Duration = Duration::from_secs(30);

/// Channels to the services that the gateway calls.
#[derive(Clone, Debug)]
pub struct Channels {
    /// Which address belongs to whom.
    pub ipam: Channel,
    /// Which elastic IP serves whom.
    pub eip: Channel,
    /// Who speaks BGP with whom.
    pub bgp: Channel,
    /// What machines there are.
    pub instances: Channel,
}

/// The services. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Services {
    pub(crate) ipam: Arc<dyn Ipam>,
    pub(crate) pools: Arc<dyn PoolFeed>,
    pub(crate) eip: Arc<dyn Eip>,
    pub(crate) bgp: Arc<dyn Bgp>,
    pub(crate) instances: Arc<dyn Instances>,
}

impl Services {
    /// The services behind these channels.
    pub(crate) fn over(channels: Channels) -> Self {
        let Channels {
            ipam,
            eip,
            bgp,
            instances,
        } = channels;
        Self {
            pools: Arc::new(ports::IpamOverGrpc::new(ipam.clone())),
            ipam: Arc::new(ports::IpamOverGrpc::new(ipam)),
            eip: Arc::new(ports::EipOverGrpc::new(eip)),
            bgp: Arc::new(ports::BgpOverGrpc::new(bgp)),
            instances: Arc::new(ports::InstancesOverGrpc::new(instances)),
        }
    }
}

impl std::fmt::Debug for Services {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Services").finish_non_exhaustive()
    }
}
