//! What the address service answered, as what the Service shall say: pure.

use groundplane_core::{Family, Prefix};
use groundplane_proto::eip::v1::{EnsureAddressResponse, State};

use crate::cluster::objects::ServiceObject;
use crate::domain::service::condition::{self, Condition, Refusal};
use crate::domain::service::{Desired, Wish};

/// Reads the answer of the address service.
pub(crate) fn desired(
    service: &ServiceObject,
    wish: &Wish,
    answer: &EnsureAddressResponse,
) -> Result<Desired, Refusal> {
    let mut held = Vec::new();
    for address in &answer.addresses {
        if address.state() == State::Pending {
            let message =
                "The cloud has not approved the address yet. It is looked at again every 30 seconds.";
            return Err(Refusal::new(condition::PENDING, message));
        }
        let prefix = address
            .prefix
            .parse::<Prefix>()
            .ok()
            .filter(|prefix| prefix.is_host());
        let Some(prefix) = prefix else {
            return Err(unusable(&format!("`{}` is not one address", address.prefix)));
        };
        held.push(prefix.address());
    }
    let mut addresses = Vec::new();
    for want in &wish.wants {
        match held.iter().find(|address| Family::of(**address) == want.family) {
            Some(address) => addresses.push(*address),
            None if want.optional => {}
            None => return Err(unusable(&format!("there is no address of {}", want.family))),
        }
    }
    if addresses.is_empty() {
        return Err(unusable("there is no address"));
    }
    let adopted = wish.foreign || condition::is_adopted(service);
    let mut message = format!("Holds {}.", condition::list(&addresses));
    for missing in &answer.missing {
        let family = match missing.family() {
            groundplane_proto::core::v1::Family::Ipv4 => "IPv4",
            groundplane_proto::core::v1::Family::Ipv6 => "IPv6",
            groundplane_proto::core::v1::Family::Unspecified => continue,
        };
        let why = missing.message.trim_end_matches('.');
        message = format!("{message} It does without {family}: {why}.");
    }
    let reason = if adopted {
        condition::ADOPTED
    } else {
        condition::ASSIGNED
    };
    Ok(Desired {
        incomplete: addresses.len() < wish.wants.len(),
        addresses,
        condition: Condition {
            ready: true,
            reason: reason.to_owned(),
            message,
        },
    })
}

/// The address service did not keep its contract.
fn unusable(what: &str) -> Refusal {
    Refusal::new(
        "UnusableAnswer",
        format!("The address service gave an answer that cannot be used: {what}. It is tried again."),
    )
}

#[cfg(test)]
mod tests;
