//! `groundplane ctl config`: what a process would be told that is started with the same flags and the same environment.

use std::io::Write as _;

use anyhow::Context as _;
use clap::Subcommand;
use serde_json::Value;

use crate::config::shown::{Entry, entries, origin};
use crate::config::{ConfigArgs, Examined};
use crate::ctl::table::{Row, print, write};
use crate::ctl::{Output, yaml};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Each value, and where it comes from: the file, a variable, a key of the JSON file, or nowhere (its default). Secrets are shown
    /// by their place. What older inputs leave unclear is noted on the standard error. As YAML it is a configuration file that says the same
    Show(ConfigArgs),
}

impl Row for Entry {
    const COLUMNS: &'static [&'static str] = &["KEY", "VALUE", "FROM"];

    fn cells(&self) -> Vec<String> {
        let value = match &self.value {
            Value::String(text) if !text.is_empty() => text.clone(),
            Value::Null => "-".to_owned(),
            other => other.to_string(),
        };
        vec![self.key.clone(), value, self.from.clone()]
    }
}

/// Tells a person, beside the answer: what is piped on is not mixed with it.
fn note(text: &str) -> anyhow::Result<()> {
    writeln!(std::io::stderr(), "note: {text}").context("write to the standard error")
}

/// Prints it, also if something is wrong with it, and then says what.
pub(crate) fn run(command: &Command, output: Output) -> anyhow::Result<()> {
    let Command::Show(args) = command;
    let Examined {
        config,
        document,
        errors,
        legacy,
    } = args.examine(true)?;
    for remark in &legacy.remarks {
        note(remark)?;
    }
    if let Some(config) = config {
        match output {
            Output::Table | Output::Json => print(output, &entries(&config, &document)?)?,
            Output::Yaml => {
                let value = serde_json::to_value(&config)?;
                write(&yaml::text(&value, &|path| Some(origin(&document, path))))?;
            }
        }
    }
    match errors {
        Some(errors) => Err(errors.into()),
        None => Ok(()),
    }
}
