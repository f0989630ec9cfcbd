//! Command-line arguments that processes have in common, to be flattened into each one's own.
//!
//! Each flag has an environment variable. Secrets are never values here, only paths of files: a flag shows in `ps`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::grpc::Listen;
use crate::tls::{ClientTls, ServerTls};

/// Form of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// What is logged and traced, and where it goes.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Telemetry")]
pub struct TelemetryArgs {
    /// What to log: a level, or directives such as `info,groundplane_ipam=debug`
    #[arg(long, env = "GROUNDPLANE_LOG", default_value = "info", value_name = "FILTER")]
    pub log: String,
    /// Form of the log
    #[arg(long, env = "GROUNDPLANE_LOG_FORMAT", value_enum, default_value_t)]
    pub log_format: LogFormat,
    /// Where traces go by OTLP over gRPC, for example `http://jaeger:4317`; no traces without it
    #[arg(long, env = "GROUNDPLANE_OTLP_ENDPOINT", value_name = "URL")]
    pub otlp_endpoint: Option<String>,
    /// Share of the traces that start here and are kept, from 0 to 1; a trace that a caller started follows its caller
    #[arg(
        long,
        env = "GROUNDPLANE_TRACE_RATIO",
        default_value_t = 1.0,
        value_name = "RATIO"
    )]
    pub trace_ratio: f64,
}

impl Default for TelemetryArgs {
    fn default() -> Self {
        Self {
            log: "info".to_owned(),
            log_format: LogFormat::Text,
            otlp_endpoint: None,
            trace_ratio: 1.0,
        }
    }
}

/// The endpoint for operators and probes.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Administration")]
pub struct AdminArgs {
    /// Where to serve /livez, /readyz and /metrics over HTTP; port 0 takes a free one, which is logged
    #[arg(
        long,
        env = "GROUNDPLANE_ADMIN_LISTEN",
        default_value = "127.0.0.1:0",
        value_name = "ADDRESS"
    )]
    pub admin_listen: SocketAddr,
}

impl Default for AdminArgs {
    fn default() -> Self {
        Self {
            admin_listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        }
    }
}

/// Where gRPC is served, and how it is protected.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Serving")]
pub struct ListenArgs {
    /// Where to serve gRPC: `host:port` (port 0 takes a free one) or `unix:/path`; may be given several times
    #[arg(
        long,
        env = "GROUNDPLANE_LISTEN",
        value_delimiter = ',',
        value_name = "ADDRESS"
    )]
    pub listen: Vec<Listen>,
    /// Serve gRPC beyond loopback to callers who do not prove who they are. Anybody who reaches the port can then take addresses
    #[arg(long, env = "GROUNDPLANE_INSECURE")]
    pub insecure: bool,
    /// Offer gRPC reflection
    #[arg(long, env = "GROUNDPLANE_REFLECTION")]
    pub reflection: bool,
    /// Certificate chain of this server, a PEM file
    #[arg(long, env = "GROUNDPLANE_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of this server, a PEM file
    #[arg(long, env = "GROUNDPLANE_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Certificate authority whose clients are let in, a PEM file; with it, a client must present a certificate
    #[arg(
        long,
        env = "GROUNDPLANE_TLS_CLIENT_CA",
        value_name = "FILE",
        requires = "tls_cert"
    )]
    pub tls_client_ca: Option<PathBuf>,
    /// Trust domain of callers, whose certificates say `spiffe://DOMAIN/SERVICE`; `groundplane` unless given
    #[arg(long, env = "GROUNDPLANE_TRUST_DOMAIN", value_name = "DOMAIN")]
    pub trust_domain: Option<String>,
}

impl ListenArgs {
    /// The files that TLS needs, or `None` where it was not asked for.
    pub fn tls(&self) -> Option<ServerTls> {
        let (cert, key) = self.tls_cert.clone().zip(self.tls_key.clone())?;
        Some(ServerTls {
            cert,
            key,
            client_ca: self.tls_client_ca.clone(),
        })
    }
}

/// How this process proves who it is, and whom it trusts, when it calls other services.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Calling other services")]
pub struct ClientTlsArgs {
    /// Certificate authority whose servers are trusted, a PEM file; needed for `https://` addresses
    #[arg(long, env = "GROUNDPLANE_CLIENT_CA", value_name = "FILE")]
    pub client_ca: Option<PathBuf>,
    /// Certificate chain that is shown to servers, a PEM file
    #[arg(long, env = "GROUNDPLANE_CLIENT_CERT", value_name = "FILE", requires_all = ["client_key", "client_ca"])]
    pub client_cert: Option<PathBuf>,
    /// Private key of that certificate, a PEM file
    #[arg(
        long,
        env = "GROUNDPLANE_CLIENT_KEY",
        value_name = "FILE",
        requires = "client_cert"
    )]
    pub client_key: Option<PathBuf>,
}

impl ClientTlsArgs {
    /// The files that TLS needs, or `None` where it was not asked for.
    pub fn tls(&self) -> Option<ClientTls> {
        let ca = self.client_ca.clone()?;
        let identity = self.client_cert.clone().zip(self.client_key.clone());
        Some(ClientTls {
            ca,
            identity,
            server_name: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser};
    use pretty_assertions::assert_eq;

    use super::*;

    #[derive(Debug, Parser)]
    struct All {
        #[command(flatten)]
        telemetry: TelemetryArgs,
        #[command(flatten)]
        admin: AdminArgs,
        #[command(flatten)]
        listen: ListenArgs,
        #[command(flatten)]
        client: ClientTlsArgs,
    }

    fn parse(arguments: &[&str]) -> Result<All, clap::Error> {
        All::try_parse_from([&["groundplane"], arguments].concat())
    }

    #[test]
    fn all_arguments_fit_together_and_have_a_variable() {
        let command = All::command();
        command.clone().debug_assert();
        for argument in command
            .get_arguments()
            .filter(|argument| argument.get_id() != "help")
        {
            let variable = argument.get_env().unwrap().to_str().unwrap();
            assert!(variable.starts_with("GROUNDPLANE_"), "{variable}");
        }
    }

    #[test]
    fn the_defaults_of_clap_and_of_the_code_are_the_same() {
        let all = parse(&[]).unwrap();
        let telemetry = TelemetryArgs::default();
        assert_eq!(format!("{:?}", all.telemetry), format!("{telemetry:?}"));
        assert_eq!(all.admin.admin_listen, AdminArgs::default().admin_listen);
        assert!(all.listen.listen.is_empty() && all.listen.tls().is_none() && all.client.tls().is_none());
    }

    #[test]
    fn addresses_may_be_given_several_times() {
        let all = parse(&[
            "--listen",
            "127.0.0.1:0,unix:/run/x.sock",
            "--listen",
            "[::1]:9000",
        ])
        .unwrap();
        assert_eq!(all.listen.listen.len(), 3);
        assert!(parse(&["--listen", "nowhere"]).is_err());
    }

    #[test]
    fn a_certificate_without_its_key_is_refused() {
        assert!(parse(&["--tls-cert", "a.pem"]).is_err());
        assert!(parse(&["--client-cert", "a.pem", "--client-ca", "b.pem"]).is_err());
        let all = parse(&[
            "--tls-cert",
            "a.pem",
            "--tls-key",
            "a.key",
            "--client-ca",
            "b.pem",
        ])
        .unwrap();
        assert!(all.listen.tls().is_some() && all.client.tls().is_some());
    }
}
