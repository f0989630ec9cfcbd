//! The RPC surface: parse, call, convert.

mod convert;

use std::sync::Arc;

use groundplane_proto::bgp::v1 as proto;
use groundplane_proto::bgp::v1::bgp_service_server::BgpService;
use groundplane_runtime::grpc::Page;
use tonic::{Request, Response, Status};

use crate::app::Bgp;
use crate::error::BgpError;

/// The service as tonic sees it. `None`: BGP is not configured.
#[derive(Debug)]
pub(crate) struct Rpc(Option<Arc<Bgp>>);

impl Rpc {
    pub(crate) fn new(bgp: Option<Arc<Bgp>>) -> Self {
        Self(bgp)
    }
}

#[tonic::async_trait]
impl BgpService for Rpc {
    async fn ensure_project(
        &self,
        request: Request<proto::EnsureProjectRequest>,
    ) -> Result<Response<proto::EnsureProjectResponse>, Status> {
        let answer = match &self.0 {
            Some(bgp) => convert::project(&bgp.project(request.into_inner().fresh).await?),
            None => proto::EnsureProjectResponse::default(),
        };
        Ok(Response::new(answer))
    }

    async fn ensure_machine(
        &self,
        request: Request<proto::EnsureMachineRequest>,
    ) -> Result<Response<proto::EnsureMachineResponse>, Status> {
        let bgp = self.0.as_ref().ok_or(BgpError::Off)?;
        let peers = bgp.machine(convert::asked(request.into_inner())?).await?;
        Ok(Response::new(convert::peers(peers)))
    }

    async fn list_peers(
        &self,
        request: Request<proto::ListPeersRequest>,
    ) -> Result<Response<proto::ListPeersResponse>, Status> {
        let request = request.into_inner();
        let page = Page::asked("bgp", request.page_size, &request.page_token)?;
        let overview = self.0.as_ref().map(|bgp| bgp.overview()).unwrap_or_default();
        let (machines, next_page_token) = page.cut(overview, |machine| &machine.machine);
        Ok(Response::new(proto::ListPeersResponse {
            machines: machines.into_iter().map(convert::told).collect(),
            next_page_token,
        }))
    }
}
