//! Machines: they come with addresses of their own and take them along when they go.

use std::net::IpAddr;

use groundplane_core::Family;
use jiff::Timestamp;

use super::{ProjectState, SetupError};
use crate::addressing::network;
use crate::ident::{AssignmentId, DeviceId, Kind, ReservationId};
use crate::locations::{self, Place};
use crate::model::{Assignment, Device, Reservation, ReservationKind, ReservationState};
use crate::options::{Choice, DeviceOptions};
use crate::regions;

/// Length of the blocks that private addresses of machines are cut from.
const PRIVATE_BLOCK: u8 = 25;
/// Length of the block that public IPv6 addresses of machines are cut from.
const IPV6_BLOCK: u8 = 56;
/// The switches, as every machine of the real cloud sees them.
const PEERS_V4: [[u8; 4]; 2] = [[169, 254, 255, 1], [169, 254, 255, 2]];
/// The switches over IPv6. A guess: the real ones were never written down.
const PEERS_V6: [[u16; 8]; 2] = [[0xfc00, 0, 0, 0, 0, 0, 0, 0xe], [0xfc00, 0, 0, 0, 0, 0, 0, 0xf]];

/// The metro with this code, or that a region is.
fn metro_named(text: &str) -> Option<&'static str> {
    locations::metro(text).or_else(|| regions::named(text).map(|region| region.metro))
}

impl ProjectState {
    /// Metro and facility from what was asked for, the rest from the project's defaults. A facility alone
    /// brings its metro.
    pub(super) fn place(&self, metro: Option<&str>, facility: Option<&str>) -> Result<Place, SetupError> {
        let unknown = |code: &str| SetupError::UnknownPlace(code.to_owned());
        let default = self.options.facility.as_str();
        match (metro, facility) {
            (Some(code), None) => {
                let metro = metro_named(code).ok_or_else(|| unknown(code))?;
                let fits = locations::metro_of(default) == Some(metro);
                let facility = if fits {
                    default.to_owned()
                } else {
                    format!("{metro}1")
                };
                Ok(Place { metro, facility })
            }
            (metro, facility) => {
                let facility = facility.unwrap_or(default);
                let of_facility = locations::metro_of(facility).ok_or_else(|| unknown(facility))?;
                let metro = metro.unwrap_or(of_facility);
                Ok(Place {
                    metro: metro_named(metro).ok_or_else(|| unknown(metro))?,
                    facility: facility.to_owned(),
                })
            }
        }
    }

    /// Adds a machine, with its addresses.
    pub(crate) fn add_device(
        &mut self,
        options: DeviceOptions,
        now: Timestamp,
    ) -> Result<DeviceId, SetupError> {
        let place = if options.metro.is_none() && options.facility.is_none() {
            self.place(Some(&self.options.metro), None)?
        } else {
            self.place(options.metro.as_deref(), options.facility.as_deref())?
        };
        let slot = self.plan.take_slot().ok_or(SetupError::Full("machine"))?;
        let id = DeviceId::from(self.ids.next(Kind::Device));
        let hostname = options.hostname.unwrap_or_else(|| {
            self.next_name += 1;
            format!("node-{:05}", self.next_name - 1)
        });
        let own = [
            pick(options.public_ipv4, || self.plan.machine_public_v4(slot)).map(|a| (IpAddr::V4(a), true)),
            pick(options.public_ipv6, || self.plan.machine_public_v6(slot)).map(|a| (IpAddr::V6(a), true)),
            pick(options.private_ipv4, || self.plan.machine_private_v4(slot)).map(|a| (IpAddr::V4(a), false)),
        ];
        let mut addresses = Vec::with_capacity(own.len());
        for (address, public) in own.into_iter().flatten() {
            addresses.push(self.add_own_address(id, address, public, place.metro, now));
        }
        let peers_v4 = PEERS_V4.into_iter().map(IpAddr::from);
        let number = self.next_server_number().ok_or(SetupError::Full("machine"))?;
        let device = Device {
            id,
            number,
            hostname,
            plan: options.plan,
            metro: place.metro.to_owned(),
            facility: place.facility,
            state: options.state,
            tags: options.tags,
            created_at: now,
            addresses,
            sessions: Vec::new(),
            peers: peers_v4.chain(PEERS_V6.into_iter().map(IpAddr::from)).collect(),
            bgp_password: None,
            slot: Some(slot),
        };
        self.devices.insert(id, device);
        self.servers.insert(number, id);
        Ok(id)
    }

