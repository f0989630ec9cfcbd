//! Which addresses a node is to have. Pure.
//!
//! The cloud's list, in its order; kubelet's `Hostname` behind it where the cloud has none. Where kubelet was given
//! `--node-ip`, those addresses come first, and others of their type are left out. One that the cloud does not list is the user's own
//! affair where clouds do not know all ([`Unlisted::Believed`]), and a mistake elsewhere.

use std::net::IpAddr;

use groundplane_core::{DriverName, Family};

use crate::cluster::objects::{AddressType, NodeAddress};

/// Why a node cannot get its addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AddressError {
    /// kubelet's annotation is neither one address nor one of each family.
    #[error(
        "`{0}` in annotation alpha.kubernetes.io/provided-node-ip is neither an address nor one address of each family; \
         correct --node-ip of kubelet"
    )]
    Provided(String),
    /// The cloud has names for the machine, and no IP address. Of a node without one, nobody can reach the kubelet.
    #[error(
        "no IP address of the machine is known, only {0}; it is asked for again. Give the machine one, or give kubelet --node-ip"
    )]
    NoIp(String),
    /// kubelet reports an address that the machine does not have.
    #[error("the machine has no address {0}, which kubelet was given by --node-ip; it has {1}")]
    NotThere(IpAddr, String),
}

/// What of an address that kubelet was given, and that the cloud does not list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unlisted {
    /// It is the node's, in a network of the user's own.
    Believed,
    /// It is a mistake.
    Refused,
}

impl Unlisted {
    /// As it is with this driver.
    pub(crate) fn by(driver: DriverName) -> Self {
        if driver.knows_every_address() {
            Self::Refused
        } else {
            Self::Believed
        }
    }
}

/// The addresses that a node is to have; `None`: those that it has, since the cloud knows none.
pub(crate) fn wanted(
    reported: &[NodeAddress],
    provided: Option<&str>,
    machine: &[NodeAddress],
    unlisted: Unlisted,
) -> Result<Option<Vec<NodeAddress>>, AddressError> {
    let provided = provided.map(parse).transpose()?.unwrap_or_default();
    if machine.is_empty() {
        return Ok(None);
    }
    let mut list = machine.to_vec();
    if unlisted == Unlisted::Believed {
        believe(&mut list, &provided, reported);
    }
    if !list.iter().any(|address| ip_of(address).is_some()) {
        return Err(AddressError::NoIp(texts(machine)));
    }
    if !list.iter().any(|address| address.kind == AddressType::Hostname) {
        list.extend(
            reported
                .iter()
                .filter(|address| address.kind == AddressType::Hostname)
                .cloned(),
        );
    }
    let mut chosen: Vec<NodeAddress> = Vec::with_capacity(list.len());
    for ip in &provided {
        let before = chosen.len();
        chosen.extend(list.iter().filter(|address| is(address, *ip)).cloned());
        if chosen.len() == before {
            return Err(AddressError::NotThere(*ip, texts(machine)));
        }
    }
    let matched: Vec<AddressType> = chosen.iter().map(|address| address.kind.clone()).collect();
    chosen.extend(
        list.into_iter()
            .filter(|address| !matched.contains(&address.kind)),
    );
    let mut unique: Vec<NodeAddress> = Vec::with_capacity(chosen.len());
    for address in chosen {
        if !unique.contains(&address) {
            unique.push(address);
        }
    }
    Ok(Some(unique))
}

/// Adds what kubelet was given as addresses within the cluster's network, behind the machine's host names: those that the cloud does not
/// list, and those that it lists as external alone though the node has them as internal, which may be what the cluster's network is built on.
fn believe(list: &mut Vec<NodeAddress>, provided: &[IpAddr], reported: &[NodeAddress]) {
    let internal = |address: &NodeAddress| address.kind == AddressType::InternalIp;
    let mut place = list
        .iter()
        .take_while(|address| address.kind == AddressType::Hostname)
        .count();
    for ip in provided {
        let is_internal =
            |list: &[NodeAddress]| list.iter().any(|address| internal(address) && is(address, *ip));
        let is_listed = list.iter().any(|address| is(address, *ip));
        if !is_listed || (is_internal(reported) && !is_internal(list)) {
            let address = NodeAddress {
                kind: AddressType::InternalIp,
                address: ip.to_string().into(),
            };
            list.insert(place, address);
            place += 1;
        }
    }
}

