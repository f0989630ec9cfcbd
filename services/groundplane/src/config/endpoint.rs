//! The section `endpoint`: which elastic IP is the API endpoint.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use groundplane_cloud::{Capability, DriverName, EndpointSelector};
use groundplane_gateway::{ExternalService, IpMode};
use groundplane_runtime::config::{HumanDuration, Problem};
use serde::{Deserialize, Serialize};

/// The external Service unless told otherwise.
const SERVICE: &str = "kube-system/groundplane-kubernetes-external";

/// Which elastic IP is the API endpoint, by tag or by address. With neither there is none, and none is moved.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct EndpointConfig {
    /// The tag that its reservation carries, and no other does. Empty: by address.
    pub(crate) tag: String,
    /// Its address.
    pub(crate) address: Option<IpAddr>,
    /// Where the API server listens on it. Unless set, where the API servers of the machines listen.
    pub(crate) port: Option<u16>,
    /// Where the API servers of the machines listen. Unless set, where the cluster says.
    pub(crate) node_port: Option<u16>,
    /// Labels of the nodes that could hold it (Kubernetes syntax). Empty: those of the control plane.
    pub(crate) node_selector: String,
    /// Judge a holder by its own address alone, and do not probe the endpoint's: machines carry that themselves (on loopback, say).
    pub(crate) health_check_use_host_ip: bool,
    /// Do nodes answer for its address themselves (`VIP`), or does the machine that holds it (`Proxy`)? With `VIP` a holder is judged by its
    /// own address alone.
    pub(crate) ip_mode: IpMode,
    /// How often an agent reads who holds it, where nothing happens.
    pub(crate) refresh: HumanDuration,
    /// How much longer each agent waits after a verdict than the one before it.
    pub(crate) rank_step: HumanDuration,
    /// Where an agent keeps the last candidates, for a start without an API server. Unless set, nowhere.
    pub(crate) candidates_file: Option<PathBuf>,
    /// `namespace/name` of the external Service.
    pub(crate) service: String,
}

impl Default for EndpointConfig {
    fn default() -> Self {
        Self {
            tag: String::new(),
            address: None,
            port: None,
            node_port: None,
            node_selector: String::new(),
            health_check_use_host_ip: false,
            ip_mode: IpMode::default(),
            refresh: Duration::from_secs(60).into(),
            rank_step: Duration::from_millis(500).into(),
            candidates_file: None,
            service: SERVICE.to_owned(),
        }
    }
}

impl EndpointConfig {
    /// Which one; `None`: none is configured.
    pub(crate) fn selector(&self) -> Option<EndpointSelector> {
        match (self.tag.as_str(), self.address) {
            ("", None) => None,
            ("", Some(address)) => Some(EndpointSelector::Address(address)),
            (tag, _) => Some(EndpointSelector::Tag(tag.to_owned())),
        }
    }

    /// Does a probe of the endpoint's address say nothing of its holder?
    pub(crate) fn own_addresses_only(&self) -> bool {
        self.health_check_use_host_ip || self.ip_mode == IpMode::Vip
    }

    /// The external Service, as namespace and name.
    pub(crate) fn service(&self) -> Option<(String, String)> {
        let (namespace, name) = self.service.split_once('/')?;
        let named = !namespace.is_empty() && !name.is_empty() && !name.contains('/');
        named.then(|| (namespace.to_owned(), name.to_owned()))
    }

    /// What the gateway keeps for it; `None`: no endpoint is configured.
    pub(crate) fn external(&self) -> Option<ExternalService> {
        self.selector()?;
        let (namespace, name) = self.service()?;
        Some(ExternalService {
            namespace,
            name,
            address: self.address,
            port: self.port,
            node_port: self.node_port,
            node_selector: self.node_selector.clone(),
            ip_mode: self.ip_mode,
        })
    }

    /// What driver `remote` would not be asked for, though an endpoint needs it; its path from the top.
    pub(crate) fn missing_capability(&self, driver: DriverName, remote: &[Capability]) -> Option<Problem> {
        let needed = self.selector().is_some() && driver == DriverName::Remote;
        (needed && !remote.contains(&Capability::Endpoint)).then(|| {
            Problem::new(
                "remote.capabilities",
                "lacks `endpoint`, so that the API endpoint of section `endpoint` could not be moved",
                "add `endpoint` to it, or leave the section `endpoint` out",
            )
        })
    }

