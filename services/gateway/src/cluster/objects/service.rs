//! Services.

use groundplane_core::{Family, names};
use k8s_openapi::NamespaceResourceScope;
use serde::{Deserialize, Deserializer};

use super::{Key, Metadata, Pairs, Slim, Written};

/// A Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServiceObject {
    pub(crate) key: Key,
    pub(crate) uid: Box<str>,
    pub(crate) version: Box<str>,
    /// Is it being deleted?
    pub(crate) deleting: bool,
    pub(crate) labels: Pairs,
    pub(crate) annotations: Pairs,
    pub(crate) finalizers: Box<[Box<str>]>,
    pub(crate) kind: ServiceType,
    /// `spec.loadBalancerClass`; empty: none.
    pub(crate) class: Box<str>,
    /// `spec.loadBalancerIP`; empty: none.
    pub(crate) load_balancer_ip: Box<str>,
    pub(crate) families: Box<[Family]>,
    /// `spec.ipFamilyPolicy`; empty: not said.
    pub(crate) family_policy: Box<str>,
    /// `spec.externalTrafficPolicy`; empty: not said.
    pub(crate) external_traffic_policy: Box<str>,
    /// `spec.ports`.
    pub(crate) ports: Box<[Port]>,
    /// `status.loadBalancer.ingress`.
    pub(crate) ingress: Box<[Ingress]>,
    /// Our condition, [`names::CONDITION_ADDRESS`].
    pub(crate) condition: Option<ServiceCondition>,
    /// When older controllers last wrote to it.
    pub(crate) written: Box<[Written]>,
}

/// `spec.type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Box<str>")]
pub(crate) enum ServiceType {
    LoadBalancer,
    #[default]
    Other,
}

impl From<Box<str>> for ServiceType {
    fn from(text: Box<str>) -> Self {
        if &*text == "LoadBalancer" {
            Self::LoadBalancer
        } else {
            Self::Other
        }
    }
}

/// One of `spec.ports`, as it is seen from outside.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
pub(crate) struct Port {
    #[serde(rename = "port", default)]
    pub(crate) number: u16,
    /// `TCP`, `UDP` or `SCTP`.
    #[serde(default = "tcp")]
    pub(crate) protocol: Box<str>,
}

fn tcp() -> Box<str> {
    "TCP".into()
}

/// One of `status.loadBalancer.ingress`. Empty texts stand for what is not there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Ingress {
    #[serde(default)]
    pub(crate) ip: Box<str>,
    #[serde(default)]
    pub(crate) hostname: Box<str>,
    #[serde(default, rename = "ipMode")]
    pub(crate) ip_mode: Box<str>,
}

/// Our condition on the Service.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServiceCondition {
    #[serde(rename = "type")]
    kind: Box<str>,
    /// `True`, `False` or `Unknown`.
    #[serde(default)]
    pub(crate) status: Box<str>,
    #[serde(default)]
    pub(crate) reason: Box<str>,
    #[serde(default)]
    pub(crate) message: Box<str>,
    /// RFC 3339.
    #[serde(default)]
    pub(crate) last_transition_time: Option<Box<str>>,
}

#[derive(Deserialize)]
struct Wire {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default, rename = "type")]
    kind: ServiceType,
    #[serde(default)]
    load_balancer_class: Box<str>,
    #[serde(default, rename = "loadBalancerIP")]
    load_balancer_ip: Box<str>,
    ip_families: Option<Box<[Family]>>,
    #[serde(default)]
    ip_family_policy: Box<str>,
    #[serde(default)]
    external_traffic_policy: Box<str>,
    ports: Option<Box<[Port]>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    load_balancer: LoadBalancer,
    conditions: Option<Vec<ServiceCondition>>,
}

#[derive(Default, Deserialize)]
struct LoadBalancer {
    ingress: Option<Box<[Ingress]>>,
}

impl<'de> Deserialize<'de> for ServiceObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Wire {
            metadata,
            spec,
            status,
        } = Wire::deserialize(deserializer)?;
        let conditions = status.conditions.unwrap_or_default();
        Ok(Self {
            key: Key::namespaced(&metadata.namespace, &metadata.name),
            uid: metadata.uid,
            version: metadata.resource_version,
            deleting: metadata.deletion_timestamp.is_some(),
            labels: metadata.labels,
            annotations: metadata.annotations,
            finalizers: metadata.finalizers.unwrap_or_default(),
            kind: spec.kind,
            class: spec.load_balancer_class,
            load_balancer_ip: spec.load_balancer_ip,
            families: spec.ip_families.unwrap_or_default(),
            family_policy: spec.ip_family_policy,
            external_traffic_policy: spec.external_traffic_policy,
            ports: spec.ports.unwrap_or_default(),
            ingress: status.load_balancer.ingress.unwrap_or_default(),
            condition: conditions
                .into_iter()
                .find(|condition| &*condition.kind == names::CONDITION_ADDRESS),
            written: metadata.written,
        })
    }
}

impl Slim for ServiceObject {
    type Scope = NamespaceResourceScope;
    const KIND: &'static str = "Service";
    const PLURAL: &'static str = "services";

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
        let Self {
            key: _,
            uid,
            version: _,
            deleting,
            labels,
            annotations,
            finalizers,
            kind,
            class,
            load_balancer_ip,
            families,
            family_policy,
            external_traffic_policy,
            ports,
            ingress,
            condition,
            written: _,
        } = self;
        *uid == other.uid
            && *deleting == other.deleting
            && *labels == other.labels
            && *annotations == other.annotations
            && *finalizers == other.finalizers
            && *kind == other.kind
            && *class == other.class
            && *load_balancer_ip == other.load_balancer_ip
            && *families == other.families
            && *family_policy == other.family_policy
            && *external_traffic_policy == other.external_traffic_policy
            && *ports == other.ports
            && *ingress == other.ingress
            && *condition == other.condition
    }

    fn written(&self) -> &[Written] {
        &self.written
    }
}
