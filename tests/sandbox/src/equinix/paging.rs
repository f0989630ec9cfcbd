//! Query parameters of lists: pages, what to include, and the `meta` object that says where the next page is.

use serde::Serialize;

use crate::error::ApiError;
use crate::query::Query;

/// The longest page that anybody gets.
const MOST_PER_PAGE: usize = 1_000;

impl Query {
    /// Was this sub-object, or something within it, asked for?
    pub(crate) fn includes(&self, path: &str) -> bool {
        self.all("include").any(|wanted| {
            wanted
                .strip_prefix(path)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }

    /// Was this sub-object declined?
    pub(crate) fn excludes(&self, path: &str) -> bool {
        self.all("exclude").any(|declined| declined == path)
    }

    /// Which page of `total` objects at `path` is asked for. A page beyond the last is empty, and `per_page`
    /// beyond what is allowed is cut without a word, so clients have to follow `meta`.
    pub(crate) fn page(
        &self,
        path: &str,
        total: usize,
        default_size: usize,
        most: usize,
    ) -> Result<Page, ApiError> {
        let size = self
            .number("per_page", default_size, 1)?
            .min(most.clamp(1, MOST_PER_PAGE));
        let current = self.number("page", 1, 1)?;
        let last = total.div_ceil(size).max(1);
        let size_of = self
            .get("per_page")
            .map_or_else(String::new, |_| format!("&per_page={size}"));
        let rest = rest(self.raw());
        let link = |page: usize| Href {
            href: format!("/metal/v1{path}?page={page}{size_of}{rest}"),
        };
        Ok(Page {
            skip: (current - 1).saturating_mul(size),
            take: size,
            meta: Meta {
                this: link(current),
                first: link(1),
                last: link(last),
                next: (current < last).then(|| link(current + 1)),
                previous: (current > 1).then(|| link(current - 1)),
                total,
                current_page: current,
                last_page: last,
            },
        })
    }
}

/// A query without `page` and `per_page`, for links to other pages.
fn rest(raw: &str) -> String {
    let mut rest = String::new();
    for part in raw.split('&').filter(|part| !part.is_empty()) {
        let name = part.split('=').next().unwrap_or_default();
        if name != "page" && name != "per_page" {
            rest.push('&');
            rest.push_str(part);
        }
    }
    rest
}

/// One page of a list.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) skip: usize,
    pub(crate) take: usize,
    pub(crate) meta: Meta,
}

/// A link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Href {
    pub(crate) href: String,
}

/// Where a list is, and how long it is.
#[derive(Debug, Serialize)]
pub(crate) struct Meta {
    #[serde(rename = "self")]
    this: Href,
    first: Href,
    last: Href,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<Href>,
    #[serde(skip_serializing_if = "Option::is_none")]
    previous: Option<Href>,
    total: usize,
    current_page: usize,
    last_page: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(pairs: &[(&str, &str)], raw: &str) -> Query {
        Query::new(
            pairs
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
            raw,
        )
    }

    #[test]
    fn include_reaches_into_what_it_names() {
        let query = query(&[("include", "ip_addresses.parent_block,facility")], "");
        assert!(query.includes("ip_addresses"));
        assert!(query.includes("ip_addresses.parent_block"));
        assert!(query.includes("facility"));
        assert!(!query.includes("parent_block"));
        assert!(!query.includes("facil"));
    }

    #[test]
    fn pages_link_to_each_other_and_keep_the_rest_of_the_query() {
        let query = query(
            &[("page", "2"), ("per_page", "2"), ("include", "facility")],
            "page=2&per_page=2&include=facility",
        );
        let page = query.page("/projects/p/devices", 5, 10, 1_000).unwrap();
        assert_eq!((page.skip, page.take, page.meta.last_page), (2, 2, 3));
        let next = page.meta.next.unwrap().href;
        assert_eq!(
            next,
            "/metal/v1/projects/p/devices?page=3&per_page=2&include=facility"
        );
        assert!(page.meta.previous.is_some());
    }

    #[test]
    fn sizes_are_cut_and_nonsense_is_refused() {
        assert_eq!(
            query(&[("per_page", "5000")], "")
                .page("/x", 9, 10, 9_999)
                .unwrap()
                .take,
            1_000
        );
        assert_eq!(
            query(&[("per_page", "50")], "")
                .page("/x", 9, 10, 3)
                .unwrap()
                .take,
            3
        );
        assert_eq!(query(&[], "").page("/x", 0, 10, 1_000).unwrap().meta.last_page, 1);
        for (name, value) in [("page", "0"), ("per_page", "x"), ("page", "-1")] {
            assert!(query(&[(name, value)], "").page("/x", 9, 10, 10).is_err());
        }
    }
}
