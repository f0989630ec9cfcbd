//! Lists that come by pages, and change while they are read: all of a list, or an error.
//!
//! Pages are positions. An object that is deleted moves those behind it to pages that were read already, one that is made may take its
//! place in the count, and nobody says in which order a cloud lists its objects. So the length of a list proves nothing of what was read
//! page by page: of a list of several pages each but the outermost is read on the way up and on the way down.
//!
//! What makes a read complete: an object is made once and deleted once, so one that was seen before a moment and after it, or at it, was
//! there at that moment. Where there are as many of those as the list was long at that moment, they are the whole list as it was then,
//! wherever they stood. Assumed is nothing but that an id is never used again, and that a page and the length that comes with it are of
//! one moment.

use std::collections::HashMap;

use tracing::debug;

use crate::error::not_absence;
use crate::{CloudError, CloudErrorKind};

#[cfg(test)]
mod tests;

/// Ways through the list, up and down in turn. The second may prove it whole; each further one is another chance, after changes.
const MOST_WAYS: usize = 8;
/// More pages than any project has: a server that always names a next page must not hold us forever.
const MOST_PAGES: u32 = 10_000;

/// An object with an id.
pub(crate) trait Listed {
    /// Its id, which no other object of the list has, had or will have.
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

/// An object, and the first and the last look that showed it, by their numbers.
struct Sighting<T> {
    item: T,
    first: usize,
    last: usize,
}

/// One page, when it was read.
struct Look {
    /// Its number.
    page: u32,
    /// Objects on it.
    length: usize,
    /// Length of the list.
    total: usize,
    has_next: bool,
}

impl Look {
    /// Has the page as many objects as it must have in a list of this length, if a full one has `full`? And is there no next one where the
    /// length leaves none?
    fn adds_up(&self, full: usize) -> bool {
        let page = usize::try_from(self.page - 1).unwrap_or(usize::MAX);
        let from_here = self.total.saturating_sub(page.saturating_mul(full));
        self.length == from_here.min(full) && !(self.has_next && from_here <= full)
    }
}

/// What was read of a list so far.
struct Reading<T> {
    looks: Vec<Look>,
    /// In the order of their first sight.
    sightings: Vec<Sighting<T>>,
    /// Where each id is among them.
    places: HashMap<String, usize>,
    /// The page that was read last; 0: none.
    page: u32,
    /// It was the list's last.
    at_end: bool,
}

impl<T: Listed> Reading<T> {
    fn new() -> Self {
        Self {
            looks: Vec::new(),
            sightings: Vec::new(),
            places: HashMap::new(),
            page: 0,
            at_end: false,
        }
    }

    fn add(&mut self, number: u32, page: Page<T>) {
        let look = self.looks.len();
        self.page = number;
        self.at_end = page.items.is_empty() || !page.has_next;
        self.looks.push(Look {
            page: number,
            length: page.items.len(),
            total: page.total,
            has_next: page.has_next,
        });
        for item in page.items {
            let place = *self.places.entry(item.id()).or_insert(self.sightings.len());
            match self.sightings.get_mut(place) {
                Some(known) => (known.item, known.last) = (item, look),
                None => self.sightings.push(Sighting {
                    item,
                    first: look,
                    last: look,
                }),
            }
        }
    }

    /// How many objects are known to have been there at each look.
    fn there(&self) -> Vec<usize> {
        let mut came = vec![0; self.looks.len()];
        let mut went = vec![0; self.looks.len()];
        for seen in &self.sightings {
            came[seen.first] += 1;
            went[seen.last] += 1;
        }
        let mut now = 0;
        let counts = came.into_iter().zip(went).map(|(came, went)| {
            let there = now + came;
            now = there - went;
            there
        });
        counts.collect()
    }

