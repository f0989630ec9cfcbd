//! What is to be done for an owner, given what the cloud has.
//!
//! One reservation of a family is used. Several with the owner's tags are what a race or a lost answer left behind: all replicas
//! choose the same one, the others go. An address that the user names and that carries no tags of ours was brought: it is used as it
//! is. What an older controller tagged is taken over where something says that it is this owner's: its tags, the owner's status, its
//! request, or a person. Two clusters of one project may have Services of one name. The same facts always give the same plan.

use std::cmp::Reverse;

use groundplane_cloud::{Reservation, ReservationState};
use groundplane_core::{Family, Prefix};

use super::Wanted;

/// What a snapshot of the cloud says about one request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Held {
    /// Reservations that carry the owner's tags and can be used, in any order.
    pub(crate) mine: Vec<Reservation>,
    /// Reservations that we, or an older controller, made for others, and that hold an address which this request names.
    pub(crate) others: Vec<Reservation>,
    /// Reservations that nobody tagged as ours, and that hold an address which this request names.
    pub(crate) untagged: Vec<Reservation>,
    /// Reservations of owners that let this one share, and that hold an address which this request names.
    pub(crate) shared: Vec<Reservation>,
    /// Reservations with an older controller's tags that stand for the owner's name.
    pub(crate) former: Vec<Bequest>,
    /// The addresses that this request names and that are the API endpoint's.
    pub(crate) endpoint: Vec<Prefix>,
}

/// What an older controller left for an owner of this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bequest {
    pub(crate) reservation: Reservation,
    /// Its tags, or a person, say that it is this cluster's.
    pub(crate) proven: bool,
}

/// What one family gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// This reservation of ours, ready or pending.
    Use(Reservation),
    /// This reservation of an older controller, which gets our tags.
    Adopt(Reservation),
    /// The address that the user brought, and the reservation's id where the project has one.
    Brought(Prefix, Option<String>),
    /// There is none: make one.
    Create,
    /// Cannot be.
    Refuse(Refusal),
}

/// Why a family cannot be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The address is another's. With the id of the reservation, and its tags.
    Taken(Prefix, String, Vec<String>),
    /// The address is the API endpoint's, which is never an owner's.
    Endpoint(Prefix),
    /// The owner holds another address of the family (`None`: one without an address yet).
    AlreadyHolds(Option<Prefix>),
    /// The cloud refused the reservation with this id.
    Denied(String),
    /// The cloud has no addresses of this family.
    Unsupported(Family),
}

/// How fresh the facts have to be that a plan is carried out on. In order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Needs {
    /// The inventory will do.
    Cached,
    /// Somebody waits for a change that others make: ask often, but not each time.
    Recent,
    /// Something is made or deleted: a read that began within the call.
    Fresh,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// In the order of the request.
    pub(crate) choices: Vec<Choice>,
    /// Duplicates to delete: the owner's, of no use, and on no machine.
    pub(crate) surplus: Vec<Reservation>,
}

impl Plan {
    /// How fresh the facts have to be.
    pub(crate) fn needs(&self) -> Needs {
        if !self.surplus.is_empty() {
            return Needs::Fresh;
        }
        self.choices
            .iter()
            .map(Choice::needs)
            .max()
            .unwrap_or(Needs::Cached)
    }
}

impl Choice {
    fn needs(&self) -> Needs {
        match self {
            Self::Use(reservation) if reservation.state == ReservationState::Ready => Needs::Cached,
            Self::Brought(_, Some(_)) | Self::Refuse(Refusal::Unsupported(_)) => Needs::Cached,
            // An address that no reservation has may be one that was made for another owner since the last list.
            Self::Brought(_, None) | Self::Use(_) | Self::Refuse(_) => Needs::Recent,
            Self::Create | Self::Adopt(_) => Needs::Fresh,
        }
    }
}

/// Makes the plan for `wanted`. `supports` says which families the cloud gives out.
pub(crate) fn settle(held: &Held, wanted: &[Wanted], supports: impl Fn(Family) -> bool) -> Plan {
    let mut plan = Plan {
        choices: Vec::with_capacity(wanted.len()),
        surplus: Vec::new(),
    };
    for wanted in wanted {
        let mut candidates: Vec<_> = held
            .mine
            .iter()
            .filter(|reservation| could_be(reservation, wanted.family))
            .collect();
        candidates.sort_by_key(|reservation| rank(reservation, wanted));
        let choice = choose(held, &candidates, wanted, &supports);
        if let Choice::Use(chosen) = &choice {
            // An assigned one carries traffic, whoever assigned it: left alone. One without an address may be another family's.
            let idle = candidates.iter().filter(|other| {
                other.id != chosen.id && other.assignments.is_empty() && other.prefix.is_some()
            });
            plan.surplus.extend(idle.copied().cloned());
        }
        plan.choices.push(choice);
    }
    plan
}

