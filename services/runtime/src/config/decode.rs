//! From the tree to a type, collecting everything that is wrong on the way.
//!
//! serde stops at the first error. So whatever is wrong is noted and dropped from the tree, and decoding starts again
//! without it, until nothing new is found. A field that was dropped is then missing, and a struct that misses it is
//! dropped in its turn without another word; hence each round drops one value at least, and the rounds end.

mod error;
mod reader;

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde::de::DeserializeOwned;

use self::error::{DecodeError, Fault};
use self::reader::Reader;
use super::document::Node;
use super::place::Place;
use super::problem::{PlacedProblem, Problem};

/// What is known while a document is decoded.
#[derive(Debug, Default)]
struct Session {
    /// Paths that are passed over: wrong, and noted.
    dropped: RefCell<BTreeSet<String>>,
    /// Paths whose absence is explained by another problem (a misspelt key).
    excused: RefCell<BTreeSet<String>>,
    found: RefCell<Vec<PlacedProblem>>,
}

impl Session {
    fn is_dropped(&self, path: &str) -> bool {
        self.dropped.borrow().contains(path)
    }

    fn note(&self, path: &str, place: Place, message: String, help: String) {
        let problem = Problem::new(path, message, help);
        self.found.borrow_mut().push(PlacedProblem {
            place: Some(place),
            problem,
        });
    }

    /// A key that the type does not have.
    fn unknown_key(&self, parent: &str, path: String, place: Place, key: &str, known: &[&'static str]) {
        let help = match nearest(key, known) {
            Some(near) => {
                self.excused.borrow_mut().insert(join(parent, near));
                format!("did you mean `{near}`?")
            }
            None => allowed("keys", known),
        };
        self.note(&path, place, format!("unknown key `{key}`"), help);
        self.dropped.borrow_mut().insert(path);
    }

    /// Notes an error unless it follows from what was noted before, and drops the value that it is about.
    fn settle(&self, error: DecodeError) -> String {
        let (path, place) = error.at.unwrap_or((String::new(), Place::Unwritten));
        match error.fault {
            Fault::Missing(field) => {
                let missing = join(&path, field);
                let excused = self.is_dropped(&missing) || self.excused.borrow().contains(&missing);
                if !excused {
                    let help = format!("add `{field}`");
                    self.note(&missing, place, format!("`{field}` is missing"), help);
                }
            }
            Fault::Other { message, help } => {
                // What fails as a whole may do so only because parts of it were dropped.
                if !self
                    .dropped
                    .borrow()
                    .iter()
                    .any(|dropped| is_within(dropped, &path))
                {
                    self.note(&path, place, message, help);
                }
            }
        }
        self.dropped.borrow_mut().insert(path.clone());
        path
    }
}

/// Decodes, or says all that is wrong.
pub(super) fn decode<T: DeserializeOwned>(root: &Node) -> Result<T, Vec<PlacedProblem>> {
    let session = Session::default();
    loop {
        match T::deserialize(Reader::new(root, String::new(), &session)) {
            Ok(value) if session.found.borrow().is_empty() => return Ok(value),
            Ok(_) => break,
            Err(error) => {
                let error = error.at("", &root.place);
                // The whole document was dropped, or something that was dropped before came back.
                let before = session.dropped.borrow().len();
                if session.settle(error).is_empty() || session.dropped.borrow().len() == before {
                    break;
                }
            }
        }
    }
    Err(session.found.into_inner())
}

/// The path of `key` in the map at `parent`. A key with a dot or a bracket is quoted: `labels["a.b/c"]`.
pub fn join(parent: &str, key: &str) -> String {
    if key.contains(['.', '[', ']', '"']) || key.is_empty() {
        format!("{parent}[\"{key}\"]")
    } else if parent.is_empty() {
        key.to_owned()
    } else {
        format!("{parent}.{key}")
    }
}

fn is_within(path: &str, parent: &str) -> bool {
    match path.strip_prefix(parent) {
        Some(rest) => parent.is_empty() || rest.starts_with(['.', '[']),
        None => false,
    }
}

/// The known name that `given` most likely means.
pub fn nearest<'a>(given: &str, known: &[&'a str]) -> Option<&'a str> {
    const LIKELY: f64 = 0.75;
    known
        .iter()
        .map(|name| {
            (
                strsim::jaro_winkler(&given.to_lowercase(), &name.to_lowercase()),
                *name,
            )
        })
        .filter(|(likeness, _)| *likeness >= LIKELY)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

fn allowed(what: &str, known: &[&str]) -> String {
    if known.is_empty() {
        return format!("no {what} are allowed here");
    }
    let names: Vec<_> = known.iter().map(|name| format!("`{name}`")).collect();
    format!("the {what} here are {}", names.join(", "))
}
