//! An `ipam` without pools, which is all that a cluster needs whose addresses are a cloud's. The real one writes in a thread of its own,
//! and a run would not be the same twice.

use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use groundplane_proto::ipam::v1 as pb;
use groundplane_proto::ipam::v1::ipam_service_server::IpamService;
use tonic::{Request, Response, Status, Streaming};

/// The service. Its store is empty, and another one in each life of its process.
pub(crate) struct NoPools {
    pub(crate) store: String,
}

fn no<T>() -> Result<Response<T>, Status> {
    Err(Status::unimplemented("not in this simulation"))
}

#[tonic::async_trait]
impl IpamService for NoPools {
    type WatchStream = BoxStream<'static, Result<pb::WatchResponse, Status>>;

    async fn adopt(&self, _: Request<pb::AdoptRequest>) -> Result<Response<pb::AdoptResponse>, Status> {
        Ok(Response::new(pb::AdoptResponse {
            store_id: self.store.clone(),
            revision: 1,
            ..pb::AdoptResponse::default()
        }))
    }

    async fn get_store(
        &self,
        _: Request<pb::GetStoreRequest>,
    ) -> Result<Response<pb::GetStoreResponse>, Status> {
        Ok(Response::new(pb::GetStoreResponse {
            store_id: self.store.clone(),
            revision: 1,
            kind: "memory".to_owned(),
        }))
    }

    async fn list_pools(
        &self,
        _: Request<pb::ListPoolsRequest>,
    ) -> Result<Response<pb::ListPoolsResponse>, Status> {
        Ok(Response::new(pb::ListPoolsResponse::default()))
    }

    async fn watch(&self, _: Request<pb::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let synced = pb::WatchResponse {
            revision: 1,
            event: Some(pb::watch_response::Event::Synced(true)),
        };
        let events = stream::once(async { Ok(synced) }).chain(stream::pending());
        Ok(Response::new(events.boxed()))
    }

    async fn allocate(
        &self,
        _: Request<pb::AllocateRequest>,
    ) -> Result<Response<pb::AllocateResponse>, Status> {
        no()
    }

    async fn release(&self, _: Request<pb::ReleaseRequest>) -> Result<Response<pb::ReleaseResponse>, Status> {
        no()
    }

    async fn r#move(&self, _: Request<pb::MoveRequest>) -> Result<Response<pb::MoveResponse>, Status> {
        no()
    }

    async fn lookup(&self, _: Request<pb::LookupRequest>) -> Result<Response<pb::LookupResponse>, Status> {
        no()
    }

    async fn list_allocations(
        &self,
        _: Request<pb::ListAllocationsRequest>,
    ) -> Result<Response<pb::ListAllocationsResponse>, Status> {
        no()
    }

    async fn put_pools(
        &self,
        _: Request<pb::PutPoolsRequest>,
    ) -> Result<Response<pb::PutPoolsResponse>, Status> {
        no()
    }

    async fn sync_nodes(
        &self,
        _: Request<Streaming<pb::SyncNodesRequest>>,
    ) -> Result<Response<pb::SyncNodesResponse>, Status> {
        no()
    }

    async fn filter(&self, _: Request<pb::FilterRequest>) -> Result<Response<pb::FilterResponse>, Status> {
        no()
    }

    async fn bind(&self, _: Request<pb::BindRequest>) -> Result<Response<pb::BindResponse>, Status> {
        no()
    }

    async fn explain(&self, _: Request<pb::ExplainRequest>) -> Result<Response<pb::ExplainResponse>, Status> {
        no()
    }
}
