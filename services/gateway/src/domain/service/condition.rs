//! What a Service is told: the condition `groundplane.dev/AddressReady` and its texts.
//!
//! The reason tells more than why: it says whose address stands in the status. `Assigned`, `Adopted`, `Kept` and `KeptAdopted`
//! mean that it is one that we hold for the Service; with every other reason (or no condition), ingress is somebody else's and is never changed,
//! unless it repeats what we told the announcer.
//! So condition and ingress are always written in one patch.

use std::fmt;
use std::net::IpAddr;

use super::plan::has_finalizer;
use crate::announcers::Trouble;
use crate::cluster::objects::{ServiceCondition, ServiceObject};

/// The Service has what it asked for.
pub(crate) const ASSIGNED: &str = "Assigned";
/// It has what it had before we came, and we hold that for it now.
pub(crate) const ADOPTED: &str = "Adopted";
/// It keeps the address that we gave, but does not get what it asks for now.
pub(crate) const KEPT: &str = "Kept";
/// The same for an address that was adopted.
pub(crate) const KEPT_ADOPTED: &str = "KeptAdopted";
/// It has an address that is not ours to give, and is left alone.
pub(crate) const FOREIGN: &str = "Foreign";
/// The same for a Service that somebody else gave an address after we had put our finalizer on it, which is ours to remove.
pub(crate) const FOREIGN_FINALIZED: &str = "ForeignFinalized";
/// It holds addresses, and the announcer, which writes the status, has yet to say so.
pub(crate) const ANNOUNCING: &str = "Announcing";
/// The announcer says other addresses than those that it was told.
pub(crate) const STATUS_DIFFERS: &str = "StatusDiffers";
/// The cloud has not decided yet.
pub(crate) const PENDING: &str = "Pending";

/// Whether the Service has its addresses, and why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) ready: bool,
    /// `CamelCase`.
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl Condition {
    /// Says the Service this already? Times are ignored.
    pub(crate) fn is_told(&self, told: Option<&ServiceCondition>) -> bool {
        told.is_some_and(|told| {
            &*told.status == self.status() && *told.reason == *self.reason && *told.message == *self.message
        })
    }

    /// `True` or `False`.
    pub(crate) fn status(&self) -> &'static str {
        if self.ready { "True" } else { "False" }
    }
}

/// Is the ingress of the Service an address that we hold for it?
pub(crate) fn is_ours(service: &ServiceObject) -> bool {
    let reason = service.condition.as_ref().map(|condition| &*condition.reason);
    reason.is_some_and(|reason| [ASSIGNED, ADOPTED, KEPT, KEPT_ADOPTED].contains(&reason))
}

/// Was it adopted, so that only its status says which address it has?
pub(crate) fn is_adopted(service: &ServiceObject) -> bool {
    let reason = service.condition.as_ref().map(|condition| &*condition.reason);
    reason.is_some_and(|reason| [ADOPTED, KEPT_ADOPTED].contains(&reason))
}

/// Was it told that its ingress is somebody else's, and is left alone?
pub(crate) fn is_foreign(service: &ServiceObject) -> bool {
    let reason = service.condition.as_ref().map(|condition| &*condition.reason);
    reason.is_some_and(|reason| [FOREIGN, FOREIGN_FINALIZED].contains(&reason))
}

/// How a Service is told that it is left alone. A finalizer that it carries is ours if we had told it something else before: nobody
/// but us would remove it.
fn foreign(service: &ServiceObject) -> &'static str {
    let told = service.condition.as_ref();
    if has_finalizer(service) && told.is_some_and(|told| &*told.reason != FOREIGN) {
        FOREIGN_FINALIZED
    } else {
        FOREIGN
    }
}

/// Why a Service does not get what it asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// `CamelCase`.
    pub(crate) reason: String,
    /// For people, with what would help.
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn new(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            message: message.into(),
        }
    }

    /// The condition that tells it, whatever the Service has.
    pub(crate) fn condition(&self, service: &ServiceObject) -> Condition {
        let addresses = ingress(service);
        let Self { reason, message } = self.clone();
        let (reason, message) = if addresses.is_empty() {
            (reason, message)
        } else if is_ours(service) {
            let kept = if is_adopted(service) { KEPT_ADOPTED } else { KEPT };
            (
                kept.to_owned(),
                format!("Keeps {addresses}, but does not get what it asks for ({reason}): {message}"),
            )
        } else {
            (
                foreign(service).to_owned(),
                format!(
                    "Has {addresses}, which groundplane did not give, and is left alone ({reason}): {message}"
                ),
            )
        };
        Condition {
            ready: false,
            reason,
            message,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.message)
    }
}

/// How a Service is told that `announcer`, which writes its status, does not say what the Service holds. `complaint`: what it has against
/// what it was told, and so the likely reason.
pub(crate) fn announcing(
    service: &ServiceObject,
    addresses: &[IpAddr],
    announcer: &str,
    complaint: Option<Trouble>,
) -> Condition {
    let held = list(addresses);
    let (reason, message) = if let Some(Trouble { reason, message }) =
        complaint.filter(|_| service.ingress.is_empty())
    {
        (reason, format!("Holds {held}. {message}"))
    } else if service.ingress.is_empty() {
        let message = format!(
            "Holds {held}. {announcer} has been told, and has not put it into the status yet: if that lasts, see the events of this \
             Service, and whether MetalLB serves its class."
        );
        (ANNOUNCING, message)
    } else {
        let message = format!(
            "Holds {held}, but {announcer} says {}: see the events of this Service, and which pool it asks for.",
            ingress(service)
        );
        (STATUS_DIFFERS, message)
    };
    Condition {
        ready: false,
        reason: reason.to_owned(),
        message,
    }
}

/// What the status says, for messages.
pub(crate) fn ingress(service: &ServiceObject) -> String {
    let text: Vec<&str> = service
        .ingress
        .iter()
        .map(|ingress| {
            if ingress.ip.is_empty() {
                &*ingress.hostname
            } else {
                &*ingress.ip
            }
        })
        .collect();
    text.join(", ")
}

/// `192.0.2.7, 2001:db8::7`.
pub(crate) fn list(addresses: &[IpAddr]) -> String {
    addresses
        .iter()
        .map(IpAddr::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}
