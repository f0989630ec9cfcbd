//! Pools as their sources describe them: read from text, with every problem at once.

use std::collections::{BTreeMap, BTreeSet};

use groundplane_core::{
    AddressRange, Family, Name, NetworkName, ParseAddressError, PoolId, PoolName, PoolSource, Prefix,
};
use serde::{Deserialize, Serialize};

/// A pool as its source describes it, not yet read: in the configuration file, or in a message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PoolConfig {
    /// Its namespace within its source; empty where it has none, as in the file.
    #[serde(skip)]
    pub namespace: String,
    /// Its name. Required.
    pub name: String,
    /// The address space; `default` unless written.
    pub network: String,
    /// CIDRs, addresses and ranges: `192.0.2.0/24`, `192.0.2.7`, `192.0.2.10-192.0.2.20`, `2001:db8::/64`.
    pub addresses: Vec<String>,
    /// Never given, in the same form.
    pub exclude: Vec<String>,
    /// Given only to who asks for them by address.
    pub reserved: Vec<String>,
    /// Pools of higher priority are used up first. Equal: by name.
    pub priority: i32,
    /// Only for who names the pool, or an address in it.
    pub explicit_only: bool,
    /// Only for objects in these namespaces; empty: all.
    pub namespaces: Vec<String>,
    /// Only for objects that carry all these labels.
    pub match_labels: BTreeMap<String, String>,
    /// Give network and broadcast addresses of IPv4 CIDRs, and the subnet-router anycast address of IPv6 CIDRs, too.
    pub use_edge_addresses: bool,
}

/// One item of a pool's addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolRange {
    /// As it was written.
    pub text: String,
    /// What it means.
    pub range: AddressRange,
    /// The prefix, where it was written as a CIDR: only these have edges.
    pub cidr: Option<Prefix>,
}

/// A pool that was read and is in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSpec {
    /// Source, namespace, name.
    pub id: PoolId,
    /// The address space.
    pub network: NetworkName,
    /// What it consists of.
    pub addresses: Vec<PoolRange>,
    /// Never given.
    pub exclude: Vec<PoolRange>,
    /// Given only by address.
    pub reserved: Vec<PoolRange>,
    /// Higher ones are used up first.
    pub priority: i32,
    /// Only for who names the pool or an address in it.
    pub explicit_only: bool,
    /// Only for objects in these namespaces; empty: all.
    pub namespaces: BTreeSet<String>,
    /// Only for objects with all these labels.
    pub match_labels: BTreeMap<String, String>,
    /// Give the edges of CIDRs, too.
    pub use_edge_addresses: bool,
}

impl PoolSpec {
    /// What is never given: exclusions, and the edges of CIDRs unless the pool gives them.
    pub(super) fn excluded(&self) -> Vec<AddressRange> {
        let edges = self.addresses.iter().filter(|_| !self.use_edge_addresses);
        self.exclude
            .iter()
            .map(|item| item.range)
            .chain(edges.filter_map(|item| item.cidr).flat_map(edges_of))
            .collect()
    }

    /// Does an item of the pool hold all of `range`?
    pub(super) fn covers(&self, range: AddressRange) -> bool {
        self.addresses.iter().any(|item| item.range.contains(range))
    }

    /// Does it have addresses of this family?
    pub(super) fn has(&self, family: Family) -> bool {
        self.addresses.iter().any(|item| item.range.family() == family)
    }
}

/// Network and broadcast address of an IPv4 CIDR shorter than /31, and the subnet-router anycast address of an IPv6 CIDR
/// shorter than /127.
fn edges_of(cidr: Prefix) -> Vec<AddressRange> {
    let (family, range) = (cidr.family(), cidr.range());
    if cidr.length() + 1 >= family.bits() {
        return Vec::new();
    }
    let numbers = match family {
        Family::V4 => vec![range.first(), range.last()],
        Family::V6 => vec![range.first()],
    };
    let addresses = numbers.into_iter().filter_map(|number| family.address(number));
    addresses.map(|address| Prefix::host(address).range()).collect()
}

