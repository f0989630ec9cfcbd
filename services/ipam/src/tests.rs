//! The service in process, over in-memory gRPC: codes and reasons, concurrency, restarts, faults.

mod adoption;
mod allocation;
mod faults;
mod watching;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use groundplane_core::{ErrorKind, FixedClock};
use groundplane_proto::core::v1::{AddressRequest, Family, Owner};
use groundplane_proto::ipam::v1 as pb;
use groundplane_proto::ipam::v1::ipam_service_client::IpamServiceClient;
use groundplane_runtime::grpc::{Channel, RpcError, Server};
use groundplane_runtime::{Context, Health};
use jiff::Timestamp;

use crate::adapters::memory::MemoryStore;
use crate::ports::Store;
use crate::{Config, IpamConfig, PoolConfig, StoreConfig, StoreKind, start, start_with};

pub(super) const CLUSTER: &str = "east";

/// One ipam, and a client of it.
pub(super) struct Ipam {
    pub(super) context: Context,
    pub(super) clock: Arc<FixedClock>,
    pub(super) client: IpamServiceClient<Channel>,
}

impl Ipam {
    /// Over a store in memory, adopted.
    pub(super) async fn new(pools: &[PoolConfig]) -> Self {
        let mut ipam = Self::over(Box::new(MemoryStore::new()), pools).await;
        ipam.adopt(Vec::new()).await;
        ipam
    }

    /// Over this store, not adopted.
    pub(super) async fn over(store: Box<dyn Store>, pools: &[PoolConfig]) -> Self {
        let (context, clock) = context();
        let routes = start_with(store, pools, Duration::from_secs(300), &context)
            .await
            .unwrap();
        Self::serve(context, clock, routes).await
    }

    /// Over a file, not adopted.
    pub(super) async fn in_file(path: &Path, pools: &[PoolConfig]) -> Self {
        let (context, clock) = context();
        let routes = start(in_file(path, pools), &context).await.unwrap();
        Self::serve(context, clock, routes).await
    }

    async fn serve(context: Context, clock: Arc<FixedClock>, routes: tonic::service::Routes) -> Self {
        let server = Server::new("ipam", &context).routes(routes);
        let channel = server
            .within(groundplane_proto::FILE_DESCRIPTOR_SET)
            .await
            .unwrap();
        Self {
            context,
            clock,
            client: IpamServiceClient::new(channel),
        }
    }

    pub(super) fn health(&self) -> &Health {
        &self.context.health
    }

    pub(super) async fn stop(self) {
        drop(self.client);
        self.context.tasks.drain(Duration::from_secs(20)).await.unwrap();
    }

    pub(super) async fn adopt(&mut self, holdings: Vec<pb::Holding>) -> pb::AdoptResponse {
        self.client.adopt(adoption(holdings)).await.unwrap().into_inner()
    }

    pub(super) async fn allocate(&mut self, name: &str, wants: &[&str]) -> Result<Vec<String>, RpcError> {
        let answer = self
            .client
            .allocate(request(name, wants))
            .await
            .map_err(RpcError::from)?
            .into_inner();
        Ok(answer.allocations.into_iter().map(|held| held.prefix).collect())
    }

    pub(super) async fn release(&mut self, name: &str) -> Result<usize, RpcError> {
        let request = pb::ReleaseRequest {
            owner: Some(owner(name)),
            ..Default::default()
        };
        Ok(self
            .client
            .release(request)
            .await
            .map_err(RpcError::from)?
            .into_inner()
            .released
            .len())
    }

    pub(super) async fn holder(&mut self, address: &str) -> Option<String> {
        let by = Some(pb::lookup_request::By::Address(address.to_owned()));
        let request = pb::LookupRequest {
            by,
            ..Default::default()
        };
        let held = self
            .client
            .lookup(request)
            .await
            .unwrap()
            .into_inner()
            .allocations;
        held.first().map(|held| held.owner.clone().unwrap().name)
    }

    pub(super) async fn store(&mut self) -> pb::GetStoreResponse {
        self.client
            .get_store(pb::GetStoreRequest {})
            .await
            .unwrap()
            .into_inner()
    }
}

fn context() -> (Context, Arc<FixedClock>) {
    let clock = Arc::new(FixedClock::new(Timestamp::from_second(1_000_000).unwrap()));
    let shared = Arc::clone(&clock);
    (Context::with_clock(shared), clock)
}

pub(super) fn in_file(path: &Path, pools: &[PoolConfig]) -> Config {
    let store = StoreConfig {
        kind: StoreKind::Redb,
        path: path.to_owned(),
    };
    Config {
        pools: pools.to_vec(),
        ipam: IpamConfig {
            store,
            ..IpamConfig::default()
        },
    }
}

pub(super) fn pool(name: &str, addresses: &[&str]) -> PoolConfig {
    let addresses = addresses.iter().map(|text| (*text).to_owned()).collect();
    PoolConfig {
        name: name.to_owned(),
        addresses,
        ..PoolConfig::default()
    }
}

pub(super) fn owner(name: &str) -> Owner {
    Owner {
        cluster: CLUSTER.to_owned(),
        kind: "service".to_owned(),
        namespace: "default".to_owned(),
        name: name.to_owned(),
        slot: String::new(),
    }
}

/// `v4`, `v6`, or an address.
pub(super) fn want(text: &str) -> AddressRequest {
    match text {
        "v4" => AddressRequest {
            family: Family::Ipv4.into(),
            ..Default::default()
        },
        "v6" => AddressRequest {
            family: Family::Ipv6.into(),
            ..Default::default()
        },
        address => AddressRequest {
            address: address.to_owned(),
            ..Default::default()
        },
    }
}

pub(super) fn request(name: &str, wants: &[&str]) -> pb::AllocateRequest {
    let requests = wants.iter().map(|text| want(text)).collect();
    pb::AllocateRequest {
        owner: Some(owner(name)),
        requests,
        ..Default::default()
    }
}

pub(super) fn adoption(holdings: Vec<pb::Holding>) -> pb::AdoptRequest {
    pb::AdoptRequest {
        cluster: CLUSTER.to_owned(),
        holdings,
        kinds: vec!["service".to_owned()],
        ..Default::default()
    }
}

pub(super) fn holding(name: &str, prefixes: &[&str]) -> pb::Holding {
    let prefixes = prefixes.iter().map(|text| (*text).to_owned()).collect();
    pb::Holding {
        owner: Some(owner(name)),
        prefixes,
        ..Default::default()
    }
}

pub(super) fn refusal<T: std::fmt::Debug>(result: Result<T, impl Into<RpcError>>) -> (ErrorKind, String) {
    let error: RpcError = result.unwrap_err().into();
    (error.kind, error.reason)
}
