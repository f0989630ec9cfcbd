//! The JSON of the API, written straight from the objects. What does not apply is absent.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use groundplane_core::Family;
use jiff::Timestamp;
use serde::Serialize;

use super::map_of;
use crate::addressing::network;
use crate::cloud::ProjectState;
use crate::ident::digest;
use crate::model::{Assignment, BgpStatus, Device, DeviceState, Reservation};
use crate::regions::{self, Region, RegionBgp};

#[derive(Debug, Serialize)]
struct ProjectBgp {
    enabled: bool,
    local_asn: u32,
}

/// A project.
#[derive(Debug, Serialize)]
pub(super) struct ProjectBody<'a> {
    id: u32,
    name: &'a str,
    href: String,
    bgp: ProjectBgp,
}

impl<'a> From<&'a ProjectState> for ProjectBody<'a> {
    fn from(project: &'a ProjectState) -> Self {
        Self {
            id: project.number,
            name: &project.name,
            href: format!("/projects/{}", project.number),
            bgp: ProjectBgp {
                enabled: is_bgp_on(project),
                local_asn: project.bgp.as_ref().map_or(0, |config| config.asn),
            },
        }
    }
}

fn is_bgp_on(project: &ProjectState) -> bool {
    let config = project.bgp.as_ref();
    config.is_some_and(|config| config.status == BgpStatus::Enabled)
}

/// A region.
#[derive(Debug, Serialize)]
pub(super) struct RegionBody {
    id: u32,
    name: &'static str,
    slug: &'static str,
    region_iso_2: &'static str,
    location: &'static str,
    href: String,
    bgp: RegionBgp,
}

impl RegionBody {
    pub(super) fn new(project: &ProjectState, region: Region) -> Self {
        Self {
            id: region.id,
            name: region.name,
            slug: region.slug,
            region_iso_2: region.country,
            location: region.location,
            href: format!("/regions/{}", region.id),
            bgp: project.region_bgp(region),
        }
    }

    fn of_metro(project: &ProjectState, metro: &str) -> Option<Self> {
        regions::of_metro(metro).map(|region| Self::new(project, region))
    }
}

/// A plan.
#[derive(Debug, Serialize)]
pub(super) struct PlanBody<'a> {
    id: u32,
    name: &'a str,
    slug: &'a str,
}

impl<'a> From<&'a str> for PlanBody<'a> {
    fn from(slug: &'a str) -> Self {
        Self {
            // A number that the slug always has: below 2^31, as the vendor's are.
            id: u32::try_from(digest(0, slug.as_bytes()) >> 33).unwrap_or_default(),
            name: slug,
            slug,
        }
    }
}

/// A server where an address shows it.
#[derive(Debug, Serialize)]
struct ServerReference<'a> {
    id: u32,
    name: &'a str,
    href: String,
    hostname: &'a str,
    state: DeviceState,
}

impl<'a> From<&'a Device> for ServerReference<'a> {
    fn from(device: &'a Device) -> Self {
        Self {
            id: device.number,
            name: &device.plan,
            href: format!("/servers/{}", device.number),
            hostname: &device.hostname,
            state: device.state,
        }
    }
}

/// An address, of a machine or floating.
#[derive(Debug, Serialize)]
pub(super) struct IpBody<'a> {
    id: String,
    address: IpAddr,
    address_family: u8,
    cidr: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<IpAddr>,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    region: Option<RegionBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    routed_to: Option<Box<Self>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    assigned_to: Option<ServerReference<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    targeted_to: Option<ServerReference<'a>>,
    project: ProjectBody<'a>,
    ptr_record: &'static str,
    a_record: &'static str,
    tags: BTreeMap<&'a str, &'a str>,
    ddos_scrubbing: bool,
    created_at: Timestamp,
    href: String,
}

/// What kind of address a machine's own is.
pub(super) fn kind_of_own(row: &Assignment) -> &'static str {
    if row.public { "primary-ip" } else { "private-ip" }
}

/// What kind of address a reservation is.
pub(super) fn kind_of_reservation(row: &Reservation) -> &'static str {
    if row.quantity == 1 {
        "floating-ip"
    } else {
        "subnet"
    }
}

impl<'a> IpBody<'a> {
    /// The address of a machine.
    pub(super) fn own(project: &'a ProjectState, row: &'a Assignment) -> Self {
        let device = project.devices.get(row.device);
        let first = network(row.address, row.cidr);
        Self {
            id: row.id.to_string(),
            address: row.address,
            address_family: family_number(row.address),
            cidr: format!("{first}/{}", row.cidr),
            gateway: row.public.then_some(first),
            kind: kind_of_own(row),
            region: device.and_then(|device| RegionBody::of_metro(project, &device.metro)),
            routed_to: None,
            assigned_to: device.map(ServerReference::from),
            targeted_to: None,
            project: project.into(),
            ptr_record: "",
            a_record: "",
            tags: BTreeMap::new(),
            ddos_scrubbing: false,
            created_at: row.created_at,
            href: format!("/ips/{}", row.id),
        }
    }

