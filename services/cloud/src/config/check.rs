//! What is wrong with a configuration that can be read.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use groundplane_core::Family;
use groundplane_runtime::config::{Problem, SecretFile};
use secrecy::ExposeSecret as _;

use super::remote::is_loopback;
use super::{
    AddressType, BgpPeer, CloudConfig, DriverName, EquinixBgp, EquinixConfig, StaticBgp, StaticConfig,
    StaticMachine,
};
use crate::fixed;

impl CloudConfig {
    /// What is wrong with the chosen driver's section; paths from the top of the file.
    pub fn validate(&self) -> Vec<Problem> {
        let (section, problems) = match self.driver {
            DriverName::Static => ("static", self.fixed.validate()),
            DriverName::Equinix => ("equinix", self.equinix.validate()),
            DriverName::Cherry => ("cherry", self.cherry.validate()),
            DriverName::Remote => ("remote", self.remote.validate()),
        };
        problems
            .into_iter()
            .map(|problem| problem.under(section))
            .collect()
    }
}

impl StaticConfig {
    /// What is wrong; paths from this section.
    pub fn validate(&self) -> Vec<Problem> {
        let (mut problems, mut names, mut ids) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        for (index, machine) in self.machines.iter().enumerate() {
            let mut found = check_machine(machine);
            if !names.insert(&machine.name) {
                found.push(Problem::new(
                    "name",
                    format!("`{}` is there twice", machine.name),
                    "rename one",
                ));
            } else if let Some(id) = fixed::provider_id(machine)
                && !ids.insert(id.clone())
            {
                found.push(Problem::new(
                    "providerId",
                    format!("`{id}` is there twice"),
                    "each machine has its own",
                ));
            }
            problems.extend(
                found
                    .into_iter()
                    .map(|problem| problem.under(&format!("machines[{index}]"))),
            );
        }
        if let Some(bgp) = &self.bgp {
            problems.extend(check_bgp(bgp).into_iter().map(|problem| problem.under("bgp")));
        }
        problems
    }
}

fn check_machine(machine: &StaticMachine) -> Vec<Problem> {
    let mut problems = Vec::new();
    if machine.name.is_empty() {
        problems.push(Problem::new("name", "missing", "give the machine its name"));
    } else if fixed::provider_id(machine).is_none() {
        let path = if machine.provider_id.is_empty() {
            "name"
        } else {
            "providerId"
        };
        problems.push(Problem::new(
            path,
            "not fit for a provider id",
            "write it without blanks, in at most 253 bytes",
        ));
    }
    for (index, row) in machine.addresses.iter().enumerate() {
        let is_ip = matches!(row.kind, AddressType::InternalIp | AddressType::ExternalIp);
        if row.address.is_empty() || (is_ip && row.address.parse::<IpAddr>().is_err()) {
            let message = format!("`{}` is not an address of its type", row.address);
            problems.push(Problem::new(
                format!("addresses[{index}].address"),
                message,
                "write an IP address",
            ));
        }
    }
    problems
}

fn check_bgp(bgp: &StaticBgp) -> Vec<Problem> {
    let mut problems = Vec::new();
    check_asn(&mut problems, "localAsn", bgp.local_asn);
    let mut seen = BTreeSet::new();
    for (index, peer) in bgp.peers.iter().enumerate() {
        let mut found = check_peer(peer);
        if !seen.insert((peer.address, &peer.node_selector)) {
            let message = format!("{} is there twice for the same nodes", peer.address);
            found.push(Problem::new("address", message, "remove one"));
        }
        problems.extend(
            found
                .into_iter()
                .map(|problem| problem.under(&format!("peers[{index}]"))),
        );
    }
    problems
}

fn check_peer(peer: &BgpPeer) -> Vec<Problem> {
    let mut problems = Vec::new();
    check_asn(&mut problems, "asn", peer.asn);
    if let Some(asn) = peer.local_asn {
        check_asn(&mut problems, "localAsn", asn);
    }
    if peer.port == Some(0) {
        problems.push(Problem::new("port", "0 is not a port", "leave it out for 179"));
    }
    if let Some(source) = peer.source_address
        && Family::of(source) != Family::of(peer.address)
    {
        let message = format!("{source} cannot speak to {}", peer.address);
        problems.push(Problem::new(
            "sourceAddress",
            message,
            "take one of the peer's family",
        ));
    }
    if let Some(file) = &peer.password_file {
        check_secret(&mut problems, "passwordFile", file);
    }
    problems
}

