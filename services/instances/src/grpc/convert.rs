//! Values to messages.

use groundplane_cloud::{Machine, MachineAddress, MachineAddressKind, PowerState};
use groundplane_proto::instances::v1 as proto;
use jiff::Timestamp;

/// Items of a page: where the caller does not say, and at most.
const PAGE: usize = 500;
const LONGEST_PAGE: usize = 5_000;

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

/// The page of `machines` (ordered by provider id) that `request` asks for. The token is the last id of the page before.
pub(crate) fn page(
    machines: Vec<Machine>,
    read_at: Timestamp,
    request: &proto::ListMachinesRequest,
) -> proto::ListMachinesResponse {
    let size = match usize::try_from(request.page_size) {
        Ok(0) => PAGE,
        Ok(size) => size.min(LONGEST_PAGE),
        Err(_) => LONGEST_PAGE,
    };
    let mut rest = machines
        .into_iter()
        .filter(|item| item.id.as_str() > request.page_token.as_str())
        .peekable();
    let page: Vec<_> = rest.by_ref().take(size).map(machine).collect();
    let last = page
        .last()
        .map(|machine| machine.provider_id.clone())
        .unwrap_or_default();
    proto::ListMachinesResponse {
        next_page_token: if rest.peek().is_some() {
            last
        } else {
            String::new()
        },
        machines: page,
        read_at: Some(timestamp(read_at)),
    }
}

/// A time as protobuf writes it.
pub(crate) fn timestamp(time: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: time.as_second(),
        nanos: time.subsec_nanosecond(),
    }
}
