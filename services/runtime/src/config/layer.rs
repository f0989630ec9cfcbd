//! Values from elsewhere, laid under what the file says: the file wins where both speak.

use super::document::{Document, Node, Step, Value, steps};
use super::place::Place;

/// A value that is no map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plain {
    /// A switch.
    Bool(bool),
    /// A whole number.
    Number(u64),
    /// A text.
    Text(String),
    /// A list of texts.
    Texts(Vec<String>),
}

impl Plain {
    fn node(self, place: &Place) -> Node {
        let value = match self {
            Self::Bool(value) => Value::Bool(value),
            Self::Number(value) => Value::Unsigned(value),
            Self::Text(text) => Value::Text(text),
            Self::Texts(texts) => {
                let items = texts.into_iter();
                Value::List(items.map(|text| Self::Text(text).node(place)).collect())
            }
        };
        Node {
            place: place.clone(),
            value,
        }
    }
}

impl Document {
    /// Lays a value under the document: it counts unless the document says something at its path (maps and keys only). Was it taken?
    pub fn lay_under(&mut self, path: &str, value: Plain, place: &Place) -> bool {
        let Some(steps) = steps(path) else {
            return false;
        };
        let mut node = &mut self.root;
        for step in steps {
            let Step::Key(key) = step else {
                return false;
            };
            // A section whose keys are all commented out.
            if node.value == Value::Null {
                node.value = Value::Map(Vec::new());
            }
            let Value::Map(entries) = &mut node.value else {
                return false;
            };
            let known = entries.iter().position(|(name, ..)| name == key);
            let index = known.unwrap_or(entries.len());
            if known.is_none() {
                let inner = Node {
                    place: Place::Unwritten,
                    value: Value::Null,
                };
                entries.push((key.to_owned(), place.clone(), inner));
            }
            let Some((.., inner)) = entries.get_mut(index) else {
                return false;
            };
            node = inner;
        }
        if node.value != Value::Null {
            return false;
        }
        *node = value.node(place);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use pretty_assertions::assert_eq;
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Root {
        metro: String,
        #[serde(default)]
        bgp: BTreeMap<String, u16>,
    }

    fn environment(name: &str) -> Place {
        Place::Environment(name.into())
    }

    #[test]
    fn the_file_wins_where_both_speak() {
        let mut document = Document::parse("f", "metro: sv\nbgp:\n").unwrap();
        let text = Plain::Text("da".to_owned());
        assert!(!document.lay_under("metro", text, &environment("METRO")));
        assert!(document.lay_under("bgp.asn", Plain::Number(7), &environment("ASN")));
        assert!(!document.lay_under("metro.code", Plain::Number(7), &environment("ASN")));
        let root: Root = document.decode().unwrap();
        assert_eq!(
            (root.metro.as_str(), root.bgp),
            ("sv", BTreeMap::from([("asn".to_owned(), 7)]))
        );
        assert_eq!(document.origin("metro"), Some(Place::at(1, 8)));
        assert_eq!(document.origin("bgp.asn"), Some(environment("ASN")));
        assert_eq!(document.origin("bgp.port"), None);
        assert!(document.says("bgp") && !document.says("bgp.port"));
        assert_eq!(document.text("metro"), Some("sv"));
    }

    #[test]
    fn what_is_wrong_is_told_by_the_name_of_where_it_was_said() {
        let mut document = Document::empty();
        document.lay_under("metro", Plain::Number(7), &environment("METRO"));
        let json = Place::Json {
            file: "/etc/cloud.json".into(),
            key: "ASN".into(),
        };
        document.lay_under("bgp.asn", Plain::Text("x".to_owned()), &json);
        let error = document.decode::<Root>().unwrap_err().to_string();
        assert_eq!(
            error.lines().collect::<Vec<_>>(),
            [
                "METRO (metro): expected a text, found the number `7`; put it in quotes",
                "/etc/cloud.json: ASN (bgp.asn): expected a whole number, found a text",
            ]
        );
        let error = Document::empty().decode::<Root>().unwrap_err();
        assert_eq!(error.to_string(), "metro: `metro` is missing; add `metro`");
    }
}
