//! The driver `static`: every address is an allocation of ipam. Requests and errors pass through; ipam checks them.

use std::sync::Arc;

use groundplane_core::Clock;
use groundplane_proto::core::v1::PoolRef;
use groundplane_proto::eip::v1 as eip;
use groundplane_proto::ipam::v1 as ipam;
use groundplane_proto::ipam::v1::ipam_service_client::IpamServiceClient;
use groundplane_runtime::grpc::{Channel, RpcError, timestamp};
use tonic::metadata::MetadataMap;
use tonic::{Request, Status};

use crate::error::EipError;

/// The time that the caller has left, as gRPC writes it.
const TIMEOUT: &str = "grpc-timeout";

/// Addresses from ipam. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Pools {
    ipam: IpamServiceClient<Channel>,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Pools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pools").finish_non_exhaustive()
    }
}

impl Pools {
    pub(crate) fn new(channel: Channel, clock: Arc<dyn Clock>) -> Self {
        Self {
            ipam: IpamServiceClient::new(channel),
            clock,
        }
    }

    pub(crate) async fn ensure(
        &self,
        request: Request<eip::EnsureAddressRequest>,
    ) -> Result<eip::EnsureAddressResponse, EipError> {
        let (metadata, _, asked) = request.into_parts();
        let allocate = ipam::AllocateRequest {
            owner: asked.owner,
            owner_uid: asked.owner_uid,
            network: asked.network,
            requests: asked.requests,
            selector: asked.selector,
            request_id: asked.request_id,
        };
        let answer = self
            .ipam
            .clone()
            .allocate(passed_on(&metadata, allocate))
            .await
            .map_err(failed)?;
        let answer = answer.into_inner();
        let missing = |missing: ipam::Missing| eip::MissingAddress {
            family: missing.family,
            reason: missing.reason,
            message: missing.message,
        };
        Ok(eip::EnsureAddressResponse {
            addresses: answer.allocations.into_iter().map(address).collect(),
            missing: answer.missing.into_iter().map(missing).collect(),
        })
    }

    pub(crate) async fn release(
        &self,
        request: Request<eip::ReleaseAddressRequest>,
    ) -> Result<eip::ReleaseAddressResponse, EipError> {
        let (metadata, _, asked) = request.into_parts();
        let release = ipam::ReleaseRequest {
            owner: asked.owner,
            owner_uid: asked.owner_uid,
            network: asked.network,
            prefixes: Vec::new(),
            request_id: asked.request_id,
        };
        let answer = self
            .ipam
            .clone()
            .release(passed_on(&metadata, release))
            .await
            .map_err(failed)?;
        let released = answer.into_inner().released.into_iter().map(address).collect();
        Ok(eip::ReleaseAddressResponse {
            released,
            inherited: Vec::new(),
        })
    }

    pub(crate) async fn list(
        &self,
        request: Request<eip::ListAddressesRequest>,
    ) -> Result<eip::ListAddressesResponse, EipError> {
        let (metadata, _, asked) = request.into_parts();
        let read_at = self.clock.now();
        let list = ipam::ListAllocationsRequest {
            cluster: asked.cluster,
            network: String::new(),
            page_size: asked.page_size,
            page_token: asked.page_token,
        };
        let answer = self
            .ipam
            .clone()
            .list_allocations(passed_on(&metadata, list))
            .await
            .map_err(failed)?;
        let page = answer.into_inner();
        let held = |mut allocation: ipam::Allocation| eip::HeldAddress {
            owner: allocation.owner.take(),
            since: allocation.allocated_at.take(),
            address: Some(address(allocation)),
        };
        Ok(eip::ListAddressesResponse {
            addresses: page.allocations.into_iter().map(held).collect(),
            next_page_token: page.next_page_token,
            read_at: Some(timestamp(read_at)),
        })
    }
}

/// The message, with the caller's deadline.
fn passed_on<T>(metadata: &MetadataMap, message: T) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(timeout) = metadata.get(TIMEOUT) {
        request.metadata_mut().insert(TIMEOUT, timeout.clone());
    }
    request
}

#[allow(clippy::needless_pass_by_value, reason = "the shape of map_err")]
fn failed(status: Status) -> EipError {
    EipError::Ipam(RpcError::from(status))
}

fn address(allocation: ipam::Allocation) -> eip::Address {
    eip::Address {
        prefix: allocation.prefix,
        origin: allocation.pool.map(origin).unwrap_or_default(),
        state: eip::State::Ready.into(),
        user_provided: false,
    }
}

/// A pool as people write it: `file:public`, `inclusterippools:default/lab`.
fn origin(pool: PoolRef) -> String {
    let PoolRef {
        source,
        namespace,
        name,
    } = pool;
    match (source.is_empty(), namespace.is_empty()) {
        (true, true) => name,
        (false, true) => format!("{source}:{name}"),
        (true, false) => format!("{namespace}/{name}"),
        (false, false) => format!("{source}:{namespace}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_written_as_people_write_it() {
        let pool = |source: &str, namespace: &str| PoolRef {
            source: source.to_owned(),
            namespace: namespace.to_owned(),
            name: "lab".to_owned(),
        };
        assert_eq!(origin(pool("file", "")), "file:lab");
        assert_eq!(
            origin(pool("inclusterippools", "default")),
            "inclusterippools:default/lab"
        );
    }

    #[test]
    fn the_deadline_of_the_caller_goes_along() {
        let mut metadata = MetadataMap::new();
        assert_eq!(passed_on(&metadata, ()).metadata().get(TIMEOUT), None);
        metadata.insert(TIMEOUT, "250m".parse().unwrap());
        assert_eq!(passed_on(&metadata, ()).metadata().get(TIMEOUT).unwrap(), "250m");
    }
}
