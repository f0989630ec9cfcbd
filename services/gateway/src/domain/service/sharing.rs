//! Who may have one address together.
//!
//! Two Services of one namespace share an address if both carry the same sharing key, have no port in common, and both let traffic reach
//! every node: machines announce an address as a whole, so one that has no endpoint of one Service must be able to pass its traffic on.
//! Of any others that name the same address, one has it: who has it already, else the first by name.

use std::net::IpAddr;

use super::condition::Refusal;
use super::plan::addresses;
use super::wish;
use crate::cluster::objects::{Key, ServiceObject};

/// Annotations with a sharing key, in the order in which we look. MetalLB's own: it has to agree.
const KEYS: [&str; 2] = [
    "metallb.io/allow-shared-ip",
    "metallb.universe.tf/allow-shared-ip",
];

/// The reason where an address has another holder that does not share it.
pub(crate) const IN_USE: &str = "AddressInUse";
/// The reason where it has one that would, but for a port.
pub(crate) const PORT_IN_USE: &str = "PortInUse";
/// The reason where it has one that would, but for the policy.
pub(crate) const LOCAL_TRAFFIC: &str = "SharingNeedsClusterPolicy";

/// The key of those whom the Service lets share.
pub(crate) fn key(service: &ServiceObject) -> Option<&str> {
    KEYS.into_iter()
        .filter_map(|name| service.annotations.get(name))
        .map(str::trim)
        .find(|key| !key.is_empty())
}

/// A Service that has an address, or would like to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claimant<'a> {
    pub(crate) service: &'a ServiceObject,
    /// It has it already.
    pub(crate) holds: bool,
}

impl Claimant<'_> {
    /// Whose claim counts first, where only one can have it?
    fn rank(&self) -> (bool, &Key) {
        (!self.holds, &self.service.key)
    }
}

/// Does the Service show this address, or ask for it?
pub(crate) fn claims(service: &ServiceObject, address: IpAddr) -> bool {
    addresses(service).any(|shown| shown == address) || wish::asked(service).any(|asked| asked == address)
}

/// With whom the claimant shares the address: all others who may share it. A refusal, if one who does not has the better claim.
pub(crate) fn company<'a>(
    claimant: Claimant<'_>,
    address: IpAddr,
    others: impl Iterator<Item = Claimant<'a>>,
) -> Result<Vec<Key>, Refusal> {
    let mut sharers = Vec::new();
    for other in others {
        match obstacle(claimant.service, other.service, address) {
            None => sharers.push(other.service.key.clone()),
            Some(refusal) if other.rank() < claimant.rank() => return Err(refusal),
            // It will be refused when it comes.
            Some(_) => {}
        }
    }
    Ok(sharers)
}

/// Could it have an address that another Service holds? Only who names an address has one, or who had one when it did.
pub(crate) fn could_share(service: &ServiceObject) -> bool {
    key(service).is_some() || wish::asked(service).next().is_some()
}

/// May both have shares of it one day? Then what one leaves is the other's.
pub(crate) fn related(one: &ServiceObject, other: &ServiceObject) -> bool {
    one.key.namespace == other.key.namespace && key(one).is_some() && key(one) == key(other)
}

/// Why the two cannot share the address.
fn obstacle(one: &ServiceObject, other: &ServiceObject, address: IpAddr) -> Option<Refusal> {
    let holder = &other.key;
    if !related(one, other) {
        return Some(Refusal::new(
            IN_USE,
            format!(
                "{address} is Service {holder}'s. Ask for another address, or let both share it: in one namespace, with annotation {} \
                 of the same value on both.",
                KEYS[0]
            ),
        ));
    }
    let is_local = |service: &ServiceObject| &*service.external_traffic_policy == "Local";
    if is_local(one) || is_local(other) {
        return Some(Refusal::new(
            LOCAL_TRAFFIC,
            format!(
                "{address} can be shared with Service {holder} only if spec.externalTrafficPolicy of both is `Cluster`."
            ),
        ));
    }
    let common = one.ports.iter().find(|port| other.ports.contains(port))?;
    Some(Refusal::new(
        PORT_IN_USE,
        format!(
            "{address} is shared with Service {holder}, which has port {}/{}, too. Give one of them another port, or another address.",
            common.number, common.protocol
        ),
    ))
}

#[cfg(test)]
mod tests;
