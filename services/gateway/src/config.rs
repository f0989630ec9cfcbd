//! The section `gateway` of the configuration.

mod annotations;
mod check;
mod empty;
mod metallb;
mod reclaim;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use groundplane_core::{ClusterId, DriverName, names};
use groundplane_runtime::config::HumanDuration;
use serde::{Deserialize, Serialize};

pub use annotations::{AnnotationFormat, Annotations};
pub(crate) use annotations::{Field, Layout, Name};
pub use empty::Empty;
pub(crate) use empty::LOAD_BALANCER_IP;
pub use metallb::{Advertisement, Metallb, PeerMode};
pub use reclaim::{Reclaim, ReclaimMode};

/// What the gateway is told.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// The cluster's id, from the top of the file (`cluster`). None: the UID of `kube-system`.
    #[serde(skip)]
    pub cluster: Option<ClusterId>,
    /// The driver, from the top of the file (`driver`).
    #[serde(skip)]
    pub driver: DriverName,
    /// Do addresses come from ipam's pools? `None`: as the driver has it.
    #[serde(skip)]
    pub pools: Option<bool>,
    /// The external Service of the API endpoint, from the section `endpoint`. None: there is no endpoint.
    #[serde(skip)]
    pub external: Option<ExternalService>,
    /// Where the API server is. None: as KUBECONFIG says, else as the surroundings of the pod say.
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of the lease. Empty: that of the kubeconfig's context, or of the pod.
    pub namespace: String,
    /// What receives an address once it is reserved.
    pub announcer: Announcer,
    /// How MetalLB is told.
    pub metallb: Metallb,
    /// Where addresses are written for those whom nobody tells.
    pub empty: Empty,
    /// Prefix of the BGP annotations on nodes, and of a Service's `eip-metro` and `eip-facility`; without the slash. Empty: that of the
    /// driver's older controller.
    pub annotation_prefix: String,
    /// Which generations of annotations tell a node its BGP peers.
    pub annotation_formats: Vec<AnnotationFormat>,
    /// Annotations that are called otherwise.
    pub annotations: Annotations,
    /// Are Services without a class ours?
    pub claim_classless: bool,
    /// The class whose Services are ours.
    pub load_balancer_class: String,
    /// Only Services in these namespaces. Empty: all.
    pub namespaces: Vec<String>,
    /// Only nodes with these labels (Kubernetes syntax). Empty: all.
    pub node_selector: String,
    /// Only nodes whose name starts so. Empty: all.
    pub node_prefix: String,
    /// Only nodes with these labels (Kubernetes syntax) speak BGP. Empty: all.
    pub bgp_node_selector: String,
    /// Take the annotations that we wrote back from nodes that are not to speak BGP any more. Else they stay as they are.
    pub bgp_cleanup: bool,
    /// How often drift in the cluster is looked for, in what we know.
    pub resync: HumanDuration,
    /// How often drift in the cloud is looked for.
    pub cloud_resync: HumanDuration,
    /// How often nodes that are not ready are looked for.
    pub node_monitor_period: HumanDuration,
    /// Objects that each controller works on at a time.
    pub concurrency: usize,
    /// No write to Kubernetes takes longer.
    pub write_timeout: HumanDuration,
    /// Follow the cloud's labels (type, zone, region) after a node was initialised, too.
    pub refresh_labels: bool,
    /// Which controllers run.
    pub controllers: Controllers,
    /// When nodes may be deleted.
    pub lifecycle: Lifecycle,
    /// When elastic IPs are given back that no Service has any more.
    pub reclaim: Reclaim,
    /// What is done while an older controller still runs.
    pub rivals: RivalPolicy,
    /// So many addresses of a family may Services have, because a BGP session carries no more prefixes. 0: as the cloud says. Where both
    /// say something, the lower one holds.
    pub max_prefixes: u32,
    /// Leader election.
    pub lease: Lease,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            cluster: None,
            driver: DriverName::default(),
            pools: None,
            external: None,
            kubeconfig: None,
            namespace: String::new(),
            announcer: Announcer::default(),
            metallb: Metallb::default(),
            empty: Empty::default(),
            annotation_prefix: String::new(),
            annotation_formats: vec![AnnotationFormat::Indexed],
            annotations: Annotations::default(),
            claim_classless: true,
            load_balancer_class: names::LOAD_BALANCER_CLASS.to_owned(),
            namespaces: Vec::new(),
            node_selector: String::new(),
            node_prefix: String::new(),
            bgp_node_selector: String::new(),
            bgp_cleanup: false,
            resync: Duration::from_secs(30).into(),
            cloud_resync: Duration::from_secs(300).into(),
            node_monitor_period: Duration::from_secs(5).into(),
            concurrency: 64,
            write_timeout: Duration::from_secs(10).into(),
            refresh_labels: false,
            controllers: Controllers::default(),
            lifecycle: Lifecycle::default(),
            reclaim: Reclaim::default(),
            rivals: RivalPolicy::default(),
            max_prefixes: 0,
            lease: Lease::default(),
        }
    }
}

