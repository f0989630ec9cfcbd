//! An external Service that an older controller has left behind, under the name that we are told to keep. Pure.
//!
//! Server-side apply knows who wrote which field. What the old controller wrote is made ours by one write that changes nothing else: its
//! entries of `metadata.managedFields` get our name. What we apply next then replaces all that it had written (its port, its address), at
//! once, and nothing of anybody else. Done once: where it writes again after that, it still runs, and is told to people.

use groundplane_core::names;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
use serde_json::Value;

/// The field managers of the controllers that kept such a Service before: Equinix Metal's of both generations, and Cherry Servers'. One
/// that applies is named after the tag of its addresses, one that updates after its program.
const PREDECESSORS: [&str; 6] = [
    "cloud-provider-equinix-metal-auto",
    "cloud-provider-equinix-metal",
    "packet-ccm-auto",
    "packet-cloud-controller-manager",
    "cloud-provider-cherry-auto",
    "cloud-provider-cherry",
];

/// How server-side apply is called there.
const APPLY: &str = "Apply";

/// Whose an object is, beside ours.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Former {
    /// No older controller's.
    Nobodys,
    /// An older controller has left it: the entries as they should be.
    Left(Vec<ManagedFieldsEntry>),
    /// It is ours, and this older controller still writes to it.
    Disputed(String),
}

fn is_predecessor(entry: &ManagedFieldsEntry) -> bool {
    let manager = entry.manager.as_deref().unwrap_or_default();
    PREDECESSORS.contains(&manager)
}

fn is_ours(entry: &ManagedFieldsEntry) -> bool {
    entry.manager.as_deref() == Some(names::FIELD_MANAGER) && entry.operation.as_deref() == Some(APPLY)
}

/// Did an older controller write to it?
pub(super) fn is_left(entries: &[ManagedFieldsEntry]) -> bool {
    entries.iter().any(is_predecessor)
}

/// Looks whose an object is.
pub(super) fn former(entries: &[ManagedFieldsEntry]) -> Former {
    let Some(old) = entries.iter().find(|entry| is_predecessor(entry)) else {
        return Former::Nobodys;
    };
    if entries
        .iter()
        .any(|entry| is_ours(entry) && entry.subresource.is_none())
    {
        return Former::Disputed(old.manager.clone().unwrap_or_default());
    }
    let mut kept: Vec<ManagedFieldsEntry> = Vec::new();
    for entry in entries {
        if !is_predecessor(entry) && !is_ours(entry) {
            kept.push(entry.clone());
            continue;
        }
        let same = |one: &&mut ManagedFieldsEntry| {
            is_ours(one) && (&one.api_version, &one.subresource) == (&entry.api_version, &entry.subresource)
        };
        if let Some(one) = kept.iter_mut().find(same) {
            let fields = one
                .fields_v1
                .get_or_insert_with(|| FieldsV1(Value::Object(serde_json::Map::new())));
            unite(
                &mut fields.0,
                entry.fields_v1.as_ref().map_or(&Value::Null, |fields| &fields.0),
            );
        } else {
            kept.push(ManagedFieldsEntry {
                manager: Some(names::FIELD_MANAGER.to_owned()),
                operation: Some(APPLY.to_owned()),
                ..entry.clone()
            });
        }
    }
    Former::Left(kept)
}

/// Adds the fields of another set to a set. A set is a tree whose leaves are empty.
fn unite(fields: &mut Value, others: &Value) {
    let (Value::Object(fields), Value::Object(others)) = (fields, others) else {
        return;
    };
    for (name, other) in others {
        match fields.get_mut(name) {
            Some(field) => unite(field, other),
            None => {
                fields.insert(name.clone(), other.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(manager: &str, operation: &str, subresource: Option<&str>, fields: Value) -> ManagedFieldsEntry {
        ManagedFieldsEntry {
            manager: Some(manager.to_owned()),
            operation: Some(operation.to_owned()),
            api_version: Some("v1".to_owned()),
            fields_type: Some("FieldsV1".to_owned()),
            fields_v1: Some(FieldsV1(fields)),
            subresource: subresource.map(str::to_owned),
            time: None,
        }
    }

    /// E75: what either generation wrote becomes ours, status and all; what others wrote stays theirs.
    #[test]
    fn what_an_older_controller_left_becomes_ours() {
        for old in PREDECESSORS {
            let people = entry(
                "kubectl",
                "Update",
                None,
                json!({ "f:metadata": { "f:labels": {} } }),
            );
            let former = former(&[
                entry(old, "Apply", None, json!({ "f:spec": { "f:type": {} } })),
                people.clone(),
                entry(
                    old,
                    "Update",
                    None,
                    json!({ "f:spec": { "f:ports": { ".": {} } } }),
                ),
                entry(old, "Apply", Some("status"), json!({ "f:status": {} })),
            ]);
            let fields = json!({ "f:spec": { "f:type": {}, "f:ports": { ".": {} } } });
            let expected = vec![
                entry("groundplane", "Apply", None, fields),
                people,
                entry("groundplane", "Apply", Some("status"), json!({ "f:status": {} })),
            ];
            assert_eq!(former, Former::Left(expected), "{old}");
        }
    }

    #[test]
    fn what_nobody_left_is_not_taken() {
        let people = entry("kubectl", "Apply", None, json!({ "f:spec": {} }));
        let ours = entry(names::FIELD_MANAGER, "Apply", None, json!({ "f:spec": {} }));
        assert_eq!(former(&[people, ours]), Former::Nobodys);
        assert_eq!(former(&[]), Former::Nobodys);
    }

    /// Never fought about: taken over once, and left alone where the old controller writes on.
    #[test]
    fn an_older_controller_that_still_writes_is_told() {
        let entries = [
            entry(names::FIELD_MANAGER, "Apply", None, json!({ "f:spec": {} })),
            entry(PREDECESSORS[0], "Apply", None, json!({ "f:spec": {} })),
        ];
        assert_eq!(former(&entries), Former::Disputed(PREDECESSORS[0].to_owned()));
    }
}