    /// Which looks can be trusted with the length of the list: those whose page adds up, and which do not tell less than others before
    /// and after them. A list may have shrunk and grown meanwhile; a page on which objects were left out looks just like that.
    fn trusted(&self) -> Vec<bool> {
        let full = self
            .looks
            .iter()
            .map(|look| look.length)
            .max()
            .unwrap_or_default();
        let highest = |highest: &mut usize, look: &Look| {
            *highest = look.total.max(*highest);
            Some(*highest)
        };
        let until: Vec<usize> = self.looks.iter().scan(0, highest).collect();
        let mut since: Vec<usize> = self.looks.iter().rev().scan(0, highest).collect();
        since.reverse();
        let around = until.into_iter().zip(since);
        let trusted = self.looks.iter().zip(around).map(|(look, (until, since))| {
            let dips = until > look.total && since > look.total;
            look.adds_up(full) && !dips
        });
        trusted.collect()
    }

    /// The last look at which everything is known that was there; else what is missing, for people.
    fn whole_at(&self) -> Result<usize, String> {
        let (there, trusted) = (self.there(), self.trusted());
        let is_whole = |look: &usize| trusted[*look] && self.looks[*look].total == there[*look];
        (0..self.looks.len()).rfind(is_whole).ok_or_else(|| {
            let trusted = (0..self.looks.len()).filter(|look| trusted[*look]);
            match trusted.max_by_key(|look| there[*look]) {
                Some(look) => format!("{} of {} objects came", there[look], self.looks[look].total),
                None => "pages and the length of the list contradict each other".to_owned(),
            }
        })
    }

    /// The list as it was at that look. What is known of its objects may be newer.
    fn at(self, look: usize) -> Vec<T> {
        let there = |seen: &Sighting<T>| (seen.first..=seen.last).contains(&look);
        let seen = self.sightings.into_iter().filter(there);
        seen.map(|seen| seen.item).collect()
    }
}

/// Every object, each once: the list as it was at one moment of the read. What is made or deleted meanwhile may be in it or not. A list of
/// one page takes one call, one of `n` pages `2n - 1` and more where it changes.
///
/// # Errors
/// `Unavailable` where nothing proves that the read is complete. Never `NotFound`: a project that is not there is no empty list.
pub(crate) async fn list_all<T: Listed + Send>(
    mut source: impl Paged<T> + Send,
) -> Result<Vec<T>, CloudError> {
    let mut reading = Reading::new();
    let mut missing = String::new();
    for way in 0..MOST_WAYS {
        let went = if way % 2 == 0 {
            up(&mut source, &mut reading).await
        } else {
            down(&mut source, &mut reading).await
        };
        went.map_err(not_absence)?;
        match reading.whole_at() {
            Ok(look) => return Ok(reading.at(look)),
            Err(what) => missing = what,
        }
        if way > 0 {
            debug!(list = source.operation(), %missing, "list changed while it was read, reading on");
        }
    }
    let message = format!("no complete list in {MOST_WAYS} ways through it: {missing}");
    Err(CloudError::new(
        CloudErrorKind::Unavailable,
        source.operation(),
        message,
    ))
}

/// From the page after the one that was read last to the end; where there is none after it, that one again.
async fn up<T: Listed + Send>(
    source: &mut (impl Paged<T> + Send),
    reading: &mut Reading<T>,
) -> Result<(), CloudError> {
    let begin = if reading.at_end {
        reading.page
    } else {
        reading.page + 1
    };
    for number in begin..=MOST_PAGES {
        reading.add(number, source.page(number).await?);
        if reading.at_end {
            return Ok(());
        }
    }
    Err(CloudError::new(
        CloudErrorKind::Unavailable,
        source.operation(),
        "the list has no end",
    ))
}

/// From the page before the one that was read last to the first; where that was the first, it again.
async fn down<T: Listed + Send>(
    source: &mut (impl Paged<T> + Send),
    reading: &mut Reading<T>,
) -> Result<(), CloudError> {
    for number in (1..reading.page.max(2)).rev() {
        reading.add(number, source.page(number).await?);
    }
    Ok(())
}
