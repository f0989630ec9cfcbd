//! Lists that come by pages, and change while they are read: all of a list, or an error.

use std::collections::{HashSet, VecDeque};

use tracing::debug;

use crate::error::not_absence;
use crate::{CloudError, CloudErrorKind};

/// The reads of a list that changes while it is read. Pages are positions: read upwards, an object that is deleted moves its
/// successors to pages already read, and they are missed; read downwards, an object that is appended moves nothing, and one that is
/// deleted makes its successors come twice. So each direction survives what the other does not.
const READS: [Order; 3] = [Order::Up, Order::Down, Order::Up];
/// More pages than any project has: a server that always names a next page must not hold us forever.
const MOST_PAGES: u32 = 10_000;

/// An object with an id.
pub(crate) trait Listed {
    /// Its id, which no other object of the list has.
    fn id(&self) -> String;
}

/// One page.
#[derive(Debug)]
pub(crate) struct Page<T> {
    pub(crate) items: Vec<T>,
    /// Length of the whole list.
    pub(crate) total: usize,
    pub(crate) has_next: bool,
}

/// Whoever reads pages of a list, all of the same length but the last.
pub(crate) trait Paged<T> {
    /// For people: `list machines`.
    fn operation(&self) -> &'static str;

    /// One page. The first has the number 1; it is read before any other.
    fn page(&mut self, number: u32) -> impl Future<Output = Result<Page<T>, CloudError>> + Send;
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
        self.items
            .extend(page.into_iter().filter(|item| self.seen.insert(item.id())));
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

/// Every object, each once. What is made or deleted while the list is read may be in it or not.
///
/// # Errors
/// `Unavailable` where no read was complete. Never `NotFound`: a project that is not there is no empty list.
pub(crate) async fn list_all<T: Listed + Send>(
    mut source: impl Paged<T> + Send,
) -> Result<Vec<T>, CloudError> {
    let (mut why, mut count) = (String::new(), 1);
    for order in READS {
        let pages = match order {
            Order::Up => read_up(&mut source).await,
            Order::Down => read_down(&mut source, count).await,
        };
        let pages: Pages<T> = pages.map_err(not_absence)?;
        match pages.judge(order) {
            Ok(()) => return Ok(pages.items),
            Err(reason) => why = reason,
        }
        count = u32::try_from(pages.lengths.len()).unwrap_or(MOST_PAGES).max(1);
        debug!(list = source.operation(), reason = %why, "list changed while it was read, reading it again");
    }
    let message = format!("no complete list in {} reads: {why}", READS.len());
    Err(CloudError::new(
        CloudErrorKind::Unavailable,
        source.operation(),
        message,
    ))
}

async fn read_up<T: Listed + Send>(source: &mut (impl Paged<T> + Send)) -> Result<Pages<T>, CloudError> {
    let mut pages = Pages::new();
    for number in 1..=MOST_PAGES {
        let page = source.page(number).await?;
        let is_last = page.items.is_empty() || !page.has_next;
        pages.add(Order::Up, page.items, page.total);
        if is_last {
            return Ok(pages);
        }
    }
    Err(CloudError::new(
        CloudErrorKind::Unavailable,
        source.operation(),
        "the list has no end",
    ))
}

async fn read_down<T: Listed + Send>(
    source: &mut (impl Paged<T> + Send),
    count: u32,
) -> Result<Pages<T>, CloudError> {
    let mut pages = Pages::new();
    for number in (1..=count).rev() {
        let page = source.page(number).await?;
        pages.add(Order::Down, page.items, page.total);
    }
    Ok(pages)
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
