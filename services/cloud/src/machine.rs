//! Machines.

use std::collections::BTreeMap;

use async_trait::async_trait;
use groundplane_core::ProviderId;

use crate::CloudError;

/// What sort of address a machine has, in Kubernetes' words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MachineAddressKind {
    /// Its host name.
    Hostname,
    /// An address within the cluster's network.
    InternalIp,
    /// An address that the world reaches.
    ExternalIp,
    /// A DNS name within the cluster's network.
    InternalDns,
    /// A DNS name that the world resolves.
    ExternalDns,
}

/// One address of a machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachineAddress {
    /// What sort.
    pub kind: MachineAddressKind,
    /// An IP address or a name.
    pub address: String,
}

/// Is it on?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PowerState {
    /// On, or on its way there.
    On,
    /// Off.
    Off,
}

/// A machine, as its cloud knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// As in `spec.providerID`.
    pub id: ProviderId,
    /// Its host name.
    pub hostname: String,
    /// Empty: not known.
    pub instance_type: String,
    /// Empty: not known.
    pub zone: String,
    /// Empty: not known.
    pub region: String,
    /// In the cloud's order.
    pub addresses: Vec<MachineAddress>,
    /// Is it on?
    pub power: PowerState,
    /// More labels for the node.
    pub labels: BTreeMap<String, String>,
}

/// A cloud that knows its machines.
#[async_trait]
pub trait MachineSource: Send + Sync + 'static {
    /// The schemes of provider ids that are this cloud's: first the one that it gives out (`equinixmetal`), then others (`packet`).
    /// Empty: not known yet.
    fn schemes(&self) -> Vec<String>;

    /// Is this id this cloud's? Bare ids may be, too.
    fn accepts(&self, id: &ProviderId) -> bool;

    /// Does absence from the list prove that the machine is gone? No, where a person keeps the list by hand.
    fn proves_absence(&self) -> bool;

    /// Every machine, all pages. Complete, or an error.
    ///
    /// # Errors
    /// Never `NotFound`.
    async fn list(&self) -> Result<Vec<Machine>, CloudError>;

    /// One machine.
    ///
    /// # Errors
    /// `NotFound` proves that it does not exist.
    async fn get(&self, id: &ProviderId) -> Result<Machine, CloudError>;
}
