//! Where a value was said.

use std::fmt;
use std::sync::Arc;

/// Where a value was said. Ordered: the configuration file first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// In the configuration file: line and column, from 1.
    File {
        /// The line.
        line: u64,
        /// The column.
        column: u64,
    },
    /// In an environment variable, by its name.
    Environment(Arc<str>),
    /// In a JSON file.
    Json {
        /// The file.
        file: Arc<str>,
        /// The key, as the file spells it; empty: the file as a whole.
        key: Arc<str>,
    },
    /// Nowhere in so many words; it follows from what these words name (`default of packet-ccm`).
    Implied(Arc<str>),
    /// Nowhere: what holds values that were said elsewhere.
    Unwritten,
}

impl Place {
    /// A place in the configuration file.
    pub(super) fn at(line: u64, column: u64) -> Self {
        Self::File { line, column }
    }

    /// As messages begin; `file` is the name of the configuration file, empty where there is none.
    pub fn named(&self, file: &str) -> String {
        match self {
            Self::File { line, column } => format!("{file}:{line}:{column}"),
            Self::Environment(name) => name.to_string(),
            Self::Json { file, key } if key.is_empty() => file.to_string(),
            Self::Json { file, key } => format!("{file}: {key}"),
            Self::Implied(words) => words.to_string(),
            Self::Unwritten => file.to_owned(),
        }
    }

    /// Was the value said outside of the configuration file? Its path there is then news to whoever said it.
    pub(super) fn is_foreign(&self) -> bool {
        matches!(self, Self::Environment(_) | Self::Json { .. } | Self::Implied(_))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { line, column } => write!(f, "line {line}, column {column}"),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Json { .. } | Self::Implied(_) => f.write_str(&self.named("")),
            Self::Unwritten => f.write_str("default"),
        }
    }
}
