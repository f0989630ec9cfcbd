//! The JSON of the API, written straight from the objects. An `IPReservation` carries no field beyond the
//! published schema, for the vendor's own SDK refuses to read one that does; a VRF block has a schema of its
//! own.

use std::fmt;
use std::net::IpAddr;

use groundplane_core::Family;
use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::addressing::{netmask, network};
use crate::ident::{AssignmentId, DeviceId, ProjectId, ReservationId, SessionId};
use crate::locations;
use crate::model::{Assignment, BgpConfig, BgpStatus, DeploymentType, Device, Reservation, Session};

/// The path of an object: its collection, and its id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link(&'static str, Uuid);

impl Link {
    pub(crate) fn project(id: ProjectId) -> Self {
        Self("projects", id.into())
    }

    pub(crate) fn device(id: DeviceId) -> Self {
        Self("devices", id.into())
    }

    pub(crate) fn reservation(id: ReservationId) -> Self {
        Self("ips", id.into())
    }

    pub(crate) fn assignment(id: AssignmentId) -> Self {
        Self("ips", id.into())
    }

    pub(crate) fn session(id: SessionId) -> Self {
        Self("bgp/sessions", id.into())
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/metal/v1/{}/{}", self.0, self.1)
    }
}

impl Serialize for Link {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// An object that is not included.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Reference {
    href: Link,
}

impl From<Link> for Reference {
    fn from(href: Link) -> Self {
        Self { href }
    }
}

/// A sub-object: all of it where it was asked for, else its link.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Sub<T> {
    Full(T),
    Reference(Reference),
}

impl<T> Sub<T> {
    pub(crate) fn of(full: bool, link: Link, make: impl FnOnce() -> T) -> Self {
        if full {
            Self::Full(make())
        } else {
            Self::Reference(link.into())
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct MetroBody<'a> {
    id: Uuid,
    code: &'a str,
    name: &'a str,
    country: &'static str,
}

/// A metro, inline unless it was declined.
pub(crate) fn metro(code: &str, full: bool) -> Sub<MetroBody<'_>> {
    let id = locations::id_of(code);
    Sub::of(full, Link("locations/metros", id), || {
        let (name, country) = locations::describe(code);
        MetroBody {
            id,
            code,
            name,
            country,
        }
    })
}

#[derive(Debug, Serialize)]
pub(crate) struct FacilityBody<'a> {
    id: Uuid,
    code: &'a str,
    name: &'a str,
}

/// A facility, a link unless it was asked for.
pub(crate) fn facility(code: &str, full: bool) -> Sub<FacilityBody<'_>> {
    let id = locations::id_of(code);
    Sub::of(full, Link("facilities", id), || FacilityBody {
        id,
        code,
        name: code,
    })
}

#[derive(Debug, Serialize)]
struct PlanBody<'a> {
    id: Uuid,
    slug: &'a str,
    name: &'a str,
    class: &'a str,
}

/// The block that an address was cut from.
#[derive(Debug, Serialize)]
pub(crate) struct ParentBody {
    network: IpAddr,
    netmask: IpAddr,
    cidr: u8,
    href: Link,
}

#[allow(clippy::struct_excessive_bools, reason = "the fields of the API")]
#[derive(Debug, Serialize)]
pub(crate) struct AssignmentBody {
    id: AssignmentId,
    href: Link,
    address: IpAddr,
    address_family: u8,
    cidr: u8,
    network: IpAddr,
    netmask: IpAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<IpAddr>,
    public: bool,
    management: bool,
    manageable: bool,
    enabled: bool,
    global_ip: bool,
    created_at: Timestamp,
    assigned_to: Reference,
    parent_block: Sub<ParentBody>,
}

fn family_number(family: Family) -> u8 {
    match family {
        Family::V4 => 4,
        Family::V6 => 6,
    }
}

impl AssignmentBody {
    /// `parent` is the reservation that the address is part of.
    pub(crate) fn new(assignment: &Assignment, parent: Option<&Reservation>, with_parent: bool) -> Self {
        let Assignment {
            id,
            address,
            cidr,
            public,
            management,
            device,
            created_at,
            ..
        } = *assignment;
        let link = parent.map_or_else(|| Link::assignment(id), |block| Link::reservation(block.id));
        let network_address = network(address, cidr);
        Self {
            id,
            href: Link::assignment(id),
            address,
            address_family: family_number(Family::of(address)),
            cidr,
            network: network_address,
            netmask: netmask(address, cidr),
            gateway: (cidr < Family::of(address).bits()).then_some(network_address),
            public,
            management,
            manageable: !management,
            enabled: true,
            global_ip: parent.is_some_and(|block| block.kind == crate::model::ReservationKind::GlobalIpv4),
            created_at,
            assigned_to: Link::device(device).into(),
            parent_block: Sub::of(with_parent, link, || {
                let (first, length) = parent.map_or((address, cidr), |block| {
                    (block.address.unwrap_or(address), block.cidr)
                });
                ParentBody {
                    network: network(first, length),
                    netmask: netmask(first, length),
                    cidr: length,
                    href: link,
                }
            }),
        }
    }
}

