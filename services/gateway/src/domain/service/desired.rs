//! What a Service shall say, once it is known what it holds.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::condition::Condition;
use crate::cluster::objects::{Ingress, ServiceObject};

/// What the Service holds, and how it shall be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Desired {
    /// In the order of `spec.ipFamilies`.
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) condition: Condition,
    /// A family that it would like to have is missing.
    pub(crate) incomplete: bool,
}

/// Names the status exactly these addresses? Their order and their ports are left to whoever else writes it: kube-vip adds ports to
/// the same addresses, and we do not fight over that. The mode must be ours (none stands for `VIP`), unless the address was
/// `adopted`: whoever wrote it had a reason.
pub(crate) fn status_says(service: &ServiceObject, addresses: &[IpAddr], adopted: bool) -> bool {
    let as_ours = |ingress: &Ingress| {
        ingress.hostname.is_empty() && (adopted || matches!(&*ingress.ip_mode, "" | "VIP"))
    };
    let told: BTreeSet<Option<IpAddr>> = service
        .ingress
        .iter()
        .map(|ingress| ingress.ip.parse().ok())
        .collect();
    let wanted: BTreeSet<Option<IpAddr>> = addresses.iter().copied().map(Some).collect();
    service.ingress.iter().all(as_ours) && service.ingress.len() == addresses.len() && told == wanted
}

#[cfg(test)]
mod tests;
