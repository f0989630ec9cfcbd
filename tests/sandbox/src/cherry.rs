//! The API of Cherry Servers: one function a call, from what was asked to what is answered, with the cloud in hand. [`CALLS`] is the
//! whole surface.
//!
//! `fields=` is accepted and changes nothing: every answer has all that it can have. Guesses, where the vendor's documents are silent:
//! a list of which no `limit` is asked has 100 entries, a `limit` beyond what is allowed is cut without a word, what cannot be done is 422
//! and what cannot be read is 400, and a project's token opens the one team of the sandbox.

mod ips;
mod projects;
mod regions;
mod servers;
mod shapes;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use crate::api::{Ask, Call, Reply};
use crate::cloud::ProjectState;
use crate::error::ApiError;

/// What all paths of the API begin with.
pub(crate) const BASE: &str = "/v1";

/// Entries of a list, unless asked otherwise.
const PER_PAGE: usize = 100;
/// The longest list that anybody gets in one answer.
const MOST_PER_PAGE: usize = 1_000;

/// Every call, with its route as the journal and the fault rules name it.
pub(crate) const CALLS: &[(&str, &str, Call)] = &[
    ("GET", "/teams/{id}/projects", projects::list_of_team),
    ("GET", "/projects/{pid}", projects::get),
    ("PUT", "/projects/{pid}", projects::update),
    ("GET", "/projects/{pid}/servers", servers::list),
    ("GET", "/servers/{id}", servers::get),
    ("PUT", "/servers/{id}", servers::update),
    ("GET", "/projects/{pid}/ips", ips::list),
    ("POST", "/projects/{pid}/ips", ips::reserve),
    ("GET", "/ips/{id}", ips::get),
    ("PUT", "/ips/{id}", ips::update),
    ("DELETE", "/ips/{id}", ips::delete),
    ("GET", "/regions", regions::list),
    ("GET", "/regions/{id}", regions::get),
    ("GET", "/plans", regions::plans),
    ("GET", "/teams/{id}/plans", regions::plans_of_team),
];

/// The body of a refusal.
pub(crate) fn refusal(status: u16, message: &str) -> Value {
    json!({ "code": status, "message": message })
}

/// The project in the path, for whoever may see it.
fn project<'c>(cloud: &'c mut crate::cloud::Cloud, ask: &Ask<'_>) -> Result<&'c mut ProjectState, ApiError> {
    let number: u32 = ask.id()?;
    cloud.open(ask.access, "project", |project| project.number == number)
}

/// The part of a list that is asked for, and how long all of it is. Only what is shown is made.
fn page<I, T: Serialize>(
    ask: &Ask<'_>,
    most: u32,
    rows: impl Iterator<Item = I>,
    make: impl FnMut(I) -> T,
) -> Result<Reply, ApiError> {
    let most = usize::try_from(most)
        .unwrap_or(usize::MAX)
        .clamp(1, MOST_PER_PAGE);
    let limit = ask.query.number("limit", PER_PAGE, 1)?.min(most);
    let offset = ask.query.number("offset", 0, 0)?;
    let rows: Vec<I> = rows.collect();
    let total = rows.len();
    let shown: Vec<T> = rows.into_iter().skip(offset).take(limit).map(make).collect();
    let mut reply = Reply::ok(&shown)?;
    reply.total = Some(total);
    Ok(reply)
}

/// Tags `k=v` as a map. A tag without `=` is a key without a value.
fn map_of(tags: &[String]) -> BTreeMap<&str, &str> {
    tags.iter()
        .map(|tag| tag.split_once('=').unwrap_or((tag, "")))
        .collect()
}

/// A map as tags `k=v`.
fn tags_of(map: BTreeMap<String, String>) -> Result<Vec<String>, ApiError> {
    map.into_iter()
        .map(|(key, value)| {
            if key.is_empty() || key.contains('=') {
                return Err(ApiError::unprocessable(format!("tag `{key}` is not valid")));
            }
            Ok(format!("{key}={value}"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_survive_the_way_to_the_list_and_back() {
        let map = BTreeMap::from([
            ("service".to_owned(), "Zm9v==".to_owned()),
            ("empty".to_owned(), String::new()),
        ]);
        let tags = tags_of(map.clone()).unwrap();
        let back = map_of(&tags);
        assert_eq!(
            back.into_iter()
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .collect::<BTreeMap<_, _>>(),
            map
        );
        assert_eq!(map_of(&["plain".to_owned()]), BTreeMap::from([("plain", "")]));
        assert!(tags_of(BTreeMap::from([("a=b".to_owned(), String::new())])).is_err());
    }
}
