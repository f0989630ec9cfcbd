//! The JSON of the API, as far as we use it. Unknown fields are ignored; an object that was not included has only a link.

use std::net::IpAddr;

use secrecy::SecretString;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A sub-object of which only the link may be there.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Link {
    #[serde(default)]
    pub(super) href: String,
}

impl Link {
    /// The id at the link's end.
    pub(super) fn id(&self) -> &str {
        self.href.rsplit('/').next().unwrap_or_default()
    }
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Coded {
    #[serde(default)]
    pub(super) code: String,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Plan {
    #[serde(default)]
    pub(super) slug: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Device {
    pub(super) id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) hostname: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) state: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) plan: Plan,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) metro: Coded,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) facility: Coded,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) ip_addresses: Vec<DeviceAddress>,
}

/// An address of a machine: its own (`management`), or one that was assigned.
#[derive(Debug, Deserialize)]
pub(super) struct DeviceAddress {
    /// `None`: not included.
    #[serde(default)]
    pub(super) address: Option<IpAddr>,
    #[serde(default)]
    pub(super) public: bool,
    #[serde(default)]
    pub(super) management: bool,
    /// The router next to it.
    #[serde(default)]
    pub(super) gateway: Option<IpAddr>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) parent_block: ParentBlock,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct ParentBlock {
    #[serde(default)]
    pub(super) network: Option<IpAddr>,
    #[serde(default)]
    pub(super) cidr: Option<u8>,
}

/// A reservation of any type; a VRF's has fewer fields.
#[derive(Debug, Deserialize)]
pub(super) struct Reservation {
    pub(super) id: String,
    #[serde(rename = "type", default, deserialize_with = "or_default")]
    pub(super) kind: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) state: String,
    /// Empty while it is pending.
    #[serde(default, deserialize_with = "or_default")]
    pub(super) address: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) cidr: u8,
    #[serde(default)]
    pub(super) management: bool,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) tags: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) assignments: Vec<Assignment>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Assignment {
    #[serde(default)]
    pub(super) id: String,
    #[serde(default)]
    pub(super) href: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) assigned_to: Link,
}

/// The BGP configuration; all fields are absent where BGP was never asked for.
#[derive(Debug, Deserialize)]
pub(super) struct BgpConfig {
    #[serde(default)]
    pub(super) id: Option<String>,
    #[serde(default)]
    pub(super) status: Option<String>,
    #[serde(default)]
    pub(super) asn: Option<u32>,
    /// Prefixes that a machine may announce.
    #[serde(default)]
    pub(super) max_prefix: Option<u32>,
    #[serde(default, deserialize_with = "secret")]
    pub(super) md5: Option<SecretString>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Session {
    pub(super) id: String,
    pub(super) address_family: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) status: String,
    pub(super) device: SessionDevice,
}

/// The machine of a session: its link, or all of it.
#[derive(Debug, Deserialize)]
pub(super) struct SessionDevice {
    #[serde(default)]
    pub(super) id: String,
    #[serde(default)]
    pub(super) href: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Neighbors {
    pub(super) bgp_neighbors: Vec<Neighbor>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Neighbor {
    #[serde(default)]
    pub(super) customer_as: u32,
    #[serde(default)]
    pub(super) customer_ip: Option<IpAddr>,
    #[serde(default)]
    pub(super) md5_enabled: Option<bool>,
    #[serde(default, deserialize_with = "secret")]
    pub(super) md5_password: Option<SecretString>,
    #[serde(default)]
    pub(super) multihop: bool,
    pub(super) peer_as: u32,
    #[serde(default)]
    pub(super) peer_ips: Vec<IpAddr>,
}

/// `null` is as good as absent.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// A password. One of another type is refused without the words of the decoder, which would show it.
fn secret<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SecretString>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.into())),
        _ => Err(D::Error::custom("a password that is not a text")),
    }
}
