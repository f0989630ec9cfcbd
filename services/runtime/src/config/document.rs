//! A YAML text as a tree in which every value knows its place. [`super::layer`] lays values from elsewhere under it.

use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use super::decode;
use super::place::Place;
use super::problem::{ConfigErrors, PlacedProblem, Problem};

/// A value and its place.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) value: Value,
}

/// What a value is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    /// Keys in the order of the text, each with its own place.
    Map(Vec<(String, Place, Node)>),
}

/// A configuration file that is YAML, whatever it means.
#[derive(Clone, Debug)]
pub struct Document {
    name: String,
    pub(super) root: Node,
}

impl Document {
    /// Reads a file.
    pub fn load(path: &Path) -> Result<Self, ConfigErrors> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| {
            let problem = Problem::new(
                "",
                format!("cannot be read: {error}"),
                "check the path and its permissions",
            );
            ConfigErrors::new(&name, vec![PlacedProblem { place: None, problem }])
        })?;
        Self::parse(&name, &text)
    }

    /// Reads a text; `name` stands for the file in messages. A text without any value is an empty map.
    pub fn parse(name: &str, text: &str) -> Result<Self, ConfigErrors> {
        let read: Result<Option<Spanned<Raw>>, _> = serde_saphyr::from_str(text);
        match read {
            Ok(Some(raw)) => Ok(Self {
                name: name.to_owned(),
                root: raw.into(),
            }),
            Ok(None) => Ok(Self {
                name: name.to_owned(),
                root: Node {
                    place: Place::at(1, 1),
                    value: Value::Map(vec![]),
                },
            }),
            Err(error) => {
                let place = error
                    .location()
                    .map(|location| Place::at(location.line(), location.column()));
                let message = error.without_snippet().to_string();
                let help = "the file must be one YAML document";
                let problem = Problem::new("", format!("not valid YAML: {message}"), help);
                Err(ConfigErrors::new(name, vec![PlacedProblem { place, problem }]))
            }
        }
    }

    /// No file at all: an empty map.
    pub fn empty() -> Self {
        Self {
            name: String::new(),
            root: Node {
                place: Place::Unwritten,
                value: Value::Map(vec![]),
            },
        }
    }

    /// The file's name, as messages give it; empty without a file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Decodes the document, or says all that is wrong with it.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, ConfigErrors> {
        decode::decode(&self.root).map_err(|problems| ConfigErrors::new(&self.name, problems))
    }

    /// Where the value at `path` (`pools[1].addresses[0]`) was said, or the nearest that holds it; `None` only for a path that is
    /// none.
    pub fn place(&self, path: &str) -> Option<Place> {
        let mut node = &self.root;
        for step in steps(path)? {
            match node.inner(&step) {
                Some(inner) => node = inner,
                None => break,
            }
        }
        Some(node.place.clone())
    }

    /// Where the value at just this path was said; `None`: nowhere.
    pub fn origin(&self, path: &str) -> Option<Place> {
        self.node(path).map(|node| node.place.clone())
    }

    /// Is there a value at this path, or something below it?
    pub fn says(&self, path: &str) -> bool {
        self.node(path).is_some_and(|node| node.value != Value::Null)
    }

    /// The text at this path, if it is one.
    pub fn text(&self, path: &str) -> Option<&str> {
        match &self.node(path)?.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    fn node(&self, path: &str) -> Option<&Node> {
        let steps = steps(path)?;
        steps.iter().try_fold(&self.root, |node, step| node.inner(step))
    }

    /// Gives problems their places; `Ok` if there are none.
    pub fn check(&self, problems: Vec<Problem>) -> Result<(), ConfigErrors> {
        if problems.is_empty() {
            return Ok(());
        }
        let placed = problems
            .into_iter()
            .map(|problem| PlacedProblem {
                place: self.place(&problem.path),
                problem,
            })
            .collect();
        Err(ConfigErrors::new(&self.name, placed))
    }
}

impl Node {
    fn inner(&self, step: &Step<'_>) -> Option<&Self> {
        match (&self.value, step) {
            (Value::List(items), Step::Index(index)) => items.get(*index),
            (Value::Map(entries), Step::Key(key)) => {
                let found = entries.iter().find(|(name, ..)| name == key);
                found.map(|(.., node)| node)
            }
            _ => None,
        }
    }
}

pub(super) enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

/// Takes a path apart: `pools[1].labels["a.b"]`.
pub(super) fn steps(path: &str) -> Option<Vec<Step<'_>>> {
    let (mut steps, mut rest) = (Vec::new(), path);
    while !rest.is_empty() {
        if let Some(quoted) = rest.strip_prefix("[\"") {
            let (key, tail) = quoted.split_once("\"]")?;
            steps.push(Step::Key(key));
            rest = tail;
        } else if let Some(index) = rest.strip_prefix('[') {
            let (index, tail) = index.split_once(']')?;
            steps.push(Step::Index(index.parse().ok()?));
            rest = tail;
        } else {
            let name = rest.strip_prefix('.').unwrap_or(rest);
            let (key, tail) = name.split_at(name.find(['.', '[']).unwrap_or(name.len()));
            if key.is_empty() {
                return None;
            }
            steps.push(Step::Key(key));
            rest = tail;
        }
    }
    Some(steps)
}

/// What the parser gives, before places are settled.
enum Raw {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(String),
    List(Vec<Spanned<Self>>),
    Map(Vec<(Spanned<String>, Spanned<Self>)>),
}

impl From<Spanned<Raw>> for Node {
    fn from(raw: Spanned<Raw>) -> Self {
        let value = match raw.value {
            Raw::Null => Value::Null,
            Raw::Bool(value) => Value::Bool(value),
            Raw::Unsigned(value) => Value::Unsigned(value),
            Raw::Signed(value) => Value::Signed(value),
            Raw::Float(value) => Value::Float(value),
            Raw::Text(value) => Value::Text(value),
            Raw::List(items) => Value::List(items.into_iter().map(Self::from).collect()),
            Raw::Map(entries) => Value::Map(
                entries
                    .into_iter()
                    .map(|(key, value)| {
                        let place = Place::at(key.referenced.line(), key.referenced.column());
                        (key.value, place, Self::from(value))
                    })
                    .collect(),
            ),
        };
        Self {
            place: Place::at(raw.referenced.line(), raw.referenced.column()),
            value,
        }
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_none<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Raw, E> {
        Ok(Raw::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Raw, E> {
        Ok(Raw::Unsigned(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Raw, E> {
        Ok(u64::try_from(value).map_or(Raw::Signed(value), Raw::Unsigned))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Raw, E> {
        Ok(Raw::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Raw, E> {
        Ok(Raw::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Raw, E> {
        Ok(Raw::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Raw, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Raw::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Raw, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(Raw::Map(map))
    }
}
