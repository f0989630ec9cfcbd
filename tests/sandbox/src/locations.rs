//! Metros and facilities that the sandbox knows. A facility is a metro's code with a number, or one of the old
//! names.

use uuid::Uuid;

use crate::ident::{digest, uuid_of};

/// Code, name and country of each metro.
const METROS: &[(&str, &str, &str)] = &[
    ("am", "Amsterdam", "NL"),
    ("ch", "Chicago", "US"),
    ("da", "Dallas", "US"),
    ("dc", "Washington DC", "US"),
    ("fr", "Frankfurt", "DE"),
    ("hk", "Hong Kong", "HK"),
    ("la", "Los Angeles", "US"),
    ("ld", "London", "GB"),
    ("lt", "Siauliai", "LT"),
    ("md", "Madrid", "ES"),
    ("ny", "New York", "US"),
    ("pa", "Paris", "FR"),
    ("sg", "Singapore", "SG"),
    ("sv", "Silicon Valley", "US"),
    ("sy", "Sydney", "AU"),
    ("ty", "Tokyo", "JP"),
];

/// Facilities that were named before metros existed.
const OLD_FACILITIES: &[(&str, &str)] = &[
    ("ams1", "am"),
    ("dfw2", "da"),
    ("ewr1", "ny"),
    ("nrt1", "ty"),
    ("sjc1", "sv"),
];

/// Where something stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) metro: &'static str,
    pub(crate) facility: String,
}

/// The metro with this code.
pub(crate) fn metro(code: &str) -> Option<&'static str> {
    METROS
        .iter()
        .find(|(known, ..)| *known == code)
        .map(|(known, ..)| *known)
}

/// Name and country of a metro; its code where it is unknown.
pub(crate) fn describe(code: &str) -> (&str, &'static str) {
    METROS
        .iter()
        .find(|(known, ..)| *known == code)
        .map_or((code, "ZZ"), |(_, name, country)| (name, country))
}

/// The metro of a facility.
pub(crate) fn metro_of(facility: &str) -> Option<&'static str> {
    if let Some((_, code)) = OLD_FACILITIES.iter().find(|(name, _)| *name == facility) {
        return metro(code);
    }
    let letters = facility.trim_end_matches(|c: char| c.is_ascii_digit());
    (letters.len() < facility.len()).then(|| metro(letters)).flatten()
}

/// All metros.
#[cfg(test)]
pub(crate) fn codes() -> impl Iterator<Item = &'static str> {
    METROS.iter().map(|(code, ..)| *code)
}

/// The id of a metro or facility: the same in every sandbox.
pub(crate) fn id_of(code: &str) -> Uuid {
    uuid_of(digest(0, code.as_bytes()), 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facilities_belong_to_metros() {
        assert_eq!(metro_of("sv15"), Some("sv"));
        assert_eq!(metro_of("ewr1"), Some("ny"));
        assert_eq!(metro_of("sv"), None);
        assert_eq!(metro_of("zz1"), None);
    }
}
