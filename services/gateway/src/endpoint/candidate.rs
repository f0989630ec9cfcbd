//! Who could hold the endpoint: the control-plane machines, and where their API servers listen.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

/// Where API servers listen where nobody says otherwise.
const API_PORT: u16 = 6443;

/// A machine of the control plane, as its Node says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Name of the node.
    pub node: String,
    /// `spec.providerID`; empty: none yet.
    pub provider_id: String,
    /// Addresses within the cluster's network first, then those of the outside, each as the Node orders them.
    pub addresses: Vec<IpAddr>,
    /// No new work shall come to it.
    pub cordoned: bool,
    /// It is on its way out.
    pub deleting: bool,
}

/// An API server, as the `EndpointSlices` of `default/kubernetes` say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ApiServer {
    /// Its address.
    pub address: IpAddr,
    /// Its port; names were resolved by whoever wrote the slice.
    pub port: u16,
}

/// What is known of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterView {
    /// The machines of the control plane.
    pub machines: Vec<Machine>,
    /// The API servers that are ready.
    pub servers: Vec<ApiServer>,
}

impl ClusterView {
    /// Where most API servers listen; `None`: none is ready.
    pub(crate) fn port(&self) -> Option<u16> {
        usual(self.servers.iter().map(|server| server.port))
    }
}

/// A machine that could hold the endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Candidate {
    /// Name of its node.
    pub node: String,
    /// The cloud's id of the machine.
    pub provider_id: String,
    /// Where its own API server listens.
    pub address: SocketAddr,
    /// No new work shall come to it.
    pub cordoned: bool,
    /// It is on its way out.
    pub deleting: bool,
}

/// The candidates for an endpoint: each machine with an id and an address of the endpoint's family, which is not the endpoint's own
/// (the holder has that, too). By name.
///
/// The port is the one that is configured; else the machine's own, by the `EndpointSlices`; else, since one that is dead is not in them,
/// the one that all others have; else 6443.
pub(super) fn candidates(view: &ClusterView, endpoint: IpAddr, port: Option<u16>) -> Vec<Candidate> {
    let ports: BTreeSet<u16> = view.servers.iter().map(|server| server.port).collect();
    let common = match (ports.len(), ports.first()) {
        (1, Some(port)) => *port,
        _ => API_PORT,
    };
    let mut found: Vec<Candidate> = view
        .machines
        .iter()
        .filter(|machine| !machine.provider_id.is_empty())
        .filter_map(|machine| {
            let fits = |address: &&IpAddr| address.is_ipv4() == endpoint.is_ipv4() && **address != endpoint;
            let address = *machine.addresses.iter().find(fits)?;
            let own = view
                .servers
                .iter()
                .find(|server| server.address != endpoint && machine.addresses.contains(&server.address))
                .map(|server| server.port);
            Some(Candidate {
                node: machine.node.clone(),
                provider_id: machine.provider_id.clone(),
                address: SocketAddr::new(address, port.or(own).unwrap_or(common)),
                cordoned: machine.cordoned,
                deleting: machine.deleting,
            })
        })
        .collect();
    found.sort_by(|one, other| one.node.cmp(&other.node));
    found
}

/// The port that most have; of several, the lowest.
pub(crate) fn usual(ports: impl Iterator<Item = u16>) -> Option<u16> {
    let mut counts: BTreeMap<u16, usize> = BTreeMap::new();
    for port in ports {
        *counts.entry(port).or_default() += 1;
    }
    let most = counts
        .into_iter()
        .max_by_key(|(port, count)| (*count, u16::MAX - port));
    most.map(|(port, _)| port)
}

