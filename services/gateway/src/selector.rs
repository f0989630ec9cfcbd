//! Label selectors that we evaluate ourselves, against what the cache holds.

use std::fmt;

use crate::cluster::objects::Pairs;

/// Conditions on labels, all of which must hold. None: everything matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selector(Vec<Term>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Term {
    /// The label is there, with one of these values.
    In(String, Vec<String>),
    /// It has none of these values, or is not there.
    NotIn(String, Vec<String>),
    Has(String),
    HasNot(String),
    /// It is there, and a number above or below this one.
    Above(String, i64),
    Below(String, i64),
}

/// A text that is no selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) struct ParseSelectorError(String);

impl fmt::Display for ParseSelectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no condition on a label", self.0)
    }
}

impl Selector {
    /// Reads what Kubernetes reads: `key=value`, `key==value`, `key!=value`, `key in (a, b)`, `key notin (a, b)`, `key`, `!key`,
    /// `key>1`, `key<1`, comma separated.
    pub(crate) fn parse(text: &str) -> Result<Self, ParseSelectorError> {
        let mut depth = 0_usize;
        let terms = text.split(|c: char| {
            match c {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            c == ',' && depth == 0
        });
        let terms = terms.map(str::trim).filter(|term| !term.is_empty());
        terms
            .map(|text| Term::parse(text).ok_or_else(|| ParseSelectorError(text.to_owned())))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Do the labels fulfil all conditions?
    pub(crate) fn matches(&self, labels: &Pairs) -> bool {
        self.0.iter().all(|term| term.matches(labels))
    }
}

impl Term {
    /// `None`: it is no condition.
    fn parse(text: &str) -> Option<Self> {
        let key = |text: &str| is_key(text.trim()).then(|| text.trim().to_owned());
        let value = |text: &str| is_value(text.trim()).then(|| text.trim().to_owned());
        if let Some((head, rest)) = text.split_once('(') {
            let values: Option<Vec<String>> = rest.strip_suffix(')')?.split(',').map(value).collect();
            let values = values.filter(|_| rest.trim() != ")")?;
            return match head.split_whitespace().collect::<Vec<_>>()[..] {
                [name, "in"] => Some(Self::In(key(name)?, values)),
                [name, "notin"] => Some(Self::NotIn(key(name)?, values)),
                _ => None,
            };
        }
        if let Some((name, other)) = text.split_once("!=") {
            return Some(Self::NotIn(key(name)?, vec![value(other)?]));
        }
        if let Some((name, one)) = text.split_once("==").or_else(|| text.split_once('=')) {
            return Some(Self::In(key(name)?, vec![value(one)?]));
        }
        if let Some((name, number)) = text.split_once('>') {
            return Some(Self::Above(key(name)?, number.trim().parse().ok()?));
        }
        if let Some((name, number)) = text.split_once('<') {
            return Some(Self::Below(key(name)?, number.trim().parse().ok()?));
        }
        match text.strip_prefix('!') {
            Some(name) => key(name).map(Self::HasNot),
            None => key(text).map(Self::Has),
        }
    }

    fn matches(&self, labels: &Pairs) -> bool {
        let one_of = |key: &str, values: &[String]| {
            let says = labels.get(key);
            says.is_some_and(|says| values.iter().any(|value| value == says))
        };
        let number = |key: &str| labels.get(key).and_then(|says| says.parse::<i64>().ok());
        match self {
            Self::In(key, values) => one_of(key, values),
            Self::NotIn(key, values) => !one_of(key, values),
            Self::Has(key) => labels.get(key).is_some(),
            Self::HasNot(key) => labels.get(key).is_none(),
            Self::Above(key, than) => number(key).is_some_and(|says| says > *than),
            Self::Below(key, than) => number(key).is_some_and(|says| says < *than),
        }
    }
}

/// A name, which may have a DNS name and a slash before it.
fn is_key(text: &str) -> bool {
    let (prefix, name) = text.split_once('/').map_or((None, text), |(p, n)| (Some(p), n));
    let is_prefix = |prefix: &str| {
        prefix.len() <= 253
            && prefix.split('.').all(|part| {
                is_word(part) && !part.contains('_') && !part.contains(|c: char| c.is_ascii_uppercase())
            })
    };
    is_word(name) && prefix.is_none_or(is_prefix)
}

/// A name, or nothing.
fn is_value(text: &str) -> bool {
    text.is_empty() || is_word(text)
}

/// Up to 63 letters, digits, `-`, `_` and `.`, with a letter or a digit at either end.
fn is_word(text: &str) -> bool {
    let ends = |c: char| c.is_ascii_alphanumeric();
    text.len() <= 63
        && text.starts_with(ends)
        && text.ends_with(ends)
        && text.chars().all(|c| ends(c) || matches!(c, '-' | '_' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels() -> Pairs {
        [
            ("role", "worker"),
            ("zone", "a"),
            ("cores", "8"),
            ("example.org/rack", ""),
        ]
        .into_iter()
        .collect()
    }

    /// E28: only nodes that the selector accepts.
    #[test]
    fn all_conditions_must_hold() {
        for (text, matches) in [
            ("", true),
            ("role=worker", true),
            ("role==worker, zone=a", true),
            ("role=worker,zone=b", false),
            ("role!=worker", false),
            ("other!=x", true),
            ("zone", true),
            ("!zone", false),
            ("!other", true),
            ("role in (worker, edge), zone notin (b)", true),
            ("role in (edge)", false),
            ("zone notin (b,a)", false),
            ("other notin (x)", true),
            ("other in (x,)", false),
            ("cores > 7, cores<9", true),
            ("cores > 8", false),
            ("zone > 1", false),
            ("example.org/rack=", true),
            ("other=", false),
        ] {
            assert_eq!(
                Selector::parse(text).unwrap().matches(&labels()),
                matches,
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        for text in [
            "=x",
            "a b",
            "a=b c",
            "a in b",
            "a in ()",
            "a in (b",
            "a in (b))",
            "a within (b)",
            "in (b)",
            "!",
            "!!a",
            "a=b=c",
            "a>b",
            "-a",
            "a=b-",
            "a/b/c",
            "/a",
            "A.example/a",
            "a, b c",
        ] {
            assert!(Selector::parse(text).is_err(), "{text}");
        }
    }
}