/// 0 and the last one are reserved (RFC 7607, RFC 7300).
fn check_asn(problems: &mut Vec<Problem>, path: &str, asn: u32) {
    if asn == 0 || asn == u32::MAX {
        problems.push(Problem::new(
            path,
            format!("{asn} is not an AS number"),
            "for private use: 64512 to 65534",
        ));
    }
}

fn check_secret(problems: &mut Vec<Problem>, path: &str, file: &SecretFile) {
    if let Err(error) = file.read(path) {
        let cause = std::error::Error::source(&error).map_or_else(String::new, |cause| format!(": {cause}"));
        problems.push(Problem::new(
            path,
            format!("{error}{cause}"),
            "mount the secret, or correct the path",
        ));
    }
}

impl EquinixConfig {
    /// What is wrong; paths from this section.
    pub fn validate(&self) -> Vec<Problem> {
        let example = "write it as `https://api.equinix.com/metal/v1`";
        let mut problems = check_api(&self.base_url, example, self.api_token_file.as_ref());
        let is_id = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if self.project_id.is_empty() {
            problems.push(Problem::new(
                "projectId",
                "missing",
                "write the id of the project",
            ));
        } else if !self.project_id.chars().all(is_id) {
            let message = format!("`{}` is not a project id", self.project_id);
            problems.push(Problem::new(
                "projectId",
                message,
                "write the UUID of the project",
            ));
        }
        problems.extend(check_calls(
            self.page_size,
            self.request_timeout,
            self.max_concurrency,
        ));
        problems.extend(
            check_equinix_bgp(&self.bgp)
                .into_iter()
                .map(|problem| problem.under("bgp")),
        );
        problems
    }
}

fn check_equinix_bgp(bgp: &EquinixBgp) -> Vec<Problem> {
    let mut problems = Vec::new();
    if !bgp.enabled {
        return problems;
    }
    check_asn(&mut problems, "localAsn", bgp.local_asn);
    if let Some(file) = &bgp.password_file {
        check_secret(&mut problems, "passwordFile", file);
        if file
            .read("passwordFile")
            .is_ok_and(|text| !is_password(text.expose_secret()))
        {
            let help =
                "10 to 20 letters and digits, with a lower case letter, an upper case letter and a digit";
            problems.push(Problem::new(
                "passwordFile",
                "the API would refuse this password",
                help,
            ));
        }
    }
    problems
}

fn is_password(text: &str) -> bool {
    let has = |test: fn(&u8) -> bool| text.as_bytes().iter().any(test);
    (10..=20).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
        && has(u8::is_ascii_lowercase)
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_digit)
}

/// What is wrong with where an HTTP API is, and with the token for it. `example` says how such a URL is written.
pub(super) fn check_api(base_url: &str, example: &'static str, token: Option<&SecretFile>) -> Vec<Problem> {
    let mut problems = Vec::new();
    if let Err((message, help)) = check_url(base_url, example) {
        problems.push(Problem::new("baseUrl", message, help));
    }
    match token {
        None => problems.push(Problem::new(
            "apiTokenFile",
            "missing",
            "name the file that holds the API token",
        )),
        Some(file) => check_secret(&mut problems, "apiTokenFile", file),
    }
    problems
}

/// What is wrong with how an HTTP API is called.
pub(super) fn check_calls(page_size: u32, timeout: Duration, concurrency: usize) -> Vec<Problem> {
    let mut problems = Vec::new();
    if !(1..=1000).contains(&page_size) {
        problems.push(Problem::new(
            "pageSize",
            format!("{page_size} is out of range"),
            "1 to 1000",
        ));
    }
    if timeout < Duration::from_millis(100) || timeout > Duration::from_secs(300) {
        problems.push(Problem::new("requestTimeout", "out of range", "100ms to 5m"));
    }
    if !(1..=1024).contains(&concurrency) {
        let message = format!("{concurrency} is out of range");
        problems.push(Problem::new("maxConcurrency", message, "1 to 1024"));
    }
    problems
}

/// The token goes there in the clear where it is not https.
fn check_url(text: &str, example: &'static str) -> Result<(), (String, &'static str)> {
    let url =
        reqwest::Url::parse(text).map_err(|error| (format!("`{text}` is not a URL: {error}"), example))?;
    if !url.username().is_empty()
        || url.password().is_some()
        || url.query().is_some()
        || url.fragment().is_some()
    {
        return Err(("has more than scheme, host and path".to_owned(), example));
    }
    match url.scheme() {
        "https" => Ok(()),
        "http" if is_loopback(url.host_str().unwrap_or_default()) => Ok(()),
        "http" => Err((
            format!("`{text}` would send the token in the clear"),
            "use https; http is for loopback only",
        )),
        _ => Err((format!("`{text}` is not an https URL"), example)),
    }
}