/// The IP address, where it is one.
fn ip_of(address: &NodeAddress) -> Option<IpAddr> {
    let is_ip = matches!(address.kind, AddressType::InternalIp | AddressType::ExternalIp);
    let ip: IpAddr = address.address.parse().ok().filter(|_| is_ip)?;
    Some(ip.to_canonical())
}

/// Is it this IP address, however it is written?
fn is(address: &NodeAddress, ip: IpAddr) -> bool {
    address
        .address
        .parse::<IpAddr>()
        .is_ok_and(|other| other.to_canonical() == ip)
}

fn texts(addresses: &[NodeAddress]) -> String {
    let texts: Vec<&str> = addresses.iter().map(|address| &*address.address).collect();
    texts.join(", ")
}

/// Reads kubelet's annotation: one address, or one of each family, comma separated.
pub(crate) fn parse(text: &str) -> Result<Vec<IpAddr>, AddressError> {
    let error = || AddressError::Provided(text.to_owned());
    let addresses = text
        .split(',')
        .map(|part| {
            part.trim()
                .parse::<IpAddr>()
                .map(|ip| ip.to_canonical())
                .map_err(|_| error())
        })
        .collect::<Result<Vec<_>, _>>()?;
    let fine = match addresses[..] {
        [one] => !one.is_unspecified(),
        [one, other] => {
            Family::of(one) != Family::of(other) && !one.is_unspecified() && !other.is_unspecified()
        }
        _ => false,
    };
    if fine { Ok(addresses) } else { Err(error()) }
}

#[cfg(test)]
mod tests {
    use super::wanted as wanted_by;
    use super::*;
    use AddressType::{ExternalDns, ExternalIp, Hostname, InternalIp};

    fn list(addresses: &[(AddressType, &str)]) -> Vec<NodeAddress> {
        addresses
            .iter()
            .map(|(kind, address)| NodeAddress {
                kind: kind.clone(),
                address: (*address).into(),
            })
            .collect()
    }

    /// Where the cloud knows every address.
    fn wanted(
        reported: &[NodeAddress],
        provided: Option<&str>,
        machine: &[NodeAddress],
    ) -> Result<Option<Vec<NodeAddress>>, AddressError> {
        wanted_by(reported, provided, machine, Unlisted::Refused)
    }

    /// N1: exactly the cloud's addresses, in its order.
    #[test]
    fn the_clouds_order_is_kept() {
        let machine = list(&[
            (Hostname, "m"),
            (InternalIp, "10.0.0.1"),
            (ExternalIp, "192.0.2.1"),
        ]);
        let reported = list(&[(Hostname, "node"), (InternalIp, "10.9.9.9")]);
        assert_eq!(wanted(&reported, None, &machine), Ok(Some(machine)));
    }

    /// N2: kubelet's `Hostname` goes last where the cloud has none.
    #[test]
    fn kubelets_hostname_is_kept_where_the_cloud_has_none() {
        let machine = list(&[(InternalIp, "10.0.0.1")]);
        let reported = list(&[(Hostname, "node"), (InternalIp, "10.9.9.9")]);
        let expected = list(&[(InternalIp, "10.0.0.1"), (Hostname, "node")]);
        assert_eq!(wanted(&reported, None, &machine), Ok(Some(expected)));
    }

    #[test]
    fn a_cloud_that_knows_none_leaves_the_node_what_it_reports() {
        assert_eq!(
            wanted(&list(&[(InternalIp, "10.0.0.1")]), Some("10.0.0.1"), &[]),
            Ok(None)
        );
    }

