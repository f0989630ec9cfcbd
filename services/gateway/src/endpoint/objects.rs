//! What is kept of the cluster's objects for the endpoint's sake: an agent may see thousands of nodes, of which a few matter.

use std::net::IpAddr;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use super::candidate::{ApiServer, Machine};
use crate::cluster::objects::{AddressType, Key, NodeObject, Slim};

/// Nodes with one of these are of the control plane, unless told otherwise.
const ROLES: [&str; 2] = [
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
];

/// What one kind of object says.
pub(crate) trait Says: Clone + std::fmt::Debug + PartialEq + Send + Sync + 'static {
    /// As it comes from the API.
    type Whole: DeserializeOwned;
    /// `kube`'s marker of whether the kind has namespaces.
    type Scope;
    /// As [`Slim`] has them.
    const KIND: &'static str;
    const PLURAL: &'static str;
    const GROUP: &'static str;

    /// What is kept of it.
    fn kept(whole: Self::Whole) -> Kept<Self>;
}

/// An object, with as much of it as is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept<T> {
    key: Key,
    uid: Box<str>,
    version: Box<str>,
    /// What it says.
    pub(crate) says: T,
}

impl<'de, T: Says> Deserialize<'de> for Kept<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::Whole::deserialize(deserializer).map(T::kept)
    }
}

impl<T: Says> Slim for Kept<T> {
    type Scope = T::Scope;
    const KIND: &'static str = T::KIND;
    const PLURAL: &'static str = T::PLURAL;
    const GROUP: &'static str = T::GROUP;

    fn key(&self) -> &Key {
        &self.key
    }

    fn uid(&self) -> &str {
        &self.uid
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn says_the_same(&self, other: &Self) -> bool {
        self.uid == other.uid && self.says == other.says
    }
}

impl Machine {
    /// As its Node says.
    pub(crate) fn of(node: &NodeObject) -> Self {
        let of = |kind: AddressType| {
            let addresses = node.addresses.iter();
            addresses
                .filter(move |address| address.kind == kind)
                .filter_map(|address| address.address.parse().ok())
        };
        Self {
            node: node.name().to_owned(),
            provider_id: node.provider_id.to_string(),
            addresses: of(AddressType::InternalIp)
                .chain(of(AddressType::ExternalIp))
                .collect(),
            cordoned: node.cordoned,
            deleting: node.deleting,
        }
    }
}

/// Does it carry a label of the control plane?
pub(super) fn has_role(node: &NodeObject) -> bool {
    ROLES.iter().any(|role| node.labels.get(role).is_some())
}

/// What a node says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// Does it carry a label of the control plane?
    pub(super) role: bool,
    pub(super) machine: Machine,
}

/// A node.
pub(super) type ControlNode = Kept<Member>;

impl Says for Member {
    type Whole = NodeObject;
    type Scope = ClusterResourceScope;
    const KIND: &'static str = NodeObject::KIND;
    const PLURAL: &'static str = NodeObject::PLURAL;
    const GROUP: &'static str = NodeObject::GROUP;

    fn kept(node: NodeObject) -> Kept<Self> {
        let says = Self {
            role: has_role(&node),
            machine: Machine::of(&node),
        };
        Kept {
            says,
            key: node.key,
            uid: node.uid,
            version: node.version,
        }
    }
}

/// The API servers of an `EndpointSlice` that are ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Servers(pub(super) Vec<ApiServer>);

/// An `EndpointSlice` of `default/kubernetes`.
pub(crate) type ServerSlice = Kept<Servers>;

impl Says for Servers {
    type Whole = EndpointSlice;
    type Scope = NamespaceResourceScope;
    const KIND: &'static str = "EndpointSlice";
    const PLURAL: &'static str = "endpointslices";
    const GROUP: &'static str = "discovery.k8s.io";

