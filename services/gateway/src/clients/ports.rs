//! One port a service.

use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use groundplane_proto::bgp::v1::bgp_service_client::BgpServiceClient;
use groundplane_proto::eip::v1::eip_service_client::EipServiceClient;
use groundplane_proto::instances::v1::instances_service_client::InstancesServiceClient;
use groundplane_proto::ipam::v1::ipam_service_client::IpamServiceClient;
use groundplane_proto::{bgp, eip, instances, ipam};
use groundplane_runtime::grpc::{Channel, RpcError};
use tonic::Request;

use super::{CLOUD_DEADLINE, DEADLINE};

/// A port and its implementation over gRPC, from the list of its calls.
macro_rules! port {
    (
        $(#[$doc:meta])* $port:ident, $over:ident, $client:ident, $package:ident;
        $( $(#[$call_doc:meta])* $call:ident($request:ident) -> $response:ident within $deadline:expr; )*
    ) => {
        $(#[$doc])*
        #[async_trait]
        pub(crate) trait $port: Send + Sync {
            $(
                $(#[$call_doc])*
                async fn $call(
                    &self,
                    request: $package::v1::$request,
                ) -> Result<$package::v1::$response, RpcError>;
            )*
        }

        /// The service behind a channel.
        pub(super) struct $over($client<Channel>);

        impl $over {
            pub(super) fn new(channel: Channel) -> Self {
                Self(<$client<Channel>>::new(channel))
            }
        }

        #[async_trait]
        impl $port for $over {
            $(
                async fn $call(
                    &self,
                    request: $package::v1::$request,
                ) -> Result<$package::v1::$response, RpcError> {
                    let mut request = Request::new(request);
                    request.set_timeout($deadline);
                    let response = self.0.clone().$call(request).await;
                    response.map(tonic::Response::into_inner).map_err(RpcError::from)
                }
            )*
        }
    };
}

port! {
    /// What machines there are.
    Instances, InstancesOverGrpc, InstancesServiceClient, instances;
    /// Finds the machine behind a node.
    resolve(ResolveRequest) -> ResolveResponse within CLOUD_DEADLINE;
    /// Every machine, by pages.
    list_machines(ListMachinesRequest) -> ListMachinesResponse within DEADLINE;
}

port! {
    /// Who speaks BGP with whom.
    Bgp, BgpOverGrpc, BgpServiceClient, bgp;
    /// Switches BGP on for the project, and tells what holds for all of it.
    ensure_project(EnsureProjectRequest) -> EnsureProjectResponse within CLOUD_DEADLINE;
    /// Makes sure that a machine has its sessions, and tells its peers.
    ensure_machine(EnsureMachineRequest) -> EnsureMachineResponse within CLOUD_DEADLINE;
    /// The peers of every machine.
    list_peers(ListPeersRequest) -> ListPeersResponse within DEADLINE;
}

port! {
    /// Which elastic IP serves whom.
    Eip, EipOverGrpc, EipServiceClient, eip;
    /// Makes sure that an owner has its addresses.
    ensure_address(EnsureAddressRequest) -> EnsureAddressResponse within CLOUD_DEADLINE;
    /// Gives an owner's addresses back.
    release_address(ReleaseAddressRequest) -> ReleaseAddressResponse within CLOUD_DEADLINE;
    /// Who holds the API endpoint.
    get_endpoint(GetEndpointRequest) -> GetEndpointResponse within DEADLINE;
    /// Who holds what, and what nobody holds.
    audit_addresses(AuditAddressesRequest) -> AuditAddressesResponse within CLOUD_DEADLINE;
    /// Deletes what nobody holds.
    reclaim_addresses(ReclaimAddressesRequest) -> ReclaimAddressesResponse within CLOUD_DEADLINE;
    /// Who has what, by pages.
    list_addresses(ListAddressesRequest) -> ListAddressesResponse within DEADLINE;
}

port! {
    /// Which address belongs to whom.
    Ipam, IpamOverGrpc, IpamServiceClient, ipam;
    /// Pools and how full they are.
    list_pools(ListPoolsRequest) -> ListPoolsResponse within DEADLINE;
    /// Why an owner has, or would not get, an address.
    explain(ExplainRequest) -> ExplainResponse within DEADLINE;
    /// Tells what the objects of a cluster hold.
    adopt(AdoptRequest) -> AdoptResponse within CLOUD_DEADLINE;
    /// Which store this is.
    get_store(GetStoreRequest) -> GetStoreResponse within DEADLINE;
}

/// What happens to the pools, for as long as the connection lasts.
pub(crate) type PoolEvents = BoxStream<'static, Result<ipam::v1::WatchResponse, RpcError>>;

/// Follows the pools.
#[async_trait]
pub(crate) trait PoolFeed: Send + Sync {
    /// Every pool as it is, a mark, then changes of the pools and what became free in them.
    async fn open(&self) -> Result<PoolEvents, RpcError>;
}

#[async_trait]
impl PoolFeed for IpamOverGrpc {
    async fn open(&self) -> Result<PoolEvents, RpcError> {
        let request = ipam::v1::WatchRequest {
            revision: 0,
            pools_only: true,
        };
        let events = self.0.clone().watch(request).await?.into_inner();
        Ok(events.map(|event| event.map_err(RpcError::from)).boxed())
    }
}
