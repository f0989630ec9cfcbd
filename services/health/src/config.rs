//! The section `health` of the configuration file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use groundplane_runtime::config::{Problem, duration};
use serde::{Deserialize, Serialize};

use crate::domain::Settings;

/// Where a pod finds the authority and the token of its account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Beyond this, numbers are a slip of the pen.
const LONGEST: Duration = Duration::from_secs(3600);

/// How endpoints are watched.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct HealthConfig {
    /// Between two probes of one address.
    #[serde(with = "duration")]
    pub period: Duration,
    /// Until a probe counts as missed. May be longer than the period: probes then overlap.
    #[serde(with = "duration")]
    pub timeout: Duration,
    /// Misses in a row that make a failure.
    pub misses: u32,
    /// Answers in a row after which what failed counts as well again.
    pub recovery: u32,
    /// Until a verdict is given again where nothing came of it.
    #[serde(with = "duration")]
    pub dwell: Duration,
    /// How long a failure must last where no majority of the candidates is heard: we may be the ones who are cut off.
    #[serde(with = "duration")]
    pub doubt: Duration,
    /// How an address is asked.
    pub probe: ProbeConfig,
}

impl Default for HealthConfig {
    /// [`Settings::default`], and HTTPS.
    fn default() -> Self {
        let settings = Settings::default();
        Self {
            period: settings.period,
            timeout: settings.timeout,
            misses: settings.misses,
            recovery: settings.recovery,
            dwell: settings.dwell,
            doubt: settings.doubt,
            probe: ProbeConfig::default(),
        }
    }
}

/// How an address is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ProbeKind {
    /// `GET` by HTTP over TLS.
    #[default]
    Https,
    /// `GET` by HTTP in plain text.
    Http,
    /// A connection, and nothing more.
    Tcp,
    /// gRPC's health check; over TLS where an authority is configured.
    Grpc,
}

/// The section `health.probe`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct ProbeConfig {
    /// How.
    pub kind: ProbeKind,
    /// What is asked for, by HTTP.
    pub path: String,
    /// The service that is asked for, by gRPC; empty: the server as a whole.
    pub service: String,
    /// The name that certificates must carry; unless set, the address that is asked.
    pub server_name: Option<String>,
    /// Whose certificates are trusted. Unless set, in a pod, the authority of its account.
    pub ca_file: Option<PathBuf>,
    /// Our certificate chain, for servers that ask for one.
    pub certificate_file: Option<PathBuf>,
    /// Its key.
    pub key_file: Option<PathBuf>,
    /// The token that is sent along. Unless set, in a pod, the one of its account.
    pub token_file: Option<PathBuf>,
    /// Trust any certificate. Nothing secret is sent then.
    pub insecure_skip_verify: bool,
}

impl Default for ProbeConfig {
    /// `GET /readyz` over TLS.
    fn default() -> Self {
        Self {
            kind: ProbeKind::default(),
            path: "/readyz".to_owned(),
            service: String::new(),
            server_name: None,
            ca_file: None,
            certificate_file: None,
            key_file: None,
            token_file: None,
            insecure_skip_verify: false,
        }
    }
}

impl HealthConfig {
    /// The numbers that decide.
    pub fn settings(&self) -> Settings {
        Settings {
            period: self.period,
            timeout: self.timeout,
            misses: self.misses,
            recovery: self.recovery,
            dwell: self.dwell,
            doubt: self.doubt,
        }
    }

    /// Everything that is wrong with the values, by path within the section. Looks at no file.
    pub fn validate(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut refuse = |wrong: bool, path: &str, message: &str, help: &str| {
            if wrong {
                problems.push(Problem::new(path, message, help));
            }
        };
        let (shortest, second) = (Duration::from_millis(50), Duration::from_secs(60));
        let help = "write one between `50ms` and `1m`, such as `500ms`";
        for (path, value) in [("period", self.period), ("timeout", self.timeout)] {
            refuse(
                value < shortest,
                path,
                "so short that probes would be a load",
                help,
            );
            refuse(
                value > second,
                path,
                "so long that no failure is seen in time",
                help,
            );
        }
        refuse(
            self.timeout > self.period.saturating_mul(8),
            "timeout",
            "longer than 8 periods, so that too many probes would run at once",
            "write a shorter one, or a longer `period`",
        );
        let help = "write one between 1 and 100, such as 3";
        refuse(
            !(1..=100).contains(&self.misses),
            "misses",
            "not a number of probes that makes a failure",
            help,
        );
        refuse(
            !(1..=100).contains(&self.recovery),
            "recovery",
            "not a number of probes that ends a failure",
            help,
        );
        refuse(
            self.dwell < self.period || self.dwell > LONGEST,
            "dwell",
            "shorter than a period, or longer than an hour",
            "write one such as `10s`",
        );
        refuse(
            self.doubt > LONGEST,
            "doubt",
            "longer than an hour",
            "write one such as `10s`",
        );
        problems.extend(self.probe.validate().into_iter().map(|p| p.under("probe")));
        problems
    }
}

