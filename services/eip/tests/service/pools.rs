use std::pin::Pin;
use std::sync::Arc;

use groundplane_cloud::{CloudConfig, connect};
use groundplane_core::ErrorKind;
use groundplane_eip::{Config, StartError, start};
use groundplane_proto::core::v1 as core;
use groundplane_proto::eip::v1 as eip;
use groundplane_proto::eip::v1::eip_service_client::EipServiceClient;
use groundplane_proto::ipam::v1 as ipam;
use groundplane_proto::ipam::v1::ipam_service_server::{IpamService, IpamServiceServer};
use groundplane_runtime::Context;
use groundplane_runtime::grpc::Details;
use parking_lot::Mutex;
use pretty_assertions::assert_eq;
use tonic::service::Routes;
use tonic::{Request, Response, Status, Streaming};

use super::world::*;

/// What ipam was asked.
#[derive(Default)]
struct Heard {
    allocate: Vec<ipam::AllocateRequest>,
    release: Vec<ipam::ReleaseRequest>,
    list: Vec<ipam::ListAllocationsRequest>,
    timeouts: Vec<bool>,
}

/// An ipam that gives 192.0.2.1, and refuses whoever asks for another.
#[derive(Clone, Default)]
struct Ipam(Arc<Mutex<Heard>>);

fn allocation(owner: Option<core::Owner>) -> ipam::Allocation {
    let pool = core::PoolRef {
        source: "file".to_owned(),
        namespace: String::new(),
        name: "public".to_owned(),
    };
    ipam::Allocation {
        prefix: "192.0.2.1/32".to_owned(),
        owner,
        pool: Some(pool),
        ..ipam::Allocation::default()
    }
}

fn unused<T>() -> Result<Response<T>, Status> {
    Err(Status::unimplemented("not for this test"))
}

#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("192.0.2.9 is held by another")]
struct Taken;

impl groundplane_core::Kinded for Taken {
    fn kind(&self) -> ErrorKind {
        ErrorKind::AlreadyExists
    }

    fn reason(&self) -> &'static str {
        "ADDRESS_TAKEN"
    }
}

#[tonic::async_trait]
impl IpamService for Ipam {
    async fn allocate(
        &self,
        request: Request<ipam::AllocateRequest>,
    ) -> Result<Response<ipam::AllocateResponse>, Status> {
        self.0
            .lock()
            .timeouts
            .push(request.metadata().contains_key("grpc-timeout"));
        let request = request.into_inner();
        self.0.lock().allocate.push(request.clone());
        if request.requests[0].address == "192.0.2.9" {
            let metadata = vec![("holder".to_owned(), "service default/other".to_owned())];
            let details = Details {
                metadata,
                ..Details::default()
            };
            return Err(groundplane_runtime::grpc::status("ipam", &Taken, details));
        }
        let missing = ipam::Missing {
            family: core::Family::Ipv6.into(),
            reason: "POOL_EXHAUSTED".to_owned(),
            message: "none left".to_owned(),
        };
        let allocations = vec![allocation(request.owner)];
        Ok(Response::new(ipam::AllocateResponse {
            allocations,
            missing: vec![missing],
        }))
    }

    async fn release(
        &self,
        request: Request<ipam::ReleaseRequest>,
    ) -> Result<Response<ipam::ReleaseResponse>, Status> {
        let request = request.into_inner();
        self.0.lock().release.push(request.clone());
        Ok(Response::new(ipam::ReleaseResponse {
            released: vec![allocation(request.owner)],
        }))
    }

    async fn list_allocations(
        &self,
        request: Request<ipam::ListAllocationsRequest>,
    ) -> Result<Response<ipam::ListAllocationsResponse>, Status> {
        self.0.lock().list.push(request.into_inner());
        let next_page_token = "more".to_owned();
        let allocations = vec![allocation(Some(owner(CLUSTER, "nginx")))];
        Ok(Response::new(ipam::ListAllocationsResponse {
            allocations,
            next_page_token,
            revision: 1,
        }))
    }

    async fn r#move(&self, _: Request<ipam::MoveRequest>) -> Result<Response<ipam::MoveResponse>, Status> {
        unused()
    }

    async fn lookup(
        &self,
        _: Request<ipam::LookupRequest>,
    ) -> Result<Response<ipam::LookupResponse>, Status> {
        unused()
    }

    async fn put_pools(
        &self,
        _: Request<ipam::PutPoolsRequest>,
    ) -> Result<Response<ipam::PutPoolsResponse>, Status> {
        unused()
    }

    async fn list_pools(
        &self,
        _: Request<ipam::ListPoolsRequest>,
    ) -> Result<Response<ipam::ListPoolsResponse>, Status> {
        unused()
    }

    async fn sync_nodes(
        &self,
        _: Request<Streaming<ipam::SyncNodesRequest>>,
    ) -> Result<Response<ipam::SyncNodesResponse>, Status> {
        unused()
    }

    async fn filter(
        &self,
        _: Request<ipam::FilterRequest>,
    ) -> Result<Response<ipam::FilterResponse>, Status> {
        unused()
    }

    async fn bind(&self, _: Request<ipam::BindRequest>) -> Result<Response<ipam::BindResponse>, Status> {
        unused()
    }

    async fn adopt(&self, _: Request<ipam::AdoptRequest>) -> Result<Response<ipam::AdoptResponse>, Status> {
        unused()
    }

    type WatchStream = Pin<Box<dyn futures::Stream<Item = Result<ipam::WatchResponse, Status>> + Send>>;

    async fn watch(&self, _: Request<ipam::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        unused()
    }

    async fn explain(
        &self,
        _: Request<ipam::ExplainRequest>,
    ) -> Result<Response<ipam::ExplainResponse>, Status> {
        unused()
    }

    async fn get_store(
        &self,
        _: Request<ipam::GetStoreRequest>,
    ) -> Result<Response<ipam::GetStoreResponse>, Status> {
        unused()
    }
}

