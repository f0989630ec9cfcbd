//! Which of several equally good candidates is taken.

use std::net::SocketAddr;

use groundplane_core::{NodeName, order};

/// A candidate's place for an endpoint; the lowest is taken first. Agents that see the same choose the same.
pub(super) fn rank(endpoint: SocketAddr, node: &NodeName) -> u64 {
    order::place(&endpoint.to_string(), node.as_str())
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
