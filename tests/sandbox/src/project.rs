//! A project as a test holds it: what a person does in the cloud's console, and what the machines do by
//! themselves.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;

use crate::cloud::{IfHeld, ProjectState, SetupError};
use crate::fault::{FaultId, FaultRule, RandomPlan};
use crate::holders::HolderChange;
use crate::http::Shared;
use crate::ident::{AssignmentId, DeviceId, ProjectId, ReservationId, SessionId};
use crate::journal::Journal;
use crate::model::{Assignment, BgpConfig, BgpStatus, Device, DeviceState, Reservation, Session};
use crate::options::{DeviceOptions, ReservationOptions};
use crate::regions::{self, RegionBgp};

/// The value, or the end of the test.
#[track_caller]
pub(crate) fn must<T>(result: Result<T, SetupError>) -> T {
    match result {
        Ok(value) => value,
        #[allow(clippy::panic, reason = "a test that is furnished wrongly cannot go on")]
        Err(error) => panic!("the sandbox cannot do that: {error}"),
    }
}

/// A project. Clones are the same project. It outlives the sandbox's server, and then nobody can call it.
///
/// Methods that change something panic where the object does not exist or does not fit: the test is wrong then.
#[derive(Clone)]
pub struct Project {
    shared: Shared,
    id: ProjectId,
    token: String,
}

impl fmt::Debug for Project {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Project")
            .field("id", &self.id)
            .field("base_url", &self.base_url())
            .finish_non_exhaustive()
    }
}

impl Project {
    pub(crate) fn new(shared: Shared, id: ProjectId, token: String) -> Self {
        Self { shared, id, token }
    }

    /// Its id.
    pub fn id(&self) -> ProjectId {
        self.id
    }

    /// Its token.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Its id in the API of Cherry Servers.
    pub fn number(&self) -> u32 {
        self.read(|project| project.number)
    }

    /// Where the API of Equinix Metal is, `/metal/v1` included.
    pub fn base_url(&self) -> &str {
        &self.shared.base_url
    }

    /// Where the API of Cherry Servers is, `/v1` included.
    pub fn cherry_url(&self) -> &str {
        &self.shared.cherry_url
    }

    /// What groundplane is told of this project, as sections of its configuration file: driver, place, and the file that the
    /// token stands in. BGP is on.
    pub fn config(&self, token: &Path) -> String {
        format!(
            "driver: equinix\nequinix:\n  baseUrl: {:?}\n  apiTokenFile: {:?}\n  projectId: \"{}\"\n  metro: sv\n  bgp: {{enabled: true}}\n",
            self.base_url(),
            token.display().to_string(),
            self.id,
        )
    }

    /// What groundplane is told of this project as one at Cherry Servers: as [`Self::config`], with the project's own region.
    pub fn cherry_config(&self, token: &Path) -> String {
        let region = self.region();
        format!(
            "driver: cherry\ncherry:\n  baseUrl: {:?}\n  apiTokenFile: {:?}\n  projectId: {}\n  region: {region}\n  bgp: {{enabled: true}}\n",
            self.cherry_url(),
            token.display().to_string(),
            self.number(),
        )
    }

    /// The name of the region in which its machines stand unless they say otherwise.
    pub fn region(&self) -> &'static str {
        let region = self.read(|project| regions::of_metro(&project.options.metro));
        region.map_or("", |region| region.name)
    }

    /// The calls to this project.
    pub fn journal(&self) -> Journal {
        self.shared.journal.of(self.id)
    }

    /// Adds a fault for calls to this project only.
    pub fn fault(&self, rule: FaultRule) -> FaultId {
        self.shared.faults.add(FaultRule {
            project: Some(self.id),
            ..rule
        })
    }

    /// Adds faults at random for calls to this project only.
    pub fn fault_plan(&self, plan: RandomPlan) -> FaultId {
        self.shared.faults.plan(RandomPlan {
            project: Some(self.id),
            ..plan
        })
    }

    /// Removes the faults of this project.
    pub fn clear_faults(&self) {
        self.shared.faults.clear(Some(self.id));
    }

    fn work<T>(
        &self,
        work: impl FnOnce(&mut ProjectState) -> Result<T, SetupError>,
    ) -> Result<T, SetupError> {
        let mut cloud = self.shared.cloud.lock();
        let project = cloud
            .project(self.id)
            .ok_or_else(|| SetupError::Unknown("project", self.id.to_string()))?;
        work(project)
    }

    #[track_caller]
    fn read<T>(&self, read: impl FnOnce(&ProjectState) -> T) -> T {
        must(self.work(|project| Ok(read(project))))
    }
}

