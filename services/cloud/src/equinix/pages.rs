//! Lists, all of them.

use http::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{Equinix, wire};
use crate::http::Call;
use crate::pages::{Listed, Page, Paged, list_all};
use crate::{CloudError, CloudErrorKind};

/// One page as it comes, whatever its objects are called.
#[derive(Debug, Deserialize)]
struct RawPage<T> {
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

impl Listed for wire::Device {
    fn id(&self) -> String {
        self.id.clone()
    }
}

impl Listed for wire::Reservation {
    fn id(&self) -> String {
        self.id.clone()
    }
}

impl Listed for wire::Session {
    fn id(&self) -> String {
        self.id.clone()
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

/// Reads the pages of one list.
struct Reader<'a> {
    driver: &'a Equinix,
    list: List,
}

impl Equinix {
    /// Every object of a list.
    ///
    /// # Errors
    /// As [`list_all`].
    pub(super) async fn list_all<T: Listed + DeserializeOwned + Send>(
        &self,
        list: List,
    ) -> Result<Vec<T>, CloudError> {
        list_all(Reader { driver: self, list }).await
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

impl<T: DeserializeOwned + Send> Paged<T> for Reader<'_> {
    fn operation(&self) -> &'static str {
        self.list.operation
    }

    async fn page(&mut self, number: u32) -> Result<Page<T>, CloudError> {
        let list = self.list;
        let call = self.driver.page_call(list, number);
        let RawPage { items, meta } = self.driver.http.read(&call).await?;
        let refuse = |message: &str| Err(call.error(CloudErrorKind::Unavailable, message));
        match meta {
            Some(meta) if meta.current_page.is_some_and(|current| current != number) => {
                refuse("another page came than was asked for")
            }
            Some(meta) => Ok(Page {
                items,
                total: meta.total,
                has_next: meta.has_next(number),
            }),
            None if list.may_lack_meta && number == 1 => Ok(Page {
                total: items.len(),
                items,
                has_next: false,
            }),
            None => refuse("the answer does not say how long the list is"),
        }
    }
}
