//! `groundplane <service>`, `groundplane all`, `groundplane ctl` and `groundplane conformance`: every service in one binary.
//!
//! ```text
//! args ──► config (one file, strict) ──► roles (which services this process runs, how they reach each other) ──► serve
//! ctl  ──► gateway.v1
//! agent ──► the API endpoint of this control-plane machine
//! certs ──► certificates of the services, in a folder or as Secrets
//! conformance ──► provider.v1 of somebody else
//! ```
//!
//! Exit codes: 0 stopped as asked, 1 failed, 64 called or configured wrongly; those of `conformance` stand there.

mod args;
mod certs;
mod config;
mod conformance;
mod ctl;
mod roles;
mod wiring;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;

use crate::args::{Args, Command};
use crate::config::ConfigErrors;

/// Threads of an agent: one may be held up for a moment, by a file or by a handshake, and probes must not wait for it.
const AGENT_THREADS: usize = 2;

/// `EX_USAGE` of `sysexits.h`: called or configured wrongly.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    groundplane_runtime::tls::install();
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // Help and version are no failure; clap knows where each is printed.
            let code = if error.use_stderr() { USAGE } else { 0 };
            return if error.print().is_ok() {
                code.into()
            } else {
                ExitCode::FAILURE
            };
        }
    };
    match run(args) {
        Ok(code) => code,
        Err(error) => {
            let usage = error.is::<ConfigErrors>();
            // Nobody is left to tell if this fails.
            drop(writeln!(std::io::stderr(), "groundplane: {error:#}"));
            if usage { USAGE.into() } else { ExitCode::FAILURE }
        }
    }
}

fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if matches!(args.command, Command::Agent(_)) {
        // A few probes and calls, beside an API server that needs the cores, and their memory.
        runtime.worker_threads(AGENT_THREADS);
    }
    let runtime = runtime.enable_all().build()?;
    runtime.block_on(async {
        match args.command {
            Command::Conformance(args) => return conformance::run(args).await,
            Command::Ctl(ctl) => ctl::run(ctl).await,
            Command::Certs(args) => certs::run(args).await,
            Command::All(args) => roles::run(roles::Role::All, args).await,
            Command::Ipam(args) => roles::run(roles::Role::Ipam, args).await,
            Command::Eip(args) => roles::run(roles::Role::Eip, args).await,
            Command::Bgp(args) => roles::run(roles::Role::Bgp, args).await,
            Command::Health(args) => roles::run(roles::Role::Health, args).await,
            Command::Instances(args) => roles::run(roles::Role::Instances, args).await,
            Command::Gateway(args) => roles::run(roles::Role::Gateway, args).await,
            Command::Agent(args) => roles::run_agent(args).await,
        }?;
        Ok(ExitCode::SUCCESS)
    })
}