    /// N7: what is no address is an error, and so is a pair of one family.
    #[test]
    fn an_annotation_that_is_no_address_is_an_error() {
        let machine = list(&[(InternalIp, "10.0.0.1")]);
        for text in [
            "invalid-ip",
            "",
            "10.0.0.1,10.0.0.2",
            "10.0.0.1,::",
            "0.0.0.0",
            "10.0.0.1,2001:db8::1,10.0.0.1",
        ] {
            assert_eq!(
                wanted(&[], Some(text), &machine),
                Err(AddressError::Provided(text.to_owned())),
                "{text}"
            );
        }
    }

    /// N8, N26: an address that the machine does not have is an error, and so is a second family that it does not have.
    #[test]
    fn an_annotated_address_that_the_machine_lacks_is_an_error() {
        let machine = list(&[(InternalIp, "10.0.0.1")]);
        let error = wanted(&[], Some("10.0.0.2"), &machine).unwrap_err();
        assert_eq!(
            error,
            AddressError::NotThere("10.0.0.2".parse().unwrap(), "10.0.0.1".to_owned())
        );
        let error = wanted(&[], Some("10.0.0.1,2001:db8::1"), &machine).unwrap_err();
        assert_eq!(
            error,
            AddressError::NotThere("2001:db8::1".parse().unwrap(), "10.0.0.1".to_owned())
        );
    }

    /// N22, N24: the annotated address comes first, internal or external, and others of its type are left out; other types, names among
    /// them, stay as they are.
    #[test]
    fn the_annotated_address_comes_first() {
        let machine = list(&[
            (InternalIp, "10.0.0.1"),
            (InternalIp, "10.0.0.2"),
            (ExternalIp, "192.0.2.1"),
            (ExternalDns, "m.example"),
        ]);
        let expected = list(&[
            (InternalIp, "10.0.0.2"),
            (ExternalIp, "192.0.2.1"),
            (ExternalDns, "m.example"),
        ]);
        assert_eq!(wanted(&[], Some("10.0.0.2"), &machine), Ok(Some(expected)));
        let expected = list(&[
            (ExternalIp, "192.0.2.1"),
            (InternalIp, "10.0.0.1"),
            (InternalIp, "10.0.0.2"),
            (ExternalDns, "m.example"),
        ]);
        assert_eq!(wanted(&[], Some("192.0.2.1"), &machine), Ok(Some(expected)));
    }

    /// N23: the same address as two types is kept as both.
    #[test]
    fn one_address_of_two_types_is_kept_as_both() {
        let machine = list(&[
            (InternalIp, "192.0.2.1"),
            (ExternalIp, "192.0.2.1"),
            (InternalIp, "10.0.0.1"),
        ]);
        let expected = list(&[(InternalIp, "192.0.2.1"), (ExternalIp, "192.0.2.1")]);
        assert_eq!(wanted(&[], Some("192.0.2.1"), &machine), Ok(Some(expected)));
    }

    /// N27, N28: the order of the annotation decides about the primary family, and of several addresses of a type exactly the annotated
    /// are left; an IPv6 address keeps the cloud's spelling.
    #[test]
    fn the_annotation_decides_about_the_primary_family() {
        let machine = list(&[
            (InternalIp, "10.0.0.1"),
            (InternalIp, "2001:DB8::0:1"),
            (InternalIp, "10.0.0.3"),
        ]);
        let expected = list(&[(InternalIp, "2001:DB8::0:1"), (InternalIp, "10.0.0.1")]);
        assert_eq!(
            wanted(&[], Some("2001:db8::1,10.0.0.1"), &machine),
            Ok(Some(expected))
        );
    }

    /// E17: `--node-ip` in any spelling is the same address: IPv6 long or short, IPv4 as IPv6, with blanks.
    #[test]
    fn an_annotated_address_may_be_spelt_in_any_way() {
        let machine = list(&[(InternalIp, "10.0.0.1"), (ExternalIp, "2001:db8::1")]);
        for text in [
            "10.0.0.1,2001:db8::1",
            " 10.0.0.1 , 2001:DB8:0:0::1 ",
            "::ffff:10.0.0.1,2001:0db8:0000:0000:0000:0000:0000:0001",
        ] {
            assert_eq!(
                wanted(&[], Some(text), &machine),
                Ok(Some(machine.clone())),
                "{text}"
            );
        }
    }

