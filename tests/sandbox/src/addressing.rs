//! Which address a project's machines and reservations get. Pure arithmetic.
//!
//! Each of 128 projects has slices of its own (the 129th shares those of the first: projects never see one
//! another):
//!
//! | what | slice of a project | room |
//! |---|---|---|
//! | public IPv4 of machines | first half of a /17 of 100.64.0.0/10, a /31 each | 8,192 machines |
//! | public IPv4 that is reserved | second half of it | 16,384 addresses |
//! | private IPv4 of machines | first half of a /15 of 10.0.0.0/8, a /31 each, out of /25 blocks | 32,768 machines |
//! | private IPv4 that is reserved | second half of it | 65,536 addresses |
//! | public IPv6 of machines | `2001:db8:N::/56`, a /127 each | as many |
//! | public IPv6 that is reserved | `2001:db8:N:8000::/64` | as many |
//!
//! Nothing here is ever routed, so it may be space that nobody can own: shared and documentation ranges.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use groundplane_core::Family;

/// How many projects have slices of their own.
const PROJECTS: u32 = 128;
/// Machines that fit into the public slice.
const SLOTS: u32 = 8_192;
/// How many places are tried before a pool counts as full. More than any IPv4 slice has.
const MOST_TRIES: u32 = 65_536;

/// The number of an address within its family.
pub(crate) fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(a) => u128::from(u32::from(a)),
        IpAddr::V6(a) => u128::from(a),
    }
}

/// Number of the first and of the last address of the block.
pub(crate) fn bounds(address: IpAddr, cidr: u8) -> (u128, u128) {
    let host_bits = u32::from(Family::of(address).bits().saturating_sub(cidr));
    let mask = if host_bits >= 128 {
        u128::MAX
    } else {
        (1 << host_bits) - 1
    };
    let first = number(address) & !mask;
    (first, first | mask)
}

/// The first address of the block that `address` is in.
pub(crate) fn network(address: IpAddr, cidr: u8) -> IpAddr {
    Family::of(address)
        .address(bounds(address, cidr).0)
        .unwrap_or(address)
}

/// The mask with `cidr` leading ones, in the family of `like`.
pub(crate) fn netmask(like: IpAddr, cidr: u8) -> IpAddr {
    match like {
        IpAddr::V4(_) => {
            let bits = u32::MAX.checked_shl(32 - u32::from(cidr.min(32))).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from(bits))
        }
        IpAddr::V6(_) => {
            let bits = u128::MAX.checked_shl(128 - u32::from(cidr.min(128))).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from(bits))
        }
    }
}

/// Where a project's addresses come from.
#[derive(Debug)]
pub(crate) struct AddressPlan {
    project: u32,
    next_slot: u32,
    free_slots: VecDeque<u32>,
    pub(crate) public_v4: BlockPool,
    pub(crate) private_v4: BlockPool,
    pub(crate) public_v6: BlockPool,
}

impl AddressPlan {
    /// The plan of the project with this number, counted from 0.
    pub(crate) fn new(project: u32) -> Self {
        let project = project % PROJECTS;
        let shared = u32::from(Ipv4Addr::new(100, 64, 0, 0)) + (project << 15);
        let private = u32::from(Ipv4Addr::new(10, 0, 0, 0)) + (project << 17);
        Self {
            project,
            next_slot: 0,
            free_slots: VecDeque::new(),
            public_v4: BlockPool::new(Family::V4, u128::from(shared + (1 << 14)), 1 << 14),
            private_v4: BlockPool::new(Family::V4, u128::from(private + (1 << 16)), 1 << 16),
            public_v6: BlockPool::new(Family::V6, v6_base(project) + (0x8000 << 64), 1 << 64),
        }
    }

    /// A place for one more machine; freed places are used again only when no fresh one is left.
    pub(crate) fn take_slot(&mut self) -> Option<u32> {
        if self.next_slot < SLOTS {
            self.next_slot += 1;
            return Some(self.next_slot - 1);
        }
        self.free_slots.pop_front()
    }

    pub(crate) fn free_slot(&mut self, slot: u32) {
        self.free_slots.push_back(slot);
    }

    /// The public IPv4 address of the machine in this place; a /31.
    pub(crate) fn machine_public_v4(&self, slot: u32) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(Ipv4Addr::new(100, 64, 0, 0)) + (self.project << 15) + 2 * slot + 1)
    }

    /// The private IPv4 address of the machine in this place; a /31 of a /25.
    pub(crate) fn machine_private_v4(&self, slot: u32) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 0, 0, 0)) + (self.project << 17) + 2 * slot + 1)
    }

    /// The public IPv6 address of the machine in this place; a /127 of a /56.
    pub(crate) fn machine_public_v6(&self, slot: u32) -> Ipv6Addr {
        Ipv6Addr::from(v6_base(self.project) + u128::from(2 * slot + 1))
    }
}

/// `2001:db8:N::`, as a number.
fn v6_base(project: u32) -> u128 {
    (0x2001_0db8_u128 << 96) | (u128::from(project) << 80)
}

/// Blocks by first address, with the length of each. Blocks never overlap.
pub(crate) type UsedBlocks<V> = BTreeMap<IpAddr, V>;

