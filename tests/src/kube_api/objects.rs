//! Drafts of the objects that tests create.

use std::collections::BTreeMap;

use groundplane_core::names;
use k8s_openapi::api::core::v1::{
    ContainerImage, LoadBalancerIngress, Node, NodeAddress, NodeCondition, NodeSpec, NodeStatus, Service,
    ServicePort, ServiceSpec, Taint,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

/// A Service of type `LoadBalancer` with one TCP port, 80, and no node ports.
#[derive(Clone, Debug)]
#[must_use]
pub struct ServiceDraft {
    service: Service,
}

impl ServiceDraft {
    /// Of this name, IPv4, with no class.
    pub fn new(namespace: &str, name: &str) -> Self {
        let spec = ServiceSpec {
            type_: Some("LoadBalancer".to_owned()),
            allocate_load_balancer_node_ports: Some(false),
            selector: Some(BTreeMap::from([("app".to_owned(), name.to_owned())])),
            ports: Some(vec![ServicePort {
                name: Some("http".to_owned()),
                port: 80,
                protocol: Some("TCP".to_owned()),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        };
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        };
        Self {
            service: Service {
                metadata,
                spec: Some(spec),
                status: None,
            },
        }
        .families(&["IPv4"])
    }

    /// Changes the specification.
    pub fn spec(mut self, change: impl FnOnce(&mut ServiceSpec)) -> Self {
        change(self.service.spec.get_or_insert_default());
        self
    }

    /// Of these families, `IPv4` or `IPv6` or both; the first is the primary one.
    pub fn families(self, families: &[&str]) -> Self {
        let policy = if families.len() > 1 {
            "RequireDualStack"
        } else {
            "SingleStack"
        };
        self.spec(|spec| {
            spec.ip_families = Some(families.iter().map(|family| (*family).to_owned()).collect());
            spec.ip_family_policy = Some(policy.to_owned());
        })
    }

    /// IPv4 and IPv6.
    pub fn dual_stack(self) -> Self {
        self.families(&["IPv4", "IPv6"])
    }

    /// With this load-balancer class.
    pub fn class(self, class: &str) -> Self {
        self.spec(|spec| spec.load_balancer_class = Some(class.to_owned()))
    }

    /// Asks for these addresses, by our annotation.
    pub fn requesting(self, addresses: &str) -> Self {
        self.annotation(names::SERVICE_ADDRESSES, addresses)
    }

    /// Asks for this address by the old field of the specification.
    pub fn load_balancer_ip(self, address: &str) -> Self {
        self.spec(|spec| spec.load_balancer_ip = Some(address.to_owned()))
    }

    /// Asks for an address of this pool.
    pub fn pool(self, pool: &str) -> Self {
        self.annotation(names::SERVICE_POOL, pool)
    }

    /// With an annotation.
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.service
            .metadata
            .annotations
            .get_or_insert_default()
            .insert(key.to_owned(), value.to_owned());
        self
    }

    /// With a finalizer.
    pub fn finalizer(mut self, finalizer: &str) -> Self {
        self.service
            .metadata
            .finalizers
            .get_or_insert_default()
            .push(finalizer.to_owned());
        self
    }

    /// The object.
    pub fn build(self) -> Service {
        self.service
    }
}

/// The addresses in a Service's status.
pub fn ingress_of(service: &Service) -> Vec<String> {
    ingress(service)
        .filter_map(|ingress| ingress.ip.clone())
        .collect()
}

/// The host names in a Service's status.
pub fn hostnames_of(service: &Service) -> Vec<String> {
    ingress(service)
        .filter_map(|ingress| ingress.hostname.clone())
        .collect()
}

fn ingress(service: &Service) -> impl Iterator<Item = &LoadBalancerIngress> {
    let status = service
        .status
        .as_ref()
        .and_then(|status| status.load_balancer.as_ref());
    status
        .and_then(|balancer| balancer.ingress.as_ref())
        .into_iter()
        .flatten()
}

/// A node as kubelet registers it: its name as host name, ready, with no provider id.
#[derive(Clone, Debug)]
#[must_use]
pub struct NodeDraft {
    node: Node,
}

impl NodeDraft {
    /// Of this name.
    pub fn new(name: &str) -> Self {
        let label = ("kubernetes.io/hostname".to_owned(), name.to_owned());
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(BTreeMap::from([label])),
            ..ObjectMeta::default()
        };
        let status = NodeStatus {
            conditions: Some(vec![ready_condition(true)]),
            ..NodeStatus::default()
        };
        Self {
            node: Node {
                metadata,
                spec: Some(NodeSpec::default()),
                status: Some(status),
            },
        }
        .address("Hostname", name)
    }

    /// Tainted, as kubelet does with `--cloud-provider=external`: it waits for its cloud.
    pub fn uninitialized(self) -> Self {
        self.taint(names::TAINT_UNINITIALIZED, "NoSchedule")
    }

    /// With a taint of the value `true`.
    pub fn taint(mut self, key: &str, effect: &str) -> Self {
        let spec = self.node.spec.get_or_insert_default();
        spec.taints.get_or_insert_default().push(Taint {
            key: key.to_owned(),
            effect: effect.to_owned(),
            value: Some("true".to_owned()),
            time_added: None,
        });
        self
    }

    /// With this provider id.
    pub fn provider_id(mut self, id: &str) -> Self {
        self.node.spec.get_or_insert_default().provider_id = Some(id.to_owned());
        self
    }

    /// With an address of `kind` (`InternalIP`, `ExternalIP`, `Hostname`) in its status.
    pub fn address(mut self, kind: &str, address: &str) -> Self {
        let status = self.node.status.get_or_insert_default();
        let address = NodeAddress {
            type_: kind.to_owned(),
            address: address.to_owned(),
        };
        status.addresses.get_or_insert_default().push(address);
        self
    }

    /// With what kubelet was told by `--node-ip`.
    pub fn node_ip(self, addresses: &str) -> Self {
        self.annotation(names::PROVIDED_NODE_IP, addresses)
    }

    /// With a label.
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.node
            .metadata
            .labels
            .get_or_insert_default()
            .insert(key.to_owned(), value.to_owned());
        self
    }

    /// With an annotation.
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.node
            .metadata
            .annotations
            .get_or_insert_default()
            .insert(key.to_owned(), value.to_owned());
        self
    }

    /// Filled up to about `bytes` of JSON the way real nodes are: by the list of images in its status.
    pub fn padded(mut self, bytes: usize) -> Self {
        let own = serde_json::to_vec(&self.node).map_or(0, |json| json.len());
        let mut left = bytes.saturating_sub(own);
        let mut images = Vec::new();
        while left > 0 {
            let name = format!(
                "registry.example.com/team-{:02}/service@sha256:{:064x}",
                images.len(),
                images.len()
            );
            let image = ContainerImage {
                names: Some(vec![name]),
                size_bytes: Some(123_456_789),
            };
            left = left.saturating_sub(json!(image).to_string().len() + 1);
            images.push(image);
        }
        self.node.status.get_or_insert_default().images = Some(images);
        self
    }

    /// The object.
    pub fn build(self) -> Node {
        self.node
    }
}

/// The condition by which a node says whether it is ready. What kubelet says when it is; what the node controller of
/// Kubernetes says when kubelet has fallen silent.
pub(super) fn ready_condition(ready: bool) -> NodeCondition {
    let (status, reason) = if ready {
        ("True", "KubeletReady")
    } else {
        ("Unknown", "NodeStatusUnknown")
    };
    NodeCondition {
        type_: "Ready".to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        ..NodeCondition::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_padded_node_has_the_size_that_was_asked_for() -> serde_json::Result<()> {
        let size = serde_json::to_vec(&NodeDraft::new("node").uninitialized().padded(10_000).build())?.len();
        assert!((10_000..10_300).contains(&size), "{size}");
        Ok(())
    }
}