/// The external Service of the API endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalService {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The endpoint's address; `None`: as the cloud says.
    pub address: Option<IpAddr>,
    /// The endpoint's port; `None`: that of the machines' own API servers.
    pub port: Option<u16>,
    /// Port of the machines' own API servers, where it is configured.
    pub node_port: Option<u16>,
    /// Labels of the nodes that could hold the endpoint (Kubernetes syntax). Empty: those of the control plane.
    pub node_selector: String,
    /// Do nodes answer for its address themselves?
    pub ip_mode: IpMode,
}

/// What a node does with packets to the endpoint's address, as the status of the external Service says it (`ipMode`, KEP-1860).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum IpMode {
    /// It sends them on their way: the machine that holds the address has it on an interface of its own.
    #[default]
    Proxy,
    /// It sends them to some API server itself, and so does the holder, which needs no such interface. A probe from a node tells nothing
    /// of the holder then.
    #[serde(rename = "VIP")]
    Vip,
}

impl IpMode {
    /// As Kubernetes writes it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Proxy => "Proxy",
            Self::Vip => "VIP",
        }
    }
}

/// What receives an address once it is reserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Announcer {
    /// kube-vip: the addresses go into its annotation, a single one into `spec.loadBalancerIP`, too, and all into the status.
    KubeVip,
    /// MetalLB 0.13 and later, by its custom resources; it writes the status.
    Metallb,
    /// MetalLB up to 0.12, by its `ConfigMap` and `spec.loadBalancerIP`; it writes the status.
    MetallbConfigmap,
    /// Nobody; the address goes into the status, and where `empty.tell` says.
    #[default]
    Empty,
}

/// What is done while an older controller still runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RivalPolicy {
    /// Nothing is written until it has stopped.
    #[default]
    Refuse,
    /// It is told of, and we write all the same.
    Warn,
}

/// Which controllers run.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[allow(clippy::struct_excessive_bools, reason = "switches")]
pub struct Controllers {
    /// Initialises nodes.
    pub node: bool,
    /// Deletes nodes whose machines are gone.
    pub lifecycle: bool,
    /// Tells nodes their BGP peers.
    pub bgp: bool,
    /// Gives Services their addresses.
    pub service: bool,
}

impl Default for Controllers {
    fn default() -> Self {
        Self {
            node: true,
            lifecycle: true,
            bgp: true,
            service: true,
        }
    }
}

/// When nodes may be deleted.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Lifecycle {
    /// If more than this share of the nodes would be deleted within `delete_window`, and they are three or more, none is. 1: no limit.
    pub max_delete_fraction: f64,
    /// The time over which deletions are counted.
    pub delete_window: HumanDuration,
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self {
            max_delete_fraction: 0.5,
            delete_window: Duration::from_secs(600).into(),
        }
    }
}

/// Leader election.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Lease {
    /// Name of the lease.
    pub name: String,
    /// How long it lasts without a renewal, in whole seconds.
    pub duration: HumanDuration,
    /// How often a replica that waits looks whether it is free.
    pub retry: HumanDuration,
}

impl Default for Lease {
    fn default() -> Self {
        Self {
            name: names::LEASE.to_owned(),
            duration: Duration::from_secs(15).into(),
            retry: Duration::from_secs(2).into(),
        }
    }
}

impl Config {
    /// Do addresses come from ipam's pools? Else a cloud gives them.
    pub(crate) fn has_pools(&self) -> bool {
        self.pools.unwrap_or(self.driver == DriverName::Static)
    }
}

#[cfg(test)]
mod tests;
