//! `groundplane conformance`: does a provider keep the contract of `docs/provider.md`?
//!
//! Exit codes: 0 every rule that could be checked holds; 1 one is broken, or something that was made is left; 2 the provider could not
//! be asked, nothing could be checked, or it was stopped; 64 called wrongly.

use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use groundplane_cloud::Capability;
use groundplane_cloud::conformance::{self, Options, Outcome, Progress, Report, RunError, Verdict, rules};
use groundplane_core::ProviderId;
use groundplane_runtime::config::HumanDuration;
use groundplane_runtime::grpc::Target;
use groundplane_runtime::tls::ClientTls;
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::USAGE;

/// A rule is broken, or something is left.
const BROKEN: u8 = 1;
/// Nothing can be said.
const UNKNOWN: u8 = 2;
/// Stopped by a second Ctrl-C, as a shell says it.
const KILLED: u8 = 130;

/// In which form it is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Form {
    /// A table.
    #[default]
    Table,
    /// One JSON document.
    Json,
}

/// What is checked.
#[derive(Debug, clap::Args)]
pub(crate) struct ConformanceArgs {
    /// Where the provider listens: `host:port`, `http://host:port`, `https://host:port` or `unix:/path`
    #[arg(long, value_name = "ADDRESS")]
    target: String,
    /// Certificate authority that signed the provider's certificate, a PEM file; with it `host:port` means https
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Certificate chain that is shown to the provider, a PEM file
    #[arg(long, value_name = "FILE", requires_all = ["tls_key", "tls_ca"])]
    tls_cert: Option<PathBuf>,
    /// Private key of that certificate, a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// The name that the provider's certificate carries, where it is not the host of its address
    #[arg(long, value_name = "NAME", requires = "tls_ca")]
    tls_server_name: Option<String>,
    /// Check this capability only: machines, addresses, bgp, endpoint; may be given several times. One that is not offered fails
    #[arg(long = "capability", value_name = "NAME")]
    capabilities: Vec<Capability>,
    /// Check this rule only, such as P22; may be given several times
    #[arg(long = "rule", value_name = "ID")]
    rules: Vec<String>,
    /// Check only what makes nothing
    #[arg(long)]
    read_only: bool,
    /// Provider id of a machine to use for BGP and the endpoint; give two for all rules [default: the first two that are listed]
    #[arg(long = "machine", value_name = "ID")]
    machines: Vec<ProviderId>,
    /// An address, held by nobody, that may be assigned and moved; needed where the provider reserves none
    #[arg(long, value_name = "IP")]
    endpoint_address: Option<IpAddr>,
    /// Allow what the contract cannot undo: switch BGP on, make a session
    #[arg(long)]
    permanent: bool,
    /// Deadline of each call
    #[arg(long, value_name = "TIME", default_value = "10s")]
    timeout: HumanDuration,
    /// How to print
    #[arg(short, long, value_enum, default_value_t, value_name = "FORM")]
    output: Form,
}

impl ConformanceArgs {
    fn tls(&self) -> Option<ClientTls> {
        Some(ClientTls {
            ca: self.tls_ca.clone()?,
            identity: self.tls_cert.clone().zip(self.tls_key.clone()),
            server_name: self.tls_server_name.clone(),
        })
    }

    fn target(&self) -> Result<Target, String> {
        let text = if self.target.contains("://") || self.target.starts_with("unix:") {
            self.target.clone()
        } else if self.tls_ca.is_some() {
            format!("https://{}", self.target)
        } else {
            format!("http://{}", self.target)
        };
        text.parse::<Target>()
            .map_err(|error| format!("--target: {error}"))
    }

    fn options(&self) -> Options {
        Options {
            capabilities: self.capabilities.iter().copied().collect(),
            rules: self.rules.iter().map(|rule| rule.to_uppercase()).collect(),
            read_only: self.read_only,
            machines: self.machines.clone(),
            endpoint: self.endpoint_address,
            permanent: self.permanent,
            timeout: self.timeout.0,
        }
    }
}

/// Checks, prints, and says how it went.
pub(crate) async fn run(args: ConformanceArgs) -> anyhow::Result<ExitCode> {
    let target = match args.target() {
        Ok(target) => target,
        Err(message) => return Ok(refuse(&message, USAGE)),
    };
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let (stop, form, tls) = (CancellationToken::new(), args.output, args.tls());
    if form == Form::Table {
        say(&mut std::io::stdout(), &line("ID", "RULE", "RESULT", "WHY"));
    }
    let tell = move |progress: Progress<'_>| narrate(form, &progress);
    let mut run = std::pin::pin!(conformance::run(
        &target,
        tls.as_ref(),
        args.options(),
        stop.clone(),
        &tell
    ));
    let result = loop {
        tokio::select! {
            result = &mut run => break result,
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        if stop.is_cancelled() {
            let message = "stopped at once; what it made may be left, tagged `groundplane-conformance`";
            return Ok(refuse(message, KILLED));
        }
        stop.cancel();
        say(
            &mut std::io::stderr(),
            "stopping; once more to leave what was made",
        );
    };
    match result {
        Ok(report) => Ok(conclude(&target, &report, form)),
        Err(error @ RunError::NoRule(_)) => Ok(refuse(&format!("--rule: {error}"), USAGE)),
        Err(error) => Ok(refuse(&format!("{:#}", anyhow::Error::from(error)), UNKNOWN)),
    }
}

/// Nobody is left to tell where this fails.
fn say(out: &mut dyn Write, text: &str) {
    drop(writeln!(out, "{}", text.trim_end()));
}

fn refuse(message: &str, code: u8) -> ExitCode {
    say(&mut std::io::stderr(), &format!("groundplane: {message}"));
    code.into()
}

fn line(id: &str, title: &str, result: &str, why: &str) -> String {
    let widest = rules()
        .iter()
        .map(|rule| rule.title.len())
        .max()
        .unwrap_or_default();
    format!("{id:<4} {title:<widest$}  {result:<7}  {why}")
}

/// The table goes to the standard output as it comes about, all else to the standard error.
fn narrate(form: Form, progress: &Progress<'_>) {
    match progress {
        Progress::Plan(plan) => {
            for step in *plan {
                say(&mut std::io::stderr(), &format!("going to do: {step}"));
            }
        }
        Progress::Checked(outcome) if form == Form::Table => {
            say(&mut std::io::stdout(), &row(outcome));
        }
        Progress::Cleaning(made) if *made > 0 => {
            say(
                &mut std::io::stderr(),
                &format!("giving back what was made: {made}"),
            );
        }
        Progress::Checked(_) | Progress::Cleaning(_) => {}
    }
}

fn row(outcome: &Outcome) -> String {
    let result = match outcome.verdict {
        // Seen at a glance.
        Verdict::Fail(_) => "FAIL",
        _ => outcome.verdict.as_str(),
    };
    // One line a rule, whatever a provider says.
    let why = outcome.verdict.why().split_whitespace().collect::<Vec<_>>();
    line(outcome.id, outcome.title, result, &why.join(" "))
}

/// For programs.
#[derive(Serialize)]
struct Document<'a> {
    target: String,
    provider: &'a str,
    rules: Vec<DocumentRule<'a>>,
    left: &'a [String],
    stopped: bool,
}

