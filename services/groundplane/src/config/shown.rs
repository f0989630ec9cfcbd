//! The configuration that resulted, each value with where it was said.

use groundplane_runtime::config::{Document, join};
use serde::Serialize;
use serde_json::Value;

use super::Config;

/// A value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Entry {
    /// Its key: `equinix.bgp.localAsn`.
    pub(crate) key: String,
    /// What it is. Secrets are not part of the configuration: where they are is.
    pub(crate) value: Value,
    /// Where it was said.
    pub(crate) from: String,
}

/// Where the value at a path was said, in words.
pub(crate) fn origin(document: &Document, path: &str) -> String {
    match document.origin(path) {
        Some(place) => {
            let named = place.named(document.name());
            match place {
                groundplane_runtime::config::Place::Environment(_) => format!("environment {named}"),
                _ => named,
            }
        }
        None => "default".to_owned(),
    }
}

/// Every value that has no keys of its own, by key.
pub(crate) fn entries(config: &Config, document: &Document) -> serde_json::Result<Vec<Entry>> {
    let mut found = Vec::new();
    collect("", serde_json::to_value(config)?, document, &mut found);
    Ok(found)
}

fn collect(path: &str, value: Value, document: &Document, found: &mut Vec<Entry>) {
    match value {
        Value::Object(entries) if !entries.is_empty() => {
            for (key, value) in entries {
                collect(&join(path, &key), value, document, found);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (index, value) in items.into_iter().enumerate() {
                collect(&format!("{path}[{index}]"), value, document, found);
            }
        }
        value => found.push(Entry {
            from: origin(document, path),
            key: path.to_owned(),
            value,
        }),
    }
}
