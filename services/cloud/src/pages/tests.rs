//! A list that is changed between any two pages.

use std::collections::{BTreeSet, VecDeque};

use futures::FutureExt as _;
use pretty_assertions::assert_eq;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row(u32);

impl Listed for Row {
    fn id(&self) -> String {
        self.0.to_string()
    }
}

/// What somebody does to the list.
#[derive(Clone, Debug)]
enum Change {
    /// The one at this place goes.
    Delete(usize),
    /// A new one comes to this place.
    Insert(usize),
    /// A new one comes to the end.
    Append,
    /// The one at the first place comes to the second.
    Move(usize, usize),
}

/// A cloud with a list.
#[derive(Debug)]
struct Server {
    rows: Vec<u32>,
    size: usize,
    made: u32,
    /// What happens before each look.
    changes: VecDeque<Vec<Change>>,
    /// The list at each look, and which page was read.
    history: Vec<(BTreeSet<u32>, u32)>,
    /// What is wrong with its answers.
    flaw: Option<Flaw>,
}

/// How a server gets its pages wrong, each time.
#[derive(Clone, Copy, Debug)]
enum Flaw {
    /// The length of the page is told for that of the list.
    LengthOfPage,
    /// This page lacks an object, and the length that it tells does, too.
    Lacks(u32),
}

impl Server {
    fn new(length: u32, size: usize, changes: impl IntoIterator<Item = Vec<Change>>) -> Self {
        Self {
            rows: (0..length).collect(),
            size,
            made: length,
            changes: changes.into_iter().collect(),
            history: Vec::new(),
            flaw: None,
        }
    }

    fn change(&mut self, change: &Change) {
        let length = self.rows.len();
        match *change {
            Change::Delete(_) | Change::Move(..) if length == 0 => {}
            Change::Delete(at) => {
                self.rows.remove(at % length);
            }
            Change::Move(from, to) => {
                let row = self.rows.remove(from % length);
                self.rows.insert(to % length, row);
            }
            Change::Insert(at) => self.make(at % (length + 1)),
            Change::Append => self.make(length),
        }
    }

    fn make(&mut self, at: usize) {
        self.rows.insert(at, self.made);
        self.made += 1;
    }

    fn set(&self) -> BTreeSet<u32> {
        self.rows.iter().copied().collect()
    }

    fn read(&mut self) -> Result<Vec<u32>, CloudError> {
        let rows = list_all(self).now_or_never().expect("nothing is waited for")?;
        Ok(rows.into_iter().map(|row| row.0).collect())
    }

    fn pages(&self) -> Vec<u32> {
        self.history.iter().map(|(_, page)| *page).collect()
    }
}

impl Paged<Row> for &mut Server {
    fn operation(&self) -> &'static str {
        "list rows"
    }

    async fn page(&mut self, number: u32) -> Result<Page<Row>, CloudError> {
        for change in self.changes.pop_front().unwrap_or_default() {
            self.change(&change);
        }
        self.history.push((self.set(), number));
        let before = (number as usize - 1) * self.size;
        let rows = self.rows.iter().skip(before).take(self.size);
        let mut page = Page {
            items: rows.map(|row| Row(*row)).collect(),
            total: self.rows.len(),
            has_next: before + self.size < self.rows.len(),
        };
        match self.flaw {
            Some(Flaw::LengthOfPage) => page.total = page.items.len(),
            Some(Flaw::Lacks(lacking)) if lacking == number => {
                page.items.pop();
                page.total -= 1;
            }
            Some(Flaw::Lacks(_)) | None => {}
        }
        Ok(page)
    }
}

fn change() -> impl Strategy<Value = Change> {
    let place = || 0_usize..64;
    prop_oneof![
        3 => place().prop_map(Change::Delete),
        2 => place().prop_map(Change::Insert),
        3 => Just(Change::Append),
        1 => (place(), place()).prop_map(|(from, to)| Change::Move(from, to)),
    ]
}

