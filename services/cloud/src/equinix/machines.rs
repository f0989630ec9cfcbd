//! Machines.

use std::collections::BTreeMap;

use async_trait::async_trait;
use groundplane_core::ProviderId;
use http::Method;

use super::pages::List;
use super::{Equinix, OLD_SCHEME, SCHEME, device_of, need_device, provider_id, wire};
use crate::http::Call;
use crate::{CloudError, Machine, MachineAddress, MachineAddressKind, MachineSource, PowerState};

const LIST: List = List {
    operation: "list machines",
    route: "/projects/{pid}/devices",
    path: "devices",
    include: Some("facility"),
    may_lack_meta: false,
};

#[async_trait]
impl MachineSource for Equinix {
    fn schemes(&self) -> Vec<String> {
        vec![SCHEME.to_owned(), OLD_SCHEME.to_owned()]
    }

    fn accepts(&self, id: &ProviderId) -> bool {
        device_of(id).is_some()
    }

    fn proves_absence(&self) -> bool {
        true
    }

    async fn list(&self) -> Result<Vec<Machine>, CloudError> {
        self.list_all::<wire::Device>(LIST)
            .await?
            .into_iter()
            .map(machine)
            .collect()
    }

    async fn get(&self, id: &ProviderId) -> Result<Machine, CloudError> {
        let device = need_device(id, "read machine")?;
        let call = Call::new(
            format!("read machine {device}"),
            Method::GET,
            "/devices/{id}",
            format!("/devices/{device}"),
        )
        .query("include", "facility");
        machine(self.http.read(&call).await?)
    }
}

fn machine(device: wire::Device) -> Result<Machine, CloudError> {
    Ok(Machine {
        id: provider_id(&device.id, "read machine")?,
        addresses: addresses(&device),
        hostname: device.hostname,
        instance_type: device.plan.slug,
        zone: device.facility.code,
        region: device.metro.code,
        power: if device.state == "inactive" {
            PowerState::Off
        } else {
            PowerState::On
        },
        labels: BTreeMap::new(),
    })
}

/// The host name, then the machine's own addresses of both families in the cloud's order. An elastic IP that was assigned belongs to
/// a Service or the API endpoint, not to the node: it moves.
fn addresses(device: &wire::Device) -> Vec<MachineAddress> {
    let mut addresses = Vec::new();
    if !device.hostname.is_empty() {
        addresses.push(MachineAddress {
            kind: MachineAddressKind::Hostname,
            address: device.hostname.clone(),
        });
    }
    for row in device.ip_addresses.iter().filter(|row| row.management) {
        let Some(address) = row.address.map(|address| address.to_string()) else {
            continue;
        };
        let kind = if row.public {
            MachineAddressKind::ExternalIp
        } else {
            MachineAddressKind::InternalIp
        };
        if addresses.iter().all(|other| other.address != address) {
            addresses.push(MachineAddress { kind, address });
        }
    }
    addresses
}
