//! What people have in MetalLB's configuration, how they change it, and what must be there beside it: nothing of theirs is ever touched,
//! and ours is exactly what Services and nodes need.

mod objects;
mod text;

use std::collections::BTreeSet;

use serde_json::Value;

pub use objects::{Object, objects_of_people, wrong_in_objects};
pub use text::{document, edited, is_intact, wrong_in_text};

/// Where MetalLB is, by default.
pub const NAMESPACE: &str = "metallb-system";
/// The name of its `ConfigMap`, by default, and of the key that it reads.
pub const CONFIG: &str = "config";

/// Label of what is groundplane's, and its value.
const OURS: (&str, &str) = ("app.kubernetes.io/managed-by", "groundplane");
/// By this label peers select nodes.
const HOSTNAME: &str = "kubernetes.io/hostname";
/// A neighbour of every machine of the clouds in tests, and one of which people may have their own idea.
const NEIGHBOUR: &str = "169.254.255.1";

/// What MetalLB is to be told by groundplane.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The addresses of Services.
    pub addresses: BTreeSet<String>,
    /// The neighbours of nodes, each by the node's host name and its own address. Without a Service, nobody needs them.
    pub peers: BTreeSet<(String, String)>,
}

impl Wanted {
    /// The neighbours of a node, as its annotations tell them, whatever they are prefixed by.
    pub fn learn<'a>(&mut self, hostname: &str, annotations: impl IntoIterator<Item = (&'a str, &'a str)>) {
        let told = annotations
            .into_iter()
            .filter(|(key, _)| key.contains("/bgp-peers-") && key.ends_with("-peer-ip"))
            // Sessions between IPv6 addresses carry nothing in MetalLB's native mode.
            .filter(|(_, address)| !address.contains(':'));
        self.peers
            .extend(told.map(|(_, address)| (hostname.to_owned(), address.to_owned())));
    }

    fn peers(&self) -> BTreeSet<(String, String)> {
        if self.addresses.is_empty() {
            BTreeSet::new()
        } else {
            self.peers.clone()
        }
    }
}

/// Does an entry of a pool (`192.0.2.0/24`) cover this IPv4 address?
#[must_use]
pub fn covers(entry: &str, address: &str) -> bool {
    let number = |text: &str| text.trim().parse::<std::net::Ipv4Addr>().ok().map(u32::from);
    let Some(address) = number(address) else {
        return false;
    };
    let bounds = || {
        if let Some((first, last)) = entry.split_once('-') {
            return Some((number(first)?, number(last)?));
        }
        let (first, length) = entry.split_once('/')?;
        let host = u32::MAX.checked_shr(length.parse().ok()?).unwrap_or_default();
        let first = number(first)? & !host;
        Some((first, first | host))
    };
    bounds().is_some_and(|(first, last)| (first..=last).contains(&address))
}

/// The one address of an entry of ours.
fn single(entry: &str) -> &str {
    entry.strip_suffix("/32").unwrap_or(entry)
}

/// What of `entries` comes twice.
fn doubled<T: Ord + Clone>(entries: &[T]) -> Option<T> {
    let mut seen = BTreeSet::new();
    entries.iter().find(|entry| !seen.insert(*entry)).cloned()
}

/// How two sets differ, in words.
fn difference<T: Ord + std::fmt::Debug>(
    what: &str,
    has: &BTreeSet<T>,
    wants: &BTreeSet<T>,
) -> Option<String> {
    let (more, less): (Vec<&T>, Vec<&T>) = (has.difference(wants).collect(), wants.difference(has).collect());
    (!more.is_empty() || !less.is_empty())
        .then(|| format!("MetalLB has {what} {more:?} too many, and lacks {less:?}"))
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn texts(value: &Value, key: &str) -> Vec<String> {
    let all = list(value, key).iter();
    all.filter_map(Value::as_str).map(str::to_owned).collect()
}
