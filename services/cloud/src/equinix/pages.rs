//! Lists, all of them.

use std::collections::HashSet;

use http::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{Equinix, wire};
use crate::http::Call;
use crate::{CloudError, CloudErrorKind};

/// How often a list that changes while it is read is begun.
const READS: usize = 2;
/// More pages than any project has: a server that always names a next page must not hold us forever.
const MOST_PAGES: u32 = 10_000;

/// One page, whatever its objects are called.
#[derive(Debug, Deserialize)]
struct Page<T> {
    #[serde(alias = "devices", alias = "ip_addresses", alias = "bgp_sessions")]
    items: Vec<T>,
    #[serde(default)]
    meta: Option<Meta>,
}

#[derive(Debug, Deserialize)]
struct Meta {
    total: usize,
    #[serde(default)]
    current_page: Option<u32>,
    #[serde(default)]
    last_page: Option<u32>,
    #[serde(default)]
    next: Option<wire::Link>,
}

impl Meta {
    fn has_next(&self, page: u32) -> bool {
        self.next.is_some() || self.last_page.is_some_and(|last| page < last)
    }
}

/// An object with an id.
pub(super) trait Listed: DeserializeOwned {
    fn id(&self) -> &str;
}

impl Listed for wire::Device {
    fn id(&self) -> &str {
        &self.id
    }
}

impl Listed for wire::Reservation {
    fn id(&self) -> &str {
        &self.id
    }
}

impl Listed for wire::Session {
    fn id(&self) -> &str {
        &self.id
    }
}

/// What to list.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    pub(super) operation: &'static str,
    pub(super) route: &'static str,
    /// Below the project.
    pub(super) path: &'static str,
    pub(super) include: Option<&'static str>,
    /// Where the published API does not page, an answer without `meta` is the whole list.
    pub(super) may_lack_meta: bool,
}

/// One read of a list.
enum Read<T> {
    Complete(Vec<T>),
    /// It changed under us, or does not add up.
    Torn(String),
}

impl Equinix {
    /// Every object, each once.
    ///
    /// # Errors
    /// `Unavailable` where the list did not hold still twice. Never `NotFound`: a project that is not there is no empty list.
    pub(super) async fn list_all<T: Listed>(&self, list: List) -> Result<Vec<T>, CloudError> {
        let mut why = String::new();
        for _ in 0..READS {
            match self.read_list(list).await {
                Ok(Read::Complete(items)) => return Ok(items),
                Ok(Read::Torn(reason)) => why = reason,
                Err(mut error) => {
                    if error.is(CloudErrorKind::NotFound) {
                        error.kind = CloudErrorKind::Refused;
                    }
                    return Err(error);
                }
            }
        }
        let message = format!("no complete list in {READS} reads: {why}");
        Err(CloudError::new(
            CloudErrorKind::Unavailable,
            list.operation,
            message,
        ))
    }

    async fn read_list<T: Listed>(&self, list: List) -> Result<Read<T>, CloudError> {
        let (mut items, mut seen): (Vec<T>, HashSet<String>) = (Vec::new(), HashSet::new());
        let mut total = None;
        for number in 1..=MOST_PAGES {
            let page: Page<T> = self.http.read(&self.page_call(list, number)).await?;
            let Some(meta) = page.meta else {
                let message = "the answer does not say how long the list is";
                return if list.may_lack_meta && number == 1 {
                    Ok(Read::Complete(page.items))
                } else {
                    Err(CloudError::new(
                        CloudErrorKind::Unavailable,
                        list.operation,
                        message,
                    ))
                };
            };
            let first = *total.get_or_insert(meta.total);
            if meta.total != first {
                return Ok(Read::Torn(format!(
                    "its length went from {first} to {}",
                    meta.total
                )));
            }
            if meta.current_page.is_some_and(|current| current != number) {
                return Ok(Read::Torn(format!(
                    "page {number} was asked for, and another came"
                )));
            }
            let is_empty = page.items.is_empty();
            items.extend(
                page.items
                    .into_iter()
                    .filter(|item| seen.insert(item.id().to_owned())),
            );
            if !meta.has_next(number) || is_empty {
                return Ok(if items.len() == first {
                    Read::Complete(items)
                } else {
                    Read::Torn(format!("{} of {first} objects came", items.len()))
                });
            }
        }
        Ok(Read::Torn("it has no end".to_owned()))
    }

    fn page_call(&self, list: List, number: u32) -> Call {
        let call = Call::new(
            list.operation,
            Method::GET,
            list.route,
            self.in_project(list.path),
        )
        .query("page", number.to_string())
        .query("per_page", self.config.page_size.to_string());
        match list.include {
            Some(include) => call.query("include", include),
            None => call,
        }
    }
}