/// Which parts of a machine are wanted.
#[allow(
    clippy::struct_excessive_bools,
    reason = "each part is wanted or not, whatever the others are"
)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceParts {
    pub(crate) addresses: bool,
    pub(crate) parent_blocks: bool,
    pub(crate) facility: bool,
    pub(crate) metro: bool,
    pub(crate) plan: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct DeviceBody<'a> {
    id: DeviceId,
    short_id: String,
    href: Link,
    hostname: &'a str,
    state: crate::model::DeviceState,
    tags: &'a [String],
    created_at: Timestamp,
    updated_at: Timestamp,
    plan: Sub<PlanBody<'a>>,
    metro: Sub<MetroBody<'a>>,
    facility: Sub<FacilityBody<'a>>,
    project: Reference,
    ip_addresses: Vec<Sub<AssignmentBody>>,
}

impl<'a> DeviceBody<'a> {
    pub(crate) fn new(
        device: &'a Device,
        project: ProjectId,
        ip_addresses: Vec<Sub<AssignmentBody>>,
        parts: DeviceParts,
    ) -> Self {
        let plan = locations::id_of(&device.plan);
        Self {
            id: device.id,
            short_id: device.id.to_string().chars().take(8).collect(),
            href: Link::device(device.id),
            hostname: &device.hostname,
            state: device.state,
            tags: &device.tags,
            created_at: device.created_at,
            updated_at: device.created_at,
            plan: Sub::of(parts.plan, Link("plans", plan), || PlanBody {
                id: plan,
                slug: &device.plan,
                name: &device.plan,
                class: &device.plan,
            }),
            metro: metro(&device.metro, parts.metro),
            facility: facility(&device.facility, parts.facility),
            project: Link::project(project).into(),
            ip_addresses,
        }
    }
}

#[allow(clippy::struct_excessive_bools, reason = "the fields of the API")]
#[derive(Debug, Serialize)]
pub(crate) struct ReservationBody<'a> {
    id: ReservationId,
    href: Link,
    #[serde(rename = "type")]
    kind: crate::model::ReservationKind,
    state: crate::model::ReservationState,
    address: Text,
    cidr: u8,
    address_family: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    netmask: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<IpAddr>,
    public: bool,
    management: bool,
    manageable: bool,
    enabled: bool,
    global_ip: bool,
    addon: bool,
    bill: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a str>,
    tags: &'a [String],
    customdata: &'a Map<String, Value>,
    created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    metro: Option<Sub<MetroBody<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    facility: Option<Sub<FacilityBody<'a>>>,
    project: Reference,
    assignments: Vec<Sub<AssignmentBody>>,
}

/// An address, or the empty text where there is none yet.
#[derive(Clone, Copy, Debug)]
struct Text(Option<IpAddr>);

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(address) => address.serialize(serializer),
            None => serializer.serialize_str(""),
        }
    }
}

#[allow(clippy::struct_excessive_bools, reason = "the fields of the API")]
#[derive(Debug, Serialize)]
pub(crate) struct VrfBody<'a> {
    id: ReservationId,
    href: Link,
    #[serde(rename = "type")]
    kind: &'static str,
    state: crate::model::ReservationState,
    address: Text,
    cidr: u8,
    address_family: u8,
    network: Text,
    public: bool,
    management: bool,
    manageable: bool,
    bill: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a str>,
    tags: &'a [String],
    customdata: &'a Map<String, Value>,
    created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    metro: Option<Sub<MetroBody<'a>>>,
    project: Reference,
    vrf: Reference,
}

