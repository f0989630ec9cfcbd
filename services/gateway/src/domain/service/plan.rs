//! What has to be done for one Service, from what the cluster says of it alone.
//!
//! ```text
//!                    ours                                   not ours (any more)
//!   wish is clear ──► Hold(wish): finalizer, address,         with our traces on it ──► Release
//!   it is not     ──► Refuse: condition, event                without               ──► Ignore
//! ```

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;

use groundplane_core::{Family, names};

use super::condition::{self, Refusal};
use super::scope::Scope;
use super::sharing;
use super::wish::{self, PoolName, Want};
use crate::announcers::Record;
use crate::cluster::objects::{ServiceObject, ServiceType};

/// What has to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Nothing: it is none of our business.
    Ignore,
    /// See to it that it holds these addresses, and that everybody knows.
    Hold(Wish),
    /// It is ours, but what it asks for cannot be.
    Refuse(Refusal),
    /// It is not ours any more: take everything back.
    Release {
        /// The finalizer that it carries is ours to remove.
        finalizer: bool,
    },
}

/// What a Service shall hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    /// At most one a family, in the order of `spec.ipFamilies`.
    pub(crate) wants: Vec<Want>,
    pub(crate) pool: Option<PoolName>,
    /// The cloud's names of where; empty: as configured.
    pub(crate) metro: String,
    pub(crate) facility: String,
    /// It had these addresses before we came: hold exactly those, or leave it alone.
    pub(crate) foreign: bool,
    /// The same for the same wish of the user, whatever the status says.
    pub(crate) fingerprint: u64,
}

/// Plans.
pub(crate) fn plan(service: &ServiceObject, scope: &Scope) -> Plan {
    if !scope.has(service) || service.deleting {
        let finalizer = owns_finalizer(service, scope);
        return if finalizer || has_traces(service) {
            Plan::Release { finalizer }
        } else {
            Plan::Ignore
        };
    }
    match hold(service, scope) {
        Ok(wish) => Plan::Hold(wish),
        Err(refusal) => Plan::Refuse(refusal),
    }
}

/// Does the Service carry the finalizer?
pub(crate) fn has_finalizer(service: &ServiceObject) -> bool {
    service
        .finalizers
        .iter()
        .any(|finalizer| &**finalizer == names::SERVICE_FINALIZER)
}

/// Is the finalizer of a Service that we do not serve, or not for long, ours to remove?
///
/// It is the one that every cloud controller uses. So it proves nothing by itself where another controller may have set
/// it: on a Service of a foreign class, one that we are told to leave to others, or one that had an address which we could not take over.
fn owns_finalizer(service: &ServiceObject, scope: &Scope) -> bool {
    let said = || {
        let ours = scope.has(service) || service.kind != ServiceType::LoadBalancer;
        ours && scope.has_class(&service.class)
    };
    let told = service.condition.as_ref();
    // What we told an announcer came after the finalizer.
    let told = || told.map_or_else(said, |condition| &*condition.reason != condition::FOREIGN);
    has_finalizer(service) && (!Record::of(service).is_empty() || told())
}

/// Is anything of ours on the Service, beside the finalizer? Our condition on an object that is going away is no reason to write.
fn has_traces(service: &ServiceObject) -> bool {
    !Record::of(service).is_empty()
        || condition::is_ours(service)
        || (service.condition.is_some() && !service.deleting)
}

/// What a Service of ours shall hold.
fn hold(service: &ServiceObject, scope: &Scope) -> Result<Wish, Refusal> {
    let mut wants = wish::wants(service)?;
    let pool = wish::pool(service)?;
    let annotation = |name: &str| {
        let value = service.annotations.get(name);
        value.unwrap_or_default().trim().to_owned()
    };
    let (metro, facility) = (annotation(&scope.metro), annotation(&scope.facility));
    let mut hasher = DefaultHasher::new();
    (&wants, &pool, &metro, &facility).hash(&mut hasher);
    for pair in service.labels.iter() {
        pair.hash(&mut hasher);
    }
    if let Some(key) = sharing::key(service) {
        // Who it may share with depends on these.
        (key, &service.ports, &service.external_traffic_policy).hash(&mut hasher);
    }
    let fingerprint = hasher.finish();
    // An announcer that was told may have been faster than we are to say it in the status, or say something else there.
    let record = Record::of(service);
    let told = scope.backend && record.addresses().next().is_some();
    let given = told || condition::is_ours(service) || record.announced(addresses(service));
    let foreign = !service.ingress.is_empty() && !given;
    if foreign {
        wants = adopt(service, &wants)?;
    } else if scope.pin || condition::is_adopted(service) {
        let held: Vec<IpAddr> = if told {
            record.addresses().collect()
        } else {
            addresses(service).collect()
        };
        for want in wants.iter_mut().filter(|want| want.address.is_none()) {
            want.address = held
                .iter()
                .copied()
                .find(|address| Family::of(*address) == want.family);
        }
    }
    Ok(Wish {
        wants,
        pool,
        metro,
        facility,
        foreign,
        fingerprint,
    })
}

/// What the status says, as far as it is addresses.
pub(crate) fn addresses(service: &ServiceObject) -> impl Iterator<Item = IpAddr> {
    service
        .ingress
        .iter()
        .filter_map(|ingress| ingress.ip.parse().ok())
}

/// Exactly the addresses that the Service has from somebody else.
fn adopt(service: &ServiceObject, wants: &[Want]) -> Result<Vec<Want>, Refusal> {
    let given: Vec<IpAddr> = addresses(service).collect();
    if given.len() != service.ingress.len() {
        return Err(Refusal::new(
            "NotAnAddress",
            "its status names a host, which no pool can hold.",
        ));
    }
    let mut adopted: Vec<Want> = Vec::new();
    for address in given {
        let family = Family::of(address);
        let want = wants.iter().find(|want| want.family == family);
        if adopted.iter().any(|want| want.family == family) || want.is_none() {
            return Err(Refusal::new(
                "TooManyAddresses",
                "it has more addresses than families.",
            ));
        }
        if let Some(other) = want
            .and_then(|want| want.address)
            .filter(|other| *other != address)
        {
            return Err(Refusal::new(
                "AlreadyHolds",
                format!(
                    "it asks for {other}. Take the request back, or clear its status to have it served anew."
                ),
            ));
        }
        adopted.push(Want {
            family,
            address: Some(address),
            optional: false,
        });
    }
    // In the order of the Service's families.
    adopted.sort_by_key(|adopted| wants.iter().position(|want| want.family == adopted.family));
    Ok(adopted)
}

#[cfg(test)]
mod tests;
