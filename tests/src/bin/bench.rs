//! `make bench`: measures groundplane against the ceiling of this machine.
//!
//! Prints a JSON line for each measure and a table at the end. Exits 0 when everything could be measured, whether or not
//! the targets were met.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Parser;
use groundplane_tests::CloudApi;
use groundplane_tests::bench::{self, Plan};

/// Measures groundplane.
#[derive(Debug, Parser)]
struct Arguments {
    /// Only these measures, comma separated: one (`services_1000`), or the first words of several (`memory`)
    #[arg(long, env = "ONLY", value_name = "MEASURE", default_value = "")]
    only: String,
    /// `full` takes the largest sizes, too
    #[arg(long, env = "SIZE", default_value = "")]
    size: String,
    /// `equinix` or `cherry`: measures of a cloud on this one alone. By default on Equinix Metal, calls of a restart and of 1,000 Services
    /// on both
    #[arg(long, env = "CLOUD", default_value = "")]
    cloud: String,
    /// So many Services and nodes instead, to try the benchmarks themselves; targets then mean little
    #[arg(long, value_name = "NUMBER")]
    count: Option<usize>,
}

impl Arguments {
    fn plan(self) -> Result<Plan> {
        let Self {
            only,
            size,
            cloud,
            count,
        } = self;
        // Make passes variables that are not set as empty ones.
        let only = only
            .split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect();
        let full = match size.as_str() {
            "full" => true,
            "" => false,
            other => bail!("there is no size `{other}`: leave it out, or write `full`"),
        };
        let cloud = match cloud.as_str() {
            "equinix" => Some(CloudApi::Equinix),
            "cherry" => Some(CloudApi::Cherry),
            "" => None,
            other => bail!("there is no cloud `{other}`: leave it out, or write `equinix` or `cherry`"),
        };
        Ok(Plan {
            only,
            full,
            count,
            cloud,
        })
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    match measure(Arguments::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(arguments: Arguments) -> Result<bool> {
    if cfg!(debug_assertions) {
        eprintln!("this is not a release build: its numbers say little");
    }
    let report = bench::run(&arguments.plan()?).await?;
    write!(std::io::stdout(), "\n{}", report.table())?;
    Ok(report.is_complete())
}
