//! Section `remote`: a provider of its own.

use std::path::{Path, PathBuf};
use std::time::Duration;

use groundplane_runtime::config::{Problem, duration};
use groundplane_runtime::grpc::Target;
use groundplane_runtime::tls::{ClientCredentials, ClientSettings, ClientTls, TlsError};
use serde::{Deserialize, Serialize};

use super::CloudConfig;
use super::check::check_calls;
use groundplane_core::DriverName;

/// What a provider can be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Capability {
    /// Machines become nodes.
    Machines,
    /// Services get elastic IPs.
    Addresses,
    /// Nodes get BGP peers.
    Bgp,
    /// The API endpoint moves.
    Endpoint,
}

impl Capability {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Machines, Self::Addresses, Self::Bgp, Self::Endpoint];

    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Machines => "machines",
            Self::Addresses => "addresses",
            Self::Bgp => "bgp",
            Self::Endpoint => "endpoint",
        }
    }
}

impl std::fmt::Display for Capability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Capability {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL
            .into_iter()
            .find(|capability| capability.as_str() == text);
        found.ok_or_else(|| {
            let all = Self::ALL.map(Self::as_str).join(", ");
            format!("there is no capability `{text}`; choose of: {all}")
        })
    }
}

/// Section `remote`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct RemoteConfig {
    /// Where the provider is: `https://host:port`, `http://host:port`, `unix:/path`.
    pub address: String,
    /// How it is trusted, and we prove who we are.
    pub tls: RemoteTls,
    /// Allows `http://` beyond loopback.
    pub insecure: bool,
    /// What it is used for. It must offer all of them.
    pub capabilities: Vec<Capability>,
    /// Bound of a call, its repetitions included.
    #[serde(with = "duration")]
    pub request_timeout: Duration,
    /// Calls at once.
    pub max_concurrency: usize,
    /// Items a page, 1 to 1000.
    pub page_size: u32,
}

impl Default for RemoteConfig {
    fn default() -> Self {
        Self {
            address: String::new(),
            tls: RemoteTls::default(),
            insecure: false,
            capabilities: Vec::new(),
            request_timeout: Duration::from_secs(10),
            max_concurrency: 16,
            page_size: 1000,
        }
    }
}

/// TLS towards the provider, by file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct RemoteTls {
    /// The authority that signed the provider's certificate.
    pub ca_file: Option<PathBuf>,
    /// Our certificate chain, where the provider asks for one.
    pub certificate_file: Option<PathBuf>,
    /// Its private key.
    pub key_file: Option<PathBuf>,
    /// The name that the provider's certificate carries, where it is not the host of its address.
    pub server_name: Option<String>,
}

impl RemoteTls {
    /// What is in the files; `None` where TLS is not configured, or `target` is not spoken to by it: then nobody would use them. What is
    /// wrong is told by `settings`.
    pub(crate) fn credentials(
        &self,
        target: &Target,
        settings: &ClientSettings,
    ) -> Result<Option<ClientCredentials>, TlsError> {
        let Some(ca) = self.ca_file.clone().filter(|_| target.is_secure()) else {
            return Ok(None);
        };
        let files = ClientTls {
            ca,
            identity: self.certificate_file.clone().zip(self.key_file.clone()),
            server_name: self.server_name.clone(),
        };
        ClientCredentials::load_of(&files, *settings).map(Some)
    }
}

impl CloudConfig {
    /// Do addresses come from ipam's pools? Else the cloud gives them.
    pub fn addresses_from_pools(&self) -> bool {
        match self.driver {
            DriverName::Static => true,
            DriverName::Equinix | DriverName::Cherry => false,
            DriverName::Remote => !self.remote.capabilities.contains(&Capability::Addresses),
        }
    }
}

impl RemoteConfig {
    /// What is wrong; paths from this section.
    pub fn validate(&self) -> Vec<Problem> {
        let mut problems = self.check_address();
        problems.extend(self.check_tls());
        if self.capabilities.is_empty() {
            let help = "list what the provider is used for: capabilities: [machines, addresses]";
            problems.push(Problem::new("capabilities", "none", help));
        }
        for (index, capability) in self.capabilities.iter().enumerate() {
            if self.capabilities[..index].contains(capability) {
                let message = format!("`{capability}` is there twice");
                problems.push(Problem::new(
                    format!("capabilities[{index}]"),
                    message,
                    "remove one",
                ));
            }
        }
        problems.extend(check_calls(
            self.page_size,
            self.request_timeout,
            self.max_concurrency,
        ));
        problems
    }

    fn check_address(&self) -> Vec<Problem> {
        if self.address.is_empty() {
            let help = "write where the provider listens: `https://host:port`, `unix:/path`";
            return vec![Problem::new("address", "missing", help)];
        }
        check_target(&self.address, &self.tls, self.insecure)
    }

