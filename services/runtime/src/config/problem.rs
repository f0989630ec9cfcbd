//! What is wrong with a configuration, and where.

use std::fmt;

use super::place::Place;

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
    /// Where; `None` where there is no such place.
    pub place: Option<Place>,
    /// The problem.
    pub problem: Problem,
}

/// Everything that is wrong with a configuration. Displays one line each: `file:line:column: path: message; help`, or, of a value that
/// was said elsewhere, `NAME (path): message; help`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors {
    /// The file; empty: there is none.
    pub file: String,
    /// In the order of the file.
    pub problems: Vec<PlacedProblem>,
}

impl ConfigErrors {
    /// Problems of a file; an empty name stands for no file.
    pub fn new(file: &str, mut problems: Vec<PlacedProblem>) -> Self {
        // Stable: two problems of one place stay in the order in which they were found.
        problems.sort_by(|one, other| one.place.cmp(&other.place));
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
            let begin = match place {
                Some(place) => place.named(&self.file),
                None => self.file.clone(),
            };
            f.write_str(&begin)?;
            match place {
                _ if problem.path.is_empty() => {}
                Some(place) if place.is_foreign() => write!(f, " ({})", problem.path)?,
                _ if begin.is_empty() => f.write_str(&problem.path)?,
                _ => write!(f, ": {}", problem.path)?,
            }
            let colon = if begin.is_empty() && problem.path.is_empty() {
                ""
            } else {
                ": "
            };
            write!(f, "{colon}{}", problem.message)?;
            if !problem.help.is_empty() {
                write!(f, "; {}", problem.help)?;
            }
        }
        Ok(())
    }
}
