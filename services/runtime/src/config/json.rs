//! A JSON object as Go reads it: keys match in any case, and of several that do, the last one counts.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

/// The entries of a JSON object, in its order. `Debug` shows keys alone: values may be secrets.
#[derive(Clone)]
pub struct JsonObject {
    entries: Vec<(String, Value)>,
}

/// Why a text is no JSON object. Repeats nothing of the text, which may hold secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// There is nothing in it.
    #[error("is empty")]
    Empty,
    /// It is not JSON.
    #[error("is not valid JSON: {0}")]
    Syntax(String),
    /// It is JSON, but another value.
    #[error("is JSON, but not an object with keys")]
    NoObject,
}

impl JsonObject {
    /// Reads a text.
    pub fn parse(text: &str) -> Result<Self, JsonError> {
        if text.trim().is_empty() {
            return Err(JsonError::Empty);
        }
        serde_json::from_str(text).map_err(|error: serde_json::Error| {
            if error.is_data() {
                JsonError::NoObject
            } else {
                JsonError::Syntax(error.to_string())
            }
        })
    }

    /// What stands at a key, and the key as it is spelt there. `null` counts as nothing.
    pub fn get(&self, key: &str) -> Option<(&str, &Value)> {
        let found = self.entries.iter().rev();
        found
            .filter(|(_, value)| !value.is_null())
            .find(|(name, _)| name.eq_ignore_ascii_case(key))
            .map(|(name, value)| (name.as_str(), value))
    }

    /// Every key, as it is spelt.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|(name, _)| name.as_str())
    }
}

impl fmt::Debug for JsonObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.keys()).finish()
    }
}

impl<'de> Deserialize<'de> for JsonObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor)
    }
}

struct ObjectVisitor;

impl<'de> Visitor<'de> for ObjectVisitor {
    type Value = JsonObject;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<JsonObject, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(JsonObject { entries })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(json: &str, key: &str) -> Option<String> {
        let object = JsonObject::parse(json).ok()?;
        let (name, value) = object.get(key)?;
        Some(format!("{name}={value}"))
    }

    #[test]
    fn keys_match_in_any_case_and_the_last_one_counts() {
        for key in ["projectID", "projectId", "PROJECTID"] {
            let json = format!("{{\"{key}\": 7}}");
            assert_eq!(text(&json, "projectId"), Some(format!("{key}=7")));
        }
        let twice = r#"{"metro": "sv", "METRO": "da", "Metro": null}"#;
        assert_eq!(text(twice, "metro").as_deref(), Some("METRO=\"da\""));
        assert_eq!(text("{}", "metro"), None);
    }

    #[test]
    fn what_is_no_object_is_told_without_a_word_of_it() {
        let refused = |text: &str| JsonObject::parse(text).err().map(|error| error.to_string());
        assert_eq!(refused(" \n"), Some("is empty".to_owned()));
        for json in ["\"s3cret\"", "[\"s3cret\"]", "7"] {
            assert_eq!(
                refused(json).as_deref(),
                Some("is JSON, but not an object with keys")
            );
        }
        for json in [
            "{\"apiKey\": \"s3cret\",}",
            "{]",
            "{\"apiKey\": s3cret}",
            "{\"apiKey\": \"s3cret\"} x",
        ] {
            let said = refused(json).unwrap();
            assert!(
                said.starts_with("is not valid JSON: ") && said.contains("line 1"),
                "{said}"
            );
            assert!(!said.contains("s3cret"), "{said}");
        }
    }
}