/// Something wrong with a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolProblem {
    /// Which value: `[1].addresses[0]`.
    pub path: String,
    /// What is wrong with it.
    pub message: String,
    /// The way out.
    pub help: String,
}

/// Reads all pools of one source, in the presence of `others`, the pools of all other sources. Gives either every pool
/// or every problem.
pub fn read_pools<'a>(
    source: &PoolSource,
    raw: &[PoolConfig],
    others: impl Iterator<Item = &'a PoolSpec>,
) -> Result<Vec<PoolSpec>, Vec<PoolProblem>> {
    let mut problems = Vec::new();
    let mut read: Vec<(usize, PoolSpec)> = Vec::new();
    for (index, pool) in raw.iter().enumerate() {
        let mut reader = Reader {
            path: format!("[{index}]"),
            problems: &mut problems,
        };
        let Some(spec) = reader.pool(source, pool) else {
            continue;
        };
        if let Some((earlier, _)) = read.iter().find(|(_, earlier)| earlier.id == spec.id) {
            let message = format!("pool `{}` is there twice, first as [{earlier}]", spec.id.name);
            reader.tell("name", message, "give each pool a name of its own");
        }
        read.push((index, spec));
    }
    overlaps(&read, others, &mut problems);
    if problems.is_empty() {
        Ok(read.into_iter().map(|(_, spec)| spec).collect())
    } else {
        Err(problems)
    }
}

/// Reads one pool; every problem goes to the list.
struct Reader<'a> {
    path: String,
    problems: &'a mut Vec<PoolProblem>,
}

impl Reader<'_> {
    fn tell(&mut self, field: &str, message: String, help: &str) {
        let path = format!("{}.{field}", self.path);
        self.problems.push(PoolProblem {
            path,
            message,
            help: help.to_owned(),
        });
    }

    fn pool(&mut self, source: &PoolSource, raw: &PoolConfig) -> Option<PoolSpec> {
        let before = self.problems.len();
        let name = self.name::<PoolName>("name", &raw.name);
        let namespace = match raw.namespace.as_str() {
            "" => None,
            namespace => self.name::<Name>("namespace", namespace),
        };
        let network = match raw.network.as_str() {
            "" => Some(NetworkName::default()),
            network => self.name::<NetworkName>("network", network),
        };
        let addresses = self.ranges("addresses", &raw.addresses);
        let exclude = self.ranges("exclude", &raw.exclude);
        let reserved = self.ranges("reserved", &raw.reserved);
        if raw.addresses.is_empty() {
            self.tell(
                "addresses",
                "no addresses".to_owned(),
                "list CIDRs, addresses or ranges, or remove the pool",
            );
        }
        if self.problems.len() == before {
            self.within("exclude", &exclude, &addresses);
            self.within("reserved", &reserved, &addresses);
        }
        if self.problems.len() > before && addresses.is_empty() {
            return None;
        }
        let spec = PoolSpec {
            id: PoolId {
                source: source.clone(),
                namespace,
                name: name?,
            },
            network: network?,
            addresses,
            exclude,
            reserved,
            priority: raw.priority,
            explicit_only: raw.explicit_only,
            namespaces: raw.namespaces.iter().cloned().collect(),
            match_labels: raw.match_labels.clone(),
            use_edge_addresses: raw.use_edge_addresses,
        };
        if self.problems.len() == before && nothing_left(&spec) {
            let help = "exclude less, add addresses, or set useEdgeAddresses";
            self.tell("addresses", "every address is excluded".to_owned(), help);
        }
        Some(spec)
    }

    fn name<T: std::str::FromStr<Err: std::fmt::Display>>(&mut self, field: &str, text: &str) -> Option<T> {
        text.parse()
            .map_err(|error: T::Err| self.tell(field, error.to_string(), "write a plain name"))
            .ok()
    }

    fn ranges(&mut self, field: &str, texts: &[String]) -> Vec<PoolRange> {
        let mut ranges = Vec::with_capacity(texts.len());
        for (index, text) in texts.iter().enumerate() {
            match read_range(text) {
                Ok(range) => ranges.push(range),
                Err(error) => {
                    self.tell(&format!("{field}[{index}]"), error.to_string(), help_for(&error));
                }
            }
        }
        ranges
    }

    /// What is taken from a pool has to be in it: else it is a slip of the pen.
    fn within(&mut self, field: &str, items: &[PoolRange], addresses: &[PoolRange]) {
        for (index, item) in items.iter().enumerate() {
            if !addresses.iter().any(|address| address.range.overlaps(item.range)) {
                let message = format!("`{}` is outside the pool's addresses", item.text);
                self.tell(&format!("{field}[{index}]"), message, "remove it, or correct it");
            }
        }
    }
}

