//! Labels and annotations.

use std::fmt;

use groundplane_core::names;
use parking_lot::RwLock;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Keys and values, ordered by key. Smaller than a map, and never changed.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Pairs(Box<[(Box<str>, Box<str>)]>);

impl Pairs {
    /// The value of `key`.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(other, _)| (**other).cmp(key)).ok()?;
        Some(&self.0[at].1)
    }

    /// All of them, by key.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }
}

impl fmt::Debug for Pairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Values may be secret: kube-vip reads BGP passwords from annotations.
        f.debug_set().entries(self.0.iter().map(|(key, _)| key)).finish()
    }
}

impl<K: Into<Box<str>>, V: Into<Box<str>>> FromIterator<(K, V)> for Pairs {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let mut pairs: Vec<(Box<str>, Box<str>)> = pairs
            .into_iter()
            .map(|(key, value)| (key.into(), value.into()))
            .collect();
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        Self(pairs.into_boxed_slice())
    }
}

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_option(Keep(|_| true))
    }
}

/// What says that an annotation is read whose name was configured.
type Also = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// The configured names. A decoder gets nothing but what it decodes, so they stand here; they only ever become more.
static ALSO: RwLock<Vec<Also>> = RwLock::new(Vec::new());

/// From now on, annotations with such keys are read, too.
pub(crate) fn read_also(is_read: impl Fn(&str) -> bool + Send + Sync + 'static) {
    ALSO.write().push(Box::new(is_read));
}

/// Annotations that we read: ours, those that announcers keep addresses and peers in, those that say where an elastic IP
/// goes, kubelet's `--node-ip`, and those whose names were configured.
fn is_read(key: &str) -> bool {
    let prefix = key.split_once('/').map_or("", |(prefix, _)| prefix);
    matches!(
        prefix,
        names::GROUP
            | "kube-vip.io"
            | "metallb.io"
            | "metallb.universe.tf"
            | names::ANNOTATION_PREFIX
            | names::CHERRY_ANNOTATION_PREFIX
            | names::PACKET_ANNOTATION_PREFIX
    ) || key == names::PROVIDED_NODE_IP
        || ALSO.read().iter().any(|also| also(key))
}

/// Reads annotations, and leaves out those that we do not read.
pub(super) fn annotations<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Pairs, D::Error> {
    deserializer.deserialize_option(Keep(is_read))
}

/// Reads a map (or null), and keeps the keys that it accepts.
struct Keep(fn(&str) -> bool);

impl<'de> Visitor<'de> for Keep {
    type Value = Pairs;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of strings")
    }

    fn visit_none<E>(self) -> Result<Pairs, E> {
        Ok(Pairs::default())
    }

    fn visit_unit<E>(self) -> Result<Pairs, E> {
        Ok(Pairs::default())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Pairs, D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
        let mut pairs: Vec<(Box<str>, Box<str>)> = Vec::new();
        while let Some(key) = map.next_key_seed(KeepKey(self.0))? {
            match key {
                Some(key) => pairs.push((key, map.next_value()?)),
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(pairs.into_iter().collect())
    }
}

/// Reads a key; `None` if it is not kept.
struct KeepKey(fn(&str) -> bool);

impl<'de> DeserializeSeed<'de> for KeepKey {
    type Value = Option<Box<str>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeepKey {
    type Value = Option<Box<str>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok((self.0)(key).then(|| key.into()))
    }
}
