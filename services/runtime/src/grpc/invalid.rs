//! A request that makes no sense, by the field that is wrong.

use std::fmt::Display;

use groundplane_core::{ErrorKind, Kinded};

use super::Details;

/// A field of a request that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct InvalidField {
    field: String,
    message: String,
}

impl InvalidField {
    /// `field` as the contract calls it (`requests[2].family`), and what is wrong with it.
    pub fn new(field: impl Into<String>, message: impl Display) -> Self {
        Self {
            field: field.into(),
            message: message.to_string(),
        }
    }

    /// What its status says of it.
    pub fn details(&self) -> Details {
        Details {
            violations: vec![(self.field.clone(), self.message.clone())],
            ..Details::default()
        }
    }
}

impl Kinded for InvalidField {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Invalid
    }

    fn reason(&self) -> &'static str {
        "INVALID_FIELD"
    }
}