fn read_range(text: &str) -> Result<PoolRange, ParseAddressError> {
    let range: AddressRange = text.parse()?;
    let cidr = text.contains('/').then(|| text.trim().parse().ok()).flatten();
    Ok(PoolRange {
        text: text.trim().to_owned(),
        range,
        cidr,
    })
}

fn help_for(error: &ParseAddressError) -> &'static str {
    match error {
        ParseAddressError::Syntax(_) => "write a CIDR, an address or a range",
        ParseAddressError::HostBits { .. } => "write the network, or a single address without a length",
        ParseAddressError::MixedFamilies(_) => "write one range for each family",
        ParseAddressError::Reversed(_) => "swap its ends",
    }
}

fn nothing_left(spec: &PoolSpec) -> bool {
    let mut left = super::FreeSet::new();
    for family in [Family::V4, Family::V6] {
        left = super::FreeSet::new();
        for item in spec.addresses.iter().filter(|item| item.range.family() == family) {
            left.insert(item.range.first(), item.range.last());
        }
        for range in spec.excluded().iter().filter(|range| range.family() == family) {
            left.remove(range.first(), range.last());
        }
        if left.count() > 0 {
            return false;
        }
    }
    left.count() == 0
}

/// Tells of each item that shares addresses with another pool of the same network.
fn overlaps<'a>(
    read: &[(usize, PoolSpec)],
    others: impl Iterator<Item = &'a PoolSpec>,
    problems: &mut Vec<PoolProblem>,
) {
    struct Item<'a> {
        place: Option<(usize, usize)>,
        pool: &'a PoolSpec,
        range: &'a PoolRange,
    }
    let others = others.flat_map(|pool| {
        pool.addresses.iter().map(move |range| Item {
            place: None,
            pool,
            range,
        })
    });
    let ours = read.iter().flat_map(|(index, pool)| {
        let items = pool.addresses.iter().enumerate();
        items.map(move |(item, range)| Item {
            place: Some((*index, item)),
            pool,
            range,
        })
    });
    let mut items: Vec<_> = others.chain(ours).collect();
    items.sort_by_key(|item| (item.pool.network.clone(), item.range.range));
    // Sorted by first address, so an item overlaps an earlier one only if that reaches into it.
    let mut reaching: Vec<&Item<'_>> = Vec::new();
    for item in &items {
        reaching.retain(|earlier| {
            earlier.pool.network == item.pool.network && earlier.range.range.overlaps(item.range.range)
        });
        for earlier in &reaching {
            if earlier.pool.id == item.pool.id {
                continue;
            }
            // The one that comes later in the file is told of; what other sources have is not ours to correct.
            let (told, other) = if item.place > earlier.place {
                (item, *earlier)
            } else {
                (*earlier, item)
            };
            let Some((index, position)) = told.place else {
                continue;
            };
            problems.push(PoolProblem {
                path: format!("[{index}].addresses[{position}]"),
                message: format!(
                    "`{}` of pool `{}` overlaps `{}` of pool `{}` in network `{}`",
                    told.range.text, told.pool.id.name, other.range.text, other.pool.id, told.pool.network
                ),
                help: "give each address to one pool, or put the pools into different networks".to_owned(),
            });
        }
        reaching.push(item);
    }
}
