//! Reservations and assignments: who may have which address.
//!
//! Guesses, where the published API is silent: what `quantity` means for `public_ipv6` (addresses, as for IPv4;
//! the real cloud gave whole /64 blocks), that a reservation in use cannot be deleted, that a machine's own
//! addresses cannot be, that a machine must stand in the address's metro, and the wording of every refusal but
//! `Address has already been taken`.

use std::net::IpAddr;

use groundplane_core::Family;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Held, ProjectState, SetupError};
use crate::addressing::{bounds, number, overlaps};
use crate::error::ApiError;
use crate::ident::{AssignmentId, DeviceId, Kind, ReservationId};
use crate::locations;
use crate::model::{Assignment, Reservation, ReservationKind, ReservationState};
use crate::options::ReservationOptions;

/// The largest block that may be asked for.
const MOST_ADDRESSES: u32 = 256;

/// `POST /projects/{pid}/ips`.
#[derive(Debug, Deserialize)]
pub(crate) struct ReservationRequest {
    #[serde(rename = "type")]
    kind: String,
    quantity: u32,
    #[serde(default)]
    metro: Option<String>,
    #[serde(default)]
    facility: Option<String>,
    #[serde(default)]
    details: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    customdata: Option<Map<String, Value>>,
    #[serde(default)]
    fail_on_approval_required: bool,
}

impl ReservationRequest {
    /// One public IPv4 address, or a refusal where the quota is spent.
    pub(crate) fn floating(metro: &str, tags: Vec<String>) -> Self {
        Self {
            kind: ReservationKind::PublicIpv4.as_str().to_owned(),
            quantity: 1,
            metro: Some(metro.to_owned()),
            facility: None,
            details: None,
            tags,
            customdata: None,
            fail_on_approval_required: true,
        }
    }

    fn kind(&self) -> Result<ReservationKind, ApiError> {
        match self.kind.as_str() {
            "public_ipv4" => Ok(ReservationKind::PublicIpv4),
            "private_ipv4" => Ok(ReservationKind::PrivateIpv4),
            "global_ipv4" => Ok(ReservationKind::GlobalIpv4),
            "public_ipv6" => Ok(ReservationKind::PublicIpv6),
            other => Err(ApiError::unprocessable(format!("type {other} is not valid"))),
        }
    }

    /// Metro and facility; both absent for a global address, which stands nowhere.
    fn place(&self, kind: ReservationKind) -> Result<(Option<&'static str>, Option<String>), ApiError> {
        let unknown = |what, code: &str| ApiError::unprocessable(format!("{what} {code} is not valid"));
        match (kind, self.metro.as_deref(), self.facility.as_deref()) {
            (ReservationKind::GlobalIpv4, None, None) => Ok((None, None)),
            (ReservationKind::GlobalIpv4, ..) => Err(ApiError::unprocessable(
                "a global address has neither metro nor facility",
            )),
            (_, Some(_), Some(_)) => Err(ApiError::unprocessable("give either a metro or a facility")),
            (_, None, None) => Err(ApiError::unprocessable("a metro or a facility is required")),
            (_, Some(code), None) => Ok((
                Some(locations::metro(code).ok_or_else(|| unknown("metro", code))?),
                None,
            )),
            (_, None, Some(code)) => {
                let metro = locations::metro_of(code).ok_or_else(|| unknown("facility", code))?;
                Ok((Some(metro), Some(code.to_owned())))
            }
        }
    }
}

/// What becomes of an assignment of an address that has a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfHeld {
    /// As the API does.
    Refuse,
    /// As people have seen it all the same.
    Share,
}

fn family_of(kind: ReservationKind) -> Family {
    if kind == ReservationKind::PublicIpv6 {
        Family::V6
    } else {
        Family::V4
    }
}

