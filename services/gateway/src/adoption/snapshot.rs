//! What the cluster's Services hold by their own word: pure.

use std::sync::Arc;

use groundplane_core::{ClusterId, Prefix};
use groundplane_proto::ipam::v1::Holding;

use crate::clients::messages::owner;
use crate::cluster::objects::ServiceObject;
use crate::domain::service::{Scope, addresses, has_finalizer, is_ours};

/// The addresses in the live status of every Service that is ours, ordered by Service.
///
/// That includes those that somebody else gave to a Service of ours, before we came: they are not to be handed out meanwhile.
/// A Service that is going away, or that is not ours to serve any more, holds its address until we let it go.
pub(super) fn holdings(services: &[Arc<ServiceObject>], scope: &Scope, cluster: &ClusterId) -> Vec<Holding> {
    let mut holdings: Vec<Holding> = services
        .iter()
        .filter(|service| {
            is_ours(service) || (scope.has(service) && (!service.deleting || has_finalizer(service)))
        })
        .filter_map(|service| {
            let prefixes: Vec<String> = addresses(service)
                .map(|address| Prefix::host(address).to_string())
                .collect();
            (!prefixes.is_empty()).then(|| Holding {
                owner: Some(owner(cluster, &service.key)),
                owner_uid: service.uid.to_string(),
                prefixes,
                network: String::new(),
            })
        })
        .collect();
    holdings.sort_by(|a, b| {
        let name = |holding: &Holding| {
            holding
                .owner
                .as_ref()
                .map(|o| (o.namespace.clone(), o.name.clone()))
        };
        name(a).cmp(&name(b))
    });
    holdings
}
