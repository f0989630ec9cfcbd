//! In which address families a machine speaks BGP. Pure.

use std::net::IpAddr;

use groundplane_cloud::Neighbors;
use groundplane_core::Family;

/// Those of `asked` in which the node has an address. A node that says nothing yet speaks the first.
pub(crate) fn wanted(asked: &[Family], addresses: &[IpAddr]) -> Vec<Family> {
    if addresses.is_empty() {
        return asked.iter().take(1).copied().collect();
    }
    let has = |family: &&Family| addresses.iter().any(|address| Family::of(*address) == **family);
    asked.iter().filter(has).copied().collect()
}

/// The peers of these families alone.
pub(crate) fn only(families: &[Family], mut neighbors: Neighbors) -> Neighbors {
    neighbors
        .peers
        .retain(|peer| families.contains(&Family::of(peer.address)));
    neighbors
}

/// Are its peers of these families, of each of them, and of no other?
pub(crate) fn are_those_of(families: &[Family], neighbors: &Neighbors) -> bool {
    let mut peers = neighbors.peers.iter();
    !lacks(families, neighbors) && peers.all(|peer| families.contains(&Family::of(peer.address)))
}

/// Is there a family without a peer?
pub(crate) fn lacks(families: &[Family], neighbors: &Neighbors) -> bool {
    let has = |family: Family| {
        neighbors
            .peers
            .iter()
            .any(|peer| Family::of(peer.address) == family)
    };
    families.iter().any(|family| !has(*family))
}

#[cfg(test)]
mod tests {
    use groundplane_cloud::Peer;
    use pretty_assertions::assert_eq;

    use super::*;

    const BOTH: [Family; 2] = [Family::V4, Family::V6];

    fn neighbors(addresses: &[&str]) -> Neighbors {
        let peer = |address: &&str| Peer {
            address: address.parse().unwrap(),
            asn: 65530,
            local_asn: 65000,
            source: None,
            password: None,
            multihop: true,
            port: None,
        };
        Neighbors {
            peers: addresses.iter().map(peer).collect(),
            ..Neighbors::default()
        }
    }

    /// A public IPv6 address does not make a machine speak IPv6: somebody must ask for it.
    #[test]
    fn a_machine_speaks_what_it_is_asked_to_and_can() {
        let (v4, v6) = ("10.0.0.1".parse().unwrap(), "2001:db8::1".parse().unwrap());
        for (asked, addresses, expected) in [
            (&BOTH[..1], &[v4, v6][..], &BOTH[..1]),
            (&BOTH[1..], &[v4, v6], &BOTH[1..]),
            (&BOTH, &[v4, v6], &BOTH),
            (&BOTH, &[v6], &BOTH[1..]),
            (&BOTH, &[v4], &BOTH[..1]),
            (&BOTH[..1], &[v6], &[]),
            (&BOTH, &[], &BOTH[..1]),
            (&BOTH[1..], &[], &BOTH[1..]),
        ] {
            assert_eq!(wanted(asked, addresses), expected, "{asked:?} {addresses:?}");
        }
    }

    #[test]
    fn peers_of_other_families_are_left_out() {
        let told = neighbors(&["169.254.255.1", "fd00::1"]);
        let kept = |families: &[Family]| -> Vec<String> {
            let peers = only(families, told.clone()).peers;
            peers.iter().map(|peer| peer.address.to_string()).collect()
        };
        assert_eq!(kept(&BOTH[..1]), ["169.254.255.1"]);
        assert_eq!(kept(&BOTH[1..]), ["fd00::1"]);
        assert_eq!(kept(&BOTH).len(), 2);
    }

    /// What a node was told in other families than we ask for is not to be believed: too much of it, or too little.
    #[test]
    fn what_was_told_of_other_families_does_not_count() {
        for (addresses, v4, both) in [
            (&["169.254.255.1"][..], true, false),
            (&["169.254.255.1", "fd00::1"], false, true),
            (&["fd00::1"], false, false),
            (&[], false, false),
        ] {
            let told = neighbors(addresses);
            assert_eq!(are_those_of(&BOTH[..1], &told), v4, "{addresses:?}");
            assert_eq!(are_those_of(&BOTH, &told), both, "{addresses:?}");
        }
    }
}
