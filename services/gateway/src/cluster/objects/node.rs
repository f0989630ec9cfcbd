//! Nodes.

use std::fmt;

use groundplane_core::names;
use k8s_openapi::ClusterResourceScope;
use serde::{Deserialize, Deserializer, Serialize};

use super::{Key, Metadata, Pairs, Slim, Written};

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeObject {
    pub(crate) key: Key,
    pub(crate) uid: Box<str>,
    pub(crate) version: Box<str>,
    /// Is it being deleted?
    pub(crate) deleting: bool,
    /// Is it cordoned (`spec.unschedulable`)?
    pub(crate) cordoned: bool,
    pub(crate) labels: Pairs,
    pub(crate) annotations: Pairs,
    /// `spec.providerID`; empty: none.
    pub(crate) provider_id: Box<str>,
    pub(crate) taints: Box<[Taint]>,
    pub(crate) addresses: Box<[NodeAddress]>,
    pub(crate) ready: Ready,
    /// When older controllers last wrote to it.
    pub(crate) written: Box<[Written]>,
}

impl NodeObject {
    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.key.name
    }

    /// The taint with this key.
    pub(crate) fn taint(&self, key: &str) -> Option<&Taint> {
        self.taints.iter().find(|taint| &*taint.key == key)
    }

    /// Does it wait for its cloud to initialise it?
    pub(crate) fn is_uninitialised(&self) -> bool {
        self.taint(names::TAINT_UNINITIALIZED).is_some()
    }
}

/// What the node says of itself. A condition that is missing counts as unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ready {
    Yes,
    No,
    Unknown,
}

/// A taint, with all of its fields: the list can only be written whole.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Taint {
    pub(crate) key: Box<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) value: Option<Box<str>>,
    #[serde(default)]
    pub(crate) effect: Box<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) time_added: Option<Box<str>>,
}

/// The type of a node's address.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(from = "Box<str>", into = "String")]
pub(crate) enum AddressType {
    Hostname,
    InternalIp,
    ExternalIp,
    InternalDns,
    ExternalDns,
    /// One that we do not know; kept as it is.
    Other(Box<str>),
}

impl AddressType {
    /// As Kubernetes writes it.
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Hostname => "Hostname",
            Self::InternalIp => "InternalIP",
            Self::ExternalIp => "ExternalIP",
            Self::InternalDns => "InternalDNS",
            Self::ExternalDns => "ExternalDNS",
            Self::Other(other) => other,
        }
    }
}

impl From<Box<str>> for AddressType {
    fn from(text: Box<str>) -> Self {
        match &*text {
            "Hostname" => Self::Hostname,
            "InternalIP" => Self::InternalIp,
            "ExternalIP" => Self::ExternalIp,
            "InternalDNS" => Self::InternalDns,
            "ExternalDNS" => Self::ExternalDns,
            _ => Self::Other(text),
        }
    }
}

impl From<AddressType> for String {
    fn from(kind: AddressType) -> Self {
        kind.as_str().to_owned()
    }
}

impl fmt::Debug for AddressType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An address of a node: an IP address or a name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct NodeAddress {
    #[serde(rename = "type")]
    pub(crate) kind: AddressType,
    pub(crate) address: Box<str>,
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
struct Spec {
    #[serde(default, rename = "providerID")]
    provider_id: Box<str>,
    #[serde(default)]
    unschedulable: bool,
    taints: Option<Box<[Taint]>>,
}

#[derive(Default, Deserialize)]
struct Status {
    addresses: Option<Box<[NodeAddress]>>,
    conditions: Option<Vec<Condition>>,
}

/// Only `Ready` is of interest; other conditions are dropped with the list.
#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: Box<str>,
    #[serde(default)]
    status: Box<str>,
}

impl<'de> Deserialize<'de> for NodeObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Wire {
            metadata,
            spec,
            status,
        } = Wire::deserialize(deserializer)?;
        let ready = status.conditions.unwrap_or_default();
        let ready = ready.iter().find(|condition| &*condition.kind == "Ready");
        Ok(Self {
            key: Key::cluster_wide(&metadata.name),
            uid: metadata.uid,
            version: metadata.resource_version,
            deleting: metadata.deletion_timestamp.is_some(),
            cordoned: spec.unschedulable,
            labels: metadata.labels,
            annotations: metadata.annotations,
            provider_id: spec.provider_id,
            taints: spec.taints.unwrap_or_default(),
            addresses: status.addresses.unwrap_or_default(),
            ready: match ready.map(|condition| &*condition.status) {
                Some("True") => Ready::Yes,
                Some("False") => Ready::No,
                _ => Ready::Unknown,
            },
            written: metadata.written,
        })
    }
}

impl Slim for NodeObject {
    type Scope = ClusterResourceScope;
    const KIND: &'static str = "Node";
    const PLURAL: &'static str = "nodes";

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
            cordoned,
            labels,
            annotations,
            provider_id,
            taints,
            addresses,
            ready,
            written: _,
        } = self;
        *uid == other.uid
            && *deleting == other.deleting
            && *cordoned == other.cordoned
            && *labels == other.labels
            && *annotations == other.annotations
            && *provider_id == other.provider_id
            && *taints == other.taints
            && *addresses == other.addresses
            && *ready == other.ready
    }

    fn written(&self) -> &[Written] {
        &self.written
    }
}
