//! A Service among others: who has the address that it names, and who goes on using what it leaves.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use groundplane_proto::eip::v1::{AuditAddressesRequest, Heir, Population, Standing};
use groundplane_runtime::grpc::RpcError;
use tracing::info;

use super::{ServiceController, Stop, patch};
use crate::announcers::Changes;
use crate::clients::messages;
use crate::cluster::Part;
use crate::cluster::objects::{Key, ServiceObject};
use crate::domain::service::sharing::{self, Claimant};
use crate::domain::service::{Refusal, Wish, addresses, condition, requests};

impl ServiceController {
    /// Has the Service this address, by its own status or by an answer that its status does not show yet?
    fn holds(&self, service: &ServiceObject, address: IpAddr) -> bool {
        (condition::is_ours(service) && addresses(service).any(|shown| shown == address))
            || self.gateway.held.has(&service.key, &service.uid, address)
    }

    /// The Services that have one of these addresses, or ask for it, in the order of their names. Found by the addresses: all Services ask.
    fn who_name(&self, addresses: impl IntoIterator<Item = IpAddr>) -> Vec<Arc<ServiceObject>> {
        let index = &self.gateway.cluster.services.index;
        let keys: BTreeSet<Key> = addresses
            .into_iter()
            .flat_map(|address| [index.with_mark(address), self.gateway.held.holders(address)])
            .flatten()
            .collect();
        keys.iter().filter_map(|key| index.get(key)).collect()
    }

    /// With whom it shares the addresses that it names. A refusal, if they are somebody else's alone. Where addresses come from pools,
    /// ipam tells.
    pub(super) fn company(&self, service: &ServiceObject, wish: &Wish) -> Result<Vec<Key>, Stop> {
        let mut sharers = Vec::new();
        for address in named(wish).filter(|_| !self.scope.pin) {
            let services = self.who_name([address]);
            let others = services
                .iter()
                .filter(|other| {
                    other.key != service.key && (self.scope.has(other) || condition::is_ours(other))
                })
                .map(|other| Claimant {
                    service: other,
                    holds: self.holds(other, address),
                })
                .filter(|other| {
                    other.holds || (!other.service.deleting && sharing::claims(other.service, address))
                });
            let claimant = Claimant {
                service,
                holds: self.holds(service, address),
            };
            sharers.extend(sharing::company(claimant, address, others).map_err(Stop::Refused)?);
        }
        Ok(sharers)
    }

    /// Who goes on using addresses that the Service of this name lets go, each proven by a read of the API server: what an heir gets that
    /// is gone is nobody's.
    pub(super) async fn heirs(&self, key: &Key, left: &[IpAddr]) -> Result<Vec<Heir>, Stop> {
        let mut heirs = Vec::new();
        if left.is_empty() {
            return Ok(heirs);
        }
        let cluster = self.gateway.cluster.identity.known().await;
        let service = self.gateway.cluster.services.get(key);
        let mut others = self.who_name(left.iter().copied());
        // Who has it already comes before who would like to, and all replicas choose alike.
        let uses = |other: &ServiceObject| left.iter().any(|address| self.holds(other, *address));
        others.sort_by_cached_key(|other| (!uses(other), other.key.clone()));
        for other in others {
            let inherits = |address: &&IpAddr| {
                let is_related = service.as_ref().is_some_and(|one| sharing::related(one, &other));
                self.holds(&other, **address) || (is_related && sharing::claims(&other, **address))
            };
            let goes_on = |other: &ServiceObject| {
                other.key != *key
                    && self.scope.has(other)
                    && !other.deleting
                    && left.iter().any(|address| inherits(&address))
            };
            if !goes_on(&other) {
                continue;
            }
            let live = self.live(&other.key).await?;
            if live.is_some_and(|live| live.uid == other.uid && goes_on(&live)) {
                heirs.push(Heir {
                    owner: Some(messages::owner(&cluster, &other.key)),
                    addresses: left.iter().filter(inherits).map(ToString::to_string).collect(),
                });
            }
        }
        Ok(heirs)
    }

    /// What the Service of this name has: by its status, by what is remembered, and, where somebody could share it, by the cloud's tags.
    /// Statuses are emptied by others: the API server does so for what is no load balancer any more, MetalLB for what asks it for nothing.
    /// And a process that has just begun to lead remembers nothing.
    pub(super) async fn leaves(&self, key: &Key) -> Result<Vec<IpAddr>, Stop> {
        let services = &self.gateway.cluster.services;
        let mut left: BTreeSet<IpAddr> = self.gateway.held.addresses(key).into_iter().collect();
        if let Some(service) = services.get(key) {
            left.extend(addresses(&service));
        }
        let could_share = |other: &ServiceObject| {
            other.key != *key
                && other.key.namespace == key.namespace
                && self.scope.has(other)
                && sharing::could_share(other)
        };
        if services.index.any(could_share) {
            let tagged = self.tagged(key).await.map_err(|error| Stop::Outage {
                refusal: Refusal::from_error(&error),
                tell: false,
                at_least: error.retry_after.unwrap_or_default(),
            })?;
            left.extend(tagged);
        }
        Ok(left.into_iter().collect())
    }

    /// The addresses that carry the tags of the Service of this name, as the cloud was last read.
    async fn tagged(&self, key: &Key) -> Result<Vec<IpAddr>, RpcError> {
        let cluster = self.gateway.cluster.identity.known().await;
        let request = AuditAddressesRequest {
            population: Some(Population {
                cluster: cluster.to_string(),
                owners: vec![messages::owner(&cluster, key)],
                in_use: Vec::new(),
            }),
            fresh: false,
            foreign: false,
        };
        let audited = self.gateway.services.eip.audit_addresses(request).await?;
        let held = audited
            .addresses
            .iter()
            .filter(|one| one.standing() == Standing::Held);
        Ok(held
            .filter_map(|one| one.address.as_ref()?.prefix.split('/').next()?.parse().ok())
            .collect())
    }

    /// Takes requests off the Service that name what goes back to the cloud with it. An older controller wrote its own address there,
    /// and it would be asked for again when the Service is a load balancer again.
    pub(super) async fn unasked(&self, service: Arc<ServiceObject>) -> Result<Arc<ServiceObject>, Stop> {
        let requests: Vec<_> = requests(&service, &self.gateway.config.empty).collect();
        if service.deleting || self.scope.pin || requests.is_empty() {
            return Ok(service);
        }
        let ours = self.tagged(&service.key).await;
        let ours = ours.map_err(|error| Stop::from_rpc(&error))?;
        let mut changes = Changes::default();
        for (field, asked) in requests {
            if !asked.is_empty() && asked.iter().all(|address| ours.contains(address)) {
                changes.take_away(&field);
            }
        }
        if changes.is_empty() {
            return Ok(service);
        }
        info!("the request for an address that goes back goes with it");
        let patch = patch::announce(&service, &changes);
        self.patch(&service, Part::Main, "request", patch).await
    }
}

/// The very addresses that are wanted.
pub(super) fn named(wish: &Wish) -> impl Iterator<Item = IpAddr> {
    wish.wants.iter().filter_map(|want| want.address)
}
