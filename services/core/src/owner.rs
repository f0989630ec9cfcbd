//! Who holds an address, and where pools come from.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{ClusterId, Name, ParseNameError, PoolName};

/// What sort of object owns an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OwnerKind {
    /// A Service of type `LoadBalancer`.
    Service,
    /// A pod with a floating address.
    Pod,
    /// A Cluster API `IPAddressClaim`.
    Claim,
    /// The endpoint of a cluster's API server.
    Endpoint,
    /// A reservation made by hand.
    Reservation,
}

impl OwnerKind {
    /// The kind as it is written in keys, flags and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::Pod => "pod",
            Self::Claim => "claim",
            Self::Endpoint => "endpoint",
            Self::Reservation => "reservation",
        }
    }
}

impl std::str::FromStr for OwnerKind {
    type Err = ParseNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [
            Self::Service,
            Self::Pod,
            Self::Claim,
            Self::Endpoint,
            Self::Reservation,
        ]
        .into_iter()
        .find(|kind| kind.as_str() == text)
        .ok_or_else(|| ParseNameError::Character {
            what: "owner kind (service, pod, claim, endpoint, reservation)",
            given: text.to_owned(),
            character: text.chars().next().unwrap_or(' '),
        })
    }
}

impl fmt::Display for OwnerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Who holds an address: the idempotency key of every mutation. An object's UID is a precondition and not part of it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// The cluster of the object.
    pub cluster: ClusterId,
    /// What sort of object.
    pub kind: OwnerKind,
    /// Its namespace; `None` for what has none.
    pub namespace: Option<Name>,
    /// Its name.
    pub name: Name,
    /// Which of several that one object holds of the same family; empty for the first.
    pub slot: Box<str>,
}

impl Owner {
    /// The owner that is the Service `namespace/name` of `cluster`.
    pub fn service(cluster: ClusterId, namespace: Name, name: Name) -> Self {
        Self {
            cluster,
            kind: OwnerKind::Service,
            namespace: Some(namespace),
            name,
            slot: "".into(),
        }
    }
}

impl fmt::Display for Owner {
    /// `service default/web`, with the slot behind it where there is one. Leaves the cluster out: it is the same for
    /// everything that one reader sees.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind)?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        write!(f, "{}", self.name)?;
        if !self.slot.is_empty() {
            write!(f, "#{}", self.slot)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self, self.cluster)
    }
}

/// Where pools come from. A source changes its own pools only, by complete snapshots.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PoolSource(pub Name);

/// A pool: its source, its namespace there (where it has one), its name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PoolId {
    /// Where it comes from.
    pub source: PoolSource,
    /// Its namespace within the source.
    pub namespace: Option<Name>,
    /// Its name.
    pub name: PoolName,
}

impl fmt::Display for PoolId {
    /// `file:public`, `inclusterippools:default/lab`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.source.0)?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        write!(f, "{}", self.name)
    }
}

impl fmt::Debug for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A point in the history of a store. Grows with every change; 0 is before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Revision(pub u64);

impl Revision {
    /// The revision behind this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
