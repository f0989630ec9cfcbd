//! Addresses: families, prefixes, ranges. IPv4 and IPv6 alike.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Family {
    /// IPv4.
    #[serde(rename = "IPv4")]
    V4,
    /// IPv6.
    #[serde(rename = "IPv6")]
    V6,
}

impl Family {
    /// The family of `address`.
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// Bits of an address: 32 or 128. Also the length of a prefix that is one address.
    pub fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }

    /// The address with this number, or `None` where the number does not fit the family.
    pub fn address(self, number: u128) -> Option<IpAddr> {
        match self {
            Self::V4 => u32::try_from(number).ok().map(|n| IpAddr::V4(Ipv4Addr::from(n))),
            Self::V6 => Some(IpAddr::V6(Ipv6Addr::from(number))),
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// The number of an address within its family.
fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(a) => u128::from(u32::from(a)),
        IpAddr::V6(a) => u128::from(a),
    }
}

/// Why a text is not an address, prefix or range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseAddressError {
    /// Not an address at all.
    #[error("`{0}` is not an IP address, a CIDR (`192.0.2.0/24`) or a range (`192.0.2.10-192.0.2.20`)")]
    Syntax(String),
    /// A prefix with bits set behind its length.
    #[error("`{given}` has host bits set; the network is `{network}`")]
    HostBits {
        /// What was given.
        given: String,
        /// The prefix without its host bits.
        network: IpNet,
    },
    /// A range whose ends belong to two families.
    #[error("`{0}` mixes IPv4 and IPv6")]
    MixedFamilies(String),
    /// A range that ends before it starts.
    #[error("range `{0}` ends before it starts; swap its ends")]
    Reversed(String),
}

/// A block of addresses that share their leading bits; one address is a /32 or a /128. Has no host bits.
///
/// Ordered by family, then by first address, then by length.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Prefix(IpNet);

impl Prefix {
    /// A prefix of `length` bits that starts at `address`. Refuses host bits and a length beyond the family's.
    pub fn new(address: IpAddr, length: u8) -> Result<Self, ParseAddressError> {
        let net = IpNet::new(address, length)
            .map_err(|_| ParseAddressError::Syntax(format!("{address}/{length}")))?;
        if net.trunc() != net {
            return Err(ParseAddressError::HostBits {
                given: net.to_string(),
                network: net.trunc(),
            });
        }
        Ok(Self(net))
    }

    /// The prefix that is just `address`.
    pub fn host(address: IpAddr) -> Self {
        Self(IpNet::from(address))
    }

    /// The first address; the only one of a host prefix.
    pub fn address(self) -> IpAddr {
        // There are no host bits, so nothing is to be masked: this is asked at each step through every map of prefixes.
        self.0.addr()
    }

    /// Leading bits that are fixed.
    pub fn length(self) -> u8 {
        self.0.prefix_len()
    }

    /// The family.
    pub fn family(self) -> Family {
        Family::of(self.address())
    }

    /// Is this one address?
    pub fn is_host(self) -> bool {
        self.length() == self.family().bits()
    }

    /// All of its addresses, network and broadcast address included.
    pub fn range(self) -> AddressRange {
        let (family, first) = (self.family(), number(self.address()));
        let open = u32::from(family.bits() - self.length());
        let within = 1_u128.checked_shl(open).map_or(u128::MAX, |size| size - 1);
        AddressRange {
            family,
            first,
            last: first | within,
        }
    }
}

impl Ord for Prefix {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.family(), number(self.address()), self.length()).cmp(&(
            other.family(),
            number(other.address()),
            other.length(),
        ))
    }
}

impl PartialOrd for Prefix {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for Prefix {
    type Err = ParseAddressError;

    /// Reads `192.0.2.0/24`, or a bare address as a host prefix.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::host(address));
        }
        let net: IpNet = text
            .parse()
            .map_err(|_| ParseAddressError::Syntax(text.to_owned()))?;
        if net.trunc() != net {
            return Err(ParseAddressError::HostBits {
                given: text.to_owned(),
                network: net.trunc(),
            });
        }
        Ok(Self(net))
    }
}

impl TryFrom<String> for Prefix {
    type Error = ParseAddressError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Prefix> for String {
    fn from(prefix: Prefix) -> Self {
        prefix.to_string()
    }
}

/// Consecutive addresses of one family, both ends included, as numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AddressRange {
    family: Family,
    first: u128,
    last: u128,
}

