//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use groundplane_runtime::args::{AdminArgs, ClientTlsArgs, ListenArgs, TelemetryArgs};

use crate::certs::CertsArgs;
use crate::config::ConfigArgs;
use crate::conformance::ConformanceArgs;
use crate::ctl::CtlArgs;
use crate::wiring::Addresses;

/// The network control plane for Kubernetes on bare metal.
///
/// `groundplane all` runs every service in one process, which is enough for a small cluster or a laptop. Each service can also
/// run as a process of its own; they then find each other by --ipam, --eip, --bgp and --instances. Settings come from flags,
/// from the environment (GROUNDPLANE_…) and from one file (--config), in this order of precedence.
#[derive(Debug, Parser)]
#[command(name = "groundplane", version, max_term_width = 120)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run every service in one process
    All(ServeArgs),
    /// Run ipam: which address belongs to whom
    Ipam(ServeArgs),
    /// Run eip: which elastic IP serves a Service
    Eip(ServeArgs),
    /// Run bgp: does this machine speak BGP, and with whom
    Bgp(ServeArgs),
    /// Run health: is an endpoint alive, and if not, who should hold it
    Health(ServeArgs),
    /// Run instances: does this machine exist, is it on, what are its addresses
    Instances(ServeArgs),
    /// Run gateway: what Kubernetes wants, and telling it what it got
    Gateway(ServeArgs),
    /// Run an agent on a machine of the control plane: it moves the API endpoint when its holder dies
    Agent(AgentArgs),
    /// Ask a running gateway: who has which address, since when, and why not
    Ctl(CtlArgs),
    /// Make, or renew, the certificates that services trust each other by
    Certs(CertsArgs),
    /// Check a provider, as docs/provider.md specifies it: which rules it keeps, which it breaks, and why
    Conformance(ConformanceArgs),
}

/// What every serving process takes.
#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// The kubeconfig of the cluster; without it, the one of the configuration file, else $KUBECONFIG, else the pod's own account
    #[arg(long, env = "GROUNDPLANE_KUBECONFIG", value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) addresses: Addresses,
    #[command(flatten)]
    pub(crate) listen: ListenArgs,
    #[command(flatten)]
    pub(crate) client: ClientTlsArgs,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    #[command(flatten)]
    pub(crate) telemetry: TelemetryArgs,
}

/// What an agent takes.
#[derive(Debug, clap::Args)]
pub(crate) struct AgentArgs {
    /// Name of the node that this agent runs on; without it, the machine's own name
    #[arg(long, env = "GROUNDPLANE_NODE", value_name = "NAME")]
    pub(crate) node: Option<String>,
    #[command(flatten)]
    pub(crate) serve: ServeArgs,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_in_order() {
        Args::command().debug_assert();
    }

    /// A secret must never stand in `ps`: whatever is secret is given as a file.
    #[test]
    fn no_flag_takes_a_secret() {
        for command in Args::command().get_subcommands() {
            for argument in command.get_arguments() {
                let name = argument.get_id().as_str();
                for word in ["token", "password", "secret", "key_data"] {
                    assert!(
                        !name.contains(word),
                        "--{name} of `{}` looks like a secret",
                        command.get_name()
                    );
                }
            }
        }
    }
}