/// Machines.
impl Project {
    /// Adds a machine.
    ///
    /// # Panics
    /// Where its place is unknown, or the project is full.
    #[track_caller]
    pub fn add_device(&self, options: DeviceOptions) -> DeviceId {
        let now = self.shared.now();
        must(self.work(|project| project.add_device(options, now)))
    }

    /// Adds `count` machines with names by number and all else by default.
    ///
    /// # Panics
    /// Where the project is full: it holds 8,192.
    #[track_caller]
    pub fn add_devices(&self, count: usize) -> Vec<DeviceId> {
        self.add_devices_with(count, |_| DeviceOptions::default())
    }

    /// Adds `count` machines, each as `options` says for its number, from 0.
    ///
    /// # Panics
    /// As [`Self::add_device`].
    #[track_caller]
    pub fn add_devices_with(&self, count: usize, options: impl Fn(usize) -> DeviceOptions) -> Vec<DeviceId> {
        let now = self.shared.now();
        must(self.work(|project| (0..count).map(|n| project.add_device(options(n), now)).collect()))
    }

    /// Takes a machine away, with its addresses and sessions. False where there is none.
    pub fn remove_device(&self, id: DeviceId) -> bool {
        self.work(|project| Ok(project.remove_device(id)))
            .unwrap_or(false)
    }

    #[track_caller]
    fn change_device(&self, id: DeviceId, change: impl FnOnce(&mut Device)) {
        must(self.work(|project| {
            let device = project
                .devices
                .get_mut(id)
                .ok_or_else(|| SetupError::Unknown("device", id.to_string()))?;
            change(device);
            Ok(())
        }));
    }

    /// Puts a machine into a state.
    ///
    /// # Panics
    /// Where there is no such machine.
    #[track_caller]
    pub fn set_state(&self, id: DeviceId, state: DeviceState) {
        self.change_device(id, |device| device.state = state);
    }

    /// Changes the switches that a machine speaks BGP with; none: they are not known yet.
    ///
    /// # Panics
    /// Where there is no such machine.
    #[track_caller]
    pub fn set_peers(&self, id: DeviceId, peers: impl IntoIterator<Item = IpAddr>) {
        let peers = peers.into_iter().collect();
        self.change_device(id, |device| device.peers = peers);
    }

    /// Gives a machine a BGP password of its own, or the project's back.
    ///
    /// # Panics
    /// Where there is no such machine.
    #[track_caller]
    pub fn set_bgp_password(&self, id: DeviceId, password: Option<&str>) {
        self.change_device(id, |device| device.bgp_password = password.map(str::to_owned));
    }

    /// A machine.
    pub fn device(&self, id: DeviceId) -> Option<Device> {
        self.read(|project| project.devices.get(id).cloned())
    }

    /// All machines, oldest first.
    pub fn devices(&self) -> Vec<Device> {
        self.read(|project| project.devices.values().cloned().collect())
    }

    /// The addresses of a machine: its own, then those that were assigned. Empty where there is no such
    /// machine.
    pub fn addresses(&self, id: DeviceId) -> Vec<Assignment> {
        self.read(|project| {
            let ids = project
                .devices
                .get(id)
                .map_or(&[][..], |device| &device.addresses);
            ids.iter()
                .filter_map(|id| project.assignments.get(id))
                .cloned()
                .collect()
        })
    }