/// The candidate that the cloud names by this id. A Node may have it in an older or shorter form (`packet://`, the bare id): then the
/// one whose last part is the same, where that is one only.
pub(super) fn holder<'a>(candidates: &'a [Candidate], provider_id: &str) -> Option<&'a Candidate> {
    let exact = candidates
        .iter()
        .find(|candidate| candidate.provider_id == provider_id);
    let tail = |id: &str| id.rsplit('/').next().unwrap_or_default().to_owned();
    exact.or_else(|| {
        let wanted = tail(provider_id);
        let mut alike = candidates
            .iter()
            .filter(|candidate| !wanted.is_empty() && tail(&candidate.provider_id) == wanted);
        alike.next().filter(|_| alike.next().is_none())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(node: &str, addresses: &[&str]) -> Machine {
        Machine {
            node: node.to_owned(),
            provider_id: format!("cloud://{node}"),
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
            ..Machine::default()
        }
    }

    fn server(address: &str) -> ApiServer {
        let address: SocketAddr = address.parse().unwrap();
        ApiServer {
            address: address.ip(),
            port: address.port(),
        }
    }

    fn found(view: &ClusterView, endpoint: &str, port: Option<u16>) -> Vec<String> {
        let found = candidates(view, endpoint.parse().unwrap(), port);
        found
            .into_iter()
            .map(|candidate| format!("{} {}", candidate.node, candidate.address))
            .collect()
    }

    /// E74: the configured port, the machine's own by its slice, the others' for one that is in no slice, 6443 where nothing is known.
    #[test]
    fn the_port_is_the_nodes_and_never_the_endpoints() {
        let machines = vec![machine("a", &["10.0.0.1"]), machine("b", &["10.0.0.2"])];
        let mut view = ClusterView {
            machines,
            servers: Vec::new(),
        };
        assert_eq!(
            found(&view, "192.0.2.1", None),
            ["a 10.0.0.1:6443", "b 10.0.0.2:6443"]
        );
        view.servers = vec![server("10.0.0.1:7443")];
        assert_eq!(
            found(&view, "192.0.2.1", None),
            ["a 10.0.0.1:7443", "b 10.0.0.2:7443"]
        );
        view.servers.push(server("10.0.0.2:8443"));
        assert_eq!(
            found(&view, "192.0.2.1", None),
            ["a 10.0.0.1:7443", "b 10.0.0.2:8443"]
        );
        assert_eq!(
            found(&view, "192.0.2.1", Some(16443)),
            ["a 10.0.0.1:16443", "b 10.0.0.2:16443"]
        );
    }

    /// E74: what the endpoint's port is where nobody says.
    #[test]
    fn the_usual_port_is_that_of_most_and_of_several_the_lowest() {
        let most = |ports: &[u16]| usual(ports.iter().copied());
        assert_eq!(most(&[]), None);
        assert_eq!(most(&[7443, 6443, 7443]), Some(7443));
        assert_eq!(most(&[7443, 6443]), Some(6443));
    }

    #[test]
    fn the_endpoint_is_no_address_of_its_holder_and_families_do_not_mix() {
        let mut nameless = machine("c", &["10.0.0.3"]);
        nameless.provider_id.clear();
        let view = ClusterView {
            machines: vec![
                machine("a", &["192.0.2.1", "10.0.0.1", "2001:db8::1"]),
                machine("b", &["2001:db8::2"]),
                nameless,
            ],
            servers: Vec::new(),
        };
        assert_eq!(found(&view, "192.0.2.1", None), ["a 10.0.0.1:6443"]);
        assert_eq!(
            found(&view, "2001:db8::9", None),
            ["a [2001:db8::1]:6443", "b [2001:db8::2]:6443"]
        );
    }

    #[test]
    fn a_holder_is_found_by_an_older_form_of_its_id() {
        let mut all = candidates(
            &ClusterView {
                machines: vec![machine("a", &["10.0.0.1"]), machine("b", &["10.0.0.2"])],
                servers: Vec::new(),
            },
            "192.0.2.1".parse().unwrap(),
            None,
        );
        let named = |all: &[Candidate], id: &str| holder(all, id).map(|candidate| candidate.node.clone());
        all[0].provider_id = "packet://1-2".to_owned();
        assert_eq!(named(&all, "equinixmetal://1-2").as_deref(), Some("a"));
        assert_eq!(named(&all, "1-2").as_deref(), Some("a"));
        assert_eq!(named(&all, "cloud://b").as_deref(), Some("b"));
        assert_eq!(named(&all, "cloud://x"), None);
        all[1].provider_id = "other://1-2".to_owned();
        assert_eq!(named(&all, "equinixmetal://1-2"), None, "two could be meant");
    }
}
