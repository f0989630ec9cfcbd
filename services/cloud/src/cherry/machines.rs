//! Machines.

use std::collections::BTreeMap;

use async_trait::async_trait;
use groundplane_core::ProviderId;

use super::{Cherry, SCHEME, need_server, provider_id, server_of, wire};
use crate::{CloudError, Machine, MachineAddress, MachineAddressKind, MachineSource, PowerState};

const READ: &str = "read server";

#[async_trait]
impl MachineSource for Cherry {
    fn schemes(&self) -> Vec<String> {
        vec![SCHEME.to_owned()]
    }

    fn accepts(&self, id: &ProviderId) -> bool {
        server_of(id).is_some()
    }

    fn proves_absence(&self) -> bool {
        true
    }

    async fn list(&self) -> Result<Vec<Machine>, CloudError> {
        self.servers().await?.into_iter().map(machine).collect()
    }

    async fn get(&self, id: &ProviderId) -> Result<Machine, CloudError> {
        machine(self.server(need_server(id, READ)?).await?)
    }
}

/// The cloud has regions, and no zones in them.
fn machine(server: wire::Server) -> Result<Machine, CloudError> {
    Ok(Machine {
        id: provider_id(server.id, READ)?,
        addresses: addresses(&server),
        hostname: server.hostname,
        instance_type: server.plan.slug,
        zone: String::new(),
        region: server.region.slug,
        power: if server.state == "inactive" {
            PowerState::Off
        } else {
            PowerState::On
        },
        labels: BTreeMap::new(),
    })
}

/// The host name, then the server's own addresses of both families in the cloud's order. A floating IP that is on it belongs to a
/// Service or the API endpoint, not to the node: it moves.
fn addresses(server: &wire::Server) -> Vec<MachineAddress> {
    let mut addresses = Vec::new();
    if !server.hostname.is_empty() {
        addresses.push(MachineAddress {
            kind: MachineAddressKind::Hostname,
            address: server.hostname.clone(),
        });
    }
    for row in &server.ip_addresses {
        let kind = if row.is_public() {
            MachineAddressKind::ExternalIp
        } else if row.is_private() {
            MachineAddressKind::InternalIp
        } else {
            continue;
        };
        let Some(address) = row.address.map(|address| address.to_string()) else {
            continue;
        };
        if addresses.iter().all(|other| other.address != address) {
            addresses.push(MachineAddress { kind, address });
        }
    }
    addresses
}
