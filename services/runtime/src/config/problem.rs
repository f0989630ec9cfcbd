//! What is wrong with a configuration, and where.

use std::fmt;

/// Something wrong, as whoever checks a decoded configuration reports it: by path, since it has no text before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Which value: `pools[1].addresses[0]`; empty for the whole.
    pub path: String,
    /// What is wrong with it: lower case, no full stop.
    pub message: String,
    /// The way out: what to write instead, or to do.
    pub help: String,
}

impl Problem {
    /// A problem with the value at `path`.
    pub fn new(path: impl Into<String>, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            message: message.into(),
            help: help.into(),
        }
    }

    /// The same problem, seen from a level above: its path begins with `section`.
    #[must_use]
    pub fn under(mut self, section: &str) -> Self {
        let dot = if self.path.is_empty() || self.path.starts_with('[') || section.is_empty() {
            ""
        } else {
            "."
        };
        self.path = format!("{section}{dot}{}", self.path);
        self
    }
}

/// A problem with the place where its value stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedProblem {
    /// Line and column, from 1; `None` where there is no such place.
    pub place: Option<(u64, u64)>,
    /// The problem.
    pub problem: Problem,
}

/// Everything that is wrong with a configuration file. Displays one line each: `file:line:column: path: message; help`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors {
    /// The file.
    pub file: String,
    /// In the order of the file.
    pub problems: Vec<PlacedProblem>,
}

impl ConfigErrors {
    pub(crate) fn new(file: &str, mut problems: Vec<PlacedProblem>) -> Self {
        // Stable: two problems of one place stay in the order in which they were found.
        problems.sort_by_key(|problem| problem.place);
        Self {
            file: file.to_owned(),
            problems,
        }
    }
}

impl std::error::Error for ConfigErrors {}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, PlacedProblem { place, problem }) in self.problems.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{}", self.file)?;
            if let Some((line, column)) = place {
                write!(f, ":{line}:{column}")?;
            }
            if !problem.path.is_empty() {
                write!(f, ": {}", problem.path)?;
            }
            write!(f, ": {}", problem.message)?;
            if !problem.help.is_empty() {
                write!(f, "; {}", problem.help)?;
            }
        }
        Ok(())
    }
}
