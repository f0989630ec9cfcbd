//! When older controllers last wrote to an object, as the API server remembers it (`metadata.managedFields`).
//!
//! What is read anyway tells it, so that nothing has to be asked. Of most objects it tells nothing, and takes no memory.

use std::fmt;

use groundplane_core::older;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// The last write of an older controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// By what name it writes: one of its field managers.
    pub(crate) manager: &'static str,
    /// By the API server's clock, to the second; `None`: it does not say.
    pub(crate) at: Option<Timestamp>,
}

/// The same of an object that was read whole.
pub(crate) fn written_by(entries: &[ManagedFieldsEntry]) -> Box<[Written]> {
    let mut all = Vec::new();
    for entry in entries {
        let manager = entry.manager.as_deref().and_then(known);
        note(&mut all, manager, entry.time.as_ref().map(|time| time.0));
    }
    all.into_boxed_slice()
}

/// The name in the table, if it is an older controller's.
fn known(manager: &str) -> Option<&'static str> {
    let one = older::by_field_manager(manager)?;
    one.field_managers.iter().copied().find(|own| *own == manager)
}

/// One may have several entries: of each only its last write counts.
fn note(all: &mut Vec<Written>, manager: Option<&'static str>, at: Option<Timestamp>) {
    let Some(manager) = manager else {
        return;
    };
    match all.iter_mut().find(|written| written.manager == manager) {
        Some(written) => written.at = written.at.max(at),
        None => all.push(Written { manager, at }),
    }
}

/// `metadata.managedFields`, as far as it is of interest.
pub(super) fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<[Written]>, D::Error> {
    deserializer.deserialize_option(Entries)
}

struct Entries;

impl<'de> Visitor<'de> for Entries {
    type Value = Box<[Written]>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of field managers")
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(Box::default())
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Box::default())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut all = Vec::new();
        while let Some(entry) = entries.next_element::<Entry>()? {
            note(&mut all, entry.manager.0, entry.time.0);
        }
        Ok(all.into_boxed_slice())
    }
}

#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    manager: Manager,
    #[serde(default)]
    time: Time,
}

/// A field manager's name, of which no copy is made.
#[derive(Default)]
struct Manager(Option<&'static str>);

impl<'de> Deserialize<'de> for Manager {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Text(known)).map(Self)
    }
}

/// A time, of which no copy is made.
#[derive(Default)]
struct Time(Option<Timestamp>);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_any(Text(|text| text.parse().ok()))
            .map(Self)
    }
}

/// What can be made of a text; nothing of anything else.
struct Text<T>(fn(&str) -> Option<T>);

impl<T> Visitor<'_> for Text<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok((self.0)(text))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;
    use serde_json::{Value, json};

    use super::super::{NodeObject, ServiceObject, Slim as _};
    use super::*;

    fn time(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn entries() -> Value {
        json!([
            { "manager": "kubelet", "operation": "Update", "time": "1970-01-01T00:01:40Z", "fieldsV1": { "f:status": {} } },
            { "manager": "cloud-provider-equinix-metal", "operation": "Update", "time": "1970-01-01T00:00:20Z" },
            { "manager": "cloud-provider-equinix-metal", "subresource": "status", "time": "1970-01-01T00:00:10Z" },
            { "manager": "packet-cloud-controller-manager", "time": null },
            { "operation": "Update" },
        ])
    }

    fn expected() -> [Written; 2] {
        [
            Written {
                manager: "cloud-provider-equinix-metal",
                at: Some(time(20)),
            },
            Written {
                manager: "packet-cloud-controller-manager",
                at: None,
            },
        ]
    }

    #[test]
    fn the_last_write_of_each_older_controller_is_kept() {
        let metadata = json!({ "name": "n", "namespace": "a", "managedFields": entries() });
        let node: NodeObject = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
        assert_eq!(node.written(), expected());
        let text = json!({ "metadata": metadata }).to_string();
        let service: ServiceObject = serde_json::from_str(&text).unwrap();
        assert_eq!(service.written(), expected());
        let whole: Vec<ManagedFieldsEntry> = serde_json::from_value(entries()).unwrap();
        assert_eq!(*written_by(&whole), expected());
    }

    #[test]
    fn of_others_nothing_is_kept() {
        for entries in [
            json!(null),
            json!([]),
            json!([{ "manager": "kubectl", "time": "1970-01-01T00:00:20Z" }]),
        ] {
            let node = json!({ "metadata": { "name": "n", "managedFields": entries } });
            let node: NodeObject = serde_json::from_value(node).unwrap();
            assert_eq!(node.written(), []);
        }
    }
}