#[derive(Serialize)]
struct DocumentRule<'a> {
    id: &'a str,
    title: &'a str,
    result: &'a str,
    why: &'a str,
}

fn document<'a>(target: &Target, report: &'a Report) -> Document<'a> {
    let rule = |outcome: &'a Outcome| DocumentRule {
        id: outcome.id,
        title: outcome.title,
        result: outcome.verdict.as_str(),
        why: outcome.verdict.why(),
    };
    Document {
        target: target.to_string(),
        provider: &report.provider,
        rules: report.outcomes.iter().map(rule).collect(),
        left: &report.left,
        stopped: report.stopped,
    }
}

fn conclude(target: &Target, report: &Report, form: Form) -> ExitCode {
    match form {
        Form::Table => {
            let count = |name: &str| {
                let is_it = |outcome: &&Outcome| outcome.verdict.as_str() == name;
                report.outcomes.iter().filter(is_it).count()
            };
            let sum = format!(
                "\n{}: {} passed, {} failed, {} skipped",
                report.provider,
                count("pass"),
                count("fail"),
                count("skipped")
            );
            say(&mut std::io::stdout(), &sum);
        }
        Form::Json => match serde_json::to_string_pretty(&document(target, report)) {
            Ok(text) => say(&mut std::io::stdout(), &text),
            Err(error) => return refuse(&error.to_string(), UNKNOWN),
        },
    }
    for left in &report.left {
        say(&mut std::io::stderr(), &format!("left behind: {left}"));
    }
    exit_code(report).into()
}

fn exit_code(report: &Report) -> u8 {
    if report.is_broken() {
        BROKEN
    } else if report.stopped || !report.has_checked() {
        UNKNOWN
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: ConformanceArgs,
    }

    fn parse(words: &[&str]) -> ConformanceArgs {
        Line::try_parse_from(["x"].iter().chain(words)).unwrap().args
    }

    fn report(verdict: Verdict) -> Report {
        Report {
            provider: "acme".to_owned(),
            outcomes: vec![Outcome {
                id: "P1",
                title: "it answers",
                verdict,
            }],
            left: Vec::new(),
            stopped: false,
        }
    }

    #[test]
    fn a_bare_host_is_spoken_to_in_plaintext_unless_there_is_an_authority() {
        for (words, target) in [
            (vec!["--target", "127.0.0.1:7443"], "http://127.0.0.1:7443/"),
            (vec!["--target", "h:1", "--tls-ca", "ca"], "https://h:1/"),
            (vec!["--target", "https://h:1", "--tls-ca", "ca"], "https://h:1/"),
            (vec!["--target", "unix:/run/p.sock"], "unix:/run/p.sock"),
        ] {
            assert_eq!(parse(&words).target().unwrap().to_string(), target);
        }
        assert!(parse(&["--target", "no where"]).target().is_err());
    }

    #[test]
    fn the_exit_code_says_how_it_went() {
        let skipped = || Verdict::Skipped("no".to_owned());
        assert_eq!(exit_code(&report(Verdict::Pass)), 0);
        assert_eq!(exit_code(&report(Verdict::Fail("so".to_owned()))), BROKEN);
        assert_eq!(exit_code(&report(skipped())), UNKNOWN, "nothing was checked");
        let left = Report {
            left: vec!["r1".to_owned()],
            ..report(Verdict::Pass)
        };
        assert_eq!(exit_code(&left), BROKEN);
        let stopped = Report {
            stopped: true,
            ..report(Verdict::Pass)
        };
        assert_eq!(exit_code(&stopped), UNKNOWN);
    }

    #[test]
    fn a_row_is_one_line() {
        let report = report(Verdict::Fail("it said\n  no".to_owned()));
        let text = row(&report.outcomes[0]);
        assert!(
            text.starts_with("P1 ") && text.ends_with("FAIL     it said no"),
            "{text}"
        );
        let json = serde_json::to_value(document(&"http://h:1".parse().unwrap(), &report)).unwrap();
        assert_eq!(json["rules"][0]["result"], "fail");
        assert_eq!(json["rules"][0]["why"], "it said\n  no");
    }
}
