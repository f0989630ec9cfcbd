//! The JSON of the API, as far as we use it. Unknown fields are ignored, `null` is as good as absent, and so is `[]` where there is no
//! object: that is how some servers write an empty one.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Type of a server's public address.
const PRIMARY: &str = "primary-ip";
/// What some answers call it instead.
const PUBLIC: &str = "public-ip";
/// Type of a server's private address.
const PRIVATE: &str = "private-ip";
/// Type of an address that can be moved.
const FLOATING: &str = "floating-ip";

/// Key of the tag that stands first.
const FIRST: &str = "usage";

/// A project.
#[derive(Debug, Deserialize)]
pub(super) struct Project {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) bgp: ProjectBgp,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct ProjectBgp {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) enabled: bool,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) local_asn: u32,
}

/// A machine. Some answers have less of it.
#[derive(Debug, Deserialize)]
pub(super) struct Server {
    pub(super) id: u64,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) hostname: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) state: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) plan: Plan,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) region: Region,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) bgp: ServerBgp,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) ip_addresses: Vec<Ip>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) tags: Tags,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Plan {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) slug: String,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Region {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) slug: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) bgp: RegionBgp,
}

/// The routers of a region.
#[derive(Debug, Default, Deserialize)]
pub(super) struct RegionBgp {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) hosts: Vec<IpAddr>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) asn: u32,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct ServerBgp {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) enabled: bool,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) status: String,
}

/// An address of any type: a server's own, a floating one, a subnet.
#[derive(Debug, Deserialize)]
pub(super) struct Ip {
    pub(super) id: String,
    /// Absent while it is being made.
    #[serde(default)]
    pub(super) address: Option<IpAddr>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) cidr: String,
    #[serde(rename = "type", default, deserialize_with = "or_default")]
    pub(super) kind: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) region: Region,
    #[serde(default, deserialize_with = "or_default")]
    targeted_to: Target,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) tags: Tags,
}

#[derive(Debug, Default, Deserialize)]
struct Target {
    #[serde(default, deserialize_with = "or_default")]
    id: u64,
}

impl Ip {
    /// The server that it is on; `None`: on none.
    pub(super) fn holder(&self) -> Option<u64> {
        Some(self.targeted_to.id).filter(|id| *id != 0)
    }

    pub(super) fn is_floating(&self) -> bool {
        self.kind == FLOATING
    }

    /// Is it a server's own address for the world?
    pub(super) fn is_public(&self) -> bool {
        self.kind == PRIMARY || self.kind == PUBLIC
    }

    /// Is it a server's own address within the project's network?
    pub(super) fn is_private(&self) -> bool {
        self.kind == PRIVATE
    }
}

/// Tags. As texts they are `key=value`; `key` alone where the value is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub(super) struct Tags(pub(super) BTreeMap<String, String>);

impl Tags {
    /// Those that these texts mean; `Err` with the key that is there twice.
    pub(super) fn of_texts(texts: &[String]) -> Result<Self, String> {
        let mut tags = BTreeMap::new();
        for (key, value) in texts.iter().map(|text| split(text)) {
            let before = tags.insert(key.to_owned(), value.to_owned());
            if before.is_some_and(|before| before != value) {
                return Err(key.to_owned());
            }
        }
        Ok(Self(tags))
    }

    /// As texts: what it is for comes first, as in every list of tags that groundplane writes, then the others by their keys.
    pub(super) fn texts(&self) -> Vec<String> {
        let text = |(key, value): (&String, &String)| match value.as_str() {
            "" => key.clone(),
            value => format!("{key}={value}"),
        };
        let mut texts: Vec<_> = self.0.iter().collect();
        texts.sort_by_key(|(key, _)| *key != FIRST);
        texts.into_iter().map(text).collect()
    }

    /// Is the tag that this text means among them?
    pub(super) fn has(&self, text: &str) -> bool {
        let (key, value) = split(text);
        self.0.get(key).is_some_and(|known| known == value)
    }
}

/// Values hold `=`, too.
fn split(text: &str) -> (&str, &str) {
    text.split_once('=').unwrap_or((text, ""))
}

impl TryFrom<Value> for Tags {
    type Error = &'static str;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        let Value::Object(fields) = value else {
            return Err("tags that are not a map");
        };
        let text = |value| match value {
            Value::Null => Ok(String::new()),
            Value::String(text) => Ok(text),
            Value::Number(number) => Ok(number.to_string()),
            Value::Bool(flag) => Ok(flag.to_string()),
            Value::Array(_) | Value::Object(_) => Err("a tag that is not a text"),
        };
        let pairs = fields
            .into_iter()
            .map(|(key, value)| Ok::<_, &'static str>((key, text(value)?)));
        Ok(Self(pairs.collect::<Result<_, _>>()?))
    }
}

/// `null` is as good as absent, and so is an empty list: where a list is wanted it is one.
fn or_default<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(T::default()),
        Value::Array(rows) if rows.is_empty() => Ok(T::default()),
        value => serde_json::from_value(value).map_err(D::Error::custom),
    }
}
