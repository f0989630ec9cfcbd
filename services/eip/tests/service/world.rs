//! The service in this process, its client, and the cloud in a box behind it.

use groundplane_cloud::{Cloud, CloudConfig, EndpointSelector, connect};
use groundplane_eip::{Config, start};
use groundplane_proto::FILE_DESCRIPTOR_SET;
use groundplane_proto::core::v1 as core;
use groundplane_proto::eip::v1 as eip;
use groundplane_proto::eip::v1::eip_service_client::EipServiceClient;
use groundplane_runtime::Context;
use groundplane_runtime::config::parse;
use groundplane_runtime::grpc::{Channel, RpcError, Server};
use groundplane_sandbox::{Project, ProjectOptions, TestCloud};
use tonic::Status;
use tonic::service::Routes;

/// The cluster that the tests speak for.
pub(crate) const CLUSTER: &str = "cluster-a";

/// The routes of the calls that are counted.
pub(crate) const LIST: (&str, &str) = ("GET", "/projects/{pid}/ips");
pub(crate) const CREATE: (&str, &str) = ("POST", "/projects/{pid}/ips");

/// A cloud with one project.
pub(crate) struct World {
    pub(crate) project: Project,
    cloud: TestCloud,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(ProjectOptions::default()).await
    }

    pub(crate) async fn with(options: ProjectOptions) -> Self {
        let cloud = TestCloud::start(options).await;
        let project = cloud.project().clone();
        Self { project, cloud }
    }

    /// Starts the service, as a new process would.
    pub(crate) async fn process(&self) -> Process {
        self.process_with(None).await
    }

    /// As [`World::process`], with this API endpoint.
    pub(crate) async fn process_with(&self, endpoint: Option<EndpointSelector>) -> Process {
        let context = Context::new();
        let mut config: CloudConfig = parse("cloud", &self.cloud.config()).unwrap();
        config.equinix.request_timeout = std::time::Duration::from_secs(2);
        config.endpoint = endpoint;
        let cloud = connect(&config, &context).unwrap();
        Process::start(cloud, context).await
    }
}

/// Serves in memory.
pub(crate) async fn serve(context: &Context, name: &'static str, routes: Routes) -> Channel {
    let server = Server::new(name, context).routes(routes);
    server.within(FILE_DESCRIPTOR_SET).await.unwrap()
}

/// A running service.
#[derive(Clone)]
pub(crate) struct Process {
    pub(crate) context: Context,
    pub(crate) client: EipServiceClient<Channel>,
}

impl Process {
    /// Over a cloud that gives addresses.
    pub(crate) async fn start(cloud: Cloud, context: Context) -> Self {
        let routes = start(Config::default(), cloud, None, &context).await.unwrap();
        let client = EipServiceClient::new(serve(&context, "eip", routes).await);
        Self { context, client }
    }

    pub(crate) async fn ensure(
        &self,
        request: eip::EnsureAddressRequest,
    ) -> Result<eip::EnsureAddressResponse, RpcError> {
        Ok(self
            .client
            .clone()
            .ensure_address(request)
            .await
            .map_err(failed)?
            .into_inner())
    }

    /// The one address of the Service `default/<name>`.
    pub(crate) async fn address(&self, name: &str) -> Result<eip::Address, RpcError> {
        let mut answer = self.ensure(ask(owner(CLUSTER, name), "")).await?;
        assert_eq!((answer.addresses.len(), answer.missing.len()), (1, 0));
        Ok(answer.addresses.remove(0))
    }

    pub(crate) async fn release(&self, owner: core::Owner) -> Result<Vec<eip::Address>, RpcError> {
        let request = eip::ReleaseAddressRequest {
            owner: Some(owner),
            ..eip::ReleaseAddressRequest::default()
        };
        Ok(self
            .client
            .clone()
            .release_address(request)
            .await
            .map_err(failed)?
            .into_inner()
            .released)
    }
}

impl Process {
    pub(crate) async fn get_endpoint(&self) -> Result<eip::GetEndpointResponse, RpcError> {
        let request = eip::GetEndpointRequest {
            cluster: CLUSTER.to_owned(),
        };
        let answer = self.client.clone().get_endpoint(request).await;
        Ok(answer.map_err(failed)?.into_inner())
    }

    pub(crate) async fn move_endpoint(
        &self,
        request: eip::MoveEndpointRequest,
    ) -> Result<eip::MoveEndpointResponse, RpcError> {
        let answer = self.client.clone().move_endpoint(request).await;
        Ok(answer.map_err(failed)?.into_inner())
    }
}

#[allow(clippy::needless_pass_by_value, reason = "the shape of map_err")]
fn failed(status: Status) -> RpcError {
    RpcError::from(status)
}

pub(crate) fn owner(cluster: &str, name: &str) -> core::Owner {
    core::Owner {
        cluster: cluster.to_owned(),
        kind: "service".to_owned(),
        namespace: "default".to_owned(),
        name: name.to_owned(),
        slot: String::new(),
    }
}

/// A request for one IPv4 address; `address` empty: any.
pub(crate) fn ask(owner: core::Owner, address: &str) -> eip::EnsureAddressRequest {
    let wanted = core::AddressRequest {
        family: core::Family::Ipv4.into(),
        address: address.to_owned(),
        ..core::AddressRequest::default()
    };
    eip::EnsureAddressRequest {
        owner: Some(owner),
        requests: vec![wanted],
        ..eip::EnsureAddressRequest::default()
    }
}