    /// A floating address, or a block of them.
    pub(super) fn floating(project: &'a ProjectState, row: &'a Reservation) -> Self {
        let address = row.address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let held = row.assignments.iter().find_map(|id| project.assignments.get(id));
        let device = held.and_then(|held| project.devices.get(held.device));
        let primary = device.and_then(|device| {
            let mut own = device
                .addresses
                .iter()
                .filter_map(|id| project.assignments.get(id));
            own.find(|own| own.management && own.public && Family::of(own.address) == Family::of(address))
        });
        Self {
            id: row.id.to_string(),
            address,
            address_family: family_number(address),
            cidr: format!("{address}/{}", row.cidr),
            gateway: None,
            kind: kind_of_reservation(row),
            region: row
                .metro
                .as_deref()
                .and_then(|metro| RegionBody::of_metro(project, metro)),
            routed_to: primary.map(|own| Box::new(Self::own(project, own))),
            assigned_to: None,
            targeted_to: device.map(ServerReference::from),
            project: project.into(),
            ptr_record: "",
            a_record: "",
            tags: map_of(&row.tags),
            ddos_scrubbing: false,
            created_at: row.created_at,
            href: format!("/ips/{}", row.id),
        }
    }
}

fn family_number(address: IpAddr) -> u8 {
    match Family::of(address) {
        Family::V4 => 4,
        Family::V6 => 6,
    }
}

#[derive(Debug, Serialize)]
struct ServerBgp {
    enabled: bool,
    available: bool,
    status: &'static str,
    routers: usize,
    connected: usize,
    limit: u32,
    active: u32,
    routes: [&'static str; 0],
}

impl ServerBgp {
    fn new(project: &ProjectState, device: &Device) -> Self {
        let mut sessions = device.sessions.iter().filter_map(|id| project.sessions.get(*id));
        let session = sessions.next();
        let routers = regions::of_metro(&device.metro)
            .map(|region| project.region_bgp(region).hosts.len())
            .unwrap_or_default();
        let connected = session.map_or(0, |session| {
            session.status.split(',').filter(|word| *word == "up").count()
        });
        Self {
            enabled: session.is_some(),
            available: is_bgp_on(project),
            status: if connected > 0 { "up" } else { "down" },
            routers,
            connected: connected.min(routers),
            limit: project.options.max_prefix,
            active: 0,
            routes: [],
        }
    }
}

/// A machine.
#[derive(Debug, Serialize)]
pub(super) struct ServerBody<'a> {
    id: u32,
    name: &'a str,
    href: String,
    hostname: &'a str,
    state: DeviceState,
    status: &'static str,
    plan: PlanBody<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    region: Option<RegionBody>,
    bgp: ServerBgp,
    #[serde(skip_serializing_if = "Option::is_none")]
    ip_addresses: Option<Vec<IpBody<'a>>>,
    tags: BTreeMap<&'a str, &'a str>,
    project: ProjectBody<'a>,
    created_at: Timestamp,
}

impl<'a> ServerBody<'a> {
    pub(super) fn new(project: &'a ProjectState, device: &'a Device, with_addresses: bool) -> Self {
        let address = |id| {
            let row: &Assignment = project.assignments.get(id)?;
            match row.reservation.filter(|_| !row.management) {
                Some(block) => Some(IpBody::floating(project, project.reservations.get(block)?)),
                None => Some(IpBody::own(project, row)),
            }
        };
        Self {
            id: device.number,
            name: &device.plan,
            href: format!("/servers/{}", device.number),
            hostname: &device.hostname,
            state: device.state,
            status: match device.state {
                DeviceState::Queued => "pending",
                DeviceState::Provisioning | DeviceState::Reinstalling => "deploying",
                DeviceState::Failed => "failed",
                DeviceState::Deprovisioning | DeviceState::Deleted => "terminating",
                DeviceState::Active
                | DeviceState::Inactive
                | DeviceState::PoweringOn
                | DeviceState::PoweringOff => "deployed",
            },
            plan: PlanBody::from(device.plan.as_str()),
            region: RegionBody::of_metro(project, &device.metro),
            bgp: ServerBgp::new(project, device),
            ip_addresses: with_addresses.then(|| device.addresses.iter().filter_map(address).collect()),
            tags: map_of(&device.tags),
            project: project.into(),
            created_at: device.created_at,
        }
    }
}