/// Length of the prefix of a block of `quantity` addresses.
fn prefix_length(family: Family, quantity: u32) -> Option<u8> {
    let bits = u8::try_from(quantity.checked_ilog2()?).ok()?;
    (quantity.is_power_of_two() && quantity <= MOST_ADDRESSES).then(|| family.bits() - bits)
}

/// An address, or a block of them: `192.0.2.7`, `192.0.2.0/28`.
fn addresses(text: &str) -> Option<(IpAddr, u8)> {
    let (address, cidr) = match text.split_once('/') {
        Some((address, cidr)) => (address, Some(cidr.parse().ok()?)),
        None => (text, None),
    };
    let address: IpAddr = address.trim().parse().ok()?;
    let bits = Family::of(address).bits();
    let cidr = cidr.unwrap_or(bits);
    (cidr <= bits).then_some((address, cidr))
}

impl ProjectState {
    /// Reserves as a client asks: within the quota at once, beyond it `pending`, or refused where the client
    /// wants no waiting.
    pub(crate) fn reserve(
        &mut self,
        request: ReservationRequest,
        now: Timestamp,
    ) -> Result<ReservationId, ApiError> {
        let kind = request.kind()?;
        let (metro, facility) = request.place(kind)?;
        let quantity = request.quantity;
        let cidr = prefix_length(family_of(kind), quantity)
            .ok_or_else(|| ApiError::unprocessable(format!("quantity {quantity} is not valid")))?;
        let within = kind == ReservationKind::PrivateIpv4
            || self
                .options
                .quota
                .is_none_or(|quota| self.reserved + u128::from(quantity) <= u128::from(quota));
        if !within && request.fail_on_approval_required {
            return Err(ApiError::unprocessable(
                "the IP quota of this project is exceeded; the request needs approval",
            ));
        }
        let row = Reservation {
            details: request.details,
            tags: request.tags,
            customdata: request.customdata.unwrap_or_default(),
            metro: metro.map(str::to_owned),
            facility,
            ..self.blank(kind, quantity, now)
        };
        if !within {
            return Ok(self.keep(row));
        }
        let address = self
            .next_block(kind, quantity)
            .ok_or_else(|| ApiError::unprocessable("no addresses are available"))?;
        Ok(self.hold(row, address, cidr))
    }

    /// Reserves on behalf of a test: no quota.
    pub(crate) fn add_reservation(
        &mut self,
        options: ReservationOptions,
        now: Timestamp,
    ) -> Result<ReservationId, SetupError> {
        let ReservationOptions {
            kind,
            address,
            quantity,
            tags,
            details,
            metro,
            pending,
        } = options;
        let cidr = prefix_length(family_of(kind), quantity)
            .ok_or_else(|| SetupError::Invalid(format!("no block has {quantity} addresses")))?;
        let metro = match metro {
            _ if kind == ReservationKind::GlobalIpv4 => None,
            Some(code) => Some(self.place(Some(&code), None)?.metro.to_owned()),
            None => Some(self.options.metro.clone()),
        };
        let row = Reservation {
            details,
            tags,
            metro,
            ..self.blank(kind, quantity, now)
        };
        let row = Reservation {
            vrf: (kind == ReservationKind::Vrf).then(|| self.ids.next(Kind::Vrf)),
            ..row
        };
        if pending {
            return Ok(self.keep(row));
        }
        let address = self.given(address, kind, quantity, cidr)?;
        Ok(self.hold(row, address, cidr))
    }

    /// One that waits, and that nobody has said anything about.
    fn blank(&mut self, kind: ReservationKind, quantity: u32, now: Timestamp) -> Reservation {
        Reservation {
            id: self.ids.next(Kind::Reservation).into(),
            kind,
            state: ReservationState::Pending,
            address: None,
            cidr: 0,
            quantity,
            details: None,
            tags: Vec::new(),
            customdata: Map::new(),
            metro: None,
            facility: None,
            management: false,
            vrf: None,
            assignments: Vec::new(),
            created_at: now,
        }
    }

