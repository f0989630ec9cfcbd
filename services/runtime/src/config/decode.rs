//! From the tree to a type, collecting everything that is wrong on the way.
use serde::de::DeserializeOwned;

use super::document::Node;
use super::problem::PlacedProblem;

pub(super) fn decode<T: DeserializeOwned>(_root: &Node) -> Result<T, Vec<PlacedProblem>> {
    Err(vec![])
}