/// Is it of this family? One without an address yet could be of any.
fn could_be(reservation: &Reservation, family: Family) -> bool {
    reservation.prefix.is_none_or(|prefix| prefix.family() == family)
}

/// The best first: it has an address, it is ready (then pending), it is the one asked for, it is live (where routes are announced by
/// BGP, only the owner's status tells), it is on a machine, its id is lowest.
fn rank(reservation: &Reservation, wanted: &Wanted) -> impl Ord + use<> {
    let state = match reservation.state {
        ReservationState::Ready => 0,
        ReservationState::Pending => 1,
        ReservationState::Denied => 2,
    };
    let is_at = |address: Option<Prefix>| address.is_some_and(|address| covers(reservation, address));
    let (asked_for, live) = (is_at(wanted.address), is_at(wanted.in_use));
    let assigned = !reservation.assignments.is_empty();
    (
        state,
        Reverse(asked_for),
        Reverse(live),
        Reverse(assigned),
        reservation.id.clone(),
    )
}

fn choose(
    held: &Held,
    candidates: &[&Reservation],
    wanted: &Wanted,
    supports: &impl Fn(Family) -> bool,
) -> Choice {
    let best = candidates.first();
    if let Some(best) = best.filter(|best| best.state != ReservationState::Denied) {
        let fits = wanted.address.is_none_or(|address| covers(best, address));
        return if fits {
            Choice::Use((*best).clone())
        } else {
            Choice::Refuse(Refusal::AlreadyHolds(best.prefix))
        };
    }
    // From here on, it does not matter what was denied before, unless a new one is to be made.
    if let Some(reservation) = wanted.address.and_then(|address| shared(held, address)) {
        return Choice::Use(reservation.clone());
    }
    if let Some(reservation) = inherited(held, wanted) {
        return Choice::Adopt(reservation.clone());
    }
    match (best, wanted.address) {
        (_, Some(address)) => bring(held, address),
        (Some(denied), None) => Choice::Refuse(Refusal::Denied(denied.id.clone())),
        (None, None) if supports(wanted.family) => Choice::Create,
        (None, None) => Choice::Refuse(Refusal::Unsupported(wanted.family)),
    }
}

/// What another owner shares.
fn shared(held: &Held, address: Prefix) -> Option<&Reservation> {
    held.shared.iter().find(|reservation| {
        reservation.state == ReservationState::Ready && reservation.prefix == Some(address)
    })
}

/// What an older controller left for this very owner.
fn inherited<'a>(held: &'a Held, wanted: &Wanted) -> Option<&'a Reservation> {
    let mut left: Vec<_> = held
        .former
        .iter()
        .filter(|Bequest { reservation, proven }| {
            let is_at = |address: Option<Prefix>| address.is_some() && reservation.prefix == address;
            let fits = reservation
                .prefix
                .is_some_and(|prefix| prefix.is_host() && prefix.family() == wanted.family);
            let is_wanted = wanted.address.is_none() || is_at(wanted.address);
            let said = *proven || is_at(wanted.address) || is_at(wanted.in_use);
            reservation.state == ReservationState::Ready && fits && is_wanted && said
        })
        .map(|bequest| &bequest.reservation)
        .collect();
    left.sort_by_key(|reservation| rank(reservation, wanted));
    left.first().copied()
}

fn bring(held: &Held, address: Prefix) -> Choice {
    if held.endpoint.contains(&address) {
        return Choice::Refuse(Refusal::Endpoint(address));
    }
    let covers = |reservation: &&Reservation| covers(reservation, address);
    if let Some(other) = held.others.iter().find(covers) {
        return Choice::Refuse(Refusal::Taken(address, other.id.clone(), other.tags.clone()));
    }
    Choice::Brought(
        address,
        held.untagged
            .iter()
            .find(covers)
            .map(|reservation| reservation.id.clone()),
    )
}

/// Does the reservation hold this address?
pub(crate) fn covers(reservation: &Reservation, address: Prefix) -> bool {
    reservation
        .prefix
        .is_some_and(|prefix| prefix.range().contains(address.range()))
}

#[cfg(test)]
mod tests;