/// Mostly nothing: where something happens at each look, no read is complete.
fn changes(looks: usize) -> impl Strategy<Value = Vec<Vec<Change>>> {
    let some = prop_oneof![4 => Just(Vec::new()), 1 => vec(change(), 1..4)];
    vec(some, 0..=looks)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// Whatever comes, goes and moves, up and down: no object is missing that was there all the time, and what is called the list was
    /// the list at one moment, each object once.
    #[test]
    fn what_is_called_complete_is(length in 0_u32..14, size in 1_usize..5, changes in changes(24)) {
        let mut server = Server::new(length, size, changes);
        let before = server.set();
        let Ok(answer) = server.read() else {
            return Ok(());
        };
        let shown: BTreeSet<u32> = answer.iter().copied().collect();
        prop_assert_eq!(shown.len(), answer.len());
        let after = server.set();
        let stayed: BTreeSet<u32> = before.intersection(&after).copied().collect();
        prop_assert!(shown.is_superset(&stayed), "{:?} of {:?}, {:?}", shown, stayed, server);
        prop_assert!(server.history.iter().any(|(list, _)| *list == shown), "{:?}, {:?}", shown, server);
    }

    /// Whatever happened on the first way, a list that is then left alone is read.
    #[test]
    fn a_list_that_comes_to_rest_is_read(length in 1_u32..14, size in 1_usize..5, mut changes in changes(14)) {
        changes.truncate((length as usize).div_ceil(size));
        let mut server = Server::new(length, size, changes);
        prop_assert!(server.read().is_ok(), "{:?}", server);
    }
}

#[test]
fn a_list_at_rest_costs_each_page_but_the_last_twice() {
    for (length, pages) in [
        (0, &[1][..]),
        (4, &[1]),
        (5, &[1, 2, 1]),
        (8, &[1, 2, 1]),
        (9, &[1, 2, 3, 2, 1]),
    ] {
        let mut server = Server::new(length, 4, []);
        assert_eq!(server.read().unwrap(), (0..length).collect::<Vec<_>>());
        assert_eq!(server.pages(), pages);
    }
}

/// One goes and one comes between two pages: the length is the same, on the first page nothing has changed, and as many came as there
/// should be. Read once, either way, the list would lack one.
#[test]
fn one_that_goes_and_one_that_comes_hide_nothing() {
    let up = vec![vec![], vec![], vec![Change::Delete(3), Change::Append]];
    let down = vec![vec![], vec![], vec![], vec![Change::Delete(5), Change::Insert(3)]];
    for (changes, stayed) in [(up, 4), (down, 3)] {
        let mut server = Server::new(6, 2, changes);
        let shown = server.read().unwrap();
        assert!(shown.contains(&stayed), "{shown:?}");
        assert_eq!(shown.iter().copied().collect::<BTreeSet<_>>(), server.set());
    }
}

/// Whichever page: nothing is taken for a list that lacks what other pages count.
#[test]
fn a_length_that_contradicts_the_pages_proves_nothing() {
    let flaws = [Flaw::LengthOfPage, Flaw::Lacks(1), Flaw::Lacks(2), Flaw::Lacks(3)];
    for (flaw, length) in flaws.into_iter().flat_map(|flaw| [(flaw, 5), (flaw, 6)]) {
        let mut server = Server::new(length, 2, []);
        server.flaw = Some(flaw);
        let error = server.read().unwrap_err();
        assert_eq!(error.kind, CloudErrorKind::Unavailable, "{flaw:?} of {length}");
    }
}

/// Without an end in sight nothing is waited for, and a list that never rests is refused and not guessed.
#[test]
fn a_list_that_never_rests_is_refused() {
    let churn = || vec![Change::Delete(0), Change::Append];
    let mut server = Server::new(9, 2, std::iter::repeat_with(churn).take(1_000));
    let error = server.read().unwrap_err();
    assert_eq!(error.kind, CloudErrorKind::Unavailable);
    assert!(server.history.len() < 60, "{}", server.history.len());
}
