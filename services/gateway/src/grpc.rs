//! What `groundplane ctl` asks: composed from the services, and from the caches where the cluster's API is away.
//!
//! Nothing here changes anything, save the acceptance of a store and the application of a takeover. Any replica answers; what only the leader knows is said to be unknown elsewhere.

mod endpoint;
mod error;
mod explain;
mod lists;
mod overview;
mod store;
mod takeover;

use std::sync::Arc;

use async_trait::async_trait;
use groundplane_proto::gateway::v1 as pb;
use groundplane_proto::gateway::v1::gateway_service_server::{GatewayService, GatewayServiceServer};
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use crate::gateway::Gateway;
use error::GatewayError;

/// What we serve.
pub(crate) fn routes(gateway: &Arc<Gateway>) -> Routes {
    Routes::new(GatewayServiceServer::new(GatewayApi {
        gateway: Arc::clone(gateway),
    }))
}

struct GatewayApi {
    gateway: Arc<Gateway>,
}

#[async_trait]
impl GatewayService for GatewayApi {
    async fn explain_object(
        &self,
        request: Request<pb::ExplainObjectRequest>,
    ) -> Result<Response<pb::ExplainObjectResponse>, Status> {
        Ok(Response::new(
            explain::object(&self.gateway, request.into_inner()).await?,
        ))
    }

    async fn get_endpoint_status(
        &self,
        _: Request<pb::GetEndpointStatusRequest>,
    ) -> Result<Response<pb::GetEndpointStatusResponse>, Status> {
        Ok(Response::new(endpoint::status(&self.gateway).await?))
    }

    async fn overview(
        &self,
        _: Request<pb::OverviewRequest>,
    ) -> Result<Response<pb::OverviewResponse>, Status> {
        Ok(Response::new(overview::overview(&self.gateway).await))
    }

    async fn list_pools(
        &self,
        _: Request<pb::ListPoolsRequest>,
    ) -> Result<Response<pb::ListPoolsResponse>, Status> {
        Ok(Response::new(lists::pools(&self.gateway).await?))
    }

    async fn list_addresses(
        &self,
        request: Request<pb::ListAddressesRequest>,
    ) -> Result<Response<pb::ListAddressesResponse>, Status> {
        Ok(Response::new(
            lists::addresses(&self.gateway, request.into_inner()).await?,
        ))
    }

    async fn list_machines(
        &self,
        request: Request<pb::ListMachinesRequest>,
    ) -> Result<Response<pb::ListMachinesResponse>, Status> {
        Ok(Response::new(
            lists::machines(&self.gateway, request.into_inner()).await?,
        ))
    }

    async fn list_peers(
        &self,
        request: Request<pb::ListPeersRequest>,
    ) -> Result<Response<pb::ListPeersResponse>, Status> {
        Ok(Response::new(
            lists::peers(&self.gateway, request.into_inner()).await?,
        ))
    }

    async fn accept_store(
        &self,
        request: Request<pb::AcceptStoreRequest>,
    ) -> Result<Response<pb::AcceptStoreResponse>, Status> {
        Ok(Response::new(
            store::accept(&self.gateway, &request.into_inner().store_id).await?,
        ))
    }

    async fn plan_takeover(
        &self,
        _: Request<pb::PlanTakeoverRequest>,
    ) -> Result<Response<pb::PlanTakeoverResponse>, Status> {
        Ok(Response::new(takeover::plan(&self.gateway).await?))
    }

    async fn apply_takeover(
        &self,
        request: Request<pb::ApplyTakeoverRequest>,
    ) -> Result<Response<pb::ApplyTakeoverResponse>, Status> {
        Ok(Response::new(
            takeover::apply(&self.gateway, &request.into_inner().plan_id).await?,
        ))
    }
}

/// How old the caches may be, as the contract writes it.
fn cache_age(gateway: &Gateway) -> Option<prost_types::Duration> {
    let cluster = &gateway.cluster;
    cluster
        .nodes
        .index
        .age()
        .max(cluster.services.index.age())
        .try_into()
        .ok()
}

#[cfg(test)]
mod tests;
