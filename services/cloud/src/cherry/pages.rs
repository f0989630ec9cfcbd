//! Lists, all of them.

use http::Method;
use serde::de::DeserializeOwned;

use super::{Cherry, wire};
use crate::http::Call;
use crate::pages::{Listed, Page, Paged, list_all};
use crate::{CloudError, CloudErrorKind};

/// The header that says how long the whole list is.
const TOTAL: &str = "x-total-count";

impl Listed for wire::Server {
    fn id(&self) -> String {
        self.id.to_string()
    }
}

impl Listed for wire::Ip {
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
}

/// Every address of the project, of any type.
pub(super) const ADDRESSES: List = List {
    operation: "list IP addresses",
    route: "/projects/{pid}/ips",
    path: "ips",
};

/// Every server of the project.
const SERVERS: List = List {
    operation: "list servers",
    route: "/projects/{pid}/servers",
    path: "servers",
};

/// Reads the pages of one list.
struct Reader<'a> {
    driver: &'a Cherry,
    list: List,
    /// Objects on a page: as many as we ask for, or fewer, where the first page showed that the API gives fewer.
    size: usize,
}

impl Cherry {
    /// Every address.
    ///
    /// # Errors
    /// As [`list_all`].
    pub(super) async fn addresses(&self) -> Result<Vec<wire::Ip>, CloudError> {
        self.all(ADDRESSES).await
    }

    /// Every server.
    ///
    /// # Errors
    /// As [`list_all`].
    pub(super) async fn servers(&self) -> Result<Vec<wire::Server>, CloudError> {
        self.all(SERVERS).await
    }

    async fn all<T: Listed + DeserializeOwned + Send>(&self, list: List) -> Result<Vec<T>, CloudError> {
        let size = usize::try_from(self.config.page_size).unwrap_or(usize::MAX);
        list_all(Reader {
            driver: self,
            list,
            size,
        })
        .await
    }
}

impl<T: DeserializeOwned + Send> Paged<T> for Reader<'_> {
    fn operation(&self) -> &'static str {
        self.list.operation
    }

    async fn page(&mut self, number: u32) -> Result<Page<T>, CloudError> {
        let (driver, list) = (self.driver, self.list);
        if number == 1 {
            self.size = usize::try_from(driver.config.page_size).unwrap_or(usize::MAX);
        }
        let before = usize::try_from(number - 1).unwrap_or(usize::MAX);
        let offset = before.saturating_mul(self.size);
        let call = Call::new(
            list.operation,
            Method::GET,
            list.route,
            driver.in_project(list.path),
        )
        .query("limit", self.size.to_string())
        .query("offset", offset.to_string());
        let (items, total): (Vec<T>, _) = driver.http.read_with(&call, TOTAL).await?;
        let total = total.and_then(|text| text.trim().parse().ok());
        let Some(total) = total else {
            let message = "the answer does not say how long the list is";
            return Err(call.error(CloudErrorKind::Unavailable, message));
        };
        let seen = offset.saturating_add(items.len());
        if number == 1 && seen < total && !items.is_empty() {
            self.size = items.len();
        }
        Ok(Page {
            items,
            total,
            has_next: seen < total,
        })
    }
}