    /// The first of the machine's own addresses that is public or private, as asked, and IPv4.
    pub fn own_ipv4(&self, id: DeviceId, public: bool) -> Option<IpAddr> {
        let mut own = self
            .addresses(id)
            .into_iter()
            .filter(|row| row.management && row.public == public);
        own.find(|row| row.address.is_ipv4()).map(|row| row.address)
    }
}

/// Addresses.
impl Project {
    /// Reserves by hand, whatever the quota.
    ///
    /// # Panics
    /// Where the address is taken, or the request contradicts itself.
    #[track_caller]
    pub fn add_reservation(&self, options: ReservationOptions) -> Reservation {
        let now = self.shared.now();
        must(self.work(|project| {
            let id = project.add_reservation(options, now)?;
            project
                .reservations
                .get(id)
                .cloned()
                .ok_or_else(|| SetupError::Unknown("reservation", id.to_string()))
        }))
    }

    /// What was reserved, oldest first: by hand or by call, VRF blocks included, blocks of machines not.
    pub fn reservations(&self) -> Vec<Reservation> {
        self.read(|project| {
            project
                .reservations
                .values()
                .filter(|row| !row.management)
                .cloned()
                .collect()
        })
    }

    /// A reservation.
    pub fn reservation(&self, id: ReservationId) -> Option<Reservation> {
        self.read(|project| project.reservations.get(id).cloned())
    }

    /// An assignment.
    pub fn assignment(&self, id: AssignmentId) -> Option<Assignment> {
        self.read(|project| project.assignments.get(&id).cloned())
    }

    /// What was assigned to machines beyond their own addresses, in no order.
    pub fn assignments(&self) -> Vec<Assignment> {
        self.read(|project| {
            project
                .assignments
                .values()
                .filter(|row| !row.management)
                .cloned()
                .collect()
        })
    }

    /// Puts a reserved address onto a machine, as somebody else would.
    ///
    /// # Panics
    /// Where the API would refuse.
    #[track_caller]
    pub fn assign(&self, id: DeviceId, address: IpAddr) -> AssignmentId {
        self.give(id, address, IfHeld::Refuse)
    }

    /// Puts a reserved address onto a machine, though another may hold it.
    ///
    /// # Panics
    /// Where the API would refuse, but for the other holder.
    #[track_caller]
    pub fn assign_beside(&self, id: DeviceId, address: IpAddr) -> AssignmentId {
        self.give(id, address, IfHeld::Share)
    }

    #[track_caller]
    fn give(&self, id: DeviceId, address: IpAddr, if_held: IfHeld) -> AssignmentId {
        let now = self.shared.now();
        must(self.work(|project| {
            project
                .assign(id, &address.to_string(), if_held, now)
                .map_err(|error| SetupError::Invalid(error.to_string()))
        }))
    }

    /// Takes an assignment away, as somebody else would.
    ///
    /// # Panics
    /// Where the API would refuse.
    #[track_caller]
    pub fn unassign(&self, id: AssignmentId) {
        must(self.work(|project| {
            project
                .unassign(id)
                .map_err(|error| SetupError::Invalid(error.to_string()))
        }));
    }

    /// Who holds the address now.
    pub fn holders(&self, address: IpAddr) -> Vec<Assignment> {
        let mut found = self.assignments();
        found.retain(|row| row.address == address);
        found
    }

    /// Who held the address, change by change.
    pub fn holder_changes(&self, address: IpAddr) -> Vec<HolderChange> {
        self.read(|project| project.holders.of(address).cloned().collect())
    }

    /// Waits until the holders of the address are as wanted; looks at each change, and at nothing else. Waits for as long as it takes.
    pub async fn until_held(
        &self,
        address: IpAddr,
        is_wanted: impl Fn(&[Assignment]) -> bool,
    ) -> Vec<Assignment> {
        // Before the look, so that no change falls between.
        let mut changes = self.read(|project| project.holders.watch());
        loop {
            changes.mark_unchanged();
            let holders = self.holders(address);
            if is_wanted(&holders) {
                return holders;
            }
            // The project is never forgotten, so that its changes never end.
            changes.changed().await.ok();
        }
    }

