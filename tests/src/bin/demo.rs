//! `make demo`: groundplane doing its main job in a terminal, on a real API server and the sandbox cloud.
//!
//! Exits 0 when everything was seen, 1 when not. `--keep` (or `KEEP=1`) stays up until Ctrl-C.

use std::process::ExitCode;

use clap::Parser;
use groundplane_tests::demo;

/// Shows groundplane at work.
#[derive(Debug, Parser)]
struct Arguments {
    /// Stay up at the end, and print how to reach everything, until Ctrl-C
    #[arg(long, env = "KEEP", value_parser = clap::builder::FalseyValueParser::new())]
    keep: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Arguments { keep } = Arguments::parse();
    match demo::run(keep).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