    /// The address that a test wants, where it can be; the next that is free where it wants none.
    fn given(
        &mut self,
        address: Option<IpAddr>,
        kind: ReservationKind,
        quantity: u32,
        cidr: u8,
    ) -> Result<IpAddr, SetupError> {
        match address {
            Some(given) if Family::of(given) != family_of(kind) && kind != ReservationKind::Vrf => {
                Err(SetupError::Invalid(format!("{given} is not of {kind}")))
            }
            // A VRF is an address space of its own: nothing to collide with.
            Some(given) if kind == ReservationKind::Vrf => Ok(given),
            Some(given) if self.is_held(given, u128::from(quantity)) => {
                Err(SetupError::Taken(given.to_string()))
            }
            Some(given) if bounds(given, cidr).0 != number(given) => Err(SetupError::Invalid(format!(
                "{given} is not the first address of a /{cidr}"
            ))),
            Some(given) => Ok(given),
            None => self.next_block(kind, quantity).ok_or(SetupError::Full("address")),
        }
    }

    /// A person says yes to a pending reservation, whatever the quota: it gets its address.
    pub(crate) fn approve(&mut self, id: ReservationId) -> Result<(), SetupError> {
        let unknown = || SetupError::Unknown("pending reservation", id.to_string());
        let row = self
            .reservations
            .get(id)
            .filter(|row| row.state == ReservationState::Pending)
            .cloned()
            .ok_or_else(unknown)?;
        let cidr = prefix_length(family_of(row.kind), row.quantity).ok_or_else(unknown)?;
        let address = self
            .next_block(row.kind, row.quantity)
            .ok_or(SetupError::Full("address"))?;
        self.hold(row, address, cidr);
        Ok(())
    }

    /// A person says no to a pending reservation.
    pub(crate) fn deny(&mut self, id: ReservationId) -> Result<(), SetupError> {
        match self.reservations.get_mut(id) {
            Some(row) if row.state == ReservationState::Pending => {
                row.state = ReservationState::Denied;
                Ok(())
            }
            _ => Err(SetupError::Unknown("pending reservation", id.to_string())),
        }
    }

    fn is_held(&self, first: IpAddr, count: u128) -> bool {
        overlaps(&self.blocks, first, count, |held| held.length)
    }

    fn next_block(&mut self, kind: ReservationKind, quantity: u32) -> Option<IpAddr> {
        let blocks = &self.blocks;
        let is_used = |first, count| overlaps(blocks, first, count, |held: &Held| held.length);
        match kind {
            ReservationKind::PublicIpv4 | ReservationKind::GlobalIpv4 => {
                self.plan.public_v4.take(u128::from(quantity), is_used)
            }
            ReservationKind::PrivateIpv4 | ReservationKind::Vrf => {
                self.plan.private_v4.take(u128::from(quantity), is_used)
            }
            ReservationKind::PublicIpv6 => self.plan.public_v6.take(u128::from(quantity), is_used),
        }
    }

    fn keep(&mut self, row: Reservation) -> ReservationId {
        let id = row.id;
        self.reservations.insert(id, row);
        id
    }

    /// Gives a reservation its address.
    fn hold(&mut self, mut row: Reservation, address: IpAddr, cidr: u8) -> ReservationId {
        row.state = ReservationState::Created;
        row.address = Some(address);
        row.cidr = cidr;
        if row.vrf.is_none() {
            self.blocks.insert(
                address,
                Held {
                    id: row.id,
                    length: row.length(),
                },
            );
        }
        if row.counts() {
            self.reserved += row.length();
        }
        self.keep(row)
    }

