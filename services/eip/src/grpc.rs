//! The RPC surface: parse, call, convert.

mod convert;
mod endpoint;

use groundplane_proto::eip::v1 as proto;
use groundplane_proto::eip::v1::eip_service_server::EipService;
use groundplane_runtime::grpc::{Page, timestamp};
use tonic::{Request, Response, Status};

use crate::app::{ApiEndpoint, Eip};
use crate::domain::Standing;
use crate::error::EipError;

/// The service as tonic sees it.
#[derive(Debug)]
pub(crate) struct Rpc {
    addresses: Eip,
    endpoint: ApiEndpoint,
}

impl Rpc {
    pub(crate) fn new(addresses: Eip, endpoint: ApiEndpoint) -> Self {
        Self { addresses, endpoint }
    }
}

fn elsewhere<T>() -> Result<Response<T>, Status> {
    Err(Status::unimplemented(
        "this process serves the API endpoint alone; ask eip",
    ))
}

/// What is done with reservations of a cloud alone.
const AUDIT: &str = "an audit of addresses";

fn unsupported<T>(what: &'static str) -> Result<Response<T>, Status> {
    Err(EipError::Unsupported(what).into())
}

#[tonic::async_trait]
impl EipService for Rpc {
    async fn ensure_address(
        &self,
        request: Request<proto::EnsureAddressRequest>,
    ) -> Result<Response<proto::EnsureAddressResponse>, Status> {
        let answer = match &self.addresses {
            Eip::Pools(pools) => pools.ensure(request).await?,
            Eip::Cloud(cloud) => cloud.ensure(&convert::ask(request.into_inner())?).await?.into(),
            Eip::Elsewhere => return elsewhere(),
        };
        Ok(Response::new(answer))
    }

    async fn release_address(
        &self,
        request: Request<proto::ReleaseAddressRequest>,
    ) -> Result<Response<proto::ReleaseAddressResponse>, Status> {
        let cloud = match &self.addresses {
            Eip::Pools(pools) => return Ok(Response::new(pools.release(request).await?)),
            Eip::Cloud(cloud) => cloud,
            Eip::Elsewhere => return elsewhere(),
        };
        let request = request.into_inner();
        convert::network(&request.network)?;
        let heirs = convert::heirs(request.heirs)?;
        let released = cloud.release(&convert::owner(request.owner)?, &heirs).await?;
        Ok(Response::new(released.into()))
    }

    async fn list_addresses(
        &self,
        request: Request<proto::ListAddressesRequest>,
    ) -> Result<Response<proto::ListAddressesResponse>, Status> {
        let cloud = match &self.addresses {
            Eip::Pools(pools) => return Ok(Response::new(pools.list(request).await?)),
            Eip::Cloud(cloud) => cloud,
            Eip::Elsewhere => return elsewhere(),
        };
        let request = request.into_inner();
        let cluster = convert::cluster(&request.cluster)?;
        let page = Page::asked("eip", request.page_size, &request.page_token)?;
        let (reservations, read_at) = cloud.list(&cluster).await?;
        let (held, next_page_token) = page.cut(reservations, |reservation| &reservation.id);
        Ok(Response::new(proto::ListAddressesResponse {
            addresses: held.into_iter().map(convert::held).collect(),
            next_page_token,
            read_at: Some(timestamp(read_at)),
        }))
    }

    async fn audit_addresses(
        &self,
        request: Request<proto::AuditAddressesRequest>,
    ) -> Result<Response<proto::AuditAddressesResponse>, Status> {
        let Eip::Cloud(cloud) = &self.addresses else {
            return unsupported(AUDIT);
        };
        let request = request.into_inner();
        let population = convert::population(request.population)?;
        let mut audited = cloud.audit(&population, request.fresh).await?;
        audited
            .findings
            .retain(|finding| request.foreign || finding.standing != Standing::Foreign);
        Ok(Response::new(audited.into()))
    }

    async fn reclaim_addresses(
        &self,
        request: Request<proto::ReclaimAddressesRequest>,
    ) -> Result<Response<proto::ReclaimAddressesResponse>, Status> {
        let Eip::Cloud(cloud) = &self.addresses else {
            return unsupported(AUDIT);
        };
        let request = request.into_inner();
        let population = convert::population(request.population)?;
        let ids = request.reservations.into_iter().collect();
        let reclaimed = cloud.reclaim(&population, &ids).await?;
        let reclaimed = reclaimed.into_iter().map(Into::into).collect();
        Ok(Response::new(proto::ReclaimAddressesResponse { reclaimed }))
    }

    async fn ensure_load_balancer(
        &self,
        _: Request<proto::EnsureLoadBalancerRequest>,
    ) -> Result<Response<proto::EnsureLoadBalancerResponse>, Status> {
        unsupported("a load balancer of the cloud")
    }

    async fn delete_load_balancer(
        &self,
        _: Request<proto::DeleteLoadBalancerRequest>,
    ) -> Result<Response<proto::DeleteLoadBalancerResponse>, Status> {
        unsupported("a load balancer of the cloud")
    }

    async fn get_endpoint(
        &self,
        request: Request<proto::GetEndpointRequest>,
    ) -> Result<Response<proto::GetEndpointResponse>, Status> {
        convert::cluster(&request.into_inner().cluster)?;
        Ok(Response::new(self.endpoint.get().await?.into()))
    }

    async fn move_endpoint(
        &self,
        request: Request<proto::MoveEndpointRequest>,
    ) -> Result<Response<proto::MoveEndpointResponse>, Status> {
        let wish = endpoint::wish(&request.into_inner())?;
        Ok(Response::new(self.endpoint.move_to(wish).await?.into()))
    }
}