impl AddressRange {
    /// The range from `first` to `last`. Refuses two families, and an end before the start.
    pub fn new(first: IpAddr, last: IpAddr) -> Result<Self, ParseAddressError> {
        let text = || format!("{first}-{last}");
        if Family::of(first) != Family::of(last) {
            return Err(ParseAddressError::MixedFamilies(text()));
        }
        if number(last) < number(first) {
            return Err(ParseAddressError::Reversed(text()));
        }
        Ok(Self {
            family: Family::of(first),
            first: number(first),
            last: number(last),
        })
    }

    /// The family.
    pub fn family(self) -> Family {
        self.family
    }

    /// Number of the first address.
    pub fn first(self) -> u128 {
        self.first
    }

    /// Number of the last address.
    pub fn last(self) -> u128 {
        self.last
    }

    /// How many addresses, saturating (all of IPv6 is one more than fits).
    pub fn size(self) -> u128 {
        (self.last - self.first).saturating_add(1)
    }

    /// Do both hold an address in common?
    pub fn overlaps(self, other: Self) -> bool {
        self.family == other.family && self.first <= other.last && other.first <= self.last
    }

    /// Is every address of `other` in here?
    pub fn contains(self, other: Self) -> bool {
        self.family == other.family && self.first <= other.first && other.last <= self.last
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.family.address(self.first), self.family.address(self.last)) {
            (Some(first), Some(last)) if first == last => write!(f, "{first}"),
            (Some(first), Some(last)) => write!(f, "{first}-{last}"),
            _ => f.write_str("(not a range)"),
        }
    }
}

impl fmt::Debug for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for AddressRange {
    type Err = ParseAddressError;

    /// Reads a CIDR, a bare address, or `first-last` (blanks around the dash are fine).
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some((first, last)) = text.split_once('-') else {
            return Ok(text.trim().parse::<Prefix>()?.range());
        };
        let syntax = || ParseAddressError::Syntax(text.to_owned());
        let first: IpAddr = first.trim().parse().map_err(|_| syntax())?;
        let last: IpAddr = last.trim().parse().map_err(|_| syntax())?;
        Self::new(first, last)
    }
}

impl TryFrom<String> for AddressRange {
    type Error = ParseAddressError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<AddressRange> for String {
    fn from(range: AddressRange) -> Self {
        range.to_string()
    }
}

impl From<Prefix> for AddressRange {
    fn from(prefix: Prefix) -> Self {
        prefix.range()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_with_host_bits_is_refused_and_names_the_network() {
        let error = "10.0.0.1/8".parse::<Prefix>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "`10.0.0.1/8` has host bits set; the network is `10.0.0.0/8`"
        );
    }

    #[test]
    fn a_bare_address_is_a_host_prefix() {
        let prefix: Prefix = "2001:db8::1".parse().unwrap();
        assert!(prefix.is_host());
        assert_eq!(prefix.to_string(), "2001:db8::1/128");
    }

    #[test]
    fn a_range_is_read_in_each_form() {
        for (text, first, last) in [
            ("192.0.2.0/30", "192.0.2.0", "192.0.2.3"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.7"),
            ("192.0.2.1 - 192.0.2.9", "192.0.2.1", "192.0.2.9"),
            ("2001:db8::/127", "2001:db8::", "2001:db8::1"),
        ] {
            let range: AddressRange = text.parse().unwrap();
            assert_eq!(
                range,
                AddressRange::new(first.parse().unwrap(), last.parse().unwrap()).unwrap()
            );
        }
    }

    #[test]
    fn a_range_refuses_mixed_families_and_reversed_ends() {
        assert!(matches!(
            "192.0.2.1-2001:db8::1".parse::<AddressRange>(),
            Err(ParseAddressError::MixedFamilies(_))
        ));
        assert!(matches!(
            "192.0.2.9-192.0.2.1".parse::<AddressRange>(),
            Err(ParseAddressError::Reversed(_))
        ));
        assert!(matches!(
            "192.0.2.9-x".parse::<AddressRange>(),
            Err(ParseAddressError::Syntax(_))
        ));
    }

    #[test]
    fn all_of_ipv6_is_a_range() {
        let all: AddressRange = "::/0".parse().unwrap();
        assert_eq!(all.size(), u128::MAX);
        assert!(all.contains("2001:db8::/32".parse().unwrap()));
    }
}
