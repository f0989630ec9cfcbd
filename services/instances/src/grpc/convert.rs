//! Values to messages.

use groundplane_cloud::{Machine, MachineAddress, MachineAddressKind, PowerState};
use groundplane_proto::instances::v1 as proto;

fn address(address: MachineAddress) -> proto::MachineAddress {
    let kind = match address.kind {
        MachineAddressKind::Hostname => proto::AddressType::Hostname,
        MachineAddressKind::InternalIp => proto::AddressType::InternalIp,
        MachineAddressKind::ExternalIp => proto::AddressType::ExternalIp,
        MachineAddressKind::InternalDns => proto::AddressType::InternalDns,
        MachineAddressKind::ExternalDns => proto::AddressType::ExternalDns,
    };
    proto::MachineAddress {
        r#type: kind.into(),
        address: address.address,
    }
}

/// A machine as the contract says it.
pub(crate) fn machine(machine: Machine) -> proto::Machine {
    let power = match machine.power {
        PowerState::On => proto::PowerState::On,
        PowerState::Off => proto::PowerState::Off,
    };
    proto::Machine {
        provider_id: machine.id.into(),
        hostname: machine.hostname,
        instance_type: machine.instance_type,
        zone: machine.zone,
        region: machine.region,
        addresses: machine.addresses.into_iter().map(address).collect(),
        power: power.into(),
        labels: machine.labels.into_iter().collect(),
    }
}
