//! From messages to values. An enum's value that we do not know becomes the one that changes least, and never absence.

use std::net::IpAddr;
use std::num::NonZeroU32;

use groundplane_core::{Family, Prefix, ProviderId};
use groundplane_proto::instances::v1 as instances;
use groundplane_proto::provider::v1 as wire;
use secrecy::SecretString;

use crate::{
    Assignment, BgpProject, Machine, MachineAddress, MachineAddressKind, Peer, PowerState, Reservation,
    ReservationState, Session,
};

pub(super) fn family(text: &str) -> Option<Family> {
    [Family::V4, Family::V6]
        .into_iter()
        .find(|family| family.to_string() == text)
}

pub(super) fn provider_id(text: &str) -> Result<ProviderId, String> {
    let id: ProviderId = text
        .parse()
        .map_err(|error| format!("the provider id `{text}`: {error}"))?;
    match id.scheme() {
        Some(scheme) if !scheme.is_empty() && !id.id().is_empty() => Ok(id),
        _ => Err(format!("the provider id `{text}` is not of the form scheme://id")),
    }
}

pub(super) fn machine(row: instances::Machine) -> Result<Machine, String> {
    let id = provider_id(&row.provider_id)?;
    let addresses = row.addresses.into_iter().filter_map(machine_address).collect();
    let power = match instances::PowerState::try_from(row.power) {
        Ok(instances::PowerState::Off) => PowerState::Off,
        // Off keeps pods away: that must be said, not guessed.
        Ok(instances::PowerState::On | instances::PowerState::Unspecified) | Err(_) => PowerState::On,
    };
    Ok(Machine {
        id,
        hostname: row.hostname,
        instance_type: row.instance_type,
        zone: row.zone,
        region: row.region,
        addresses,
        power,
        labels: row.labels.into_iter().collect(),
    })
}

/// `None`: of a type that we do not know, so that there is nowhere to put it.
fn machine_address(row: instances::MachineAddress) -> Option<MachineAddress> {
    let kind = match instances::AddressType::try_from(row.r#type) {
        Ok(instances::AddressType::Hostname) => MachineAddressKind::Hostname,
        Ok(instances::AddressType::InternalIp) => MachineAddressKind::InternalIp,
        Ok(instances::AddressType::ExternalIp) => MachineAddressKind::ExternalIp,
        Ok(instances::AddressType::InternalDns) => MachineAddressKind::InternalDns,
        Ok(instances::AddressType::ExternalDns) => MachineAddressKind::ExternalDns,
        Ok(instances::AddressType::Unspecified) | Err(_) => {
            tracing::debug!(kind = row.r#type, "an address of a machine is of an unknown type");
            return None;
        }
    };
    Some(MachineAddress {
        kind,
        address: row.address,
    })
}

pub(super) fn reservation(row: wire::Reservation) -> Result<Reservation, String> {
    let prefix = prefix_of(&row)?;
    let state = match wire::ReservationState::try_from(row.state) {
        Ok(wire::ReservationState::Unspecified) if !row.pending => ReservationState::Ready,
        Ok(wire::ReservationState::Ready) => ReservationState::Ready,
        Ok(wire::ReservationState::Denied) => ReservationState::Denied,
        Ok(wire::ReservationState::Unspecified | wire::ReservationState::Pending) | Err(_) => {
            ReservationState::Pending
        }
    };
    if row.id.is_empty() {
        return Err("a reservation without an id".to_owned());
    }
    if state == ReservationState::Ready && prefix.is_none() {
        return Err(format!("reservation `{}` is ready and has no prefix", row.id));
    }
    let assignments = row.assignments.into_iter().map(assignment);
    Ok(Reservation {
        assignments: assignments.collect::<Result<_, _>>()?,
        id: row.id,
        prefix,
        state,
        tags: row.tags,
        usable: !row.not_for_services,
    })
}

fn prefix_of(row: &wire::Reservation) -> Result<Option<Prefix>, String> {
    if row.prefix.is_empty() {
        return Ok(None);
    }
    // "192.0.2.7" would do for us, and not for the next client.
    let wrong = |why: String| format!("the prefix `{}` of reservation `{}`: {why}", row.prefix, row.id);
    let (address, length) = row
        .prefix
        .split_once('/')
        .ok_or_else(|| wrong("it has no length; write 192.0.2.7/32".to_owned()))?;
    let address: IpAddr = address.parse().map_err(|_| wrong("not an address".to_owned()))?;
    let length: u8 = length.parse().map_err(|_| wrong("not a length".to_owned()))?;
    Prefix::new(address, length)
        .map(Some)
        .map_err(|error| wrong(error.to_string()))
}

fn assignment(row: wire::Assignment) -> Result<Assignment, String> {
    let id = provider_id(&row.provider_id)?;
    Ok(Assignment {
        machine: id.id().to_owned(),
        id: row.id,
    })
}

/// `None`: never enabled.
pub(super) fn project(row: wire::GetProjectResponse) -> Result<Option<BgpProject>, String> {
    if !row.enabled {
        return Ok(None);
    }
    if row.local_asn == 0 {
        return Err("BGP is on, without an AS number".to_owned());
    }
    Ok(Some(BgpProject {
        enabled: true,
        pending: row.pending,
        local_asn: row.local_asn,
        password: secret(row.password),
        max_prefixes: NonZeroU32::new(row.max_prefixes),
    }))
}

pub(super) fn session(row: wire::Session) -> Result<Session, String> {
    let family = family(&row.family)
        .ok_or_else(|| format!("session `{}` has the unknown family `{}`", row.id, row.family))?;
    Ok(Session {
        machine: provider_id(&row.provider_id)?,
        id: row.id,
        family,
        status: row.status,
    })
}

pub(super) fn peers(row: wire::Neighbor) -> Result<Vec<Peer>, String> {
    let source = match row.local_address.as_str() {
        "" => None,
        text => Some(address(text)?),
    };
    let port = match u16::try_from(row.port) {
        Ok(0) => None,
        Ok(port) => Some(port),
        Err(_) => return Err(format!("{} is not a TCP port", row.port)),
    };
    if row.peer_asn == 0 || row.local_asn == 0 {
        return Err(format!(
            "the neighbor {} has no AS number",
            row.peer_addresses.join(", ")
        ));
    }
    let password = secret(row.password);
    let peer = |text: &String| {
        let address = address(text)?;
        if source.is_some_and(|source| Family::of(source) != Family::of(address)) {
            return Err(format!(
                "the neighbor {address} cannot be spoken to from {}",
                row.local_address
            ));
        }
        Ok(Peer {
            address,
            asn: row.peer_asn,
            local_asn: row.local_asn,
            source,
            password: password.clone(),
            multihop: row.multihop,
            port,
        })
    };
    row.peer_addresses.iter().map(peer).collect()
}

pub(super) fn address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| format!("`{text}` is not an IP address"))
}

fn secret(text: String) -> Option<SecretString> {
    (!text.is_empty()).then(|| text.into())
}
