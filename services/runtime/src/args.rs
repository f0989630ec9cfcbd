//! Command-line arguments that processes have in common, to be flattened into each one's own.
//!
//! Each flag has an environment variable. Secrets are never values here, only paths of files: a flag shows in `ps`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::grpc::Listen;
use crate::tls::ServerTls;

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
    /// Serve gRPC in plaintext beyond loopback. Anybody who reaches the port can then take addresses
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
