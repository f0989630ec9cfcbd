//! Configuration files: strict YAML, every problem at once, each with its place and the way out.
//!
//! ```text
//! text ──► Document (every value with its line and column) ──► decode::<T>() ──► T
//!                             ▲                                                  │ service's own rules
//!                             └──────────────── check(Vec<Problem>) ◄────────────┘
//! ```
//!
//! Types that are decoded here derive `Deserialize` as usual. Unknown keys are always refused. `#[serde(flatten)]`,
//! `untagged` and internally tagged enums work, but lose the place of what is wrong inside them; avoid them.

mod decode;
mod document;
pub mod duration;
mod json;
mod layer;
mod place;
mod problem;
mod secret;

use std::path::Path;

use serde::de::DeserializeOwned;

pub use decode::{join, nearest};
pub use document::Document;
pub use duration::HumanDuration;
pub use json::{JsonError, JsonObject};
pub use layer::Plain;
pub use place::Place;
pub use problem::{ConfigErrors, PlacedProblem, Problem};
pub use secret::{SecretError, SecretFile};

/// Reads and decodes a file. Where more rules apply, keep the [`Document`] instead, to place their problems.
pub fn load<T: DeserializeOwned>(path: &Path) -> Result<T, ConfigErrors> {
    Document::load(path)?.decode()
}

/// Decodes a text; `name` stands for the file in messages.
pub fn parse<T: DeserializeOwned>(name: &str, text: &str) -> Result<T, ConfigErrors> {
    Document::parse(name, text)?.decode()
}

#[cfg(test)]
mod tests;
