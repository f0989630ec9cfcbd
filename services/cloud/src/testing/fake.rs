//! A cloud in memory that does each capability, and goes wrong as told.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use async_trait::async_trait;
use groundplane_core::{ClusterId, Family, Owner, Prefix, ProviderId};
use parking_lot::Mutex;

use super::FakeEndpoint;
use crate::{
    AddressBackend, Assignment, BgpFabric, BgpProject, Cloud, CloudError, CloudErrorKind, ElasticIps, Former,
    Machine, MachineAddress, MachineAddressKind, MachineSource, NeighborQuery, Neighbors, NewReservation,
    Peer, PowerState, Reservation, ReservationState, Session,
};

/// A call, for faults and counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// `MachineSource::list`.
    ListMachines,
    /// `MachineSource::get`.
    GetMachine,
    /// `ElasticIps::list`.
    ListReservations,
    /// `ElasticIps::create`.
    CreateReservation,
    /// `ElasticIps::delete`.
    DeleteReservation,
    /// `ElasticIps::retag`.
    RetagReservation,
    /// `BgpFabric::project`.
    ReadProject,
    /// `BgpFabric::enable`.
    EnableBgp,
    /// `BgpFabric::sessions`.
    ListSessions,
    /// `BgpFabric::create_session`.
    CreateSession,
    /// `BgpFabric::neighbors`.
    ReadNeighbors,
}

/// A fault in store.
struct Fault {
    operation: Operation,
    error: CloudError,
    /// The effect happens all the same; only the answer is lost.
    after: bool,
}

struct State {
    machines: BTreeMap<ProviderId, Machine>,
    reservations: Vec<Reservation>,
    sessions: Vec<Session>,
    neighbors: BTreeMap<ProviderId, Neighbors>,
    project: Option<BgpProject>,
    quota: usize,
    pending: bool,
    next: u32,
    endpoint: Option<FakeEndpoint>,
    faults: VecDeque<Fault>,
    calls: BTreeMap<Operation, usize>,
}

/// The cloud. Clones are the same cloud.
#[derive(Clone)]
pub struct FakeCloud {
    state: Arc<Mutex<State>>,
}

impl std::fmt::Debug for FakeCloud {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FakeCloud")
            .field("calls", &self.state.lock().calls)
            .finish_non_exhaustive()
    }
}

