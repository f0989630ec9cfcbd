//! Addresses in memory: an `eip` that gives them out of a small pool, and an `ipam` that is told who holds what.

use std::collections::{BTreeMap, VecDeque};

use async_trait::async_trait;
use futures::StreamExt as _;
use groundplane_core::ErrorKind;
use groundplane_proto::{core, eip, ipam};
use groundplane_runtime::grpc::RpcError;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::rpc_error;
use crate::clients::{Eip, Ipam, PoolFeed};

#[derive(Default)]
struct Held {
    /// By owner: UID and prefixes.
    owners: BTreeMap<String, (String, Vec<String>)>,
    free: Vec<&'static str>,
    errors: VecDeque<RpcError>,
    ensured: Vec<eip::v1::EnsureAddressRequest>,
    /// What the cloud has, by id: whose it is by its tags, and its prefix.
    reservations: BTreeMap<String, (String, String)>,
    released: Vec<(String, String)>,
}

/// An `eip` with a pool of addresses, which gives the first free one of the family.
#[derive(Default)]
pub(crate) struct FakeEip(Mutex<Held>);

fn name(owner: Option<&core::v1::Owner>) -> String {
    owner
        .map(|owner| format!("{}/{}", owner.namespace, owner.name))
        .unwrap_or_default()
}

fn prefix(address: &str) -> String {
    format!("{address}/{}", if address.contains(':') { 128 } else { 32 })
}

impl FakeEip {
    /// These can be given.
    pub(crate) fn free(&self, addresses: &[&'static str]) {
        self.0.lock().free.extend(addresses);
    }

    /// The next call fails like this.
    pub(crate) fn fail(&self, error: RpcError) {
        self.0.lock().errors.push_back(error);
    }

    /// What the Service holds.
    pub(crate) fn held(&self, owner: &str) -> Vec<String> {
        self.0
            .lock()
            .owners
            .get(owner)
            .map(|(_, prefixes)| prefixes.clone())
            .unwrap_or_default()
    }

    /// The Service of this name and UID holds this, from before.
    pub(crate) fn hold(&self, owner: &str, uid: &str, address: &str) {
        self.0
            .lock()
            .owners
            .insert(owner.to_owned(), (uid.to_owned(), vec![prefix(address)]));
    }

    /// The cloud has this, with the tags of this Service.
    pub(crate) fn reserve(&self, id: &str, owner: &str, address: &str) {
        let reservation = (owner.to_owned(), prefix(address));
        self.0.lock().reservations.insert(id.to_owned(), reservation);
    }

    /// The cloud has this, with the tags of an older controller, which name no cluster.
    pub(crate) fn bequeath(&self, id: &str, address: &str) {
        self.reserve(id, "", address);
    }

    /// The ids of what the cloud has.
    pub(crate) fn reserved(&self) -> Vec<String> {
        self.0.lock().reservations.keys().cloned().collect()
    }

    /// Requests for addresses since the last look.
    pub(crate) fn ensured(&self) -> Vec<eip::v1::EnsureAddressRequest> {
        std::mem::take(&mut self.0.lock().ensured)
    }

    /// Releases since the last look: Service and UID.
    pub(crate) fn released(&self) -> Vec<(String, String)> {
        std::mem::take(&mut self.0.lock().released)
    }
}

impl Held {
    /// Has one of the sharers this address?
    fn is_shared(&self, request: &eip::v1::EnsureAddressRequest, address: &str) -> bool {
        let mut sharers = request
            .sharers
            .iter()
            .filter_map(|one| self.owners.get(&name(Some(one))));
        !address.is_empty() && sharers.any(|(_, held)| held.contains(&prefix(address)))
    }

    /// What is found of each reservation.
    fn audit(&self, population: Option<&eip::v1::Population>) -> Vec<eip::v1::AuditedAddress> {
        let population = population.cloned().unwrap_or_default();
        let owners: Vec<String> = population.owners.iter().map(|owner| name(Some(owner))).collect();
        let standing = |owner: &String, held: &String| {
            if owner.is_empty() {
                eip::v1::Standing::Former
            } else if owners.contains(owner) {
                eip::v1::Standing::Held
            } else if population.in_use.iter().any(|used| prefix(used) == *held) {
                eip::v1::Standing::Spared
            } else {
                eip::v1::Standing::Orphan
            }
        };
        self.reservations
            .iter()
            .map(|(id, (owner, held))| eip::v1::AuditedAddress {
                address: Some(eip::v1::Address {
                    prefix: held.clone(),
                    origin: id.clone(),
                    ..eip::v1::Address::default()
                }),
                standing: standing(owner, held).into(),
                ..eip::v1::AuditedAddress::default()
            })
            .collect()
    }

