//! Announcers: what receives an address once it is reserved, and makes machines answer to it.
//!
//! An announcer says which fields of the Service tell its backend about the addresses. Which of them *we* wrote is recorded
//! on the Service itself (annotation [`names::SERVICE_ANNOUNCED`]), so that a wish of the user is never taken for our own
//! word, nor removed with it, whatever process reads it later and whichever announcer is configured by then.

mod backend;
mod empty;
mod kube_vip;
pub(crate) mod metallb;
mod record;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use groundplane_core::names;

use crate::cluster::objects::ServiceObject;
use crate::config::{self, Config, LOAD_BALANCER_IP};

pub(crate) use backend::{Backend, Nobody, Seat, Trouble};
pub(crate) use empty::Empty;
pub(crate) use kube_vip::{ADDRESSES as KUBE_VIP_ADDRESSES, KubeVip};
pub(crate) use metallb::{Metallb, MetallbConfigMap};
pub(crate) use record::Record;

/// Who writes `status.loadBalancer` of a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatusWriter {
    /// We do, and restore it.
    Us,
    /// The backend does. We write what it reads, and never fight over the status.
    Backend,
}

/// A field of a Service by which a backend learns its addresses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Field {
    /// The annotation with this key.
    Annotation(Box<str>),
    /// `spec.loadBalancerIP`.
    LoadBalancerIp,
}

impl Field {
    /// What the Service says there; `None` where it says nothing.
    fn of<'a>(&self, service: &'a ServiceObject) -> Option<&'a str> {
        match self {
            Self::Annotation(key) => service.annotations.get(key),
            Self::LoadBalancerIp => Some(&*service.load_balancer_ip),
        }
        .filter(|text| !text.trim().is_empty())
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Annotation(key) => key,
            Self::LoadBalancerIp => LOAD_BALANCER_IP,
        })
    }
}

/// What receives addresses.
pub(crate) trait Announcer: fmt::Debug + Send + Sync + 'static {
    /// Its name in the configuration.
    fn name(&self) -> &'static str;
    /// Who writes `status.loadBalancer`.
    fn status_writer(&self) -> StatusWriter;
    /// The fields of `service` that tell the backend about `addresses`, which are in the order of `spec.ipFamilies` and not empty.
    fn fields(&self, service: &ServiceObject, addresses: &[IpAddr]) -> Vec<Told>;
}

/// A field with what it shall say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) field: Field,
    pub(crate) value: String,
    /// What if somebody else has written something different there.
    pub(crate) otherwise: Otherwise,
}

/// What to do about a field that is not ours and says something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Otherwise {
    /// The backend would announce the wrong address: refuse, and say so.
    Refuse,
    /// The backend prefers another of our fields: leave it be.
    Leave,
}

/// Writes to a Service that its announcer asks for. Empty where everything is in place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// Annotations to set, or to remove.
    pub(crate) annotations: BTreeMap<String, Option<String>>,
    /// What happens to `spec.loadBalancerIP`.
    pub(crate) load_balancer_ip: Change,
}

/// What happens to a field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Change {
    /// Nothing.
    #[default]
    Keep,
    /// It shall say this.
    Set(String),
    /// It shall say nothing.
    Clear,
}

impl Changes {
    /// Is there nothing to write?
    pub(crate) fn is_empty(&self) -> bool {
        self.annotations.is_empty() && self.load_balancer_ip == Change::Keep
    }

    /// The field shall say nothing.
    pub(crate) fn take_away(&mut self, field: &Field) {
        self.set(field, None);
    }

    fn set(&mut self, field: &Field, value: Option<String>) {
        match field {
            Field::Annotation(key) => {
                self.annotations.insert(key.to_string(), value);
            }
            Field::LoadBalancerIp => self.load_balancer_ip = value.map_or(Change::Clear, Change::Set),
        }
    }

    /// Replaces the record, where it is to say something else from now on.
    fn record(&mut self, before: &Record, after: &Record) {
        if before != after {
            let text = (!after.is_empty()).then(|| after.to_string());
            self.annotations.insert(names::SERVICE_ANNOUNCED.to_owned(), text);
        }
    }
}

/// Somebody else's word stands where the announcer must put ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{field} says `{says}`, which groundplane did not write, and {announcer} would announce that instead of {wanted}"
)]
pub(crate) struct Contradiction {
    field: Field,
    says: String,
    announcer: &'static str,
    wanted: String,
}

/// What must be written so that `announcer` announces `addresses`. What an earlier announcer was told, and this one does not
/// read, is taken back.
pub(crate) fn apply(
    announcer: &dyn Announcer,
    service: &ServiceObject,
    addresses: &[IpAddr],
) -> Result<Changes, Contradiction> {
    let before = Record::of(service);
    let mut after = Record::default();
    let mut changes = Changes::default();
    let told = if addresses.is_empty() {
        Vec::new()
    } else {
        announcer.fields(service, addresses)
    };
    for Told {
        field,
        value,
        otherwise,
    } in &told
    {
        let says = field.of(service);
        let ours = before.wrote(field, says);
        match says {
            Some(says) if says == value => {
                if ours {
                    after.add(field, value);
                }
            }
            Some(says) if !ours => {
                if *otherwise == Otherwise::Refuse {
                    return Err(Contradiction {
                        field: field.clone(),
                        says: says.to_owned(),
                        announcer: announcer.name(),
                        wanted: value.clone(),
                    });
                }
            }
            _ => {
                after.add(field, value);
                changes.set(field, Some(value.clone()));
            }
        }
    }
    for field in before
        .fields()
        .filter(|field| !told.iter().any(|told| told.field == **field))
    {
        take_back(&mut changes, &before, field, service);
    }
    changes.record(&before, &after);
    Ok(changes)
}

/// What must be written so that nothing announces this Service's addresses any more.
pub(crate) fn remove(service: &ServiceObject) -> Changes {
    let before = Record::of(service);
    let mut changes = Changes::default();
    for field in before.fields() {
        take_back(&mut changes, &before, field, service);
    }
    changes.record(&before, &Record::default());
    changes
}

/// Removes a field that still says what we wrote there.
fn take_back(changes: &mut Changes, record: &Record, field: &Field, service: &ServiceObject) {
    let says = field.of(service);
    if says.is_some() && record.wrote(field, says) {
        changes.set(field, None);
    }
}

/// The announcer that the configuration names.
pub(crate) fn configured(config: &Config) -> Arc<dyn Announcer> {
    match config.announcer {
        config::Announcer::KubeVip => Arc::new(KubeVip),
        config::Announcer::Metallb => Arc::new(Metallb),
        config::Announcer::MetallbConfigmap => Arc::new(MetallbConfigMap),
        config::Announcer::Empty => Arc::new(Empty::new(&config.empty)),
    }
}

/// All of them.
#[cfg(test)]
pub(crate) fn all() -> Vec<Arc<dyn Announcer>> {
    vec![
        Arc::new(KubeVip),
        Arc::new(Empty::default()),
        Arc::new(Metallb),
        Arc::new(MetallbConfigMap),
    ]
}

#[cfg(test)]
mod tests;
