//! Reads what a plan is made of. Changes nothing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use groundplane_core::{ClusterId, older};
use groundplane_proto::eip::v1::{AuditAddressesRequest, AuditAddressesResponse, GetEndpointRequest};
use groundplane_runtime::grpc::RpcError;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::api::{DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, ResourceExt as _};
use tokio::time::timeout;

use super::plan::{External, Facts, Labelled, Metallb, Reserved, Unread};
use crate::announcers::metallb::LEGACY_LABEL;
use crate::announcers::metallb::peers::selects_hosts;
use crate::cluster::ReadError;
use crate::cluster::objects::{Key, ServiceObject};
use crate::config::{AnnotationFormat, Announcer};
use crate::controllers::reclaim::population;
use crate::domain::service::Scope;
use crate::gateway::Gateway;

/// A read of the API server takes no longer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Their kinds of MetalLB's objects, with the versions in which they may be served.
const METALLB: [(&str, &str, &[&str]); 3] = [
    ("IPAddressPool", "ipaddresspools", &["v1beta1"]),
    ("BGPPeer", "bgppeers", &["v1beta2", "v1beta1"]),
    ("BGPAdvertisement", "bgpadvertisements", &["v1beta1"]),
];

/// All generations of annotations.
const FORMATS: [(AnnotationFormat, &str); 5] = [
    (AnnotationFormat::Indexed, "indexed"),
    (AnnotationFormat::Plain, "plain"),
    (AnnotationFormat::Plural, "plural"),
    (AnnotationFormat::Packet, "packet"),
    (AnnotationFormat::PacketPlain, "packet-plain"),
];

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GatherError {
    #[error("the gateway has not read the cluster yet")]
    NotSynced,
    #[error("the cluster's id is not known yet: the API server has not answered")]
    NoCluster,
    #[error("the cluster cannot be read: {0}")]
    Read(#[from] ReadError),
    #[error(transparent)]
    Service(#[from] RpcError),
}

/// Reads it all.
pub(crate) async fn gather(gateway: &Gateway) -> Result<Facts, GatherError> {
    let cluster = &gateway.cluster;
    if !cluster.nodes.index.is_synced() || !cluster.services.index.is_synced() {
        return Err(GatherError::NotSynced);
    }
    let id = cluster.identity.get().ok_or(GatherError::NoCluster)?;
    // Of all that the cloud has only those of Services can be told that are known: so all of them are read, whatever is followed.
    let services = cluster.services.list().await?;
    let (reservations, metallb, externals, endpoint) = tokio::join!(
        reservations(gateway, &id, &services),
        metallb(gateway),
        externals(gateway),
        endpoint(gateway, &id)
    );
    let (externals, unread) = externals;
    let config = &gateway.config;
    let written: Vec<&'static str> = FORMATS
        .into_iter()
        .filter(|(format, _)| config.annotation_formats.contains(format))
        .map(|(_, name)| name)
        .collect();
    let formats = FORMATS.into_iter().map(|(format, name)| {
        let mut one = config.clone();
        one.annotation_formats = vec![format];
        (name, one.layouts())
    });
    Ok(Facts {
        scope: Scope::of(config),
        announcer: config.announcer,
        bgp: config.controllers.bgp,
        bgp_selector: config.bgp_node_selector.clone(),
        written,
        formats: formats.collect(),
        rivals: cluster.leader.rivals().verdict(),
        refuses: cluster.leader.rivals().refuses(),
        reservations: reservations?,
        peerless: gateway.peerless.all(),
        services,
        nodes: cluster.nodes.index.all().into_iter().collect(),
        metallb,
        externals,
        unread,
        endpoint,
    })
}

async fn reservations(
    gateway: &Gateway,
    cluster: &ClusterId,
    services: &[Arc<ServiceObject>],
) -> Result<Vec<Reserved>, GatherError> {
    if gateway.config.has_pools() {
        return Ok(Vec::new());
    }
    let request = AuditAddressesRequest {
        population: Some(population(cluster, services)),
        fresh: true,
        foreign: true,
    };
    let AuditAddressesResponse { addresses, .. } = gateway.services.eip.audit_addresses(request).await?;
    let reserved = addresses.into_iter().filter_map(|one| {
        let standing = one.standing();
        let address = one.address?;
        Some(Reserved {
            id: address.origin,
            prefix: address.prefix.parse().ok(),
            standing,
            owner: one
                .owner
                .map(|owner| Key::namespaced(&owner.namespace, &owner.name)),
            tags: one.tags,
            names_cluster: one.names_cluster,
        })
    });
    Ok(reserved.collect())
}

/// What MetalLB was told, as far as we may read it.
async fn metallb(gateway: &Gateway) -> Metallb {
    let config = &gateway.config;
    let (client, namespace) = (gateway.cluster.client.clone(), &config.metallb.namespace);
    let mut found = Metallb {
        name: format!("{namespace}/{}", config.metallb.config_map),
        ..Metallb::default()
    };
    if config.announcer != Announcer::Metallb {
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        match within(api.get_opt(&config.metallb.config_map)).await {
            Ok(config_map) => {
                let data = config_map.and_then(|config_map| config_map.data);
                found.text = data.and_then(|mut data| data.remove("config"));
            }
            Err(why) => found.unread.push(Unread {
                kind: "ConfigMap",
                name: found.name.clone(),
                why,
            }),
        }
    }
    if config.announcer == Announcer::MetallbConfigmap {
        return found;
    }
    let label = format!("{}={}", LEGACY_LABEL.0, LEGACY_LABEL.1);
    let parameters = ListParams::default().labels(&label);
    for (kind, plural, versions) in METALLB {
        for version in versions {
            let kind_of = GroupVersionKind::gvk("metallb.io", version, kind);
            let resource = ApiResource::from_gvk_with_plural(&kind_of, plural);
            let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
            match within(async { absent(api.list(&parameters).await) }).await {
                // Not served in this version, or not at all.
                Ok(None) => {}
                Ok(Some(listed)) => {
                    found
                        .labelled
                        .extend(listed.items.iter().map(|object| labelled(kind, object)));
                    break;
                }
                Err(why) => {
                    let name = format!("{namespace}/*");
                    found.unread.push(Unread { kind, name, why });
                    break;
                }
            }
        }
    }
    found
}

/// What is not there, instead of an error.
fn absent<T>(result: kube::Result<T>) -> kube::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The answer, or in words why there is none.
async fn within<T>(read: impl Future<Output = kube::Result<T>>) -> Result<T, String> {
    match timeout(PATIENCE, read).await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(kube::Error::Api(status))) => Err(status.message.clone()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("the API server does not answer within {PATIENCE:?}")),
    }
}

