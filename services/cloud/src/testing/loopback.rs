//! A provider of any cloud that we have a driver for: `provider.v1` over the capability traits.
//!
//! By it the driver `remote` meets each built-in driver, and each built-in driver meets the conformance program. What the traits do not
//! promise it adds as the contract wants it: idempotency keys, in memory, and an Assign that may be repeated.

mod addresses;
mod bgp;
mod tap;

use std::collections::BTreeMap;
use std::sync::Arc;

use groundplane_core::{Family, Kinded, ProviderId};
use groundplane_proto::FILE_DESCRIPTOR_SET;
use groundplane_proto::instances::v1 as instances;
use groundplane_proto::provider::v1 as wire;
use groundplane_proto::provider::v1::address_service_server::AddressServiceServer;
use groundplane_proto::provider::v1::bgp_fabric_service_server::BgpFabricServiceServer;
use groundplane_proto::provider::v1::capability_service_server::{
    CapabilityService, CapabilityServiceServer,
};
use groundplane_proto::provider::v1::machine_service_server::{MachineService, MachineServiceServer};
use groundplane_runtime::grpc::{BindError, Details, Listen, Page, Server, Target, memory, status};
use groundplane_runtime::{Context, Tasks};
use parking_lot::Mutex;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use crate::{AddressBackend, Cloud, CloudError, EndpointIps, Machine, MachineAddressKind, PowerState};

pub use tap::{Passing, tap};

/// In `ErrorInfo.domain`.
const SERVICE: &str = "provider";

/// A key that was used, and what for.
type Keys = Arc<Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<Option<addresses::Kept>>>>>>;

/// The provider. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub struct Loopback {
    cloud: Cloud,
    endpoint: Option<Arc<dyn EndpointIps>>,
    keys: Keys,
    tasks: Tasks,
}

impl std::fmt::Debug for Loopback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loopback")
            .field("cloud", &self.cloud)
            .finish_non_exhaustive()
    }
}

/// Why an answer cannot be given.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct Refused {
    kind: groundplane_core::ErrorKind,
    reason: &'static str,
    message: String,
}

impl Kinded for Refused {
    fn kind(&self) -> groundplane_core::ErrorKind {
        self.kind
    }

    fn reason(&self) -> &'static str {
        self.reason
    }
}

fn refused(kind: groundplane_core::ErrorKind, reason: &'static str, message: impl Into<String>) -> Status {
    let refused = Refused {
        kind,
        reason,
        message: message.into(),
    };
    status(SERVICE, &refused, Details::default())
}

fn failed(error: &CloudError) -> Status {
    let details = Details {
        retry_after: error.retry_after,
        ..Details::default()
    };
    status(SERVICE, error, details)
}

fn lacks(capability: &str) -> Status {
    Status::unimplemented(format!("this provider has no {capability}"))
}

fn provider_id(text: &str) -> Result<ProviderId, Status> {
    text.parse().map_err(|error: groundplane_core::ParseNameError| {
        refused(
            groundplane_core::ErrorKind::Invalid,
            "PROVIDER_ID",
            error.to_string(),
        )
    })
}

fn family(text: &str) -> Result<Family, Status> {
    [Family::V4, Family::V6]
        .into_iter()
        .find(|family| family.to_string() == text)
        .ok_or_else(|| {
            let message = format!("`{text}` is neither IPv4 nor IPv6");
            refused(groundplane_core::ErrorKind::Invalid, "FAMILY", message)
        })
}

/// One page of a complete list, and what else the answer says: the next token, how many there are.
fn page<T>(
    mut items: Vec<T>,
    size: u32,
    token: &str,
    id: impl Fn(&T) -> &String,
) -> Result<(Vec<T>, String, u32), Status> {
    let page = Page::<String>::asked(SERVICE, size, token)?;
    items.sort_by(|a, b| id(a).cmp(id(b)));
    let total = u32::try_from(items.len()).unwrap_or_default();
    let (items, next) = page.cut(items, id);
    Ok((items, next, total))
}

impl Loopback {
    /// A provider of `cloud`. `endpoint` moves addresses, where the provider is to offer that without one being configured.
    pub fn new(cloud: Cloud, endpoint: Option<Arc<dyn EndpointIps>>, tasks: &Tasks) -> Self {
        let configured = cloud.endpoint.as_ref().map(|endpoint| Arc::clone(&endpoint.ips));
        Self {
            endpoint: endpoint.or(configured),
            cloud,
            keys: Keys::default(),
            tasks: tasks.clone(),
        }
    }

    /// What a server serves.
    pub fn routes(&self) -> Routes {
        Routes::new(CapabilityServiceServer::new(self.clone()))
            .add_service(MachineServiceServer::new(self.clone()))
            .add_service(AddressServiceServer::new(self.clone()))
            .add_service(BgpFabricServiceServer::new(self.clone()))
    }