/// An entry of a list of addresses.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum IpBody<'a> {
    Reservation(Box<ReservationBody<'a>>),
    Vrf(Box<VrfBody<'a>>),
    Assignment(Box<AssignmentBody>),
}

impl<'a> IpBody<'a> {
    pub(crate) fn reservation(
        row: &'a Reservation,
        project: ProjectId,
        assignments: Vec<Sub<AssignmentBody>>,
        with_facility: bool,
        with_metro: bool,
    ) -> Self {
        let metro = row.metro.as_deref().map(|code| metro(code, with_metro));
        if let Some(vrf) = row.vrf {
            return Self::Vrf(Box::new(VrfBody::new(row, vrf, project, metro)));
        }
        let facility = row.facility.as_deref().map(|code| facility(code, with_facility));
        Self::Reservation(Box::new(ReservationBody {
            metro,
            facility,
            assignments,
            ..ReservationBody::bare(row, project)
        }))
    }
}

impl<'a> VrfBody<'a> {
    fn new(row: &'a Reservation, vrf: Uuid, project: ProjectId, metro: Option<Sub<MetroBody<'a>>>) -> Self {
        Self {
            id: row.id,
            href: Link::reservation(row.id),
            kind: "vrf",
            state: row.state,
            address: Text(row.address),
            cidr: row.cidr,
            address_family: row
                .address
                .map_or(4, |address| family_number(Family::of(address))),
            network: Text(row.address),
            public: false,
            management: false,
            manageable: true,
            bill: false,
            details: row.details.as_deref(),
            tags: &row.tags,
            customdata: &row.customdata,
            created_at: row.created_at,
            metro,
            project: Link::project(project).into(),
            vrf: Link("vrfs", vrf).into(),
        }
    }
}

impl<'a> ReservationBody<'a> {
    /// Without where it is and what has it.
    fn bare(row: &'a Reservation, project: ProjectId) -> Self {
        use crate::model::ReservationKind as Kind;
        let family = if row.kind == Kind::PublicIpv6 {
            Family::V6
        } else {
            Family::V4
        };
        Self {
            id: row.id,
            href: Link::reservation(row.id),
            kind: row.kind,
            state: row.state,
            address: Text(row.address),
            cidr: row.cidr,
            address_family: family_number(family),
            network: row.address,
            netmask: row.address.map(|address| netmask(address, row.cidr)),
            gateway: row.address.filter(|_| row.cidr < family.bits()),
            public: row.kind != Kind::PrivateIpv4,
            management: row.management,
            manageable: !row.management,
            enabled: row.address.is_some(),
            global_ip: row.kind == Kind::GlobalIpv4,
            addon: !row.management,
            bill: !row.management,
            details: row.details.as_deref(),
            tags: &row.tags,
            customdata: &row.customdata,
            created_at: row.created_at,
            metro: None,
            facility: None,
            project: Link::project(project).into(),
            assignments: Vec::new(),
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct SessionBody<'a> {
    id: SessionId,
    href: Link,
    address_family: &'static str,
    status: &'a str,
    default_route: bool,
    learned_routes: [&'static str; 0],
    created_at: Timestamp,
    device: Reference,
}

impl<'a> From<&'a Session> for SessionBody<'a> {
    fn from(session: &'a Session) -> Self {
        Self {
            id: session.id,
            href: Link::session(session.id),
            address_family: match session.family {
                Family::V4 => "ipv4",
                Family::V6 => "ipv6",
            },
            status: &session.status,
            default_route: session.default_route,
            learned_routes: [],
            created_at: session.created_at,
            device: Link::device(session.device).into(),
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct BgpConfigBody<'a> {
    id: Uuid,
    status: BgpStatus,
    deployment_type: DeploymentType,
    asn: u32,
    md5: Option<&'a str>,
    max_prefix: u32,
    route_object: Option<&'static str>,
    ranges: [&'static str; 0],
    created_at: Timestamp,
    requested_at: Timestamp,
    project: Reference,
    sessions: Vec<Sub<SessionBody<'a>>>,
}

impl<'a> BgpConfigBody<'a> {
    pub(crate) fn new(
        config: &'a BgpConfig,
        project: ProjectId,
        sessions: Vec<Sub<SessionBody<'a>>>,
    ) -> Self {
        Self {
            id: config.id,
            status: config.status,
            deployment_type: config.deployment_type,
            asn: config.asn,
            md5: config.md5.as_deref(),
            max_prefix: config.max_prefix,
            route_object: None,
            ranges: [],
            created_at: config.created_at,
            requested_at: config.created_at,
            project: Link::project(project).into(),
            sessions,
        }
    }
}

/// A route that the switches take from a machine, or send it.
#[derive(Debug, Serialize)]
pub(crate) struct RouteBody {
    pub(crate) route: String,
    pub(crate) exact: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct NeighborBody<'a> {
    pub(crate) address_family: u8,
    pub(crate) customer_as: u32,
    pub(crate) customer_ip: IpAddr,
    pub(crate) md5_enabled: bool,
    pub(crate) md5_password: Option<&'a str>,
    pub(crate) multihop: bool,
    pub(crate) peer_as: u32,
    pub(crate) peer_ips: Vec<IpAddr>,
    pub(crate) routes_in: Vec<RouteBody>,
    pub(crate) routes_out: Vec<RouteBody>,
}
