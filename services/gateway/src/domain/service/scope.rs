//! Which Services are ours.

use std::collections::BTreeSet;

use groundplane_core::{DriverName, names, older};

use crate::announcers::{self, StatusWriter};
use crate::cluster::objects::{Key, ServiceObject, ServiceType};
use crate::config::Config;

/// Which Services are ours, and how they are read.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    /// Services without a class are ours.
    pub(crate) claim_classless: bool,
    /// A class that is ours, beside [`names::LOAD_BALANCER_CLASS`]; empty: none.
    pub(crate) class: String,
    /// Only in these namespaces; empty: all.
    pub(crate) namespaces: BTreeSet<String>,
    /// A live address is asked for again by itself. True where addresses come from ipam's pools, whose store may be a new
    /// one; false for a cloud, in which an address can vanish behind our back and must be replaced.
    pub(crate) pin: bool,
    /// The announcer's backend writes the status, which then says what that announces, and not what we gave.
    pub(crate) backend: bool,
    /// The annotation that says in which metro of the cloud an address is wanted.
    pub(crate) metro: String,
    /// The same for the facility.
    pub(crate) facility: String,
    /// The external Service of the API endpoint: kept by another controller, also while it does not say so itself. Those that older
    /// controllers kept are none of ours to serve either, whether an endpoint is configured or not.
    pub(crate) external: Option<Key>,
    /// Annotations that leave a Service to somebody else where they say `false`.
    pub(crate) opt_outs: &'static [&'static str],
}

/// Those of every cloud, and those of Cherry Servers.
const OPT_OUTS: &[&str] = &[names::SERVICE_MANAGED];
const CHERRY_OPT_OUTS: &[&str] = &[names::SERVICE_MANAGED, names::CHERRY_SERVICE_MANAGED];

impl Scope {
    /// As the configuration says.
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            claim_classless: config.claim_classless,
            class: config.load_balancer_class.clone(),
            namespaces: config.namespaces.iter().cloned().collect(),
            pin: config.has_pools(),
            backend: announcers::configured(config).status_writer() == StatusWriter::Backend,
            metro: config.eip_metro(),
            facility: config.eip_facility(),
            external: config
                .external
                .as_ref()
                .map(|external| Key::namespaced(&external.namespace, &external.name)),
            opt_outs: if config.driver == DriverName::Cherry {
                CHERRY_OPT_OUTS
            } else {
                OPT_OUTS
            },
        }
    }

    /// Is this Service ours to serve?
    pub(crate) fn has(&self, service: &ServiceObject) -> bool {
        self.would_have(service) && self.has_namespace(service)
    }

    /// Would it be ours, if it were not in a namespace that is left out?
    pub(crate) fn hides(&self, service: &ServiceObject) -> bool {
        self.would_have(service) && !self.has_namespace(service)
    }

    fn would_have(&self, service: &ServiceObject) -> bool {
        service.kind == ServiceType::LoadBalancer
            && self.has_class(&service.class)
            && !self.is_external(&service.key)
            && self.opted_out(service).is_none()
    }

    fn is_external(&self, key: &Key) -> bool {
        let is_older = || {
            *key.namespace == *older::NAMESPACE && older::external_services().any(|name| name == &*key.name)
        };
        self.external.as_ref() == Some(key) || is_older()
    }

    fn has_namespace(&self, service: &ServiceObject) -> bool {
        self.namespaces.is_empty() || self.namespaces.contains(&*service.key.namespace)
    }

    /// Why the Service is not ours; `None` if it is.
    pub(crate) fn why_not(&self, service: &ServiceObject) -> Option<String> {
        if self.has(service) {
            return None;
        }
        Some(if service.kind != ServiceType::LoadBalancer {
            "its type is not LoadBalancer".to_owned()
        } else if !self.has_class(&service.class) {
            match &*service.class {
                "" => format!(
                    "it has no class, and only Services of class {} are ours",
                    self.class
                ),
                other => format!("its class {other} is another controller's"),
            }
        } else if !self.has_namespace(service) {
            format!(
                "namespace {} is not among those that groundplane serves",
                service.key.namespace
            )
        } else if self.is_external(&service.key) {
            "it is the external Service of the API endpoint".to_owned()
        } else {
            let by = self.opted_out(service).unwrap_or(names::SERVICE_MANAGED);
            format!("annotation {by} says that it is not ours")
        })
    }

    /// The annotation that leaves it to somebody else.
    fn opted_out(&self, service: &ServiceObject) -> Option<&'static str> {
        let says_no = |name: &&str| {
            service
                .annotations
                .get(name)
                .is_some_and(|value| value.trim() == "false")
        };
        self.opt_outs.iter().copied().find(says_no)
    }

    pub(super) fn has_class(&self, class: &str) -> bool {
        match class {
            "" => self.claim_classless,
            names::LOAD_BALANCER_CLASS => true,
            other => other == self.class,
        }
    }
}
