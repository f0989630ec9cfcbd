//! What there should be, from the caches and from what the other controllers say.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use tracing::debug;

use super::{MetallbController, Stop};
use crate::announcers::metallb::HOSTNAME;
use crate::announcers::metallb::world::{Node, Peers, World};
use crate::announcers::{Record, Trouble};
use crate::cluster::objects::{NodeObject, ServiceObject, ServiceType};
use crate::controllers::bgp;
use crate::domain::service::{Scope, addresses, condition};
use crate::selector::Selector;

impl MetallbController {
    /// What there should be, and the number of the last wish that is in it.
    pub(super) fn world(&self) -> (World, u64) {
        let cluster = &self.gateway.cluster;
        let (services, nodes) = (&cluster.services.index, &cluster.nodes.index);
        // Before the look at the objects: what is followed from here on tells of all that is missing.
        let complete = services.is_followed() && nodes.is_followed();
        let (board, term) = (&self.metallb.board, cluster.leader.term());
        let mut wishes = board.wishes(term, |key, uid| {
            let known = services.get(key);
            !complete || known.is_some_and(|service| *service.uid == *uid)
        });
        self.wake_services(std::mem::take(&mut wishes.outdated));
        let mut world = World {
            complete,
            ..World::default()
        };
        for service in services.all() {
            let wish = wishes.services.get(&service.key);
            // Where the user's own pools cover its address, nothing of ours but peers and advertisement says that it is announced.
            world.awaited |= wish.is_none() && has_addresses(&service);
            let leaves = wish.is_some_and(BTreeSet::is_empty);
            for address in named(&service) {
                let there = if leaves {
                    &mut world.leaving
                } else {
                    &mut world.mentioned
                };
                there.entry(address).or_default().insert(service.key.clone());
            }
        }
        let wanted = wishes.services.into_iter();
        world.services = wanted.filter(|(_, addresses)| !addresses.is_empty()).collect();
        let selector = Selector::parse(&self.gateway.config.bgp_node_selector).unwrap_or_default();
        if complete {
            board.retain_nodes(|key| nodes.get(key).is_some());
        }
        for node in nodes.all() {
            let cleanup = self.gateway.config.bgp_cleanup;
            let peers = if bgp::selects(&selector, &node) || !cleanup {
                board.peers(&node.key, term)
            } else {
                Peers::Exactly(Vec::new())
            };
            world.nodes.insert(node.name().to_owned(), plain(&node, peers));
        }
        (world, wishes.generation)
    }

    /// Adds what Services name that are out of sight because of `gateway.namespaces`. They may have been ours before, and MetalLB would take
    /// from them what left its pools.
    pub(super) async fn with_hidden(&self, mut world: World) -> Result<World, Stop> {
        let config = &self.gateway.config;
        if config.namespaces.is_empty() {
            return Ok(world);
        }
        let listed = self.gateway.cluster.services.list().await.map_err(|error| {
            debug!(%error, "Services of other namespaces cannot be listed");
            Stop::Failed(Trouble {
                reason: "AnnouncerUnavailable",
                message: "The Services of all namespaces cannot be listed, and without that nothing is told to MetalLB: those outside of                           gateway.namespaces would lose their addresses. Let the gateway's account list them, as the chart does. It is                           tried again."
                    .to_owned(),
            })
        })?;
        let scope = Scope::of(config);
        for service in listed.into_iter().filter(|service| scope.hides(service)) {
            for address in named(&service) {
                let there = world.mentioned.entry(address).or_default();
                there.insert(service.key.clone());
            }
        }
        Ok(world)
    }
}

fn plain(node: &NodeObject, peers: Peers) -> Node {
    let labels: BTreeMap<String, String> = node
        .labels
        .iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    Node {
        hostname: labels
            .get(HOSTNAME)
            .cloned()
            .unwrap_or_else(|| node.name().to_owned()),
        labels,
        peers,
    }
}

/// Is it a load balancer to which we gave addresses?
fn has_addresses(service: &ServiceObject) -> bool {
    service.kind == ServiceType::LoadBalancer && condition::is_ours(service)
}

/// The addresses that a Service names: in its status, in its specification, or in our record of what it was told.
fn named(service: &ServiceObject) -> BTreeSet<IpAddr> {
    if service.kind != ServiceType::LoadBalancer {
        // What it still names of old is ours to take away only if it is being withdrawn; until then it stands.
        return Record::of(service)
            .addresses()
            .chain(addresses(service))
            .collect();
    }
    let asked = service.load_balancer_ip.parse::<IpAddr>().ok();
    Record::of(service)
        .addresses()
        .chain(addresses(service))
        .chain(asked)
        .collect()
}
