//! Pages of a list: how a request asks for one, and how a complete, ordered list is cut to it.
//!
//! A token says behind which key the next page begins, so a page is right whatever came or went in between: nothing that stayed
//! is left out or told twice.

use std::fmt::Display;
use std::str::FromStr;

use tonic::Status;

use super::{InvalidField, status};

/// Items of a page where the caller does not say.
const USUAL: usize = 500;
/// Items of a page at most: a few hundred bytes each keep a message below the 4 MiB that clients accept.
const MOST: usize = 5_000;
/// The field that holds the token, in every list request.
const FIELD: &str = "page_token";
/// Before the key in a token. What lacks it was made up, or belongs to another list.
const BEHIND: char = '>';

/// The page that a request asks for, in a list that is ordered by `K`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<K> {
    size: usize,
    after: Option<K>,
}

impl<K: Ord + Display + FromStr> Page<K> {
    /// Reads `page_size` (0: 500; at most 5,000) and `page_token` (empty: the first page) of a request to `service` (`ipam`).
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` which names `page_token`: it is not one of this list.
    pub fn asked(service: &'static str, page_size: u32, page_token: &str) -> Result<Self, Status> {
        let size = match usize::try_from(page_size) {
            Ok(0) => USUAL,
            Ok(size) => size.min(MOST),
            Err(_) => MOST,
        };
        let after = match page_token {
            "" => None,
            token => Some(read(token).ok_or_else(|| refused(service))?),
        };
        Ok(Self { size, after })
    }

    /// Items of the page at most.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The key behind which the page begins; `None`: at the start of the list.
    pub fn after(&self) -> Option<&K> {
        self.after.as_ref()
    }

    /// The items of this page, and the token of the next one, which is empty on the last. `items` are ordered by their `key`, no
    /// two the same; those before the page may be left out, and those after it but the first.
    pub fn cut<T>(&self, items: impl IntoIterator<Item = T>, key: impl Fn(&T) -> &K) -> (Vec<T>, String) {
        let behind = |item: &T| self.after.as_ref().is_none_or(|after| key(item) > after);
        let mut rest = items.into_iter().filter(behind);
        let page: Vec<T> = rest.by_ref().take(self.size).collect();
        let next = match (page.last(), rest.next()) {
            (Some(last), Some(_)) => format!("{BEHIND}{}", key(last)),
            _ => String::new(),
        };
        (page, next)
    }
}

fn read<K: FromStr>(token: &str) -> Option<K> {
    let key = token.strip_prefix(BEHIND).filter(|key| !key.is_empty())?;
    key.parse().ok()
}

fn refused(service: &'static str) -> Status {
    let message = "is not one that was given out for this list; begin again without one";
    let error = InvalidField::new(FIELD, message);
    status(service, &error, error.details())
}

#[cfg(test)]
mod tests {
    use tonic::Code;
    use tonic_types::StatusExt as _;

    use super::*;

    type Numbers = Page<u32>;

    fn asked(size: u32, token: &str) -> Numbers {
        Page::asked("x", size, token).unwrap()
    }

    #[test]
    fn a_page_has_500_items_unless_asked_otherwise_and_5000_at_most() {
        for (size, items) in [
            (0, 500),
            (1, 1),
            (500, 500),
            (5_000, 5_000),
            (5_001, 5_000),
            (u32::MAX, 5_000),
        ] {
            let page = asked(size, "");
            assert_eq!((page.size(), page.after()), (items, None));
            assert_eq!(page.cut(0..6_000, |item| item).0.len(), items, "{size}");
        }
    }

    #[test]
    fn the_pages_of_a_list_are_the_list() {
        for length in 0..12 {
            for size in 1..5 {
                let (mut seen, mut token, mut pages) = (Vec::new(), String::new(), 0);
                loop {
                    let (page, next) = asked(size, &token).cut(0..length, |item| item);
                    seen.extend(page);
                    (token, pages) = (next, pages + 1);
                    if token.is_empty() {
                        break;
                    }
                }
                assert_eq!(seen, (0..length).collect::<Vec<_>>());
                assert_eq!(
                    pages,
                    length.div_ceil(size).max(1),
                    "no page is empty but the only one"
                );
            }
        }
    }

    #[test]
    fn what_comes_or_goes_between_two_pages_moves_nothing_else() {
        let (page, token) = asked(2, "").cut([10, 20, 30, 40], |item| item);
        assert_eq!((page.as_slice(), token.as_str()), (&[10, 20][..], ">20"));
        // The last one that was told is gone, and one before it is new.
        let (page, token) = asked(2, &token).cut([5, 10, 30, 40], |item| item);
        assert_eq!((page.as_slice(), token.as_str()), (&[30, 40][..], ""));
        let (page, token) = asked(2, ">40").cut([5], |item| item);
        assert_eq!((page.as_slice(), token.as_str()), (&[][..], ""));
    }

    #[test]
    fn a_key_is_read_as_it_was_written() {
        for key in ["a", ">", "a b", "equinixmetal://1"] {
            let (_, token) = Page::<String>::asked("x", 1, "")
                .unwrap()
                .cut([key.to_owned(), "\u{10ffff}".to_owned()], |item| item);
            let page = Page::<String>::asked("x", 1, &token).unwrap();
            assert_eq!(page.after().map(String::as_str), Some(key));
        }
    }

    #[test]
    fn a_token_that_was_never_given_out_is_an_invalid_argument_that_names_its_field() {
        for token in ["20", ">", "> ", ">twenty", "<20", ">20>", " "] {
            let status = Numbers::asked("eip", 0, token).unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{token:?}");
            let details = status.get_error_details();
            let named: Vec<_> = details
                .bad_request()
                .unwrap()
                .field_violations
                .iter()
                .map(|violation| violation.field.as_str())
                .collect();
            assert_eq!(named, ["page_token"]);
            let info = details.error_info().unwrap();
            assert_eq!(
                (info.reason.as_str(), info.domain.as_str()),
                ("INVALID_FIELD", "eip.groundplane")
            );
        }
    }
}