    /// N31: what was written once is wanted again.
    #[test]
    fn a_dual_stack_node_settles() {
        let machine = list(&[(InternalIp, "10.0.0.1"), (InternalIp, "2001:db8::1")]);
        let reported = list(&[(InternalIp, "10.0.0.1"), (Hostname, "node")]);
        let first = wanted(&reported, Some("10.0.0.1,2001:db8::1"), &machine)
            .unwrap()
            .unwrap();
        let second = wanted(&first, Some("10.0.0.1,2001:db8::1"), &machine)
            .unwrap()
            .unwrap();
        assert_eq!(first, second);
    }

    fn believed(reported: &[NodeAddress], provided: &str, machine: &[NodeAddress]) -> Vec<NodeAddress> {
        wanted_by(reported, Some(provided), machine, Unlisted::Believed)
            .unwrap()
            .unwrap()
    }

    /// E17: an address in a network of the user's own, which the cloud does not know, is the node's by kubelet's word, first, and the only
    /// one within the cluster's network. It settles.
    #[test]
    fn an_address_that_no_cloud_knows_is_believed() {
        let machine = list(&[
            (Hostname, "m"),
            (ExternalIp, "192.0.2.1"),
            (InternalIp, "10.0.0.1"),
        ]);
        let expected = list(&[
            (InternalIp, "172.16.0.5"),
            (Hostname, "m"),
            (ExternalIp, "192.0.2.1"),
        ]);
        assert_eq!(believed(&[], "172.16.0.5", &machine), expected);
        assert_eq!(believed(&expected, "172.16.0.5", &machine), expected);
        let both = list(&[
            (InternalIp, "172.16.0.5"),
            (InternalIp, "fd00::5"),
            (Hostname, "m"),
            (ExternalIp, "192.0.2.1"),
        ]);
        assert_eq!(believed(&[], "172.16.0.5, FD00:0::5", &machine), both);
        // All that is known of the machine.
        let alone = list(&[(InternalIp, "172.16.0.5"), (Hostname, "m")]);
        assert_eq!(believed(&[], "172.16.0.5", &list(&[(Hostname, "m")])), alone);
        // What is no address is none anywhere.
        let nonsense = wanted_by(&[], Some("10.0.0.1,10.0.0.2"), &machine, Unlisted::Believed);
        assert!(matches!(nonsense, Err(AddressError::Provided(_))));
    }

    /// An address that the cloud lists is what the cloud says it is; but what the node has as internal stays so, too.
    #[test]
    fn an_address_that_the_cloud_lists_is_not_told_twice() {
        let machine = list(&[
            (Hostname, "m"),
            (ExternalIp, "192.0.2.1"),
            (InternalIp, "10.0.0.1"),
        ]);
        let as_listed = list(&[
            (InternalIp, "10.0.0.1"),
            (Hostname, "m"),
            (ExternalIp, "192.0.2.1"),
        ]);
        assert_eq!(believed(&[], "10.0.0.1", &machine), as_listed);
        let outside = list(&[
            (ExternalIp, "192.0.2.1"),
            (Hostname, "m"),
            (InternalIp, "10.0.0.1"),
        ]);
        assert_eq!(believed(&[], "192.0.2.1", &machine), outside);
        let older = list(&[(InternalIp, "192.0.2.1"), (Hostname, "m")]);
        let kept = list(&[
            (InternalIp, "192.0.2.1"),
            (ExternalIp, "192.0.2.1"),
            (Hostname, "m"),
        ]);
        assert_eq!(believed(&older, "192.0.2.1", &machine), kept);
        assert_eq!(believed(&kept, "192.0.2.1", &machine), kept);
    }

    /// A machine of which only names are known takes no address from its node.
    #[test]
    fn names_are_no_addresses() {
        let machine = list(&[(Hostname, "m"), (ExternalDns, "m.example")]);
        let reported = list(&[(InternalIp, "10.0.0.1")]);
        for unlisted in [Unlisted::Refused, Unlisted::Believed] {
            assert_eq!(
                wanted_by(&reported, None, &machine, unlisted),
                Err(AddressError::NoIp("m, m.example".to_owned()))
            );
        }
    }
}
