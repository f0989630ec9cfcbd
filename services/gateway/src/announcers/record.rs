//! Which fields of a Service are our own word.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use groundplane_core::names;

use super::{Field, LOAD_BALANCER_IP};
use crate::cluster::objects::ServiceObject;

/// What we wrote to a Service, and where: `field=value`, separated by blanks.
///
/// A field is ours while it says what is recorded. As soon as somebody changes it, it is theirs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record(BTreeMap<Field, Box<str>>);

impl Record {
    /// The record that the Service carries. Entries that cannot be read are nobody's.
    pub(crate) fn of(service: &ServiceObject) -> Self {
        let text = service
            .annotations
            .get(names::SERVICE_ANNOUNCED)
            .unwrap_or_default();
        let entries = text.split_whitespace().filter_map(|entry| entry.split_once('='));
        let field = |name: &str| match name {
            LOAD_BALANCER_IP => Field::LoadBalancerIp,
            key => Field::Annotation(key.into()),
        };
        Self(entries.map(|(name, value)| (field(name), value.into())).collect())
    }

    /// Is it our word that stands in the field?
    pub(crate) fn wrote(&self, field: &Field, says: Option<&str>) -> bool {
        self.0.get(field).is_some_and(|value| says == Some(&**value))
    }

    /// Did we tell the announcer exactly these addresses?
    pub(crate) fn announced(&self, addresses: impl Iterator<Item = IpAddr>) -> bool {
        let addresses: BTreeSet<Option<IpAddr>> = addresses.map(Some).collect();
        let said = |value: &str| -> BTreeSet<Option<IpAddr>> {
            value.split(',').map(|address| address.parse().ok()).collect()
        };
        self.0.values().any(|value| said(value) == addresses)
    }

    /// The addresses that we told the announcer.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let values = self.0.values().flat_map(|value| value.split(','));
        values.filter_map(|address| address.trim().parse().ok())
    }

    /// Did we write anything?
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn add(&mut self, field: &Field, value: &str) {
        self.0.insert(field.clone(), value.into());
    }

    pub(super) fn fields(&self) -> impl Iterator<Item = &Field> {
        self.0.keys()
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (field, value)) in self.0.iter().enumerate() {
            let blank = if at == 0 { "" } else { " " };
            write!(f, "{blank}{field}={value}")?;
        }
        Ok(())
    }
}