    /// Changes how many addresses may be reserved; `None`: any number.
    pub fn set_quota(&self, quota: Option<u32>) {
        self.read_mut(|project| project.options.quota = quota);
    }

    /// A person says yes to a pending reservation.
    ///
    /// # Panics
    /// Where it is not pending.
    #[track_caller]
    pub fn approve(&self, id: ReservationId) {
        must(self.work(|project| project.approve(id)));
    }

    /// A person says no to a pending reservation.
    ///
    /// # Panics
    /// Where it is not pending.
    #[track_caller]
    pub fn deny(&self, id: ReservationId) {
        must(self.work(|project| project.deny(id)));
    }

    #[track_caller]
    fn read_mut<T>(&self, change: impl FnOnce(&mut ProjectState) -> T) -> T {
        must(self.work(|project| Ok(change(project))))
    }
}

/// BGP.
impl Project {
    /// The BGP configuration; none until it was asked for.
    pub fn bgp_config(&self) -> Option<BgpConfig> {
        self.read(|project| project.bgp.clone())
    }

    /// Support approves, or takes BGP away.
    ///
    /// # Panics
    /// Where BGP was never asked for.
    #[track_caller]
    pub fn set_bgp_status(&self, status: BgpStatus) {
        self.change_bgp(|config| config.status = status);
    }

    /// Support changes what a client cannot: ASN and password.
    ///
    /// # Panics
    /// Where BGP was never asked for.
    #[track_caller]
    pub fn set_bgp(&self, asn: u32, md5: Option<&str>) {
        self.change_bgp(|config| {
            config.asn = asn;
            config.md5 = md5.map(str::to_owned);
        });
    }

    /// Support lets machines announce more prefixes, or fewer.
    ///
    /// # Panics
    /// Where BGP was never asked for.
    #[track_caller]
    pub fn set_max_prefix(&self, max_prefix: u32) {
        self.change_bgp(|config| config.max_prefix = max_prefix);
    }

    #[track_caller]
    fn change_bgp(&self, change: impl FnOnce(&mut BgpConfig)) {
        must(self.work(|project| {
            let config = project
                .bgp
                .as_mut()
                .ok_or_else(|| SetupError::Unknown("BGP configuration", self.id.to_string()))?;
            change(config);
            Ok(())
        }));
    }

    /// A region of Cherry Servers, by name or slug, has other routers from now on, as this project sees it.
    ///
    /// # Panics
    /// Where there is no such region.
    #[track_caller]
    pub fn set_region_bgp(&self, region: &str, hosts: impl IntoIterator<Item = IpAddr>, asn: u32) {
        let hosts = hosts.into_iter().collect();
        must(self.work(|project| {
            let region = regions::named(region).ok_or_else(|| SetupError::UnknownPlace(region.to_owned()))?;
            project.set_region_bgp(region, RegionBgp { hosts, asn });
            Ok(())
        }));
    }

    /// All sessions, oldest first. Looking at them here does not bring them up.
    pub fn sessions(&self) -> Vec<Session> {
        self.read(|project| project.sessions.values().cloned().collect())
    }

    /// All sessions are up.
    pub fn raise_sessions(&self) {
        self.read_mut(ProjectState::raise_all_sessions);
    }

    /// The switches report this about a session, such as `up,down`.
    ///
    /// # Panics
    /// Where there is no such session.
    #[track_caller]
    pub fn set_session_status(&self, id: SessionId, status: &str) {
        must(self.work(|project| {
            let session = project
                .sessions
                .get_mut(id)
                .ok_or_else(|| SetupError::Unknown("session", id.to_string()))?;
            status.clone_into(&mut session.status);
            session.reads_until_up = None;
            Ok(())
        }));
    }
}
