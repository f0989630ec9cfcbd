//! Lists, all of them.

use std::collections::{HashSet, VecDeque};

use http::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tracing::debug;

use super::{Equinix, not_absence, wire};
use crate::http::Call;
use crate::{CloudError, CloudErrorKind};

/// The reads of a list that changes while it is read. Pages are positions: read upwards, an object that is deleted moves its
/// successors to pages already read, and they are missed; read downwards, an object that is appended moves nothing, and one that is
/// deleted makes its successors come twice. So each direction survives what the other does not.
const READS: [Order; 3] = [Order::Up, Order::Down, Order::Up];
/// More pages than any project has: a server that always names a next page must not hold us forever.
const MOST_PAGES: u32 = 10_000;

/// One page.
struct Page<T> {
    items: Vec<T>,
    meta: Meta,
}

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

/// In which order pages are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Up,
    Down,
}

/// One read of a list. Pages in the order of their numbers, whatever the order of reading.
struct Pages<T> {
    items: Vec<T>,
    seen: HashSet<String>,
    /// Length of the list, as each page told it.
    totals: VecDeque<usize>,
    /// Objects on each page.
    lengths: VecDeque<usize>,
}

impl<T: Listed> Pages<T> {
    fn new() -> Self {
        let (totals, lengths) = (VecDeque::new(), VecDeque::new());
        Self {
            items: Vec::new(),
            seen: HashSet::new(),
            totals,
            lengths,
        }
    }

    fn add(&mut self, order: Order, page: Vec<T>, total: usize) {
        match order {
            Order::Up => {
                self.totals.push_back(total);
                self.lengths.push_back(page.len());
            }
            Order::Down => {
                self.totals.push_front(total);
                self.lengths.push_front(page.len());
            }
        }
        self.items.extend(
            page.into_iter()
                .filter(|item| self.seen.insert(item.id().to_owned())),
        );
    }

    fn judge(&self, order: Order) -> Result<(), String> {
        judge(order, &self.totals, &self.lengths, self.items.len())
    }
}

/// Is a read complete? `unique` objects came on pages of these `lengths`, which told these `totals`.
fn judge(
    order: Order,
    totals: &VecDeque<usize>,
    lengths: &VecDeque<usize>,
    unique: usize,
) -> Result<(), String> {
    let full = lengths.front().copied().unwrap_or_default();
    let before_last = lengths.iter().take(lengths.len().saturating_sub(1));
    if before_last
        .chain(lengths.back().filter(|last| **last > full))
        .any(|length| *length != full)
    {
        return Err("a page before the last is not full".to_owned());
    }
    // Read upwards, the list may have grown; read downwards, it may have shrunk: either way totals rise with the page's number.
    if let Some((before, after)) = totals
        .iter()
        .zip(totals.iter().skip(1))
        .find(|(one, next)| next < one)
    {
        return Err(format!("its length changed between {before} and {after}"));
    }
    let (is_whole, total) = match order {
        Order::Up => totals.back().map(|total| (unique == *total, *total)),
        Order::Down => totals.front().map(|total| (unique >= *total, *total)),
    }
    .unwrap_or_default();
    if is_whole {
        Ok(())
    } else {
        Err(format!("{unique} of {total} objects came"))
    }
}

impl Equinix {
    /// Every object, each once. What is made or deleted while the list is read may be in it or not.
    ///
    /// # Errors
    /// `Unavailable` where no read was complete. Never `NotFound`: a project that is not there is no empty list.
    pub(super) async fn list_all<T: Listed>(&self, list: List) -> Result<Vec<T>, CloudError> {
        let (mut why, mut count) = (String::new(), 1);
        for order in READS {
            let pages = match order {
                Order::Up => self.read_up(list).await,
                Order::Down => self.read_down(list, count).await,
            };
            let pages: Pages<T> = pages.map_err(not_absence)?;
            match pages.judge(order) {
                Ok(()) => return Ok(pages.items),
                Err(reason) => why = reason,
            }
            count = u32::try_from(pages.lengths.len()).unwrap_or(MOST_PAGES).max(1);
            debug!(list = list.operation, reason = %why, "list changed while it was read, reading it again");
        }
        let message = format!("no complete list in {} reads: {why}", READS.len());
        Err(CloudError::new(
            CloudErrorKind::Unavailable,
            list.operation,
            message,
        ))
    }

