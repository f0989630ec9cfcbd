//! The RPC surface: parse, call, convert.

mod convert;

use groundplane_proto::instances::v1 as proto;
use groundplane_proto::instances::v1::instances_service_server::InstancesService;
use groundplane_runtime::grpc::{Page, timestamp};
use tonic::{Request, Response, Status};

use crate::app::Instances;
use crate::domain::Sought;
use crate::error::InstancesError;

/// The service as tonic sees it.
#[derive(Debug)]
pub(crate) struct Rpc(Instances);

impl Rpc {
    pub(crate) fn new(instances: Instances) -> Self {
        Self(instances)
    }
}

fn no_routes<T>() -> Result<Response<T>, Status> {
    Err(InstancesError::Routes.into())
}

#[tonic::async_trait]
impl InstancesService for Rpc {
    async fn resolve(
        &self,
        request: Request<proto::ResolveRequest>,
    ) -> Result<Response<proto::ResolveResponse>, Status> {
        let request = request.into_inner();
        let sought = Sought::parse(&request.provider_id, &request.node, &request.addresses)
            .map_err(InstancesError::from)?;
        let (machine, read_at) = self.0.resolve(&sought, request.fresh).await?;
        let (machine, read_at) = (Some(convert::machine(machine)), Some(timestamp(read_at)));
        Ok(Response::new(proto::ResolveResponse { machine, read_at }))
    }

    async fn list_machines(
        &self,
        request: Request<proto::ListMachinesRequest>,
    ) -> Result<Response<proto::ListMachinesResponse>, Status> {
        let request = request.into_inner();
        let page = Page::asked("instances", request.page_size, &request.page_token)?;
        let (machines, read_at) = self.0.list(request.fresh).await?;
        let (machines, next_page_token) = page.cut(machines, |machine| &machine.id);
        Ok(Response::new(proto::ListMachinesResponse {
            machines: machines.into_iter().map(convert::machine).collect(),
            next_page_token,
            read_at: Some(timestamp(read_at)),
        }))
    }

    async fn ensure_route(
        &self,
        _: Request<proto::EnsureRouteRequest>,
    ) -> Result<Response<proto::EnsureRouteResponse>, Status> {
        no_routes()
    }

    async fn delete_route(
        &self,
        _: Request<proto::DeleteRouteRequest>,
    ) -> Result<Response<proto::DeleteRouteResponse>, Status> {
        no_routes()
    }

    async fn list_routes(
        &self,
        _: Request<proto::ListRoutesRequest>,
    ) -> Result<Response<proto::ListRoutesResponse>, Status> {
        no_routes()
    }
}
