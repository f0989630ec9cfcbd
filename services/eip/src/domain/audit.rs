//! Who holds what, and what nobody holds: the reservations of a cloud beside the owners of one cluster.
//!
//! Tags tell owners by a digest, so an orphan is what no owner explains that there is. That is a conclusion from absence, so
//! whatever else could explain a reservation spares it: an address that stands in some status or request, a machine that has it, the API
//! endpoint, a shape that we never made.

use std::collections::{HashMap, HashSet};

use groundplane_cloud::{EndpointSelector, Former, Reservation};
use groundplane_core::{ClusterId, Owner, Prefix};

use super::{covers, has_all};

/// What a cluster has at one time.
#[derive(Clone, Debug)]
pub(crate) struct Population {
    pub(crate) cluster: ClusterId,
    /// Everything that may hold an address.
    pub(crate) owners: Vec<Owner>,
    /// Addresses in any status or request.
    pub(crate) in_use: HashSet<Prefix>,
}

/// How a cloud marks the reservations of one cluster.
#[derive(Clone, Debug)]
pub(crate) struct Marks<'a> {
    /// The tags that all of them carry.
    pub(crate) cluster: Vec<String>,
    /// Do those tell this cluster from others?
    pub(crate) telling: bool,
    /// Those of them that the reservations of every cluster carry.
    pub(crate) usage: &'a [String],
    /// What the tag begins with that tells an owner: `service=`. `None`: there is none.
    pub(crate) owner_prefix: Option<&'a str>,
    /// Each owner's tag of its own, and all its tags.
    pub(crate) owners: HashMap<String, (&'a Owner, Vec<String>)>,
    /// The API endpoint, where one is configured.
    pub(crate) endpoint: Option<&'a EndpointSelector>,
}

/// What is known of one reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// An owner holds it.
    Held,
    /// It is this cluster's, and no owner's.
    Orphan,
    /// As an orphan, but something else may explain it.
    Spared,
    /// An older controller's tags are on it. Do they name this cluster?
    Former(Former),
    /// It is another cluster's.
    Foreign,
}

/// A reservation, and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) reservation: Reservation,
    pub(crate) standing: Standing,
    pub(crate) owner: Option<Owner>,
}

/// What concerns the cluster of all that there is, ordered by id. `former` reads an older controller's tags.
pub(crate) fn audit<'r>(
    reservations: impl Iterator<Item = &'r Reservation>,
    population: &Population,
    marks: &Marks<'_>,
    former: impl Fn(&[String]) -> Option<Former>,
) -> Vec<Finding> {
    let find = |reservation: &Reservation| {
        let named = || {
            let mut known = reservation.tags.iter().filter_map(|tag| marks.owners.get(tag));
            known.next()
        };
        let finding = |standing, owner: Option<&Owner>| Finding {
            reservation: reservation.clone(),
            standing,
            owner: owner.cloned(),
        };
        if marks.telling && has_all(&reservation.tags, &marks.cluster) {
            let owner = named().filter(|(_, tags)| has_all(&reservation.tags, tags));
            return Some(match owner {
                Some((owner, _)) => finding(Standing::Held, Some(owner)),
                None if is_spared(reservation, population, marks) => finding(Standing::Spared, None),
                None => finding(Standing::Orphan, None),
            });
        }
        match former(&reservation.tags) {
            Some(former) => {
                let owner = named().map(|(owner, _)| *owner);
                Some(finding(Standing::Former(former), owner))
            }
            None => is_foreign(reservation, marks).then(|| finding(Standing::Foreign, None)),
        }
    };
    let mut findings: Vec<_> = reservations.filter_map(find).collect();
    findings.sort_by(|a, b| a.reservation.id.cmp(&b.reservation.id));
    findings
}

/// Does it say of which owner it is?
fn is_owned(reservation: &Reservation, marks: &Marks<'_>) -> bool {
    marks.owner_prefix.is_some_and(|prefix| {
        let mut tags = reservation.tags.iter();
        tags.any(|tag| tag.starts_with(prefix))
    })
}

/// Is it some owner's, and another cluster's by its tags? It is known already that it is not this one's.
fn is_foreign(reservation: &Reservation, marks: &Marks<'_>) -> bool {
    let key = |tag: &str| tag.split_once('=').map(|(key, _)| key.to_owned());
    let mut telling = marks.cluster.iter().filter(|tag| !marks.usage.contains(tag));
    let names_cluster = telling.any(|tag| {
        let mut tags = reservation.tags.iter();
        tags.any(|other| key(other).is_some() && key(other) == key(tag))
    });
    marks.telling && names_cluster && has_all(&reservation.tags, marks.usage) && is_owned(reservation, marks)
}

/// Is it the API endpoint's?
pub(crate) fn is_endpoint(selector: &EndpointSelector, reservation: &Reservation) -> bool {
    match selector {
        EndpointSelector::Tag(tag) => reservation.tags.contains(tag),
        EndpointSelector::Address(address) => covers(reservation, Prefix::host(*address)),
    }
}

/// Could anything but an owner explain it?
fn is_spared(reservation: &Reservation, population: &Population, marks: &Marks<'_>) -> bool {
    let owned = is_owned(reservation, marks);
    let endpoint = marks
        .endpoint
        .is_some_and(|selector| is_endpoint(selector, reservation));
    let is_block = reservation.prefix.is_some_and(|prefix| !prefix.is_host());
    let used = reservation
        .prefix
        .is_some_and(|prefix| population.in_use.contains(&prefix));
    !owned || endpoint || is_block || used || !reservation.usable || !reservation.assignments.is_empty()
}

#[cfg(test)]
mod tests;