    /// What is wrong with what agents are told.
    fn agent_problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (name, port) in [("port", self.port), ("nodePort", self.node_port)] {
            if port == Some(0) {
                problems.push(Problem::new(
                    name,
                    "0 is not a port",
                    "leave it out for what the cluster says",
                ));
            }
        }
        let second = Duration::from_secs(1);
        if self.refresh.0 < second || self.refresh.0 > second * 3600 {
            problems.push(Problem::new(
                "refresh",
                "less than a second, or more than an hour",
                "write one such as `60s`",
            ));
        }
        if self.rank_step.0 > second * 60 {
            problems.push(Problem::new(
                "rankStep",
                "longer than a minute",
                "write one such as `500ms`",
            ));
        }
        if self.service().is_none() {
            problems.push(Problem::new(
                "service",
                "not a namespace and a name",
                format!("write `namespace/name`, such as `{SERVICE}`"),
            ));
        }
        problems
    }

    /// What is wrong; paths from this section.
    pub(crate) fn validate(&self, driver: DriverName) -> Vec<Problem> {
        let mut problems = Vec::new();
        if !self.tag.is_empty() && self.address.is_some() {
            problems.push(Problem::new(
                "address",
                "the endpoint is told by its tag already",
                "write one of `tag` and `address`",
            ));
        }
        problems.extend(self.agent_problems());
        // Who writes files for all processes may name that of the agents before it is known whether there is an endpoint.
        let said = Self {
            candidates_file: None,
            ..self.clone()
        };
        if self.selector().is_none() && said != Self::default() {
            problems.push(Problem::new(
                "",
                "says no endpoint",
                "write its `tag` or its `address`, or leave the section out",
            ));
        }
        if self.selector().is_some() && driver == DriverName::Static {
            problems.push(Problem::new(
                "",
                "driver `static` has no address that could be moved from machine to machine",
                "leave the section out, and let kube-vip (with ARP or BGP) or keepalived (VRRP) hold the address of the API server",
            ));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use groundplane_core::older;

    use super::super::tests::read;
    use super::*;

    #[test]
    fn the_endpoint_is_told_by_tag_or_by_address() {
        let selector = |section: &str| {
            let text = format!("driver: remote\nendpoint: {section}\n");
            let document = groundplane_runtime::config::Document::parse("groundplane.yaml", &text).unwrap();
            let config: super::super::Config = document.decode().unwrap();
            assert_eq!(config.endpoint.validate(config.driver), []);
            config.cloud().endpoint
        };
        assert_eq!(selector("{}"), None);
        assert_eq!(
            selector("{tag: cluster-a-api}"),
            Some(EndpointSelector::Tag("cluster-a-api".to_owned()))
        );
        let address = "203.0.113.9".parse().unwrap();
        assert_eq!(
            selector("{address: 203.0.113.9, port: 443}"),
            Some(EndpointSelector::Address(address))
        );
    }

    #[test]
    fn what_is_no_endpoint_is_refused() {
        for (section, expected) in [
            ("{tag: a, address: 203.0.113.9}", "endpoint.address"),
            ("{tag: a, port: 0}", "endpoint.port"),
            ("{tag: a, nodePort: 0}", "endpoint.nodePort"),
            ("{port: 443}", "says no endpoint"),
            ("{tag: [a]}", "endpoint.tag"),
            ("{adress: 203.0.113.9}", "address"),
        ] {
            let error = read(&format!("endpoint: {section}\n")).unwrap_err();
            assert!(error.contains(expected), "{section}: {error}");
        }
        read("endpoint: {candidatesFile: /run/candidates.json}\n").unwrap();
    }

    /// An agent gives way to an older controller of its cloud, unless the gateway is told to write beside it.
    #[test]
    fn agents_look_for_older_controllers_where_there_may_be_some() {
        let rivals = |more: &str| {
            let text = format!("driver: cherry\nendpoint: {{tag: a=b}}\n{more}");
            let document = groundplane_runtime::config::Document::parse("groundplane.yaml", &text).unwrap();
            let config: super::super::Config = document.decode().unwrap();
            config.agent("n", None).unwrap().rivals
        };
        assert_eq!(rivals(""), Some(DriverName::Cherry));
        assert_eq!(rivals("gateway: {rivals: warn}\n"), None);
    }

    /// Checked at the start, and not when its holder is dead.
    #[test]
    fn driver_remote_needs_the_capability() {
        let remote = |capabilities: &str| {
            let remote = format!("{{address: 'http://127.0.0.1:1', capabilities: [{capabilities}]}}");
            read(&format!(
                "driver: remote\nremote: {remote}\nendpoint: {{tag: api}}\n"
            ))
        };
        let error = remote("machines, addresses").unwrap_err();
        for expected in ["remote.capabilities", "`endpoint`"] {
            assert!(error.contains(expected), "{error}");
        }
        remote("machines, endpoint").unwrap();
    }

    /// E73, E75: what the older controllers could be told, and the external Service of either generation by its name.
    #[test]
    fn the_older_controllers_settings_can_be_said() {
        for name in older::external_services() {
            let text = format!(
                "driver: remote\nremote: {{address: 'http://127.0.0.1:1', capabilities: [endpoint]}}\nendpoint:\n  tag: api\n  \
                 healthCheckUseHostIp: true\n  service: kube-system/{name}\n"
            );
            let config = read(&text).unwrap();
            let agent = config.agent("n", None).unwrap();
            assert!(agent.own_addresses_only);
            assert_eq!(agent.rivals, None, "no older controller is of this cloud");
            let external = config.endpoint.external().unwrap();
            // E74: as the machines' own.
            assert_eq!((agent.port, external.port), (None, None));
            assert_eq!(
                (external.namespace.as_str(), external.name.as_str()),
                ("kube-system", name)
            );
        }
    }

    /// A machine of one's own has no address that a cloud could move: said at the start, with what can.
    #[test]
    fn driver_static_refuses_an_endpoint_and_says_what_to_use() {
        let error = read("endpoint: {address: 203.0.113.9}\n").unwrap_err();
        for expected in ["endpoint", "`static`", "kube-vip", "keepalived"] {
            assert!(error.contains(expected), "{error}");
        }
    }
}