    fn give(&mut self, request: &core::v1::AddressRequest) -> Result<String, RpcError> {
        let v6 = request.family() == core::v1::Family::Ipv6;
        let wanted = |free: &&str| match request.address.as_str() {
            "" => free.contains(':') == v6,
            address => **free == *address,
        };
        let Some(at) = self.free.iter().position(wanted) else {
            return Err(if request.address.is_empty() {
                rpc_error(ErrorKind::Exhausted, "POOL_EXHAUSTED")
            } else {
                rpc_error(ErrorKind::Precondition, "OUTSIDE_POOLS")
            });
        };
        Ok(prefix(self.free.remove(at)))
    }
}

#[async_trait]
impl Eip for FakeEip {
    async fn ensure_address(
        &self,
        request: eip::v1::EnsureAddressRequest,
    ) -> Result<eip::v1::EnsureAddressResponse, RpcError> {
        let mut all = self.0.lock();
        all.ensured.push(request.clone());
        if let Some(error) = all.errors.pop_front() {
            return Err(error);
        }
        let owner = name(request.owner.as_ref());
        let (uid, mut prefixes) = all
            .owners
            .get(&owner)
            .cloned()
            .unwrap_or_else(|| (request.owner_uid.clone(), Vec::new()));
        if !uid.is_empty() && uid != request.owner_uid {
            return Err(rpc_error(ErrorKind::Precondition, "UID_MISMATCH"));
        }
        let mut answer = eip::v1::EnsureAddressResponse::default();
        for wanted in &request.requests {
            let v6 = wanted.family() == core::v1::Family::Ipv6;
            let held = prefixes.iter().find(|held| held.contains(':') == v6).cloned();
            let given = match held {
                Some(held) if wanted.address.is_empty() || prefix(&wanted.address) == held => Ok(held),
                Some(_) => Err(rpc_error(ErrorKind::Precondition, "ALREADY_HOLDS")),
                None if all.is_shared(&request, &wanted.address) => Ok(prefix(&wanted.address)),
                None => all.give(wanted).inspect(|given| prefixes.push(given.clone())),
            };
            match given {
                Ok(prefix) => answer.addresses.push(eip::v1::Address {
                    prefix,
                    origin: "file:test".to_owned(),
                    state: eip::v1::State::Ready.into(),
                    user_provided: false,
                }),
                Err(error) if wanted.optional => answer.missing.push(eip::v1::MissingAddress {
                    family: wanted.family,
                    reason: error.reason,
                    message: error.message,
                }),
                Err(error) => return Err(error),
            }
        }
        all.owners.insert(owner, (uid, prefixes));
        Ok(answer)
    }

    async fn release_address(
        &self,
        request: eip::v1::ReleaseAddressRequest,
    ) -> Result<eip::v1::ReleaseAddressResponse, RpcError> {
        let mut all = self.0.lock();
        if let Some(error) = all.errors.pop_front() {
            return Err(error);
        }
        let owner = name(request.owner.as_ref());
        all.released.push((owner.clone(), request.owner_uid.clone()));
        let mine = all.owners.get(&owner).is_some_and(|(uid, _)| {
            uid.is_empty() || request.owner_uid.is_empty() || *uid == request.owner_uid
        });
        let mut answer = eip::v1::ReleaseAddressResponse::default();
        if let Some((_, left)) = mine.then(|| all.owners.remove(&owner)).flatten() {
            for left in left {
                let uses = |heir: &&eip::v1::Heir| heir.addresses.iter().any(|used| prefix(used) == left);
                let heir = request.heirs.iter().find(uses);
                let address = eip::v1::Address {
                    prefix: left.clone(),
                    ..eip::v1::Address::default()
                };
                match heir.map(|heir| name(heir.owner.as_ref())) {
                    Some(heir) => {
                        all.owners.entry(heir).or_default().1.push(left);
                        answer.inherited.push(address);
                    }
                    None => answer.released.push(address),
                }
            }
        }
        Ok(answer)
    }

    async fn get_endpoint(
        &self,
        _: eip::v1::GetEndpointRequest,
    ) -> Result<eip::v1::GetEndpointResponse, RpcError> {
        let mut all = self.0.lock();
        if let Some(error) = all.errors.pop_front() {
            return Err(error);
        }
        Ok(eip::v1::GetEndpointResponse {
            address: "203.0.113.9".to_owned(),
            holder: "cloud://a".to_owned(),
            assignment_id: "1".to_owned(),
            ..eip::v1::GetEndpointResponse::default()
        })
    }

    async fn audit_addresses(
        &self,
        request: eip::v1::AuditAddressesRequest,
    ) -> Result<eip::v1::AuditAddressesResponse, RpcError> {
        let mut all = self.0.lock();
        if let Some(error) = all.errors.pop_front() {
            return Err(error);
        }
        Ok(eip::v1::AuditAddressesResponse {
            addresses: all.audit(request.population.as_ref()),
            read_at: None,
        })
    }