    fn kept(slice: EndpointSlice) -> Kept<Self> {
        let ports = slice.ports.unwrap_or_default();
        let https = ports.iter().find(|port| port.name.as_deref() == Some("https"));
        let port = https.or_else(|| ports.first()).and_then(|port| port.port);
        let port = port.and_then(|port| u16::try_from(port).ok());
        let ready = slice.endpoints.into_iter().filter(|endpoint| {
            let conditions = endpoint.conditions.as_ref();
            // Unknown counts as ready, as the API says.
            conditions.and_then(|conditions| conditions.ready) != Some(false)
        });
        let addresses = ready
            .flat_map(|endpoint| endpoint.addresses)
            .filter_map(|address| address.parse::<IpAddr>().ok());
        let servers = port.map(|port| addresses.map(|address| ApiServer { address, port }).collect());
        let meta = slice.metadata;
        let text = |field: Option<String>| field.unwrap_or_default();
        Kept {
            key: Key::namespaced(&text(meta.namespace), &text(meta.name)),
            uid: text(meta.uid).into(),
            version: text(meta.resource_version).into(),
            says: Self(servers.unwrap_or_default()),
        }
    }
}

/// The API servers of all slices, each once, in order.
pub(crate) fn all_servers<'a>(slices: impl IntoIterator<Item = &'a ServerSlice>) -> Vec<ApiServer> {
    let mut servers: Vec<ApiServer> = slices
        .into_iter()
        .flat_map(|slice| slice.says.0.clone())
        .collect();
    servers.sort_unstable();
    servers.dedup();
    servers
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn kept<T: Says>(object: Value) -> Kept<T> {
        serde_json::from_value(object).unwrap()
    }

    /// E71: cordoned is what `spec.unschedulable` says, with or without its taint.
    #[test]
    fn a_node_says_whether_it_is_to_be_left() {
        let node = |spec: Value| -> ControlNode {
            kept(json!({
                "metadata": {
                    "name": "a", "uid": "u1", "resourceVersion": "7",
                    "labels": { "node-role.kubernetes.io/control-plane": "" },
                },
                "spec": spec,
                "status": { "addresses": [
                    { "type": "ExternalIP", "address": "198.51.100.1" },
                    { "type": "Hostname", "address": "a" },
                    { "type": "InternalIP", "address": "10.0.0.1" },
                ] },
            }))
        };
        let cordoned = node(json!({ "providerID": "cloud://a", "unschedulable": true }));
        assert!(cordoned.says.role && cordoned.says.machine.cordoned);
        let addresses: Vec<IpAddr> = ["10.0.0.1", "198.51.100.1"]
            .map(|text| text.parse().unwrap())
            .into();
        assert_eq!(cordoned.says.machine.addresses, addresses);
        assert_eq!((cordoned.uid(), cordoned.version()), ("u1", "7"));
        let open = node(json!({ "providerID": "cloud://a" }));
        assert!(!open.says.machine.cordoned && !open.says_the_same(&cordoned));
    }

    /// E74: of a slice counts the port `https`, else the first; whoever is not ready does not.
    #[test]
    fn a_slice_says_where_the_ready_api_servers_listen() {
        let slice = |ports: Value| -> ServerSlice {
            kept(json!({
                "metadata": { "name": "kubernetes", "namespace": "default" },
                "addressType": "IPv4",
                "endpoints": [
                    { "addresses": ["10.0.0.2"] },
                    { "addresses": ["10.0.0.1"], "conditions": { "ready": true } },
                    { "addresses": ["10.0.0.3"], "conditions": { "ready": false } },
                ],
                "ports": ports,
            }))
        };
        let server = |last: u8, port| ApiServer {
            address: [10, 0, 0, last].into(),
            port,
        };
        let named = slice(json!([{ "name": "metrics", "port": 9 }, { "name": "https", "port": 7443 }]));
        let first = slice(json!([{ "port": 6443 }]));
        assert_eq!(all_servers([&named]), [server(1, 7443), server(2, 7443)]);
        assert_eq!(
            all_servers([&named, &first, &first]),
            [server(1, 6443), server(1, 7443), server(2, 6443), server(2, 7443)]
        );
        assert_eq!(all_servers([&slice(Value::Null)]), []);
    }
}
