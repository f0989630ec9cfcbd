//! What counts as news, and for how long.

use pretty_assertions::assert_eq;

use super::*;

const WALL: i64 = 1_000_000;

fn write(uid: &str, at: i64) -> Write {
    Write {
        object: format!("Node {uid}"),
        uid: uid.into(),
        manager: "cloud-provider-cherry",
        at: Some(Timestamp::from_second(at).unwrap()),
    }
}

/// A ledger, and its time.
struct Book {
    ledger: Ledger,
    now: Instant,
}

impl Book {
    fn new() -> Self {
        Self {
            ledger: Ledger::default(),
            now: Instant::now(),
        }
    }

    /// A look so many seconds later: what was first written of what is news.
    fn look(&mut self, seconds: u64, writes: Option<Vec<Write>>, known: bool) -> Option<String> {
        self.now += Duration::from_secs(seconds);
        let wall = Timestamp::from_second(WALL).unwrap();
        self.ledger.see(writes, known, self.now, wall);
        self.ledger.news().map(|news| news.write.object.clone())
    }

    fn after(&mut self, seconds: u64, writes: &[(&str, i64)]) -> Option<String> {
        let writes = writes.iter().map(|(uid, at)| write(uid, *at)).collect();
        self.look(seconds, Some(writes), false)
    }
}

fn node(uid: &str) -> String {
    format!("Node {uid}")
}

#[test]
fn what_was_there_at_the_first_look_is_no_news() {
    let mut book = Book::new();
    assert_eq!(book.after(0, &[("a", WALL), ("b", WALL - 5)]), None);
    assert_eq!(book.after(10, &[("a", WALL), ("b", WALL - 5)]), None);
    assert_eq!(book.after(10, &[("b", WALL - 5)]), None, "one object is gone");
}

#[test]
fn a_later_write_is_news_and_so_is_one_to_an_object_without_any() {
    let mut book = Book::new();
    assert_eq!(book.after(0, &[("a", WALL - 5)]), None);
    assert_eq!(book.after(10, &[("a", WALL)]), Some(node("a")));
    let mut book = Book::new();
    assert_eq!(book.after(0, &[]), None);
    assert_eq!(book.after(10, &[("b", WALL)]), Some(node("b")));
    // The message stays the same while it goes on.
    assert_eq!(
        book.after(10, &[("a", WALL + 9), ("b", WALL + 10)]),
        Some(node("b"))
    );
}

/// A backup that is brought back, or an object that somebody replaces by an older one, has its entries with it.
#[test]
fn what_is_brought_back_is_no_news() {
    let mut book = Book::new();
    assert_eq!(book.after(0, &[("a", WALL - 10_000)]), None);
    assert_eq!(
        book.after(10, &[("a", WALL - 20_000)]),
        None,
        "earlier than it was"
    );
    assert_eq!(book.after(10, &[("a", WALL - 20_000), ("b", WALL - 9_000)]), None);
    assert_eq!(book.after(10, &[("a", WALL - 10_000), ("b", WALL - 8_000)]), None);
}

#[test]
fn what_could_not_be_read_is_as_it_was() {
    let mut book = Book::new();
    assert_eq!(book.look(0, None, false), None);
    assert_eq!(
        book.after(10, &[("a", WALL)]),
        None,
        "the first look that saw something"
    );
    assert_eq!(book.look(10, None, false), None);
    assert_eq!(book.after(10, &[("a", WALL + 1)]), Some(node("a")));
    assert_eq!(book.look(10, None, false), Some(node("a")));
}

/// While its pods or its lease tell of it, and right after, its writes are its own.
#[test]
fn one_that_is_known_is_not_known_twice() {
    let mut book = Book::new();
    assert_eq!(book.after(0, &[]), None);
    let seen = |at| Some(vec![write("a", at)]);
    assert_eq!(book.look(10, seen(WALL), true), None);
    assert_eq!(book.look(29, seen(WALL + 1), false), None, "its last");
    assert_eq!(
        book.look(1, seen(WALL + 2), false),
        Some(node("a")),
        "after it had gone"
    );
    assert_eq!(
        book.look(1, seen(WALL + 2), true),
        None,
        "now it is known otherwise"
    );
}

/// It is believed for a while, and each further time for longer.
#[test]
fn news_grows_old_and_comes_back_with_more_weight() {
    let mut book = Book::new();
    assert_eq!(book.after(0, &[]), None);
    assert_eq!(book.after(10, &[("a", WALL)]), Some(node("a")));
    assert_eq!(book.after(299, &[("a", WALL)]), Some(node("a")));
    assert_eq!(book.after(1, &[("a", WALL)]), None);
    for (at, minutes) in (1_i64..).zip([10, 20, 40, 60, 60]) {
        assert_eq!(book.after(1, &[("a", WALL + at)]), Some(node("a")));
        assert_eq!(
            book.after(minutes * 60 - 1, &[("a", WALL + at)]),
            Some(node("a")),
            "{minutes}"
        );
        assert_eq!(book.after(1, &[("a", WALL + at)]), None, "{minutes}");
    }
}