/// A range out of which blocks of 1, 2, 4 … addresses are taken, each the next free one after the last, so that
/// a released address rests for as long as possible.
#[derive(Debug)]
pub(crate) struct BlockPool {
    family: Family,
    first: u128,
    size: u128,
    next: u128,
}

impl BlockPool {
    pub(crate) fn new(family: Family, first: u128, size: u128) -> Self {
        Self {
            family,
            first,
            size,
            next: 0,
        }
    }

    /// A free block of `count` addresses (a power of two), aligned to its size. `None`: the pool is full.
    pub(crate) fn take(&mut self, count: u128, is_used: impl Fn(IpAddr, u128) -> bool) -> Option<IpAddr> {
        if count == 0 || count > self.size {
            return None;
        }
        let places = u32::try_from(self.size / count)
            .unwrap_or(u32::MAX)
            .min(MOST_TRIES);
        let mut offset = self.next.next_multiple_of(count);
        for _ in 0..places {
            if offset + count > self.size {
                offset = 0;
            }
            let address = self.family.address(self.first + offset)?;
            offset += count;
            if !is_used(address, count) {
                self.next = offset;
                return Some(address);
            }
        }
        None
    }
}

/// Does a block of `used` have an address in common with the `count` addresses from `first`?
/// `length_of` tells how many addresses a used block has.
pub(crate) fn overlaps<V>(
    used: &UsedBlocks<V>,
    first: IpAddr,
    count: u128,
    length_of: impl Fn(&V) -> u128,
) -> bool {
    let start = number(first);
    let Some(last) = Family::of(first).address(start + (count - 1)) else {
        return true;
    };
    used.range(..=last).next_back().is_some_and(|(block, value)| {
        Family::of(*block) == Family::of(first) && number(*block) + (length_of(value) - 1) >= start
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_and_networks() {
        let v4: IpAddr = "10.1.40.131".parse().unwrap();
        assert_eq!(network(v4, 25).to_string(), "10.1.40.128");
        assert_eq!(netmask(v4, 25).to_string(), "255.255.255.128");
        assert_eq!(netmask(v4, 0).to_string(), "0.0.0.0");
        assert_eq!(netmask(v4, 32).to_string(), "255.255.255.255");
        let v6: IpAddr = "2001:db8::5".parse().unwrap();
        assert_eq!(network(v6, 127).to_string(), "2001:db8::4");
        assert_eq!(netmask(v6, 56).to_string(), "ffff:ffff:ffff:ff00::");
        assert_eq!(bounds(v6, 0), (0, u128::MAX));
    }

    #[test]
    fn slices_of_two_projects_are_apart() {
        let (mut a, mut b) = (AddressPlan::new(0), AddressPlan::new(1));
        assert_eq!(a.machine_public_v4(0).to_string(), "100.64.0.1");
        assert_eq!(a.machine_public_v4(SLOTS - 1).to_string(), "100.64.63.255");
        assert_eq!(
            a.public_v4.take(1, |_, _| false).unwrap().to_string(),
            "100.64.64.0"
        );
        assert_eq!(b.machine_public_v4(0).to_string(), "100.64.128.1");
        assert_eq!(b.machine_private_v4(64).to_string(), "10.2.0.129");
        assert_eq!(
            b.private_v4.take(1, |_, _| false).unwrap().to_string(),
            "10.3.0.0"
        );
        assert_eq!(b.machine_public_v6(0).to_string(), "2001:db8:1::1");
        assert_eq!(
            b.public_v6.take(1, |_, _| false).unwrap().to_string(),
            "2001:db8:1:8000::"
        );
        assert_eq!(
            AddressPlan::new(127).machine_public_v4(SLOTS - 1).to_string(),
            "100.127.191.255"
        );
    }

    #[test]
    fn a_released_block_is_taken_again_only_after_the_whole_pool_was_used() {
        let mut pool = BlockPool::new(Family::V4, 1 << 24, 4);
        let mut used = UsedBlocks::new();
        for _ in 0..4 {
            let address = pool
                .take(1, |first, count| overlaps(&used, first, count, |n| *n))
                .unwrap();
            used.insert(address, 1_u128);
        }
        assert_eq!(
            pool.take(1, |first, count| overlaps(&used, first, count, |n| *n)),
            None
        );
        used.remove(&"1.0.0.2".parse::<IpAddr>().unwrap());
        assert_eq!(
            pool.take(2, |first, count| overlaps(&used, first, count, |n| *n)),
            None
        );
        let again = pool
            .take(1, |first, count| overlaps(&used, first, count, |n| *n))
            .unwrap();
        assert_eq!(again.to_string(), "1.0.0.2");
    }

    #[test]
    fn overlap_sees_a_block_that_starts_before() {
        let used = UsedBlocks::from([("192.0.2.8".parse::<IpAddr>().unwrap(), 8_u128)]);
        let hit = |text: &str, count| overlaps(&used, text.parse().unwrap(), count, |n| *n);
        assert!(hit("192.0.2.15", 1));
        assert!(hit("192.0.2.0", 16));
        assert!(!hit("192.0.2.16", 1));
        assert!(!hit("192.0.2.0", 8));
        assert!(!hit("::1", 1));
    }
}