fn labelled(kind: &'static str, object: &DynamicObject) -> Labelled {
    let name = object.name_any();
    let users = match kind {
        "BGPPeer" => !selects_hosts(&object.data["spec"]),
        "BGPAdvertisement" => name != older::METALLB_ADVERTISEMENT,
        _ => false,
    };
    Labelled { kind, name, users }
}

/// The external Services that the older controllers kept, and the one that we are told to keep.
async fn externals(gateway: &Gateway) -> (Vec<External>, Vec<Unread>) {
    let ours = gateway.config.external.as_ref();
    let mut names: BTreeSet<(String, String)> = older::external_services()
        .map(|name| (older::NAMESPACE.to_owned(), name.to_owned()))
        .collect();
    names.extend(ours.map(|ours| (ours.namespace.clone(), ours.name.clone())));
    let (mut found, mut unread) = (Vec::new(), Vec::new());
    for (namespace, name) in names {
        let api: Api<Service> = Api::namespaced(gateway.cluster.client.clone(), &namespace);
        let service = match within(api.get_opt(&name)).await {
            Ok(Some(service)) => service,
            Ok(None) => continue,
            Err(why) => {
                let (kind, name) = ("Service", format!("{namespace}/{name}"));
                unread.push(Unread { kind, name, why });
                continue;
            }
        };
        let entries = service.metadata.managed_fields.unwrap_or_default();
        let managers: BTreeSet<String> = entries.into_iter().filter_map(|entry| entry.manager).collect();
        found.push(External {
            is_ours: ours.is_some_and(|ours| ours.namespace == namespace && ours.name == name),
            key: Key::namespaced(&namespace, &name),
            address: service.spec.and_then(|spec| spec.load_balancer_ip),
            managers: managers.into_iter().collect(),
        });
    }
    (found, unread)
}

/// The endpoint's reservation; `None`: no endpoint is configured.
async fn endpoint(gateway: &Gateway, cluster: &ClusterId) -> Option<Result<(String, String), String>> {
    gateway.config.external.as_ref()?;
    let request = GetEndpointRequest {
        cluster: cluster.to_string(),
    };
    let answer = gateway.services.eip.get_endpoint(request).await;
    Some(match answer {
        Ok(answer) => Ok((answer.address, answer.holder)),
        Err(error) => Err(error.to_string()),
    })
}