impl ProbeConfig {
    /// The files that it names, by their keys.
    pub(crate) fn files(&self) -> [(&'static str, Option<&Path>); 4] {
        [
            ("caFile", self.ca_file.as_deref()),
            ("certificateFile", self.certificate_file.as_deref()),
            ("keyFile", self.key_file.as_deref()),
            ("tokenFile", self.token_file.as_deref()),
        ]
    }

    fn validate(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut refuse = |wrong: bool, path: &str, message: &str, help: &str| {
            if wrong {
                problems.push(Problem::new(path, message, help));
            }
        };
        let path_is_uri = self.path.starts_with('/') && self.path.parse::<http::Uri>().is_ok();
        refuse(
            !path_is_uri,
            "path",
            "not a path",
            "write one that begins with a slash, such as `/readyz`",
        );
        let named = |name: &String| rustls::pki_types::ServerName::try_from(name.as_str()).is_err();
        refuse(
            self.server_name.as_ref().is_some_and(named),
            "serverName",
            "neither a host name nor an address",
            "write the name in the certificates, such as `kubernetes.default.svc`",
        );
        let help = "name both, or none";
        let (cert, key) = (self.certificate_file.is_some(), self.key_file.is_some());
        refuse(cert && !key, "keyFile", "missing next to `certificateFile`", help);
        refuse(key && !cert, "certificateFile", "missing next to `keyFile`", help);
        refuse(
            self.insecure_skip_verify && self.ca_file.is_some(),
            "insecureSkipVerify",
            "an authority is of no use where any certificate is trusted",
            "drop it, or `caFile`",
        );
        refuse(
            self.insecure_skip_verify && self.token_file.is_some(),
            "tokenFile",
            "a token would be told to whoever answers, since `insecureSkipVerify` trusts anybody",
            "name `caFile` instead of `insecureSkipVerify`, or drop the token",
        );
        refuse(
            self.token_file.is_some() && self.kind != ProbeKind::Https,
            "tokenFile",
            "a token is sent over HTTPS only",
            "drop it, or write `kind: https`",
        );
        let plain = matches!(self.kind, ProbeKind::Http | ProbeKind::Tcp);
        let tls = self.ca_file.is_some() || cert || key || self.insecure_skip_verify;
        refuse(
            plain && tls,
            "kind",
            "certificates are of no use here: this kind speaks plain text",
            "write `kind: https`, or drop them",
        );
        problems
    }

    /// With what the pod's account offers, where nothing else is configured.
    pub(crate) fn with_account(self) -> Self {
        self.with_account_at(Path::new(ACCOUNT))
    }

    fn with_account_at(mut self, account: &Path) -> Self {
        let there = |name: &str| Some(account.join(name)).filter(|path| path.exists());
        if self.kind == ProbeKind::Https && self.ca_file.is_none() && !self.insecure_skip_verify {
            self.ca_file = there("ca.crt");
            if self.token_file.is_none() && self.certificate_file.is_none() {
                self.token_file = there("token");
            }
        }
        self
    }

    /// Is TLS spoken?
    pub(crate) fn speaks_tls(&self) -> bool {
        match self.kind {
            ProbeKind::Https => true,
            ProbeKind::Grpc => self.ca_file.is_some() || self.insecure_skip_verify,
            ProbeKind::Http | ProbeKind::Tcp => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    fn read(text: &str) -> HealthConfig {
        groundplane_runtime::config::parse("health.yaml", text).unwrap()
    }

    fn paths(text: &str) -> Vec<String> {
        let problems = read(text).validate();
        problems.into_iter().map(|problem| problem.path).collect()
    }

    #[test]
    fn nothing_is_wrong_with_the_defaults() {
        assert_eq!(paths("{}"), Vec::<String>::new());
        let settings = read("{}").settings();
        assert_eq!(settings, Settings::default());
        assert_eq!(settings.detection(), Duration::from_millis(2300));
    }

    #[test]
    fn everything_that_is_wrong_is_told_at_once() {
        let text = "period: 1ms\ntimeout: 2m\nmisses: 0\nrecovery: 101\ndwell: 0ms\ndoubt: 2h\n\
                    probe: {path: readyz, serverName: 'a b', keyFile: /k, tokenFile: /t, insecureSkipVerify: true}\n";
        let expected = [
            "period",
            "timeout",
            "timeout",
            "misses",
            "recovery",
            "dwell",
            "doubt",
            "probe.path",
            "probe.serverName",
            "probe.certificateFile",
            "probe.tokenFile",
        ];
        assert_eq!(paths(text), expected);
    }

    /// Secrets go to whom we can tell apart only.
    #[test]
    fn a_token_is_sent_over_verified_tls_only() {
        assert_eq!(paths("probe: {kind: http, tokenFile: /t}"), ["probe.tokenFile"]);
        assert_eq!(
            paths("probe: {tokenFile: /t, insecureSkipVerify: true}"),
            ["probe.tokenFile"]
        );
        assert_eq!(paths("probe: {tokenFile: /t, caFile: /c}"), Vec::<String>::new());
    }

    #[test]
    fn certificates_are_refused_where_nobody_looks_at_them() {
        assert_eq!(paths("probe: {kind: tcp, caFile: /c}"), ["probe.kind"]);
        assert_eq!(
            paths("probe: {caFile: /c, insecureSkipVerify: true}"),
            ["probe.insecureSkipVerify"]
        );
    }

    #[test]
    fn the_account_of_the_pod_is_taken_where_nothing_is_configured() {
        let account = tempfile::tempdir().unwrap();
        for name in ["ca.crt", "token"] {
            std::fs::write(account.path().join(name), "x").unwrap();
        }
        let with = |text: &str| read(text).probe.with_account_at(account.path());
        let (ca, token) = (account.path().join("ca.crt"), account.path().join("token"));
        let probe = with("{}");
        assert_eq!((probe.ca_file, probe.token_file), (Some(ca.clone()), Some(token)));
        let probe = with("probe: {certificateFile: /c, keyFile: /k}");
        assert_eq!((probe.ca_file, probe.token_file), (Some(ca), None));
        let probe = with("probe: {insecureSkipVerify: true}");
        assert_eq!((probe.ca_file, probe.token_file), (None, None));
        let probe = with("probe: {caFile: /other}");
        assert_eq!((probe.ca_file, probe.token_file), (Some("/other".into()), None));
    }
}