/// eip with the `static` driver, and that ipam.
async fn start_static() -> (Process, Ipam) {
    let context = Context::new();
    let ipam = Ipam::default();
    let to_ipam = serve(
        &context,
        "ipam",
        Routes::new(IpamServiceServer::new(ipam.clone())),
    )
    .await;
    let cloud = connect(&CloudConfig::default(), &context).unwrap();
    let routes = start(Config::default(), cloud, Some(to_ipam), &context)
        .await
        .unwrap();
    let client = EipServiceClient::new(serve(&context, "eip", routes).await);
    (Process { context, client }, ipam)
}

#[tokio::test]
async fn an_address_of_the_static_driver_is_an_allocation_of_ipam() {
    let (eip, ipam) = start_static().await;
    let selector = core::PoolSelector {
        labels: [("a".to_owned(), "b".to_owned())].into(),
        pool: None,
    };
    let request = eip::EnsureAddressRequest {
        owner_uid: "uid-1".to_owned(),
        network: "vrf-1".to_owned(),
        selector: Some(selector.clone()),
        ..ask(owner(CLUSTER, "nginx"), "")
    };
    let answer = eip.ensure(request.clone()).await.unwrap();
    let address = &answer.addresses[0];
    assert_eq!(
        (address.prefix.as_str(), address.origin.as_str()),
        ("192.0.2.1/32", "file:public")
    );
    assert_eq!(
        (address.state(), answer.missing[0].reason.as_str()),
        (eip::State::Ready, "POOL_EXHAUSTED")
    );
    let heard = ipam.0.lock();
    let expected = ipam::AllocateRequest {
        owner: request.owner,
        owner_uid: "uid-1".to_owned(),
        network: "vrf-1".to_owned(),
        requests: request.requests,
        selector: Some(selector),
        request_id: String::new(),
    };
    assert_eq!((&heard.allocate[0], heard.timeouts[0]), (&expected, true));
}

#[tokio::test]
async fn what_ipam_refuses_is_told_with_its_reason_and_metadata() {
    let (eip, _ipam) = start_static().await;
    let error = eip
        .ensure(ask(owner(CLUSTER, "nginx"), "192.0.2.9"))
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind, error.reason.as_str()),
        (ErrorKind::AlreadyExists, "ADDRESS_TAKEN")
    );
    assert_eq!(error.metadata["holder"], "service default/other");
}

#[tokio::test]
async fn release_and_list_go_to_ipam() {
    let (eip, ipam) = start_static().await;
    assert_eq!(
        eip.release(owner(CLUSTER, "nginx")).await.unwrap()[0].prefix,
        "192.0.2.1/32"
    );
    assert_eq!(ipam.0.lock().release[0].owner, Some(owner(CLUSTER, "nginx")));
    let request = eip::ListAddressesRequest {
        cluster: CLUSTER.to_owned(),
        page_size: 7,
        page_token: "t".to_owned(),
    };
    let page = eip
        .client
        .clone()
        .list_addresses(request)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(page.addresses[0].owner, Some(owner(CLUSTER, "nginx")));
    assert_eq!(page.next_page_token, "more");
    let heard = ipam.0.lock();
    assert_eq!(
        (heard.list[0].page_size, heard.list[0].page_token.as_str()),
        (7, "t")
    );
}

#[tokio::test]
async fn an_ipam_that_is_away_is_unavailable_and_not_an_answer() {
    let context = Context::new();
    let (listener, connector) = groundplane_runtime::grpc::memory();
    drop(listener);
    let target = groundplane_runtime::grpc::Target::Memory(connector);
    let to_ipam = groundplane_runtime::grpc::channel(&target, None).unwrap();
    let cloud = connect(&CloudConfig::default(), &context).unwrap();
    let routes = start(Config::default(), cloud, Some(to_ipam), &context)
        .await
        .unwrap();
    let client = EipServiceClient::new(serve(&context, "eip", routes).await);
    let error = Process { context, client }.address("nginx").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
}

#[tokio::test]
async fn the_static_driver_needs_ipam() {
    let context = Context::new();
    let cloud = connect(&CloudConfig::default(), &context).unwrap();
    let error = start(Config::default(), cloud, None, &context).await.err();
    assert_eq!(error, Some(StartError::NoIpam("static")));
}

#[tokio::test]
async fn what_no_driver_has_is_unimplemented() {
    let (eip, _ipam) = start_static().await;
    let status = eip
        .client
        .clone()
        .ensure_load_balancer(eip::EnsureLoadBalancerRequest::default())
        .await
        .unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unimplemented);
}

#[tokio::test]
async fn the_static_driver_has_no_endpoint_to_move() {
    let (eip, _ipam) = start_static().await;
    let error = eip.get_endpoint().await.unwrap_err();
    assert_eq!(
        (error.kind, error.reason.as_str()),
        (ErrorKind::Precondition, "ENDPOINT_NOT_CONFIGURED")
    );
    assert!(error.message.contains("`static`"), "{error}");
}
