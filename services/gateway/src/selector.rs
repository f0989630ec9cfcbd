//! Label selectors that we evaluate ourselves, against what the cache holds.

use std::fmt;

use crate::cluster::objects::Pairs;

/// Conditions on labels, all of which must hold. None: everything matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selector(Vec<Term>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Term {
    Is(String, String),
    IsNot(String, String),
    Has(String),
    HasNot(String),
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
    /// Reads `key=value`, `key==value`, `key!=value`, `key`, `!key`, comma separated.
    pub(crate) fn parse(text: &str) -> Result<Self, ParseSelectorError> {
        let terms = text.split(',').map(str::trim).filter(|term| !term.is_empty());
        terms.map(term).collect::<Result<_, _>>().map(Self)
    }

    /// Do the labels fulfil all conditions?
    pub(crate) fn matches(&self, labels: &Pairs) -> bool {
        self.0.iter().all(|term| match term {
            Term::Is(key, value) => labels.get(key) == Some(value),
            Term::IsNot(key, value) => labels.get(key) != Some(value),
            Term::Has(key) => labels.get(key).is_some(),
            Term::HasNot(key) => labels.get(key).is_none(),
        })
    }
}

fn term(text: &str) -> Result<Term, ParseSelectorError> {
    let is_word =
        |word: &str| !word.contains(|c: char| c.is_whitespace() || matches!(c, '=' | '!' | '(' | ')'));
    let term = if let Some((key, value)) = text.split_once("!=") {
        Term::IsNot(key.trim().to_owned(), value.trim().to_owned())
    } else if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        Term::Is(key.trim().to_owned(), value.trim().to_owned())
    } else if let Some(key) = text.strip_prefix('!') {
        Term::HasNot(key.trim().to_owned())
    } else {
        Term::Has(text.to_owned())
    };
    let (key, value) = match &term {
        Term::Is(key, value) | Term::IsNot(key, value) => (key, value.as_str()),
        Term::Has(key) | Term::HasNot(key) => (key, ""),
    };
    if key.is_empty() || !is_word(key) || !is_word(value) {
        return Err(ParseSelectorError(text.to_owned()));
    }
    Ok(term)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels() -> Pairs {
        [("role", "worker"), ("zone", "a")].into_iter().collect()
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
        for text in ["=x", "a b", "a=b c", "a in (b)", "!", "a=b=c"] {
            assert!(Selector::parse(text).is_err(), "{text}");
        }
    }
}
