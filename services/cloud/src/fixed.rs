//! The `static` driver (`static` is a word of the language): hardware that the user owns. Machines and BGP peers come from tables in
//! the configuration, addresses from ipam's pools.
//!
//! A table is kept by hand, so that a machine which is missing from it is not thereby gone.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use groundplane_core::{DriverName, Family, ProviderId};

use crate::config::{BgpPeer, StaticBgp, StaticConfig, StaticMachine};
use crate::{
    AddressBackend, BgpFabric, BgpProject, Cloud, CloudError, CloudErrorKind, Machine, MachineAddress,
    MachineSource, NeighborQuery, Neighbors, Peer, PowerState, Session,
};

/// Its name in configuration and messages.
pub(crate) const NAME: &str = DriverName::Static.as_str();
const SCHEME: &str = "static";

/// The driver as configured. The configuration has been validated.
pub(crate) fn connect(config: &StaticConfig) -> Cloud {
    let machines: Vec<Machine> = config.machines.iter().filter_map(machine).collect();
    let source: Option<Arc<dyn MachineSource>> = if machines.is_empty() {
        None
    } else {
        Some(Arc::new(MachineTable { machines }))
    };
    let bgp: Option<Arc<dyn BgpFabric>> = match &config.bgp {
        Some(bgp) => Some(Arc::new(PeerTable { bgp: bgp.clone() })),
        None => None,
    };
    Cloud {
        name: NAME,
        machines: source,
        addresses: AddressBackend::Ipam,
        endpoint: None,
        bgp,
    }
}

/// The provider id of a machine: as given, else `static://<name>`. `None`: no such id can be.
pub(crate) fn provider_id(machine: &StaticMachine) -> Option<ProviderId> {
    if machine.provider_id.is_empty() {
        return format!("{SCHEME}://{}", machine.name).parse().ok();
    }
    machine.provider_id.parse().ok()
}

fn machine(entry: &StaticMachine) -> Option<Machine> {
    let hostname = if entry.hostname.is_empty() {
        &entry.name
    } else {
        &entry.hostname
    };
    let address = |row: &crate::config::StaticAddress| MachineAddress {
        kind: row.kind.into(),
        address: row.address.clone(),
    };
    Some(Machine {
        id: provider_id(entry)?,
        hostname: hostname.clone(),
        instance_type: entry.instance_type.clone(),
        zone: entry.zone.clone(),
        region: entry.region.clone(),
        addresses: entry.addresses.iter().map(address).collect(),
        power: PowerState::On,
        labels: entry.labels.clone(),
    })
}

/// Machines by hand.
#[derive(Debug)]
struct MachineTable {
    machines: Vec<Machine>,
}

#[async_trait]
impl MachineSource for MachineTable {
    fn schemes(&self) -> Vec<String> {
        let mut schemes = vec![SCHEME.to_owned()];
        for scheme in self.machines.iter().filter_map(|machine| machine.id.scheme()) {
            if !schemes.iter().any(|known| known == scheme) {
                schemes.push(scheme.to_owned());
            }
        }
        schemes
    }

    /// Its own scheme, and whatever id the table has.
    fn accepts(&self, id: &ProviderId) -> bool {
        id.scheme() == Some(SCHEME) || self.machines.iter().any(|machine| machine.id == *id)
    }

    fn proves_absence(&self) -> bool {
        false
    }

    async fn list(&self) -> Result<Vec<Machine>, CloudError> {
        Ok(self.machines.clone())
    }

    async fn get(&self, id: &ProviderId) -> Result<Machine, CloudError> {
        self.machines
            .iter()
            .find(|machine| machine.id == *id)
            .cloned()
            .ok_or_else(|| {
                CloudError::new(
                    CloudErrorKind::NotFound,
                    format!("read machine {id}"),
                    "not in the table static.machines",
                )
            })
    }
}

/// Peers by hand.
struct PeerTable {
    bgp: StaticBgp,
}

impl fmt::Debug for PeerTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerTable")
            .field("peers", &self.bgp.peers.len())
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl BgpFabric for PeerTable {
    fn needs_sessions(&self) -> bool {
        false
    }

    async fn project(&self) -> Result<Option<BgpProject>, CloudError> {
        self.enable().await.map(Some)
    }

    /// It is on by being configured. Passwords are the peers'.
    async fn enable(&self) -> Result<BgpProject, CloudError> {
        Ok(BgpProject {
            enabled: true,
            pending: false,
            local_asn: self.bgp.local_asn,
            password: None,
            // The routers' own affair.
            max_prefixes: None,
        })
    }

    /// None that we know of: the routers keep them.
    async fn sessions(&self) -> Result<Vec<Session>, CloudError> {
        Ok(Vec::new())
    }

    async fn create_session(&self, _machine: &ProviderId, _family: Family) -> Result<(), CloudError> {
        Ok(())
    }

    async fn neighbors(&self, query: &NeighborQuery) -> Result<Neighbors, CloudError> {
        let rows = self.bgp.peers.iter().enumerate();
        let mut peers = rows
            .filter(|(_, row)| selects(&row.node_selector, &query.labels))
            .map(|(index, row)| self.peer(index, row, query))
            .collect::<Result<Vec<_>, _>>()?;
        peers.sort_by_key(|peer| peer.address);
        Ok(Neighbors {
            peers,
            private_network: None,
            gateway: None,
        })
    }
}

impl PeerTable {
    fn peer(&self, index: usize, row: &BgpPeer, query: &NeighborQuery) -> Result<Peer, CloudError> {
        let password = row
            .password_file
            .as_ref()
            .map(|file| file.read(&format!("static.bgp.peers[{index}].passwordFile")));
        // A peer without its password would be torn down and set up in vain: no peers at all are better than wrong ones.
        let password = password.transpose().map_err(|error| {
            CloudError::new(
                CloudErrorKind::Unavailable,
                format!("read peers of {}", query.node),
                error.to_string(),
            )
        })?;
        Ok(Peer {
            address: row.address,
            asn: row.asn,
            local_asn: row.local_asn.unwrap_or(self.bgp.local_asn),
            source: row
                .source_address
                .or_else(|| same_family(row.address, &query.addresses)),
            password,
            multihop: row.multihop,
            port: row.port,
        })
    }
}

/// Does a node with these labels have all that is asked for?
fn selects(selector: &BTreeMap<String, String>, labels: &BTreeMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

/// The first of the node's addresses from which this peer can be reached.
fn same_family(peer: IpAddr, addresses: &[IpAddr]) -> Option<IpAddr> {
    addresses
        .iter()
        .copied()
        .find(|address| Family::of(*address) == Family::of(peer))
}

#[cfg(test)]
mod tests;