    fn add_own_address(
        &mut self,
        device: DeviceId,
        address: IpAddr,
        public: bool,
        metro: &str,
        now: Timestamp,
    ) -> AssignmentId {
        let id = AssignmentId::from(self.ids.next(Kind::Assignment));
        let (cidr, block) = match (Family::of(address), public) {
            (Family::V4, true) => (31, None),
            (Family::V4, false) => (31, Some((PRIVATE_BLOCK, ReservationKind::PrivateIpv4))),
            (Family::V6, _) => (127, Some((IPV6_BLOCK, ReservationKind::PublicIpv6))),
        };
        let reservation = block.map(|(length, kind)| self.machine_block(address, length, kind, metro, now));
        if let Some(block) = reservation.and_then(|id| self.reservations.get_mut(id)) {
            block.assignments.push(id);
        }
        self.assignments.insert(
            id,
            Assignment {
                id,
                address,
                cidr,
                public,
                management: true,
                device,
                reservation,
                created_at: now,
            },
        );
        id
    }

    /// The block that the address of a machine is cut from; made with its first machine.
    fn machine_block(
        &mut self,
        address: IpAddr,
        cidr: u8,
        kind: ReservationKind,
        metro: &str,
        now: Timestamp,
    ) -> ReservationId {
        let first = network(address, cidr);
        if let Some(known) = self.machine_blocks.get(&first) {
            return *known;
        }
        let id = ReservationId::from(self.ids.next(Kind::Reservation));
        let block = Reservation {
            id,
            kind,
            state: ReservationState::Created,
            address: Some(first),
            cidr,
            quantity: 0,
            details: None,
            tags: Vec::new(),
            customdata: serde_json::Map::new(),
            metro: Some(metro.to_owned()),
            facility: None,
            management: true,
            vrf: None,
            assignments: Vec::new(),
            created_at: now,
        };
        self.reservations.insert(id, block);
        self.machine_blocks.insert(first, id);
        id
    }

    /// Takes a machine away: its addresses and sessions go, reservations stay.
    pub(crate) fn remove_device(&mut self, id: DeviceId) -> bool {
        let Some(device) = self.devices.remove(id) else {
            return false;
        };
        self.servers.remove(&device.number);
        for assignment in device.addresses {
            self.forget_assignment(assignment);
        }
        for session in device.sessions {
            self.sessions.remove(session);
        }
        if let Some(slot) = device.slot {
            self.plan.free_slot(slot);
        }
        true
    }

    /// Removes an assignment from the map and from its reservation; its machine is the caller's business.
    pub(super) fn forget_assignment(&mut self, id: AssignmentId) -> Option<Assignment> {
        let assignment = self.assignments.remove(&id)?;
        if let Some(block) = assignment
            .reservation
            .and_then(|id| self.reservations.get_mut(id))
        {
            block.assignments.retain(|other| *other != id);
        }
        self.holders.record(&assignment, false);
        Some(assignment)
    }

    /// The machine's own address that BGP is spoken from: private IPv4, or public IPv6.
    pub(crate) fn bgp_address(&self, device: &Device, family: Family) -> Option<&Assignment> {
        device
            .addresses
            .iter()
            .filter_map(|id| self.assignments.get(id))
            .find(|assignment| {
                assignment.management
                    && Family::of(assignment.address) == family
                    && (family == Family::V6 || !assignment.public)
            })
    }
}

fn pick<A>(choice: Choice<A>, next: impl FnOnce() -> A) -> Option<A> {
    match choice {
        Choice::Auto => Some(next()),
        Choice::Absent => None,
        Choice::Given(address) => Some(address),
    }
}