impl Default for FakeCloud {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeCloud {
    /// An empty cloud without a quota, where BGP was never enabled.
    pub fn new() -> Self {
        let state = State {
            machines: BTreeMap::new(),
            reservations: Vec::new(),
            sessions: Vec::new(),
            neighbors: BTreeMap::new(),
            project: None,
            quota: usize::MAX,
            pending: false,
            next: 1,
            endpoint: None,
            faults: VecDeque::new(),
            calls: BTreeMap::new(),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// This cloud, as services are given it.
    pub fn cloud(&self) -> Cloud {
        Cloud {
            name: "fake",
            machines: Some(Arc::new(self.clone())),
            addresses: AddressBackend::Cloud(Arc::new(self.clone())),
            endpoint: self.state.lock().endpoint.as_ref().map(FakeEndpoint::configured),
            bgp: Some(Arc::new(self.clone())),
        }
    }

    /// From now on [`FakeCloud::cloud`] has this API endpoint, or none.
    pub fn set_endpoint(&self, endpoint: Option<&FakeEndpoint>) {
        self.state.lock().endpoint = endpoint.cloned();
    }

    /// The next call of `operation` that meets no other fault fails with this, and does nothing.
    pub fn fail(&self, operation: Operation, error: CloudError) {
        self.state.lock().faults.push_back(Fault {
            operation,
            error,
            after: false,
        });
    }

    /// The next call of `operation` that meets no other fault is done, and its answer lost.
    pub fn lose_answer(&self, operation: Operation) {
        let error = CloudError::new(CloudErrorKind::Timeout, "fake", "the answer was lost");
        self.state.lock().faults.push_back(Fault {
            operation,
            error,
            after: true,
        });
    }

    /// How often `operation` was called.
    pub fn calls(&self, operation: Operation) -> usize {
        self.state
            .lock()
            .calls
            .get(&operation)
            .copied()
            .unwrap_or_default()
    }

    /// Adds a machine, or puts another in its place.
    pub fn put_machine(&self, machine: Machine) {
        self.state.lock().machines.insert(machine.id.clone(), machine);
    }

    /// A machine `fake://<name>` that is on, with these addresses, the private ones internal.
    ///
    /// # Errors
    /// The name is none.
    pub fn add_machine(
        &self,
        name: &str,
        addresses: &[IpAddr],
    ) -> Result<ProviderId, groundplane_core::ParseNameError> {
        let id: ProviderId = format!("fake://{name}").parse()?;
        let kind = |address: &IpAddr| match address {
            IpAddr::V4(v4) if v4.is_private() => MachineAddressKind::InternalIp,
            _ => MachineAddressKind::ExternalIp,
        };
        let row = |address: &IpAddr| MachineAddress {
            kind: kind(address),
            address: address.to_string(),
        };
        self.put_machine(Machine {
            id: id.clone(),
            hostname: name.to_owned(),
            instance_type: "small".to_owned(),
            zone: "z1".to_owned(),
            region: "r1".to_owned(),
            addresses: addresses.iter().map(row).collect(),
            power: PowerState::On,
            labels: BTreeMap::new(),
        });
        Ok(id)
    }

    /// Takes a machine away.
    pub fn remove_machine(&self, id: &ProviderId) {
        let mut state = self.state.lock();
        state.machines.remove(id);
        state.sessions.retain(|session| session.machine != *id);
    }

    /// Switches a machine on or off.
    pub fn set_power(&self, id: &ProviderId, power: PowerState) {
        if let Some(machine) = self.state.lock().machines.get_mut(id) {
            machine.power = power;
        }
    }

    /// How many addresses may be reserved.
    pub fn set_quota(&self, quota: usize) {
        self.state.lock().quota = quota;
    }

    /// New reservations wait for a person, or do not.
    pub fn set_pending(&self, pending: bool) {
        self.state.lock().pending = pending;
    }

    /// Changes reservations behind everybody's back.
    pub fn change_reservations(&self, change: impl FnOnce(&mut Vec<Reservation>)) {
        change(&mut self.state.lock().reservations);
    }

    /// All reservations.
    pub fn reservations(&self) -> Vec<Reservation> {
        self.state.lock().reservations.clone()
    }

    /// Puts an address onto a machine.
    pub fn assign(&self, reservation: &str, machine: &str) {
        let mut state = self.state.lock();
        if let Some(row) = state.reservations.iter_mut().find(|row| row.id == reservation) {
            row.assignments.push(Assignment {
                id: format!("{reservation}-{machine}"),
                machine: machine.to_owned(),
            });
        }
    }

    /// Sets the BGP configuration; `None`: never enabled.
    pub fn set_project(&self, project: Option<BgpProject>) {
        self.state.lock().project = project;
    }

    /// Sets the neighbours of a machine.
    pub fn set_neighbors(&self, machine: &ProviderId, neighbors: Neighbors) {
        self.state.lock().neighbors.insert(machine.clone(), neighbors);
    }

    /// Counts the call, then does it, or fails as told.
    fn call<T>(
        &self,
        operation: Operation,
        work: impl FnOnce(&mut State) -> Result<T, CloudError>,
    ) -> Result<T, CloudError> {
        let mut state = self.state.lock();
        *state.calls.entry(operation).or_default() += 1;
        let position = state.faults.iter().position(|fault| fault.operation == operation);
        match position.and_then(|position| state.faults.remove(position)) {
            Some(Fault {
                error, after: false, ..
            }) => Err(error),
            Some(Fault { error, .. }) => work(&mut state).and(Err(error)),
            None => work(&mut state),
        }
    }
}

fn no_machine(id: &ProviderId) -> CloudError {
    CloudError::new(CloudErrorKind::NotFound, format!("find {id}"), "no such machine")
}

#[async_trait]
impl MachineSource for FakeCloud {
    fn schemes(&self) -> Vec<String> {
        vec!["fake".to_owned()]
    }

    fn accepts(&self, id: &ProviderId) -> bool {
        id.scheme() == Some("fake")
    }

    fn proves_absence(&self) -> bool {
        true
    }

    async fn list(&self) -> Result<Vec<Machine>, CloudError> {
        self.call(Operation::ListMachines, |state| {
            Ok(state.machines.values().cloned().collect())
        })
    }

    async fn get(&self, id: &ProviderId) -> Result<Machine, CloudError> {
        self.call(Operation::GetMachine, |state| {
            if !self.accepts(id) {
                return Err(CloudError::new(
                    CloudErrorKind::Refused,
                    "read machine",
                    "not of this cloud",
                ));
            }
            state.machines.get(id).cloned().ok_or_else(|| no_machine(id))
        })
    }
}

#[async_trait]
impl ElasticIps for FakeCloud {
    fn tags_of(&self, owner: &Owner) -> Vec<String> {
        vec![format!("cluster={}", owner.cluster), format!("owner={owner}")]
    }

    fn cluster_tags(&self, cluster: &ClusterId) -> Vec<String> {
        vec![format!("cluster={cluster}")]
    }

    fn supports(&self, _family: Family) -> bool {
        true
    }

    async fn list(&self) -> Result<Vec<Reservation>, CloudError> {
        self.call(Operation::ListReservations, |state| {
            Ok(state.reservations.clone())
        })
    }

    async fn create(&self, wanted: &NewReservation) -> Result<Reservation, CloudError> {
        self.call(Operation::CreateReservation, |state| {
            if state.reservations.len() >= state.quota {
                return Err(CloudError::new(
                    CloudErrorKind::QuotaExceeded,
                    "create reservation",
                    "quota",
                ));
            }
            let number = state.next;
            state.next += 1;
            // 198.18.0.0/15 and 2001:db8::/32 are kept for tests and documents.
            let address = match wanted.family {
                Family::V4 => IpAddr::V4(Ipv4Addr::from(0xC612_0000 + number)),
                Family::V6 => IpAddr::V6(Ipv6Addr::from((0x2001_0db8_u128 << 96) + u128::from(number))),
            };
            let made = Reservation {
                id: format!("r{number}"),
                prefix: (!state.pending).then(|| Prefix::host(address)),
                state: if state.pending {
                    ReservationState::Pending
                } else {
                    ReservationState::Ready
                },
                tags: wanted.tags.clone(),
                assignments: Vec::new(),
                usable: true,
            };
            state.reservations.push(made.clone());
            Ok(made)
        })
    }

    async fn delete(&self, id: &str) -> Result<(), CloudError> {
        self.call(Operation::DeleteReservation, |state| {
            state.reservations.retain(|row| row.id != id);
            Ok(())
        })
    }

    /// With a tag `owner=…`, and no cluster's, or another word for it.
    fn is_of_older_controller(&self, tags: &[String]) -> bool {
        let has = |key: &str| tags.iter().any(|tag| tag.starts_with(key));
        has("owner=") && !has("cluster=")
    }

    fn former(&self, cluster: &ClusterId, tags: &[String]) -> Option<Former> {
        if !self.is_of_older_controller(tags) {
            return None;
        }
        let has = |key: &str| tags.iter().any(|tag| tag.starts_with(key));
        if tags.contains(&format!("old-cluster={cluster}")) {
            return Some(Former::OfCluster);
        }
        (!has("old-cluster=")).then_some(Former::Unsaid)
    }

    fn retags(&self) -> bool {
        true
    }

    async fn retag(&self, id: &str, tags: &[String]) -> Result<Reservation, CloudError> {
        self.call(Operation::RetagReservation, |state| {
            let row = state.reservations.iter_mut().find(|row| row.id == id);
            let gone = || {
                CloudError::new(
                    CloudErrorKind::NotFound,
                    "retag reservation",
                    "no such reservation",
                )
            };
            let row = row.ok_or_else(gone)?;
            row.tags = tags.to_vec();
            Ok(row.clone())
        })
    }
}

#[async_trait]
impl BgpFabric for FakeCloud {
    fn needs_sessions(&self) -> bool {
        true
    }

    async fn project(&self) -> Result<Option<BgpProject>, CloudError> {
        self.call(Operation::ReadProject, |state| Ok(state.project.clone()))
    }

    async fn enable(&self) -> Result<BgpProject, CloudError> {
        self.call(Operation::EnableBgp, |state| {
            let fresh = || BgpProject {
                enabled: true,
                pending: false,
                local_asn: 65_000,
                password: None,
                max_prefixes: None,
            };
            Ok(state.project.get_or_insert_with(fresh).clone())
        })
    }

    async fn sessions(&self) -> Result<Vec<Session>, CloudError> {
        self.call(Operation::ListSessions, |state| Ok(state.sessions.clone()))
    }

    async fn create_session(&self, machine: &ProviderId, family: Family) -> Result<(), CloudError> {
        self.call(Operation::CreateSession, |state| {
            if !state.machines.contains_key(machine) {
                return Err(no_machine(machine));
            }
            let is_it = |session: &Session| session.machine == *machine && session.family == family;
            if !state.sessions.iter().any(is_it) {
                let id = format!("s{}", state.next);
                state.next += 1;
                let status = "up".to_owned();
                state.sessions.push(Session {
                    id,
                    machine: machine.clone(),
                    family,
                    status,
                });
            }
            Ok(())
        })
    }

    /// Those that were set; else, with a session, one switch a family.
    async fn neighbors(&self, query: &NeighborQuery) -> Result<Neighbors, CloudError> {
        self.call(Operation::ReadNeighbors, |state| {
            if !state.machines.contains_key(&query.machine) {
                return Err(no_machine(&query.machine));
            }
            if let Some(neighbors) = state.neighbors.get(&query.machine) {
                return Ok(neighbors.clone());
            }
            let own = state
                .sessions
                .iter()
                .filter(|session| session.machine == query.machine);
            let mut peers: Vec<Peer> = own.map(|session| switch(session.family, query)).collect();
            peers.sort_by_key(|peer| peer.address);
            Ok(Neighbors {
                peers,
                private_network: None,
                gateway: None,
            })
        })
    }
}

fn switch(family: Family, query: &NeighborQuery) -> Peer {
    let address = match family {
        Family::V4 => IpAddr::V4(Ipv4Addr::new(169, 254, 255, 1)),
        Family::V6 => IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1)),
    };
    Peer {
        address,
        asn: 65_530,
        local_asn: 65_000,
        source: query
            .addresses
            .iter()
            .copied()
            .find(|own| Family::of(*own) == family),
        password: None,
        multihop: true,
        port: None,
    }
}
