//! What the external Service and its slices should say. Pure.
//!
//! Who serves load balancers keeps off it by its class, and who knows no classes (`MetalLB` before 0.13) by annotations. The class of a
//! Service can be set only as it becomes a load balancer, and while it is none, nodes forget its address. So one that an older controller
//! has left without a class stays so while its status stands, and is made a Service of the inner sort for a moment
//! ([`External::cleared`]) where somebody has cleared that.

use std::collections::BTreeMap;
use std::net::IpAddr;

use groundplane_core::names;
use serde_json::{Value, json};

use crate::config::IpMode;
use crate::endpoint::{ApiServer, usual};

/// The class of the external Service: nobody's, so that no load balancer, ours included, takes it for one to serve.
const CLASS: &str = "groundplane.dev/endpoint";

/// Keeps MetalLB (of both generations of its annotations) and kube-vip from it, where they do not look at the class.
const LEAVE_IT: [(&str, &str); 3] = [
    ("metallb.io/address-pool", NO_POOL),
    ("metallb.universe.tf/address-pool", NO_POOL),
    ("kube-vip.io/ignore", "true"),
];
/// A pool that nobody has; as Equinix Metal's controller calls it.
const NO_POOL: &str = "disabled-metallb-do-not-use-any-address-pool";

/// Who looks after the slices; the one of the cluster then leaves them alone.
pub(super) const MANAGED_BY: &str = "groundplane.dev";

/// What the external Service leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct External<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    /// The endpoint.
    pub(super) address: IpAddr,
    pub(super) port: u16,
    /// Do nodes answer for its address themselves?
    pub(super) ip_mode: IpMode,
    /// The API servers that are ready.
    pub(super) servers: &'a [ApiServer],
}

impl External<'_> {
    fn family(&self) -> &'static str {
        family(self.address)
    }

    /// The port on the machines that most API servers listen on.
    fn target(&self) -> u16 {
        target(self.servers).unwrap_or(self.port)
    }

    /// The Service: the endpoint's own port in front, which need not be the one of `default/kubernetes`, and that of the machines behind.
    /// `there`: what it says so far.
    pub(super) fn service(&self, there: &Value) -> Value {
        let mut service = self.inner();
        service["spec"]["type"] = "LoadBalancer".into();
        if !is_classless(there) {
            service["spec"]["loadBalancerClass"] = CLASS.into();
        }
        service["spec"]["allocateLoadBalancerNodePorts"] = false.into();
        service
    }

    /// What it has to say first, if it is a load balancer of no class whose status somebody clears: it is none then, and may become one of
    /// a class.
    pub(super) fn cleared(&self, there: &Value) -> Option<Value> {
        let ingress = there["status"]["loadBalancer"]["ingress"].as_array();
        let cleared = ingress.is_none_or(Vec::is_empty);
        (cleared && is_classless(there)).then(|| self.inner())
    }

    /// The Service, while it is no load balancer.
    fn inner(&self) -> Value {
        let mut annotations = BTreeMap::from([(names::SERVICE_MANAGED, "false")]);
        annotations.extend(LEAVE_IT);
        let spec = json!({
            "type": "ClusterIP",
            "ipFamilyPolicy": "SingleStack",
            "ipFamilies": [self.family()],
            "ports": [{
                "name": "https",
                "protocol": "TCP",
                "port": self.port,
                "targetPort": self.target(),
            }],
        });
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": { "name": self.name, "namespace": self.namespace, "annotations": annotations },
            "spec": spec,
        })
    }

    /// Its status.
    pub(super) fn status(&self) -> Value {
        let ip_mode = self.ip_mode.as_str();
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": { "name": self.name, "namespace": self.namespace },
            "status": { "loadBalancer": { "ingress": [{ "ip": self.address.to_string(), "ipMode": ip_mode }] } },
        })
    }

    /// Its slices, by name: one a family and port, of all slices of `default/kubernetes` together.
    pub(super) fn slices(&self) -> BTreeMap<String, Value> {
        let mut groups: BTreeMap<(&'static str, u16), Vec<IpAddr>> = BTreeMap::new();
        for server in self.servers {
            let group = groups.entry((family(server.address), server.port)).or_default();
            if !group.contains(&server.address) {
                group.push(server.address);
            }
        }
        let slice = |((family, port), mut addresses): ((&'static str, u16), Vec<IpAddr>)| {
            addresses.sort_unstable();
            let name = format!("{}-{}-{port}", self.name, family.to_lowercase());
            let endpoints: Vec<Value> = addresses
                .iter()
                .map(|address| json!({ "addresses": [address.to_string()], "conditions": { "ready": true } }))
                .collect();
            let slice = json!({
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "name": name,
                    "namespace": self.namespace,
                    "labels": {
                        "kubernetes.io/service-name": self.name,
                        "endpointslice.kubernetes.io/managed-by": MANAGED_BY,
                    },
                },
                "addressType": family,
                "endpoints": endpoints,
                "ports": [{ "name": "https", "protocol": "TCP", "port": port }],
            });
            (name, slice)
        };
        groups.into_iter().map(slice).collect()
    }
}

