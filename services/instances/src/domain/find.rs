//! Finds a machine in a list: by provider id, else by host name, and of several with that name by address, else by address alone.

use std::net::IpAddr;

use groundplane_cloud::{Machine, Snapshot};
use groundplane_core::ProviderId;

use super::Sought;

/// What a list says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// This one.
    One(Box<Machine>),
    /// These, and nothing tells which. Ordered.
    Several(Vec<ProviderId>),
    /// Not in the list.
    None,
}

/// Looks for the machine. A node that has a provider id is that machine or none: its name may have passed to another.
pub(crate) fn find(machines: &Snapshot<Machine>, sought: &Sought) -> Found {
    if let Some(id) = &sought.provider_id {
        return found(
            machines
                .find(id.id())
                .filter(|machine| machine.id.id() == id.id()),
        );
    }
    if let Some(node) = &sought.node {
        let named = || {
            machines
                .find(node.as_str())
                .filter(|machine| machine.hostname == node.as_str())
        };
        match found(named()) {
            Found::None => {}
            Found::One(machine) => return Found::One(machine),
            several @ Found::Several(_) => {
                let fits = |machine: &&Machine| sought.addresses.iter().any(|address| has(machine, *address));
                return match found(named().filter(fits)) {
                    Found::One(machine) => Found::One(machine),
                    Found::None | Found::Several(_) => several,
                };
            }
        }
    }
    found(
        sought
            .addresses
            .iter()
            .flat_map(|address| with_address(machines, *address)),
    )
}

fn with_address(machines: &Snapshot<Machine>, address: IpAddr) -> impl Iterator<Item = &Machine> {
    machines
        .find(&address.to_string())
        .filter(move |machine| has(machine, address))
}

fn has(machine: &Machine, address: IpAddr) -> bool {
    let mut addresses = machine.addresses.iter();
    addresses.any(|other| other.address.parse() == Ok(address))
}

fn found<'a>(machines: impl Iterator<Item = &'a Machine>) -> Found {
    let mut machines: Vec<_> = machines.collect();
    machines.sort_by(|a, b| a.id.cmp(&b.id));
    machines.dedup_by(|a, b| a.id == b.id);
    match machines[..] {
        [] => Found::None,
        [one] => Found::One(Box::new(one.clone())),
        _ => Found::Several(machines.into_iter().map(|machine| machine.id.clone()).collect()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use groundplane_cloud::{MachineAddress, MachineAddressKind, PowerState};
    use jiff::Timestamp;
    use pretty_assertions::assert_eq;

    use super::*;

    fn machine(id: &str, hostname: &str, address: &str) -> Machine {
        let address = MachineAddress {
            kind: MachineAddressKind::InternalIp,
            address: address.to_owned(),
        };
        Machine {
            id: format!("equinixmetal://{id}").parse().unwrap(),
            hostname: hostname.to_owned(),
            instance_type: String::new(),
            zone: String::new(),
            region: String::new(),
            addresses: vec![address],
            power: PowerState::On,
            labels: BTreeMap::new(),
        }
    }

    fn look(provider_id: &str, node: &str, addresses: &[&str]) -> Found {
        let machines = vec![
            machine("m1", "n1", "10.0.0.1"),
            machine("m2", "n2", "10.0.0.2"),
            machine("m3", "twin", "10.0.0.3"),
            machine("m4", "twin", "2001:db8::4"),
        ];
        let addresses: Vec<_> = addresses.iter().map(|&address| address.to_owned()).collect();
        let sought = Sought::parse(provider_id, node, &addresses).unwrap();
        find(&Snapshot::new(machines, Timestamp::UNIX_EPOCH), &sought)
    }

    fn id(found: &Found) -> &str {
        match found {
            Found::One(machine) => machine.id.id(),
            other => panic!("{other:?}"),
        }
    }

    /// E13: all three forms of a provider id find the machine.
    #[test]
    fn a_machine_is_found_by_each_form_of_its_provider_id() {
        for form in ["equinixmetal://m2", "packet://m2", "m2"] {
            assert_eq!(id(&look(form, "n1", &["10.0.0.1"])), "m2");
        }
    }

    #[test]
    fn a_provider_id_that_is_not_listed_finds_nothing_whatever_the_name() {
        assert_eq!(look("equinixmetal://gone", "n1", &["10.0.0.1"]), Found::None);
        assert_eq!(look("n1", "", &[]), Found::None, "a host name is no provider id");
    }

    #[test]
    fn the_name_comes_before_the_address() {
        assert_eq!(id(&look("", "n1", &["10.0.0.2"])), "m1");
        assert_eq!(id(&look("", "n9", &["10.0.0.2"])), "m2");
        assert_eq!(id(&look("", "n9", &["2001:db8:0::4"])), "m4");
        assert_eq!(look("", "n9", &["10.0.0.9"]), Found::None);
    }

    #[test]
    fn what_several_machines_match_is_told_and_not_guessed() {
        let twins: Vec<ProviderId> = ["equinixmetal://m3", "equinixmetal://m4"]
            .map(|id| id.parse().unwrap())
            .into();
        assert_eq!(look("", "twin", &[]), Found::Several(twins));
        assert!(matches!(
            look("", "n9", &["10.0.0.1", "10.0.0.2"]),
            Found::Several(_)
        ));
        assert_eq!(id(&look("", "n9", &["10.0.0.1", "10.0.0.1"])), "m1");
    }

    /// Two machines of one host name: the node says by its addresses which of them it is.
    #[test]
    fn of_several_with_one_name_the_address_decides() {
        assert_eq!(id(&look("", "twin", &["10.0.0.3"])), "m3");
        assert_eq!(id(&look("", "twin", &["10.0.0.9", "2001:db8::4"])), "m4");
        // One of another name counts for nothing, and neither do addresses of both.
        for addresses in [&["10.0.0.1"][..], &["10.0.0.3", "2001:db8::4"], &["10.0.0.9"]] {
            assert!(
                matches!(look("", "twin", addresses), Found::Several(_)),
                "{addresses:?}"
            );
        }
    }
}
