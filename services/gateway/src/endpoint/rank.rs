//! Which agent acts when, so that of several that see the same one acts, and the next only where that one did not.

use std::net::IpAddr;

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// A node's place in the order of an endpoint's agents: FNV-1a of 64 bits over the endpoint's address, a byte 0xff and the node's name,
/// with the final mix of `SplitMix64`. The same on every machine and in every version.
fn place(endpoint: IpAddr, node: &str) -> u64 {
    let endpoint = endpoint.to_string();
    let bytes = endpoint.bytes().chain([0xff]).chain(node.bytes());
    let mut hash = bytes.fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    hash ^= hash >> 30;
    hash = hash.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash ^= hash >> 27;
    hash = hash.wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// The rank of the agent on `node`: how many act before it. The holder's own agent comes last of the candidates', since it is likely to
/// be as dead as its machine, and would cost the others a step. Who is no candidate comes after all.
pub(super) fn rank<'a>(
    endpoint: IpAddr,
    candidates: impl Iterator<Item = &'a str>,
    holder: Option<&str>,
    node: &str,
) -> u32 {
    let mut order: Vec<&str> = candidates.collect();
    order.sort_by_cached_key(|name| (Some(*name) == holder, place(endpoint, name), (*name).to_owned()));
    let position = order.iter().position(|name| *name == node);
    u32::try_from(position.unwrap_or(order.len())).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(holder: Option<&str>) -> Vec<u32> {
        let names = ["a", "b", "c", "d"];
        let endpoint = "192.0.2.1".parse().unwrap();
        let all = names.into_iter();
        all.clone()
            .map(|name| rank(endpoint, all.clone(), holder, name))
            .collect()
    }

    #[test]
    fn everybody_has_a_rank_of_their_own_and_the_holder_the_last() {
        for holder in [None, Some("a"), Some("b"), Some("c"), Some("d")] {
            let ranks = ranks(holder);
            let mut sorted = ranks.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3]);
            if let Some(holder) = holder {
                let index = ["a", "b", "c", "d"].iter().position(|name| *name == holder);
                assert_eq!(ranks[index.unwrap()], 3);
            }
        }
    }

    #[test]
    fn who_is_no_candidate_comes_after_all() {
        let endpoint = "192.0.2.1".parse().unwrap();
        assert_eq!(rank(endpoint, ["a", "b"].into_iter(), Some("a"), "z"), 2);
    }

    /// Agents of two versions must agree, so this never changes.
    #[test]
    fn the_order_does_not_depend_on_who_computes_it() {
        let endpoint = "192.0.2.1".parse().unwrap();
        let one = ["a", "b", "c"].map(|name| rank(endpoint, ["a", "b", "c"].into_iter(), None, name));
        let two = ["a", "b", "c"].map(|name| rank(endpoint, ["c", "a", "b"].into_iter(), None, name));
        assert_eq!(one, two);
        assert_eq!(place(endpoint, "a"), place(endpoint, "a"));
        assert_ne!(place(endpoint, "a"), place("192.0.2.2".parse().unwrap(), "a"));
    }
}