    async fn read_up<T: Listed>(&self, list: List) -> Result<Pages<T>, CloudError> {
        let mut pages = Pages::new();
        for number in 1..=MOST_PAGES {
            let page = self.page(list, number).await?;
            let is_last = page.items.is_empty() || !page.meta.has_next(number);
            pages.add(Order::Up, page.items, page.meta.total);
            if is_last {
                return Ok(pages);
            }
        }
        Err(CloudError::new(
            CloudErrorKind::Unavailable,
            list.operation,
            "the list has no end",
        ))
    }

    async fn read_down<T: Listed>(&self, list: List, count: u32) -> Result<Pages<T>, CloudError> {
        let mut pages = Pages::new();
        for number in (1..=count).rev() {
            let page = self.page(list, number).await?;
            pages.add(Order::Down, page.items, page.meta.total);
        }
        Ok(pages)
    }

    async fn page<T: Listed>(&self, list: List, number: u32) -> Result<Page<T>, CloudError> {
        let RawPage { items, meta } = self.http.read(&self.page_call(list, number)).await?;
        let refuse = |message: &str| {
            Err(CloudError::new(
                CloudErrorKind::Unavailable,
                list.operation,
                message,
            ))
        };
        let total = items.len();
        match meta {
            Some(meta) if meta.current_page.is_some_and(|current| current != number) => {
                refuse("another page came than was asked for")
            }
            Some(meta) => Ok(Page { items, meta }),
            None if list.may_lack_meta && number == 1 => Ok(Page {
                items,
                meta: Meta {
                    total,
                    current_page: None,
                    last_page: None,
                    next: None,
                },
            }),
            None => refuse("the answer does not say how long the list is"),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(order: Order, totals: &[usize], lengths: &[usize], unique: usize) -> bool {
        judge(
            order,
            &totals.iter().copied().collect(),
            &lengths.iter().copied().collect(),
            unique,
        )
        .is_ok()
    }

    #[test]
    fn a_read_is_complete_only_if_nothing_can_be_missing() {
        use Order::{Down, Up};
        for (what, order, totals, lengths, unique, complete) in [
            ("still", Up, &[25, 25, 25][..], &[10, 10, 5][..], 25, true),
            ("empty", Up, &[0], &[0], 0, true),
            ("still, downwards", Down, &[25, 25, 25], &[10, 10, 5], 25, true),
            ("grown at its end", Up, &[25, 25, 27], &[10, 10, 7], 27, true),
            (
                "shrunk: the successors moved down",
                Up,
                &[25, 24, 24],
                &[10, 10, 4],
                24,
                false,
            ),
            (
                "shrunk, read downwards",
                Down,
                &[24, 24, 25],
                &[10, 10, 5],
                25,
                true,
            ),
            (
                "grown, read downwards: perhaps at its front",
                Down,
                &[26, 25, 25],
                &[10, 10, 5],
                25,
                false,
            ),
            (
                "objects are missing on page 1",
                Up,
                &[23, 25, 25],
                &[8, 10, 5],
                23,
                false,
            ),
            (
                "objects are missing on page 2",
                Up,
                &[25, 23, 25],
                &[10, 8, 5],
                23,
                false,
            ),
            (
                "objects are missing on the last",
                Up,
                &[25, 25, 23],
                &[10, 10, 3],
                23,
                false,
            ),
            ("the same objects twice", Up, &[20, 20], &[10, 10], 12, false),
            ("ends too early", Up, &[25, 25], &[10, 10], 20, false),
        ] {
            assert_eq!(verdict(order, totals, lengths, unique), complete, "{what}");
        }
    }
}
