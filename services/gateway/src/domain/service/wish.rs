//! What a Service asks for in its own words: which families, which addresses, from which pool.

use std::collections::BTreeMap;
use std::net::IpAddr;

use groundplane_core::{Family, names};

use super::condition::Refusal;
use crate::announcers::{Field, KUBE_VIP_ADDRESSES, Record};
use crate::cluster::objects::ServiceObject;
use crate::config;

/// Where users of other systems write the addresses that they want, in the order in which we look.
const FOREIGN_ADDRESSES: [&str; 4] = [
    KUBE_VIP_ADDRESSES,
    "metallb.io/loadBalancerIPs",
    "metallb.universe.tf/loadBalancerIPs",
    // Cherry Servers' controller wrote it where nobody was to be told.
    names::CHERRY_SERVICE_ADDRESSES,
];

/// What is wanted in one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Want {
    pub(crate) family: Family,
    /// This very address; `None`: any.
    pub(crate) address: Option<IpAddr>,
    /// Do without it rather than fail.
    pub(crate) optional: bool,
}

/// A pool by its name: `name` or `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PoolName {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// The families that the Service has, in its order; the second is optional where its policy only prefers it.
pub(super) fn families(service: &ServiceObject) -> Vec<(Family, bool)> {
    // The API server always sets them. One that does not has never heard of IPv6.
    let families: &[Family] = if service.families.is_empty() {
        &[Family::V4]
    } else {
        &service.families
    };
    let count = if &*service.family_policy == "SingleStack" {
        1
    } else {
        2
    };
    let required = if &*service.family_policy == "PreferDualStack" {
        1
    } else {
        2
    };
    families
        .iter()
        .take(count)
        .enumerate()
        .map(|(at, family)| (*family, at >= required))
        .collect()
}

/// What the user wants, a family each. What we wrote for the announcer is no wish.
pub(super) fn wants(service: &ServiceObject) -> Result<Vec<Want>, Refusal> {
    let requested = requested(service)?;
    Ok(families(service)
        .into_iter()
        .map(|(family, optional)| Want {
            family,
            address: requested.get(&family).copied(),
            optional,
        })
        .collect())
}

/// The addresses that the user asks for, by family.
fn requested(service: &ServiceObject) -> Result<BTreeMap<Family, IpAddr>, Refusal> {
    let Some((place, text)) = request(service) else {
        return Ok(BTreeMap::new());
    };
    let families = families(service);
    let mut requested = BTreeMap::new();
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let Ok(address) = entry.parse::<IpAddr>() else {
            return Err(Refusal::new(
                "InvalidAddress",
                format!(
                    "`{entry}` in {place} is not an IP address. Write addresses as `192.0.2.7` or `2001:db8::7`."
                ),
            ));
        };
        let family = Family::of(address);
        if !families.iter().any(|(known, _)| *known == family) {
            let known: Vec<String> = families.iter().map(|(family, _)| family.to_string()).collect();
            return Err(Refusal::new(
                "WrongFamily",
                format!(
                    "{address} in {place} is {family}, and the Service has {} only. Ask for an address of its family, \
                     or change spec.ipFamilies and spec.ipFamilyPolicy.",
                    known.join(" and ")
                ),
            ));
        }
        if let Some(other) = requested.insert(family, address)
            && other != address
        {
            return Err(Refusal::new(
                "InvalidAddress",
                format!(
                    "{place} asks for two addresses of {family}, {other} and {address}. Ask for one a family."
                ),
            ));
        }
    }
    Ok(requested)
}

/// Where the user asks for addresses, and the text there.
fn request(service: &ServiceObject) -> Option<(String, &str)> {
    let stated = |text: &&str| !text.trim().is_empty();
    if let Some(text) = service.annotations.get(names::SERVICE_ADDRESSES).filter(stated) {
        return Some((format!("annotation {}", names::SERVICE_ADDRESSES), text));
    }
    let record = Record::of(service);
    for key in FOREIGN_ADDRESSES {
        let text = service.annotations.get(key).filter(stated);
        if text.is_some() && !record.wrote(&Field::Annotation(key.into()), text) {
            return text.map(|text| (format!("annotation {key}"), text));
        }
    }
    let text = Some(&*service.load_balancer_ip).filter(stated);
    (!record.wrote(&Field::LoadBalancerIp, text))
        .then_some(text?)
        .map(|text| (Field::LoadBalancerIp.to_string(), text))
}

/// The addresses that the user asks for, as far as they can be had.
pub(super) fn asked(service: &ServiceObject) -> impl Iterator<Item = IpAddr> {
    requested(service).unwrap_or_default().into_values()
}

/// Where older controllers wrote an address of theirs as a request, and what stands there. What we wrote there is none. They may have been
/// told of annotations (`empty`) that nobody else knows.
pub(crate) fn requests<'a>(
    service: &'a ServiceObject,
    empty: &'a config::Empty,
) -> impl Iterator<Item = (Field, Vec<IpAddr>)> + 'a {
    let record = Record::of(service);
    let told = empty.annotations().filter(|key| !FOREIGN_ADDRESSES.contains(key));
    let annotations = FOREIGN_ADDRESSES.into_iter().chain(told).map(|key| {
        let text = service.annotations.get(key);
        (Field::Annotation(key.into()), text)
    });
    let field = (Field::LoadBalancerIp, Some(&*service.load_balancer_ip));
    annotations
        .chain([field])
        .filter(move |(field, text)| !record.wrote(field, *text))
        .filter_map(|(field, text)| {
            let text = text.filter(|text| !text.trim().is_empty())?;
            let addresses: Option<Vec<IpAddr>> =
                text.split(',').map(|entry| entry.trim().parse().ok()).collect();
            Some((field, addresses?))
        })
}

/// Every address that stands where addresses are asked for, whoever wrote it there, and whether or not it can be had.
pub(crate) fn mentioned(service: &ServiceObject) -> impl Iterator<Item = IpAddr> {
    let annotations = [names::SERVICE_ADDRESSES].into_iter().chain(FOREIGN_ADDRESSES);
    annotations
        .filter_map(|key| service.annotations.get(key))
        .chain([&*service.load_balancer_ip])
        .flat_map(|text| text.split(','))
        .filter_map(|entry| entry.trim().parse().ok())
}

/// The pool that the user names.
pub(super) fn pool(service: &ServiceObject) -> Result<Option<PoolName>, Refusal> {
    let Some(text) = service
        .annotations
        .get(names::SERVICE_POOL)
        .map(str::trim)
        .filter(|text| !text.is_empty())
    else {
        return Ok(None);
    };
    let (namespace, name) = text.split_once('/').unwrap_or(("", text));
    if name.is_empty() || name.contains('/') || (namespace.is_empty() && text.contains('/')) {
        return Err(Refusal::new(
            "InvalidPool",
            format!(
                "`{text}` in annotation {} is neither `name` nor `namespace/name`.",
                names::SERVICE_POOL
            ),
        ));
    }
    Ok(Some(PoolName {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }))
}