    fn check_tls(&self) -> Vec<Problem> {
        let RemoteTls {
            ca_file,
            certificate_file,
            key_file,
            server_name: _,
        } = &self.tls;
        let files = [
            ("tls.caFile", ca_file),
            ("tls.certificateFile", certificate_file),
            ("tls.keyFile", key_file),
        ];
        let mut problems: Vec<_> = files
            .into_iter()
            .filter_map(|(path, file)| unreadable(path, file.as_deref()?))
            .collect();
        let (missing, there) = match (certificate_file, key_file) {
            (Some(_), None) => ("tls.keyFile", "tls.certificateFile"),
            (None, Some(_)) => ("tls.certificateFile", "tls.keyFile"),
            _ => return problems,
        };
        let message = format!("missing, and needed with {there}");
        problems.push(Problem::new(missing, message, "name both files, or none"));
        problems
    }
}

fn unreadable(path: &'static str, file: &Path) -> Option<Problem> {
    let error = std::fs::File::open(file).err()?;
    Some(Problem::new(
        path,
        format!("cannot read `{}`: {error}", file.display()),
        "mount the file, or correct the path",
    ))
}

/// What is wrong with where a provider is: nobody, or in the clear to where others listen.
pub(crate) fn check_target(address: &str, tls: &RemoteTls, insecure: bool) -> Vec<Problem> {
    let target = match address.parse::<Target>() {
        Ok(target) => target,
        Err(error) => {
            let help = "write `https://host:port`, `http://host:port` or `unix:/path`";
            return vec![Problem::new("address", error.to_string(), help)];
        }
    };
    let Target::Tcp(uri) = target else {
        return Vec::new();
    };
    let (host, secure) = (uri.host().unwrap_or_default(), uri.scheme_str() == Some("https"));
    if !secure && !insecure && !is_loopback(host) {
        let message = format!("`{address}` would be spoken to in the clear");
        let help = "use https; http is for loopback only, unless `insecure` beside it is true";
        return vec![Problem::new("address", message, help)];
    }
    if secure && tls.ca_file.is_none() {
        let help = "name the file of the authority that signed the provider's certificate";
        return vec![Problem::new("tls.caFile", "missing, and needed for https", help)];
    }
    Vec::new()
}

pub(super) fn is_loopback(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    host == "localhost"
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use groundplane_runtime::config::Document;
    use pretty_assertions::assert_eq;

    use super::*;

    fn read(text: &str) -> Result<CloudConfig, String> {
        let document = Document::parse("groundplane.yaml", text).map_err(|error| error.to_string())?;
        document.decode().map_err(|error| error.to_string())
    }

    fn problems(remote: &str) -> Vec<(String, String)> {
        let config = read(&format!("driver: remote\nremote: {remote}\n")).unwrap();
        let told = |problem: Problem| (problem.path, problem.message);
        config.validate().into_iter().map(told).collect()
    }

    fn paths(remote: &str) -> Vec<String> {
        problems(remote).into_iter().map(|(path, _)| path).collect()
    }

    #[test]
    fn a_section_is_read_and_has_defaults() {
        let text =
            "driver: remote\nremote: {address: 'http://127.0.0.1:7443', capabilities: [machines, bgp]}\n";
        let config = read(text).unwrap();
        assert!(config.validate().is_empty());
        let remote = &config.remote;
        assert_eq!(remote.capabilities, [Capability::Machines, Capability::Bgp]);
        assert_eq!(
            (remote.request_timeout, remote.max_concurrency, remote.page_size),
            (Duration::from_secs(10), 16, 1000)
        );
        assert!(
            config.addresses_from_pools(),
            "no addresses of the provider are used"
        );
        let error = read("driver: remote\nremote: {capabilities: [routes]}\n").unwrap_err();
        assert!(error.contains("routes") && error.contains("machines"), "{error}");
    }

    #[test]
    fn everything_that_is_wrong_is_told_at_once() {
        assert_eq!(paths("{}"), ["remote.address", "remote.capabilities"]);
        let all = "{address: nowhere, capabilities: [bgp, bgp], requestTimeout: 1ms, maxConcurrency: 0, pageSize: 1001, \
                   tls: {caFile: /there/is/none, certificateFile: /nor/there}}";
        assert_eq!(
            paths(all),
            [
                "remote.address",
                "remote.tls.caFile",
                "remote.tls.certificateFile",
                "remote.tls.keyFile",
                "remote.capabilities[1]",
                "remote.pageSize",
                "remote.requestTimeout",
                "remote.maxConcurrency",
            ]
        );
    }

    #[test]
    fn what_others_can_read_goes_over_tls() {
        let section =
            |address: &str, rest: &str| format!("{{address: '{address}', capabilities: [bgp]{rest}}}");
        assert_eq!(paths(&section("http://10.0.0.1:7443", "")), ["remote.address"]);
        assert_eq!(
            paths(&section("https://10.0.0.1:7443", "")),
            ["remote.tls.caFile"]
        );
        for fine in [
            "http://127.0.0.1:7443",
            "http://[::1]:7443",
            "http://localhost:7443",
            "unix:/run/p.sock",
        ] {
            assert!(paths(&section(fine, "")).is_empty(), "{fine}");
        }
        assert!(paths(&section("http://10.0.0.1:7443", ", insecure: true")).is_empty());
    }
}
