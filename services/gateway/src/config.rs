//! The section `gateway` of the configuration.

use std::path::PathBuf;
use std::time::Duration;

use groundplane_core::{ClusterId, names};
use groundplane_runtime::config::{HumanDuration, Problem};
use serde::Deserialize;

/// What the gateway is told.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// The cluster's id, from the top of the file (`cluster`). None: the UID of `kube-system`.
    #[serde(skip)]
    pub cluster: Option<ClusterId>,
    /// The driver, from the top of the file (`driver`). Empty: `static`.
    #[serde(skip)]
    pub driver: String,
    /// Where the API server is. None: as KUBECONFIG says, else as the surroundings of the pod say.
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of the lease. Empty: that of the kubeconfig's context, or of the pod.
    pub namespace: String,
    /// What receives an address once it is reserved.
    pub announcer: Announcer,
    /// Prefix of the BGP annotations on nodes, and of a Service's `eip-metro` and `eip-facility`; without the slash.
    pub annotation_prefix: String,
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
    /// Only nodes with these labels speak BGP: `key=value`, `key`, `!key`, comma separated. Empty: all.
    pub bgp_node_selector: String,
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
    /// Leader election.
    pub lease: Lease,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            cluster: None,
            driver: String::new(),
            kubeconfig: None,
            namespace: String::new(),
            announcer: Announcer::default(),
            annotation_prefix: "metal.equinix.com".to_owned(),
            claim_classless: true,
            load_balancer_class: names::LOAD_BALANCER_CLASS.to_owned(),
            namespaces: Vec::new(),
            node_selector: String::new(),
            node_prefix: String::new(),
            bgp_node_selector: String::new(),
            resync: Duration::from_secs(30).into(),
            cloud_resync: Duration::from_secs(300).into(),
            node_monitor_period: Duration::from_secs(5).into(),
            concurrency: 64,
            write_timeout: Duration::from_secs(10).into(),
            refresh_labels: false,
            controllers: Controllers::default(),
            lifecycle: Lifecycle::default(),
            lease: Lease::default(),
        }
    }
}

/// What receives an address once it is reserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Announcer {
    /// kube-vip: the addresses go into its annotation, a single one into `spec.loadBalancerIP`, too, and all into the status.
    KubeVip,
    /// Nobody; the address goes into the status.
    #[default]
    Empty,
}

/// Which controllers run.
#[derive(Clone, Copy, Debug, Deserialize)]
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
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Lifecycle {
    /// If more than this share of the nodes would be deleted at once, and they are three or more, none is. 1: no limit.
    pub max_delete_fraction: f64,
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self {
            max_delete_fraction: 0.5,
        }
    }
}

/// Leader election.
#[derive(Clone, Debug, Deserialize)]
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
        self.driver() == "static"
    }

    /// The driver's name.
    pub(crate) fn driver(&self) -> &str {
        if self.driver.is_empty() {
            "static"
        } else {
            &self.driver
        }
    }

    /// What is wrong with it, all at once.
    pub fn validate(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut refuse = |path: &str, wrong: &str, help: &str| problems.push(Problem::new(path, wrong, help));
        if self.concurrency == 0 {
            refuse(
                "concurrency",
                "must not be 0",
                "write the number of objects to work on at a time, such as 64",
            );
        }
        if self.annotation_prefix.is_empty() || self.annotation_prefix.contains('/') {
            refuse(
                "annotationPrefix",
                "is no prefix",
                "write a DNS name without a slash, such as `metal.equinix.com`",
            );
        }
        if !self.load_balancer_class.contains('/') {
            refuse(
                "loadBalancerClass",
                "is no class",
                "write `prefix/name`, such as `groundplane.dev/eip`",
            );
        }
        if let Err(error) = crate::selector::Selector::parse(&self.bgp_node_selector) {
            refuse(
                "bgpNodeSelector",
                &error.to_string(),
                "write `key=value`, `key!=value`, `key` or `!key`, comma separated",
            );
        }
        if !(self.lifecycle.max_delete_fraction > 0.0 && self.lifecycle.max_delete_fraction <= 1.0) {
            refuse(
                "lifecycle.maxDeleteFraction",
                "is no share",
                "write a number above 0 and up to 1",
            );
        }
        if self.namespaces.iter().any(String::is_empty) {
            refuse(
                "namespaces",
                "has an empty name",
                "remove it; an empty list stands for all namespaces",
            );
        }
        if self.lease.name.is_empty() {
            refuse(
                "lease.name",
                "must not be empty",
                "leave it out for `groundplane-gateway`",
            );
        }
        let (lease, retry) = (self.lease.duration.0, self.lease.retry.0);
        if lease < Duration::from_secs(5) || lease.subsec_nanos() != 0 {
            refuse(
                "lease.duration",
                "must be whole seconds, five or more",
                "write `15s`",
            );
        }
        if retry < Duration::from_millis(100) || retry > lease / 2 {
            refuse(
                "lease.retry",
                "must be from 100ms to half of `lease.duration`",
                "write `2s`",
            );
        }
        for (path, period) in [
            ("resync", self.resync),
            ("cloudResync", self.cloud_resync),
            ("nodeMonitorPeriod", self.node_monitor_period),
            ("writeTimeout", self.write_timeout),
        ] {
            if period.0 < Duration::from_millis(100) {
                refuse(path, "is too short", "write 100ms or more");
            }
        }
        problems
    }
}

#[cfg(test)]
mod tests;
