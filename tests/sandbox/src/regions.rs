//! Where machines stand, as Cherry Servers says it: each metro of the sandbox is a region, with routers of its own. Three regions
//! have names that the vendor's documents use; the others are made up after the same pattern.

use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

/// A region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) id: u32,
    pub(crate) name: &'static str,
    pub(crate) slug: &'static str,
    /// Code of its country.
    pub(crate) country: &'static str,
    pub(crate) location: &'static str,
    /// The metro that it is.
    pub(crate) metro: &'static str,
}

/// Name, slug, country, location and metro, in the order of their ids from 1.
const REGIONS: &[(&str, &str, &str, &str, &str)] = &[
    ("EU-Nord-1", "eu_nord_1", "LT", "Lithuania, Siauliai", "lt"),
    ("EU-West-1", "eu_west_1", "NL", "Netherlands, Amsterdam", "am"),
    (
        "US-Chicago-1",
        "us_chicago_1",
        "US",
        "United States, Chicago",
        "ch",
    ),
    ("SG-Singapore-1", "sg_singapore_1", "SG", "Singapore", "sg"),
    (
        "DE-Frankfurt-1",
        "de_frankfurt_1",
        "DE",
        "Germany, Frankfurt",
        "fr",
    ),
    ("US-Dallas-1", "us_dallas_1", "US", "United States, Dallas", "da"),
    (
        "US-Washington-1",
        "us_washington_1",
        "US",
        "United States, Washington DC",
        "dc",
    ),
    ("HK-Hong-Kong-1", "hk_hong_kong_1", "HK", "Hong Kong", "hk"),
    (
        "US-Los-Angeles-1",
        "us_los_angeles_1",
        "US",
        "United States, Los Angeles",
        "la",
    ),
    ("GB-London-1", "gb_london_1", "GB", "United Kingdom, London", "ld"),
    ("ES-Madrid-1", "es_madrid_1", "ES", "Spain, Madrid", "md"),
    (
        "US-New-York-1",
        "us_new_york_1",
        "US",
        "United States, New York",
        "ny",
    ),
    ("FR-Paris-1", "fr_paris_1", "FR", "France, Paris", "pa"),
    (
        "US-Silicon-Valley-1",
        "us_silicon_valley_1",
        "US",
        "United States, Silicon Valley",
        "sv",
    ),
    ("AU-Sydney-1", "au_sydney_1", "AU", "Australia, Sydney", "sy"),
    ("JP-Tokyo-1", "jp_tokyo_1", "JP", "Japan, Tokyo", "ty"),
];

/// All regions, by id.
pub(crate) fn all() -> impl Iterator<Item = Region> {
    (1..)
        .zip(REGIONS)
        .map(|(id, (name, slug, country, location, metro))| Region {
            id,
            name,
            slug,
            country,
            location,
            metro,
        })
}

/// The region that this text names: by name, slug or id.
pub(crate) fn named(text: &str) -> Option<Region> {
    all().find(|region| text == region.name || text == region.slug || text.parse() == Ok(region.id))
}

/// The region of a metro.
pub(crate) fn of_metro(code: &str) -> Option<Region> {
    all().find(|region| region.metro == code)
}

/// The routers of a region, that all its machines speak BGP with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegionBgp {
    /// Their addresses; none: they are not known yet.
    pub hosts: Vec<IpAddr>,
    /// Their ASN.
    pub asn: u32,
}

impl RegionBgp {
    /// Two routers, out of the range for benchmarks: never routed.
    pub(crate) fn of(region: Region, asn: u32) -> Self {
        let third = u8::try_from(region.id).unwrap_or(u8::MAX);
        let host = |last| IpAddr::V4(Ipv4Addr::new(198, 18, third, last));
        Self {
            hosts: vec![host(1), host(2)],
            asn,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locations;

    #[test]
    fn every_metro_is_a_region_and_every_region_a_metro() {
        for region in all() {
            assert_eq!(locations::metro(region.metro), Some(region.metro));
            assert_eq!(of_metro(region.metro), Some(region));
            for text in [region.name, region.slug, &region.id.to_string()] {
                assert_eq!(named(text), Some(region), "{text}");
            }
        }
        for code in locations::codes() {
            assert!(of_metro(code).is_some(), "{code}");
        }
        assert_eq!(named("0"), None);
        assert_eq!(named("sv"), None);
    }
}
