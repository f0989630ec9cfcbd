//! What only Cherry Servers does: integer ids, routers that belong to a region, and an address that goes from one machine to another in
//! one step.
//!
//! Guesses, where the vendor's documents are silent: that a server speaks BGP only where its project does, that an address goes only
//! to a server of its region, and that an address which is targeted cannot be deleted.

use jiff::Timestamp;

use super::{IfHeld, ProjectState, SERVERS};
use crate::error::ApiError;
use crate::ident::{AssignmentId, DeviceId, ReservationId};
use crate::model::{BgpStatus, DeploymentType};
use crate::regions::{Region, RegionBgp};

/// The first ASN that a project is given.
const FIRST_ASN: u32 = 64_512;
/// How many ASNs are given before they begin again.
const ASNS: u32 = 1_000;

impl ProjectState {
    /// The integer id of the next machine; none where the project has had its share.
    pub(super) fn next_server_number(&mut self) -> Option<u32> {
        let number = self.next_server.checked_add(1)?;
        if number / SERVERS != self.number {
            return None;
        }
        self.next_server = number;
        Some(number)
    }

    /// The routers of a region.
    pub(crate) fn region_bgp(&self, region: Region) -> RegionBgp {
        let furnished = self.regions.get(&region.id).cloned();
        furnished.unwrap_or_else(|| RegionBgp::of(region, self.options.peer_asn))
    }

    /// Furnishes a region with other routers.
    pub(crate) fn set_region_bgp(&mut self, region: Region, bgp: RegionBgp) {
        self.regions.insert(region.id, bgp);
    }

    /// Turns BGP of the project on, with an ASN that the cloud chooses, or off, and every session with it.
    pub(crate) fn switch_bgp(&mut self, on: bool, now: Timestamp) {
        match &mut self.bgp {
            Some(config) if on => config.status = BgpStatus::Enabled,
            Some(config) => config.status = BgpStatus::Disabled,
            None if on => {
                let asn = FIRST_ASN + self.number % ASNS;
                self.configure_bgp(asn, DeploymentType::Local, None, None, BgpStatus::Enabled, now);
            }
            None => {}
        }
        if !on {
            let all: Vec<_> = self.sessions.values().map(|session| session.id).collect();
            for id in all {
                // It was in the list a moment ago.
                self.remove_session(id).ok();
            }
        }
    }

    /// Turns BGP of a machine on or off. What is so already stays.
    pub(crate) fn switch_server_bgp(
        &mut self,
        device: DeviceId,
        on: bool,
        now: Timestamp,
    ) -> Result<(), ApiError> {
        let sessions = self
            .devices
            .get(device)
            .ok_or(ApiError::NotFound)?
            .sessions
            .clone();
        if !on {
            return sessions.into_iter().try_for_each(|id| self.remove_session(id));
        }
        if sessions.is_empty() {
            self.add_session(device, &super::SessionRequest::default(), now)?;
        }
        Ok(())
    }

    /// Lets a reserved address lead to this machine and no other, or to none. In one step: nobody sees it in between, and where it is
    /// refused everything stays as it was.
    pub(crate) fn target(
        &mut self,
        id: ReservationId,
        device: Option<DeviceId>,
        now: Timestamp,
    ) -> Result<(), ApiError> {
        let row = self.reservations.get(id).ok_or(ApiError::NotFound)?;
        let address = row
            .address
            .ok_or_else(|| ApiError::unprocessable("the address is not ready"))?;
        if let Some(device) = device {
            let machine = self.devices.get(device).ok_or(ApiError::NotFound)?;
            if row.metro.as_ref().is_some_and(|metro| *metro != machine.metro) {
                return Err(ApiError::unprocessable(format!(
                    "server {} is not in the region of the IP address",
                    machine.number
                )));
            }
        }
        let (cidr, held) = (row.cidr, row.assignments.clone());
        let holds = |id: &AssignmentId| self.assignments.get(id).map(|held| held.device) == device;
        if device.is_some() && held.len() == 1 && held.iter().all(holds) {
            return Ok(());
        }
        for assignment in held {
            self.unassign(assignment)?;
        }
        if let Some(device) = device {
            self.assign(device, &format!("{address}/{cidr}"), IfHeld::Refuse, now)?;
        }
        Ok(())
    }
}
