//! Objects of the cluster and what they want, as messages of the contracts.

use groundplane_core::{ClusterId, OwnerKind, names};
use groundplane_proto::core::v1 as core;
use groundplane_proto::eip::v1::{EnsureAddressRequest, Placement};
use groundplane_proto::instances::v1::ResolveRequest;

use crate::cluster::objects::{AddressType, Key, NodeObject, ServiceObject};
use crate::domain::service::{Want, Wish, addresses};

/// The Service as an owner of addresses.
pub(crate) fn owner(cluster: &ClusterId, key: &Key) -> core::Owner {
    core::Owner {
        cluster: cluster.to_string(),
        kind: OwnerKind::Service.as_str().to_owned(),
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
        slot: String::new(),
    }
}

/// What the Service asks for, a family each.
pub(crate) fn requests(wish: &Wish) -> Vec<core::AddressRequest> {
    let request = |want: &Want| core::AddressRequest {
        family: core::Family::from(want.family).into(),
        address: want
            .address
            .map(|address| address.to_string())
            .unwrap_or_default(),
        prefix_length: 0,
        optional: want.optional,
    };
    wish.wants.iter().map(request).collect()
}

/// Which pools may serve it.
pub(crate) fn selector(service: &ServiceObject, wish: &Wish) -> core::PoolSelector {
    core::PoolSelector {
        pool: wish.pool.as_ref().map(|pool| core::PoolRef {
            source: String::new(),
            namespace: pool.namespace.clone(),
            name: pool.name.clone(),
        }),
        labels: service
            .labels
            .iter()
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect(),
    }
}

/// The call that gives the Service its addresses.
pub(crate) fn ensure(cluster: &ClusterId, service: &ServiceObject, wish: &Wish) -> EnsureAddressRequest {
    EnsureAddressRequest {
        owner: Some(owner(cluster, &service.key)),
        owner_uid: service.uid.to_string(),
        network: String::new(),
        requests: requests(wish),
        selector: Some(selector(service, wish)),
        placement: Some(Placement {
            metro: wish.metro.clone(),
            facility: wish.facility.clone(),
        }),
        // Of a Service that was told nothing yet, an old list could show what its predecessor held, and has given back since.
        fresh: service.condition.is_none(),
        request_id: groundplane_runtime::telemetry::trace::current_trace_id().unwrap_or_default(),
        in_use: addresses(service).map(|address| address.to_string()).collect(),
        sharers: Vec::new(),
        adopt: Vec::new(),
    }
}

/// What to ask of `instances` about a node.
pub(crate) fn question(node: &NodeObject, fresh: bool) -> ResolveRequest {
    let provided = node.annotations.get(names::PROVIDED_NODE_IP).unwrap_or_default();
    let provided = provided
        .split(',')
        .map(str::trim)
        .filter(|address| !address.is_empty());
    let internal = node
        .addresses
        .iter()
        .filter(|address| address.kind == AddressType::InternalIp);
    let mut addresses: Vec<String> = provided.map(str::to_owned).collect();
    for address in internal {
        if !addresses.iter().any(|known| **known == *address.address) {
            addresses.push(address.address.to_string());
        }
    }
    ResolveRequest {
        provider_id: node.provider_id.to_string(),
        node: node.name().to_owned(),
        addresses,
        fresh,
    }
}