/// Is it a load balancer without a class?
fn is_classless(there: &Value) -> bool {
    let spec = &there["spec"];
    spec["type"] == "LoadBalancer" && spec.get("loadBalancerClass").is_none()
}

/// The port that most API servers listen on, which is the endpoint's own where nobody says.
pub(super) fn target(servers: &[ApiServer]) -> Option<u16> {
    usual(servers.iter().map(|server| server.port))
}

fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

/// Does `there` say everything that `wanted` says? What else it says is its own affair.
pub(super) fn covers(there: &Value, wanted: &Value) -> bool {
    match (there, wanted) {
        (Value::Object(there), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, wanted)| there.get(key).is_some_and(|there| covers(there, wanted))),
        (Value::Array(there), Value::Array(wanted)) => {
            there.len() == wanted.len()
                && there
                    .iter()
                    .zip(wanted)
                    .all(|(there, wanted)| covers(there, wanted))
        }
        _ => there == wanted,
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    fn server(address: &str, port: u16) -> ApiServer {
        ApiServer {
            address: address.parse().unwrap(),
            port,
        }
    }

    fn external(servers: &[ApiServer]) -> External<'_> {
        External {
            namespace: "kube-system",
            name: "external",
            address: "192.0.2.9".parse().unwrap(),
            port: 443,
            ip_mode: IpMode::Proxy,
            servers,
        }
    }

    /// E75, E77: the endpoint's port in front, the machines' behind, a class that is nobody's, no node ports, and what keeps those off who
    /// know no class.
    #[test]
    fn the_service_is_as_it_should_be() {
        let servers = [server("10.0.0.1", 6443), server("10.0.0.2", 6443)];
        assert_eq!(
            external(&servers).service(&Value::Null),
            json!({
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {
                    "name": "external",
                    "namespace": "kube-system",
                    "annotations": {
                        "groundplane.dev/managed": "false",
                        "kube-vip.io/ignore": "true",
                        "metallb.io/address-pool": "disabled-metallb-do-not-use-any-address-pool",
                        "metallb.universe.tf/address-pool": "disabled-metallb-do-not-use-any-address-pool",
                    },
                },
                "spec": {
                    "type": "LoadBalancer",
                    "loadBalancerClass": "groundplane.dev/endpoint",
                    "allocateLoadBalancerNodePorts": false,
                    "ipFamilyPolicy": "SingleStack",
                    "ipFamilies": ["IPv4"],
                    "ports": [{ "name": "https", "protocol": "TCP", "port": 443, "targetPort": 6443 }],
                },
            })
        );
        assert_eq!(
            external(&servers).status()["status"]["loadBalancer"],
            json!({ "ingress": [{ "ip": "192.0.2.9", "ipMode": "Proxy" }] })
        );
    }

    /// Whether nodes answer for the address themselves is as configured.
    #[test]
    fn nodes_answer_for_the_address_where_they_are_told_to() {
        let vip = External {
            ip_mode: IpMode::Vip,
            ..external(&[])
        };
        assert_eq!(
            vip.status()["status"]["loadBalancer"]["ingress"][0]["ipMode"],
            "VIP"
        );
    }

    /// E77: one that an older controller made has no class, which can be set only as it becomes a load balancer. It is not touched for that
    /// while nodes know its address.
    #[test]
    fn one_without_a_class_is_no_load_balancer_for_a_moment_once_it_was_cleared() {
        let servers = [server("10.0.0.1", 6443)];
        let external = external(&servers);
        let there = |spec: Value, ingress: Value| json!({ "metadata": { "name": "external" }, "spec": spec, "status": { "loadBalancer": { "ingress": ingress } } });
        let classless = json!({ "type": "LoadBalancer" });
        let cleared = there(classless.clone(), Value::Null);
        let first = external.cleared(&cleared).unwrap();
        let service = external.service(&first);
        assert_eq!(service["spec"]["loadBalancerClass"], CLASS);
        for same in ["metadata", "kind", "apiVersion"] {
            assert_eq!(first[same], service[same]);
        }
        assert_eq!(
            first["spec"],
            json!({
                "type": "ClusterIP",
                "ipFamilyPolicy": "SingleStack",
                "ipFamilies": ["IPv4"],
                "ports": service["spec"]["ports"],
            })
        );
        let served = there(classless, json!([{ "ip": "192.0.2.9" }]));
        assert_eq!(external.service(&served)["spec"].get("loadBalancerClass"), None);
        for done in [
            Value::Null,
            served,
            there(json!({ "type": "ClusterIP" }), Value::Null),
            there(
                json!({ "type": "LoadBalancer", "loadBalancerClass": "groundplane.dev/endpoint" }),
                Value::Null,
            ),
            there(
                json!({ "type": "LoadBalancer", "loadBalancerClass": "example.com/another" }),
                Value::Null,
            ),
        ] {
            assert_eq!(external.cleared(&done), None, "{done}");
        }
    }

    /// E74, E75: several slices of `default/kubernetes` become one a family and port, sorted, nothing twice.
    #[test]
    fn slices_are_merged_by_family_and_port() {
        let servers = [
            server("10.0.0.2", 6443),
            server("10.0.0.1", 6443),
            server("10.0.0.2", 6443),
            server("2001:db8::1", 6443),
            server("10.0.0.3", 7443),
        ];
        let external = external(&servers);
        let slices = external.slices();
        let names: Vec<&str> = slices.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            ["external-ipv4-6443", "external-ipv4-7443", "external-ipv6-6443"]
        );
        assert_eq!(
            external.service(&Value::Null)["spec"]["ports"][0]["targetPort"],
            6443
        );
        assert_eq!(
            slices["external-ipv4-6443"],
            json!({
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "name": "external-ipv4-6443",
                    "namespace": "kube-system",
                    "labels": {
                        "kubernetes.io/service-name": "external",
                        "endpointslice.kubernetes.io/managed-by": "groundplane.dev",
                    },
                },
                "addressType": "IPv4",
                "endpoints": [
                    { "addresses": ["10.0.0.1"], "conditions": { "ready": true } },
                    { "addresses": ["10.0.0.2"], "conditions": { "ready": true } },
                ],
                "ports": [{ "name": "https", "protocol": "TCP", "port": 6443 }],
            })
        );
    }

    #[test]
    fn what_the_api_server_adds_is_no_difference() {
        let wanted = json!({ "a": 1, "list": [{ "b": 2 }] });
        assert!(covers(
            &json!({ "a": 1, "list": [{ "b": 2, "c": 3 }], "d": 4 }),
            &wanted
        ));
        assert!(!covers(&json!({ "a": 1, "list": [{ "b": 3 }] }), &wanted));
        assert!(!covers(&json!({ "a": 1, "list": [{ "b": 2 }, {}] }), &wanted));
        assert!(!covers(&json!({ "list": [{ "b": 2 }] }), &wanted));
    }
}
