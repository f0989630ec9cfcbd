//! Which agent acts when, so that of several that see the same one acts, and the next only where that one did not.

use std::net::IpAddr;

use groundplane_core::order;

/// The rank of the agent on `node`: how many act before it. The holder's own agent comes last of the candidates', since it is likely to
/// be as dead as its machine, and would cost the others a step. Who is no candidate comes after all.
pub(super) fn rank<'a>(
    endpoint: IpAddr,
    candidates: impl Iterator<Item = &'a str>,
    holder: Option<&str>,
    node: &str,
) -> u32 {
    let endpoint = endpoint.to_string();
    let mut agents: Vec<&str> = candidates.collect();
    agents.sort_by_cached_key(|name| {
        let place = order::place(&endpoint, name);
        (Some(*name) == holder, place, (*name).to_owned())
    });
    let position = agents.iter().position(|name| *name == node);
    u32::try_from(position.unwrap_or(agents.len())).unwrap_or(u32::MAX)
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

    /// Agents of two versions must agree, so this never changes; and another endpoint has another order.
    #[test]
    fn the_order_does_not_depend_on_who_computes_it() {
        let order = |endpoint: &str, all: [&'static str; 4]| {
            let endpoint = endpoint.parse().unwrap();
            let mut ranked = all.map(|name| (rank(endpoint, all.into_iter(), None, name), name));
            ranked.sort_unstable();
            ranked.map(|(_, name)| name)
        };
        let one = order("192.0.2.1", ["a", "b", "c", "d"]);
        assert_eq!(one, order("192.0.2.1", ["c", "d", "a", "b"]));
        assert_eq!(one, ["d", "c", "a", "b"]);
        assert_ne!(one, order("192.0.2.4", ["a", "b", "c", "d"]));
    }
}
