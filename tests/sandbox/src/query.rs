//! The query of a request.

use crate::error::ApiError;

/// The query of a request.
#[derive(Debug, Default)]
pub(crate) struct Query {
    pairs: Vec<(String, String)>,
    /// As it came.
    raw: String,
}

impl Query {
    /// `pairs` are the decoded parameters of `raw`.
    pub(crate) fn new(pairs: Vec<(String, String)>, raw: &str) -> Self {
        Self {
            pairs,
            raw: raw.to_owned(),
        }
    }

    /// As it came.
    pub(crate) fn raw(&self) -> &str {
        &self.raw
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.pairs
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// All values of a parameter that may be repeated (`types=a&types=b`, `types[]=a`) or joined by commas.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs
            .iter()
            .filter(move |(key, _)| key.strip_suffix("[]").unwrap_or(key) == name)
            .flat_map(|(_, value)| value.split(','))
            .map(str::trim)
            .filter(|value| !value.is_empty())
    }

    /// A number from `least` on; `default` where it is absent or empty.
    pub(crate) fn number(&self, name: &str, default: usize, least: usize) -> Result<usize, ApiError> {
        match self.get(name) {
            None | Some("") => Ok(default),
            Some(text) => text
                .parse()
                .ok()
                .filter(|number| *number >= least)
                .ok_or_else(|| ApiError::unprocessable(format!("{name} must be a number, {least} or more"))),
        }
    }
}