    /// Gives a reservation back.
    pub(crate) fn release(&mut self, id: ReservationId) -> Result<(), ApiError> {
        let row = self.reservations.get(id).ok_or(ApiError::NotFound)?;
        if row.management {
            return Err(ApiError::unprocessable("a management block cannot be deleted"));
        }
        if !row.assignments.is_empty() {
            return Err(ApiError::unprocessable(
                "the reservation has assignments; remove them first",
            ));
        }
        let (counts, length, address, in_vrf) = (row.counts(), row.length(), row.address, row.vrf.is_some());
        if counts {
            self.reserved = self.reserved.saturating_sub(length);
        }
        if let Some(address) = address.filter(|_| !in_vrf) {
            self.blocks.remove(&address);
        }
        self.reservations.remove(id);
        Ok(())
    }

    /// Puts a reserved address onto a machine. `text` is an address or a block of a reservation.
    pub(crate) fn assign(
        &mut self,
        device: DeviceId,
        text: &str,
        if_held: IfHeld,
        now: Timestamp,
    ) -> Result<AssignmentId, ApiError> {
        let (address, cidr) =
            addresses(text).ok_or_else(|| ApiError::unprocessable(format!("address {text} is not valid")))?;
        let (first, last) = bounds(address, cidr);
        let block = self.block_around(address, first, last).ok_or_else(|| {
            ApiError::unprocessable(format!(
                "address {text} is not part of a reservation of this project"
            ))
        })?;
        let metro = self.devices.get(device).ok_or(ApiError::NotFound)?.metro.clone();
        let row = self.reservations.get(block).ok_or(ApiError::NotFound)?;
        if row.metro.as_ref().is_some_and(|of_block| *of_block != metro) {
            return Err(ApiError::unprocessable(format!(
                "address {text} is not available in metro {metro}"
            )));
        }
        let taken = row
            .assignments
            .iter()
            .filter_map(|id| self.assignments.get(id))
            .any(|other| {
                let (start, end) = bounds(other.address, other.cidr);
                start <= last && first <= end
            });
        if taken && if_held == IfHeld::Refuse {
            return Err(ApiError::unprocessable("Address has already been taken"));
        }
        let public = row.kind != ReservationKind::PrivateIpv4;
        let id = AssignmentId::from(self.ids.next(Kind::Assignment));
        let assignment = Assignment {
            id,
            address,
            cidr,
            public,
            management: false,
            device,
            reservation: Some(block),
            created_at: now,
        };
        self.attach(block, assignment);
        Ok(id)
    }

    fn attach(&mut self, block: ReservationId, assignment: Assignment) {
        let (id, device) = (assignment.id, assignment.device);
        self.holders.record(&assignment, true);
        self.assignments.insert(id, assignment);
        if let Some(row) = self.reservations.get_mut(block) {
            row.assignments.push(id);
        }
        if let Some(device) = self.devices.get_mut(device) {
            device.addresses.push(id);
        }
    }

    /// The reservation that has all of these addresses.
    fn block_around(&self, address: IpAddr, first: u128, last: u128) -> Option<ReservationId> {
        let (start, held) = self.blocks.range(..=address).next_back()?;
        let start_number = number(*start);
        let fits = Family::of(*start) == Family::of(address)
            && start_number <= first
            && last <= start_number + (held.length - 1);
        fits.then_some(held.id)
    }

    /// Takes an address off its machine.
    pub(crate) fn unassign(&mut self, id: AssignmentId) -> Result<(), ApiError> {
        if self.assignments.get(&id).ok_or(ApiError::NotFound)?.management {
            return Err(ApiError::unprocessable("a management address cannot be deleted"));
        }
        let assignment = self.forget_assignment(id).ok_or(ApiError::NotFound)?;
        if let Some(device) = self.devices.get_mut(assignment.device) {
            device.addresses.retain(|other| *other != id);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_powers_of_two() {
        assert_eq!(prefix_length(Family::V4, 1), Some(32));
        assert_eq!(prefix_length(Family::V4, 8), Some(29));
        assert_eq!(prefix_length(Family::V6, 2), Some(127));
        for bad in [0, 3, 512] {
            assert_eq!(prefix_length(Family::V4, bad), None);
        }
    }
}
