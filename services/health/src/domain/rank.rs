//! Which of several equally good candidates is taken.

use std::net::SocketAddr;

use groundplane_core::NodeName;

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// A candidate's place for an endpoint; the lowest is taken first. Every agent, of every version and on every machine, computes the
/// same one, so agents that see the same choose the same. Another endpoint gives another order, so that the endpoints of several
/// clusters on the same machines do not all go to the first by name.
///
/// FNV-1a over both, with a final mix, since FNV alone leaves names that differ in their last letter next to each other.
pub(super) fn rank(endpoint: SocketAddr, node: &NodeName) -> u64 {
    let endpoint = endpoint.to_string();
    let bytes = endpoint.bytes().chain([0xff]).chain(node.as_str().bytes());
    let mut hash = bytes.fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    hash ^= hash >> 30;
    hash = hash.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash ^= hash >> 27;
    hash = hash.wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn first(endpoint: &str) -> &'static str {
        let endpoint = endpoint.parse().unwrap();
        ["a", "b", "c"]
            .into_iter()
            .min_by_key(|name| rank(endpoint, &name.parse().unwrap()))
            .unwrap()
    }

    /// Agents of two versions must agree, so these numbers never change.
    #[test]
    fn the_rank_is_the_same_for_ever() {
        let rank = |endpoint: &str, node: &str| rank(endpoint.parse().unwrap(), &node.parse().unwrap());
        assert_eq!(rank("192.0.2.1:6443", "a"), 12_393_469_337_377_545_527);
        assert_eq!(rank("[2001:db8::1]:6443", "node-1"), 8_398_129_468_785_778_775);
    }

    #[test]
    fn several_endpoints_do_not_all_go_to_the_same_machine() {
        let firsts: BTreeSet<_> = (1..20)
            .map(|last| first(&format!("192.0.2.{last}:6443")))
            .collect();
        assert_eq!(firsts, BTreeSet::from(["a", "b", "c"]));
    }
}
