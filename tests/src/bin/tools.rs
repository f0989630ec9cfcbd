//! `cargo run -p groundplane-tests --bin tools -- ensure`: the programs that the tests run on are there after it.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, Subcommand};
use groundplane_tests::bgp_daemon::ensure_package;
use groundplane_tests::tools::{Tool, ensure_blocking};

/// Builds and finds etcd, kube-apiserver, helm and jaeger.
#[derive(Debug, Parser)]
#[command(name = "tools")]
struct Arguments {
    #[command(subcommand)]
    command: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Build what is missing; all of them where none is named
    Ensure {
        /// etcd, kube-apiserver, helm, jaeger
        tools: Vec<Tool>,
    },
    /// Print where one is, after building it if it is missing
    Path {
        /// etcd, kube-apiserver, helm or jaeger
        tool: Tool,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // One line that a person acts on, with no trace of where in our code it came from.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> anyhow::Result<()> {
    // Progress goes to standard error, so that the output of `path` is a path.
    let mut say = |line: &str| eprintln!("{line}");
    match arguments.command {
        Action::Ensure { tools } => {
            // Not built, so not among the tools: it comes from the distribution's packages.
            if tools.is_empty() {
                let bird = ensure_package(&mut say)?.version()?;
                say(&bird);
            }
            let tools = if tools.is_empty() {
                Tool::ALL.to_vec()
            } else {
                tools
            };
            let begun = Instant::now();
            for (index, tool) in tools.iter().enumerate() {
                let program = ensure_blocking(*tool, &mut say)?;
                say(&format!(
                    "[{}/{}] {tool}: {}",
                    index + 1,
                    tools.len(),
                    program.display()
                ));
            }
            say(&format!(
                "tools are ready ({:.1} s)",
                begun.elapsed().as_secs_f64()
            ));
        }
        Action::Path { tool } => {
            let program = ensure_blocking(tool, &mut say)?;
            writeln!(std::io::stdout(), "{}", program.display())?;
        }
    }
    Ok(())
}