    /// Serves in memory, until the context's process stops.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub async fn serve(&self, context: &Context) -> Result<Target, BindError> {
        serve(self.routes(), context).await
    }

    /// The provider id behind what the cloud calls a machine.
    fn provider_id(&self, machine: &str) -> String {
        if machine.contains("://") {
            return machine.to_owned();
        }
        let scheme = self
            .cloud
            .machines
            .as_ref()
            .and_then(|source| source.schemes().into_iter().next());
        format!(
            "{}://{machine}",
            scheme.unwrap_or_else(|| self.cloud.name.to_owned())
        )
    }

    fn offered(&self) -> Vec<wire::Capability> {
        let mut offered = Vec::new();
        if self.cloud.machines.is_some() {
            offered.push(wire::Capability::Machines);
        }
        if matches!(self.cloud.addresses, AddressBackend::Cloud(_)) {
            offered.push(wire::Capability::Addresses);
        }
        if self.endpoint.is_some() {
            offered.push(wire::Capability::Endpoint);
        }
        if self.cloud.bgp.is_some() {
            offered.push(wire::Capability::Bgp);
        }
        offered
    }
}

/// Serves routes of the contract in memory.
///
/// # Errors
/// As [`Server::start`].
pub async fn serve(routes: Routes, context: &Context) -> Result<Target, BindError> {
    let (listener, connector) = memory();
    Server::new(SERVICE, context)
        .listen(Listen::Memory(listener))
        .routes(routes)
        .reflection(false, FILE_DESCRIPTOR_SET)
        .start()
        .await?;
    Ok(Target::Memory(connector))
}

#[async_trait::async_trait]
impl CapabilityService for Loopback {
    async fn get_capabilities(
        &self,
        _: Request<wire::GetCapabilitiesRequest>,
    ) -> Result<Response<wire::GetCapabilitiesResponse>, Status> {
        let (cloud, endpoint) = (&self.cloud, &self.endpoint);
        let families = match &cloud.addresses {
            AddressBackend::Ipam => Vec::new(),
            AddressBackend::Cloud(ips) => [Family::V4, Family::V6]
                .into_iter()
                .filter(|family| ips.supports(*family))
                .map(|family| family.to_string())
                .collect(),
        };
        Ok(Response::new(wire::GetCapabilitiesResponse {
            name: cloud.name.to_owned(),
            capabilities: self.offered().into_iter().map(i32::from).collect(),
            provider_id_schemes: cloud
                .machines
                .as_ref()
                .map(|source| source.schemes())
                .unwrap_or_default(),
            calls_per_move: endpoint.as_ref().map_or(0, |ips| ips.calls_per_move()),
            proves_absence: cloud
                .machines
                .as_ref()
                .is_some_and(|source| source.proves_absence()),
            address_families: families,
            needs_sessions: cloud.bgp.as_ref().is_some_and(|bgp| bgp.needs_sessions()),
            moves_atomically: endpoint.as_ref().is_some_and(|ips| ips.moves_atomically()),
            replaces_tags: matches!(&cloud.addresses, AddressBackend::Cloud(ips) if ips.retags()),
        }))
    }
}

fn machine(machine: Machine) -> instances::Machine {
    let kind = |kind| match kind {
        MachineAddressKind::Hostname => instances::AddressType::Hostname,
        MachineAddressKind::InternalIp => instances::AddressType::InternalIp,
        MachineAddressKind::ExternalIp => instances::AddressType::ExternalIp,
        MachineAddressKind::InternalDns => instances::AddressType::InternalDns,
        MachineAddressKind::ExternalDns => instances::AddressType::ExternalDns,
    };
    let power = match machine.power {
        PowerState::On => instances::PowerState::On,
        PowerState::Off => instances::PowerState::Off,
    };
    instances::Machine {
        provider_id: machine.id.to_string(),
        hostname: machine.hostname,
        instance_type: machine.instance_type,
        zone: machine.zone,
        region: machine.region,
        addresses: machine
            .addresses
            .into_iter()
            .map(|row| instances::MachineAddress {
                r#type: kind(row.kind).into(),
                address: row.address,
            })
            .collect(),
        power: power.into(),
        labels: machine.labels.into_iter().collect(),
    }
}

#[async_trait::async_trait]
impl MachineService for Loopback {
    async fn list_machines(
        &self,
        request: Request<wire::ListMachinesRequest>,
    ) -> Result<Response<wire::ListMachinesResponse>, Status> {
        let wire::ListMachinesRequest {
            page_size,
            page_token,
        } = request.into_inner();
        let source = self.cloud.machines.as_ref().ok_or_else(|| lacks("machines"))?;
        let all = source.list().await.map_err(|error| failed(&error))?;
        let rows: Vec<_> = all.into_iter().map(machine).collect();
        let (machines, next_page_token, total_size) =
            page(rows, page_size, &page_token, |row| &row.provider_id)?;
        Ok(Response::new(wire::ListMachinesResponse {
            machines,
            next_page_token,
            total_size,
        }))
    }

    async fn get_machine(
        &self,
        request: Request<wire::GetMachineRequest>,
    ) -> Result<Response<wire::GetMachineResponse>, Status> {
        let source = self.cloud.machines.as_ref().ok_or_else(|| lacks("machines"))?;
        let id = provider_id(&request.into_inner().provider_id)?;
        let found = source.get(&id).await.map_err(|error| failed(&error))?;
        Ok(Response::new(wire::GetMachineResponse {
            machine: Some(machine(found)),
        }))
    }
}
