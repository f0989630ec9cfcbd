//! What we keep of Kubernetes objects: the fields that some decision reads, and nothing else.
//!
//! Everything else is skipped while the JSON is read, never built: a node of 10 KB becomes one of about 1 KB. So an object
//! from here can never be written back whole; every write is a patch.

mod node;
mod pairs;
mod service;
mod written;

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

pub(crate) use node::{AddressType, NodeAddress, NodeObject, Ready, Taint};
pub(crate) use pairs::{Pairs, read_also};
pub(crate) use service::{Ingress, ServiceCondition, ServiceObject, ServiceType};
pub(crate) use written::{Written, written_by};

/// Names an object of one kind. `namespace` is empty for what has none.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
}

impl Key {
    /// The object `name` without a namespace: a node.
    pub(crate) fn cluster_wide(name: &str) -> Self {
        Self {
            namespace: Arc::from(""),
            name: Arc::from(name),
        }
    }

    /// The object `namespace/name`.
    pub(crate) fn namespaced(namespace: &str, name: &str) -> Self {
        Self {
            namespace: Arc::from(namespace),
            name: Arc::from(name),
        }
    }
}

/// A text that is neither `name` nor `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither `name` nor `namespace/name`")]
pub(crate) struct ParseKeyError(String);

impl FromStr for Key {
    type Err = ParseKeyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseKeyError(text.to_owned());
        let (namespace, name) = match text.split_once('/') {
            Some(("", _)) => return Err(error()),
            Some((namespace, name)) => (namespace, name),
            None => ("", text),
        };
        if name.is_empty() || name.contains('/') {
            return Err(error());
        }
        Ok(Self::namespaced(namespace, name))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An object of which we keep a part.
pub(crate) trait Slim: DeserializeOwned + Clone + fmt::Debug + Send + Sync + 'static {
    /// `kube`'s marker of whether the kind has namespaces.
    type Scope;
    /// `Node`.
    const KIND: &'static str;
    /// `nodes`.
    const PLURAL: &'static str;
    /// The API group; empty: the core's.
    const GROUP: &'static str = "";

    /// Its name.
    fn key(&self) -> &Key;
    /// Its UID.
    fn uid(&self) -> &str;
    /// Its `resourceVersion`.
    fn version(&self) -> &str;
    /// Do both say the same, whatever their `resourceVersion`?
    fn says_the_same(&self, other: &Self) -> bool;
    /// When older controllers last wrote to it.
    fn written(&self) -> &[Written] {
        &[]
    }
}

/// Path of the collection that the object is in.
pub(crate) fn collection<T: Slim>(key: &Key) -> String {
    if key.namespace.is_empty() {
        format!("/api/v1/{}", T::PLURAL)
    } else {
        format!("/api/v1/namespaces/{}/{}", key.namespace, T::PLURAL)
    }
}

/// An object as it comes from the API: what [`kube`] wants to see of it beside what we keep.
#[derive(Clone, Debug)]
pub(crate) struct Seen<T> {
    meta: ObjectMeta,
    /// What we keep.
    pub(crate) object: T,
}

impl<'de, T: Slim> Deserialize<'de> for Seen<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = T::deserialize(deserializer)?;
        let key = object.key();
        let meta = ObjectMeta {
            name: Some(key.name.to_string()),
            namespace: (!key.namespace.is_empty()).then(|| key.namespace.to_string()),
            resource_version: Some(object.version().to_owned()),
            uid: Some(object.uid().to_owned()),
            ..ObjectMeta::default()
        };
        Ok(Self { meta, object })
    }
}

impl<T: Slim> Resource for Seen<T> {
    type DynamicType = ();
    type Scope = T::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        T::KIND.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        T::GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        T::PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

/// `metadata`, as far as we read it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    name: Box<str>,
    #[serde(default)]
    namespace: Box<str>,
    #[serde(default)]
    uid: Box<str>,
    #[serde(default)]
    resource_version: Box<str>,
    deletion_timestamp: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    labels: Pairs,
    #[serde(default, deserialize_with = "pairs::annotations")]
    annotations: Pairs,
    finalizers: Option<Box<[Box<str>]>>,
    #[serde(default, rename = "managedFields", deserialize_with = "written::read")]
    written: Box<[Written]>,
}

#[cfg(test)]
mod tests;