    async fn reclaim_addresses(
        &self,
        request: eip::v1::ReclaimAddressesRequest,
    ) -> Result<eip::v1::ReclaimAddressesResponse, RpcError> {
        let mut all = self.0.lock();
        if let Some(error) = all.errors.pop_front() {
            return Err(error);
        }
        let mut reclaimed = all.audit(request.population.as_ref());
        reclaimed.retain(|one| {
            let id = one.address.as_ref().map(|address| &address.origin);
            let named = id.is_some_and(|id| request.reservations.contains(id));
            named && one.standing() == eip::v1::Standing::Orphan
        });
        for one in &reclaimed {
            if let Some(address) = &one.address {
                all.reservations.remove(&address.origin);
            }
        }
        Ok(eip::v1::ReclaimAddressesResponse { reclaimed })
    }

    async fn list_addresses(
        &self,
        _: eip::v1::ListAddressesRequest,
    ) -> Result<eip::v1::ListAddressesResponse, RpcError> {
        let all = self.0.lock();
        let held = all
            .owners
            .values()
            .flat_map(|(_, prefixes)| prefixes)
            .map(|prefix| eip::v1::HeldAddress {
                address: Some(eip::v1::Address {
                    prefix: prefix.clone(),
                    ..eip::v1::Address::default()
                }),
                owner: None,
                since: None,
            });
        Ok(eip::v1::ListAddressesResponse {
            addresses: held.collect(),
            ..Default::default()
        })
    }
}

/// The sending half of a stream of pool events.
pub(crate) type Events = mpsc::UnboundedSender<Result<ipam::v1::WatchResponse, RpcError>>;

/// An `ipam` that answers as it is told, and remembers who was adopted.
#[derive(Default)]
pub(crate) struct FakeIpam {
    answers: Mutex<VecDeque<Result<ipam::v1::AdoptResponse, RpcError>>>,
    /// What it was told, each time.
    adopted: Mutex<Vec<ipam::v1::AdoptRequest>>,
    store: Mutex<ipam::v1::GetStoreResponse>,
    streams: Mutex<Option<Events>>,
}

impl FakeIpam {
    /// It has this store.
    pub(crate) fn store(&self, id: &str, revision: u64) {
        *self.store.lock() = ipam::v1::GetStoreResponse {
            store_id: id.to_owned(),
            revision,
            kind: "memory".to_owned(),
        };
    }

    /// The next Adopt is answered so; without an answer, all is taken over by the store.
    pub(crate) fn answer(&self, answer: Result<ipam::v1::AdoptResponse, RpcError>) {
        self.answers.lock().push_back(answer);
    }

    /// What it was told since the last look.
    pub(crate) fn adopted(&self) -> Vec<ipam::v1::AdoptRequest> {
        std::mem::take(&mut *self.adopted.lock())
    }

    /// The stream of pool events, as soon as somebody follows it.
    pub(crate) fn events(&self) -> Option<Events> {
        self.streams.lock().clone()
    }

    /// Ends the stream.
    pub(crate) fn hang_up(&self) {
        self.streams.lock().take();
    }
}

#[async_trait]
impl PoolFeed for FakeIpam {
    async fn open(&self) -> Result<crate::clients::PoolEvents, RpcError> {
        let (send, receive) = mpsc::unbounded_channel();
        *self.streams.lock() = Some(send);
        let stream = futures::stream::unfold(receive, |mut receive| async move {
            let event = receive.recv().await?;
            Some((event, receive))
        });
        Ok(stream.boxed())
    }
}

#[async_trait]
impl Ipam for FakeIpam {
    async fn list_pools(
        &self,
        _: ipam::v1::ListPoolsRequest,
    ) -> Result<ipam::v1::ListPoolsResponse, RpcError> {
        Ok(ipam::v1::ListPoolsResponse::default())
    }

    async fn explain(&self, _: ipam::v1::ExplainRequest) -> Result<ipam::v1::ExplainResponse, RpcError> {
        Ok(ipam::v1::ExplainResponse {
            summary: "no pool has a free address".to_owned(),
            ..Default::default()
        })
    }

    async fn adopt(&self, request: ipam::v1::AdoptRequest) -> Result<ipam::v1::AdoptResponse, RpcError> {
        self.adopted.lock().push(request);
        let store = self.store.lock().clone();
        let all_well = ipam::v1::AdoptResponse {
            store_id: store.store_id,
            revision: store.revision,
            ..ipam::v1::AdoptResponse::default()
        };
        self.answers.lock().pop_front().unwrap_or(Ok(all_well))
    }

    async fn get_store(&self, _: ipam::v1::GetStoreRequest) -> Result<ipam::v1::GetStoreResponse, RpcError> {
        Ok(self.store.lock().clone())
    }
}
