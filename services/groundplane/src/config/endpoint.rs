//! The section `endpoint`: which elastic IP is the API endpoint.

use std::net::IpAddr;

use groundplane_cloud::{DriverName, EndpointSelector};
use groundplane_runtime::config::Problem;
use serde::{Deserialize, Serialize};

/// Where API servers listen unless told otherwise.
const API_PORT: u16 = 6443;

/// Which elastic IP is the API endpoint, by tag or by address. With neither there is none, and none is moved.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct EndpointConfig {
    /// The tag that its reservation carries, and no other does. Empty: by address.
    pub(crate) tag: String,
    /// Its address.
    pub(crate) address: Option<IpAddr>,
    /// Where the API server listens on it.
    pub(crate) port: u16,
}

impl Default for EndpointConfig {
    fn default() -> Self {
        Self {
            tag: String::new(),
            address: None,
            port: API_PORT,
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
        if self.port == 0 {
            problems.push(Problem::new("port", "0 is not a port", "leave it out for 6443"));
        }
        if self.selector().is_none() && *self != Self::default() {
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
            ("{port: 443}", "says no endpoint"),
            ("{tag: [a]}", "endpoint.tag"),
            ("{adress: 203.0.113.9}", "address"),
        ] {
            let error = read(&format!("endpoint: {section}\n")).unwrap_err();
            assert!(error.contains(expected), "{section}: {error}");
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
