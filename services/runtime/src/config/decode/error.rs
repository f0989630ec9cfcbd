//! What serde reports, in words for people.

use std::fmt;

use serde::de::{self, Expected, Unexpected};

use super::super::place::Place;
use super::{allowed, nearest};

/// One thing that stopped decoding.
#[derive(Debug)]
pub(super) struct DecodeError {
    /// The value that it is about, once somebody has said so.
    pub(super) at: Option<(String, Place)>,
    pub(super) fault: Fault,
}

#[derive(Debug)]
pub(super) enum Fault {
    /// A field without a default is not there.
    Missing(&'static str),
    Other {
        message: String,
        help: String,
    },
}

impl DecodeError {
    pub(super) fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            at: None,
            fault: Fault::Other {
                message: message.into(),
                help: help.into(),
            },
        }
    }

    /// The innermost value that the error passes on its way out is the one that it is about.
    pub(super) fn at(mut self, path: &str, place: &Place) -> Self {
        self.at.get_or_insert_with(|| (path.to_owned(), place.clone()));
        self
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.fault {
            Fault::Missing(field) => write!(f, "`{field}` is missing"),
            Fault::Other { message, .. } => f.write_str(message),
        }
    }
}

impl std::error::Error for DecodeError {}

impl de::Error for DecodeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        // Our own parsers put the way out behind a semicolon.
        let text = message.to_string();
        match text.split_once("; ") {
            Some((message, help)) => Self::new(message, help),
            None => Self::new(text, ""),
        }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(
            format!("expected {}, found {}", plain(expected), describe(found)),
            "",
        )
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn invalid_length(length: usize, expected: &dyn Expected) -> Self {
        Self::new(format!("expected {expected}, found {length} elements"), "")
    }

    fn unknown_variant(found: &str, known: &'static [&'static str]) -> Self {
        let help = nearest(found, known).map_or_else(
            || allowed("values", known),
            |near| format!("did you mean `{near}`?"),
        );
        Self::new(format!("unknown value `{found}`"), help)
    }

    fn unknown_field(found: &str, known: &'static [&'static str]) -> Self {
        let help = nearest(found, known).map_or_else(
            || allowed("keys", known),
            |near| format!("did you mean `{near}`?"),
        );
        Self::new(format!("unknown key `{found}`"), help)
    }

    fn missing_field(field: &'static str) -> Self {
        Self {
            at: None,
            fault: Fault::Missing(field),
        }
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self::new(format!("`{field}` is given twice"), "keep one of them")
    }
}

/// What was found. A text is not repeated: somebody may have put a secret in the wrong place.
fn describe(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Bool(value) => format!("`{value}`"),
        Unexpected::Unsigned(value) => format!("the number `{value}`"),
        Unexpected::Signed(value) => format!("the number `{value}`"),
        Unexpected::Float(value) => format!("the number `{value}`"),
        Unexpected::Unit | Unexpected::Option => "nothing".to_owned(),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map | Unexpected::StructVariant => "a map".to_owned(),
        _ => "a text".to_owned(),
    }
}

/// Rust's names of things, in words.
fn plain(expected: &dyn Expected) -> String {
    let text = expected.to_string();
    let whole = |low: i64, high: u64| format!("a whole number from {low} to {high}");
    match text.as_str() {
        "u8" => whole(0, u8::MAX.into()),
        "u16" => whole(0, u16::MAX.into()),
        "u32" => whole(0, u32::MAX.into()),
        "u64" | "usize" => whole(0, u64::MAX),
        "i32" => whole(i32::MIN.into(), 2_147_483_647),
        "i64" | "isize" => "a whole number".to_owned(),
        _ => text,
    }
}
