//! Does a provider keep the contract? Checks the rules of `docs/provider.md` by their ids, from outside, as a client.
//!
//! ```text
//!  run ──► GetCapabilities ──► plan (told before anything is made) ──► rule by rule ──► tidy after each ──► clean at the end
//!                                                                         ▲ stop (Ctrl-C) ends the rules, never the cleaning
//! ```
//!
//! Whatever the program makes carries its tags, and is remembered from before it is asked for until it is known to be gone: a call that
//! ended without an answer is asked again by its key, and what that made is given back, too. What cannot be given back is named.

mod bench;
mod calls;
mod raw;
mod rules;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use groundplane_core::ProviderId;
use groundplane_runtime::grpc::{Channel, ChannelError, Target, channel};
use groundplane_runtime::tls::ClientTls;
use tokio_util::sync::CancellationToken;

pub use self::rules::{Rule, all as rules};
use crate::Capability;
use bench::Bench;
#[cfg(any(test, feature = "testing"))]
pub(crate) use raw::{Raw, unary as raw_unary};

/// The tag of everything that the program makes.
pub const TAG: &str = "groundplane-conformance";

/// What is checked, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// These capabilities only; empty: what the provider offers.
    pub capabilities: BTreeSet<Capability>,
    /// These rules only; empty: all.
    pub rules: BTreeSet<String>,
    /// Make nothing.
    pub read_only: bool,
    /// Machines for BGP and the endpoint; empty: the first two that are listed.
    pub machines: Vec<ProviderId>,
    /// An address that nobody holds, which may be assigned and moved.
    pub endpoint: Option<IpAddr>,
    /// May make what the contract cannot take back: BGP, and a session.
    pub permanent: bool,
    /// Deadline of each call.
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            capabilities: BTreeSet::new(),
            rules: BTreeSet::new(),
            read_only: false,
            machines: Vec::new(),
            endpoint: None,
            permanent: false,
            timeout: Duration::from_secs(10),
        }
    }
}

/// How a rule came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds.
    Pass,
    /// It is broken, and how.
    Fail(String),
    /// It could not be checked, and why.
    Skipped(String),
}

impl Verdict {
    /// As it is written.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail(_) => "fail",
            Self::Skipped(_) => "skipped",
        }
    }

    /// Why, where there is something to say.
    pub fn why(&self) -> &str {
        match self {
            Self::Pass => "",
            Self::Fail(why) | Self::Skipped(why) => why,
        }
    }
}

/// A rule that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The rule's id: `P22`.
    pub id: &'static str,
    /// What it says, in short.
    pub title: &'static str,
    /// How it came out.
    pub verdict: Verdict,
}

/// What came out of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The provider's name, as it says.
    pub provider: String,
    /// By rule, in their order.
    pub outcomes: Vec<Outcome>,
    /// What was made and could not be given back.
    pub left: Vec<String>,
    /// It was stopped before the last rule.
    pub stopped: bool,
}

impl Report {
    /// Is a rule broken, or something left behind?
    pub fn is_broken(&self) -> bool {
        let broken = |outcome: &Outcome| matches!(outcome.verdict, Verdict::Fail(_));
        self.outcomes.iter().any(broken) || !self.left.is_empty()
    }

    /// Was any rule checked?
    pub fn has_checked(&self) -> bool {
        self.outcomes
            .iter()
            .any(|outcome| !matches!(outcome.verdict, Verdict::Skipped(_)))
    }
}

/// What a run tells while it goes on.
#[derive(Clone, Debug)]
pub enum Progress<'a> {
    /// What is going to be made, before it is.
    Plan(&'a [String]),
    /// A rule was looked at.
    Checked(&'a Outcome),
    /// The rules are over, and this many things are given back.
    Cleaning(usize),
}

/// Why there is nothing to report.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// There can be no connection.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// The provider does not answer, or does not speak the contract.
    #[error("the provider cannot be asked: GetCapabilities answered {code}: {message}")]
    Unreachable {
        /// The code's name.
        code: &'static str,
        /// What it said.
        message: String,
    },
    /// There is no such rule.
    #[error("there is no rule `{0}`; docs/provider.md lists them")]
    NoRule(String),
}

/// Checks the provider at `target`. Ends early, cleaned up, once `stop` is cancelled.
///
/// # Errors
/// The provider cannot be asked at all.
pub async fn run(
    target: &Target,
    tls: Option<&ClientTls>,
    options: Options,
    stop: CancellationToken,
    tell: &(dyn Fn(Progress<'_>) + Send + Sync),
) -> Result<Report, RunError> {
    check_over(channel(target, tls)?, options, stop, tell).await
}

async fn check_over(
    channel: Channel,
    options: Options,
    stop: CancellationToken,
    tell: &(dyn Fn(Progress<'_>) + Send + Sync),
) -> Result<Report, RunError> {
    let known = |id: &&String| rules().iter().all(|rule| rule.id != id.as_str());
    if let Some(unknown) = options.rules.iter().find(known) {
        return Err(RunError::NoRule(unknown.clone()));
    }
    let bench = Bench::connect(channel, options).await?;
    tell(Progress::Plan(&bench.plan()));
    let mut outcomes = Vec::new();
    for rule in rules().iter().filter(|rule| bench.is_asked_for(rule)) {
        let verdict = tokio::select! {
            biased;
            () = stop.cancelled() => Verdict::Skipped("the program was stopped".to_owned()),
            verdict = rule.look(&bench) => verdict,
        };
        if !stop.is_cancelled() {
            bench.tidy().await;
        }
        let outcome = Outcome {
            id: rule.id,
            title: rule.title,
            verdict,
        };
        tell(Progress::Checked(&outcome));
        outcomes.push(outcome);
    }
    tell(Progress::Cleaning(bench.made()));
    Ok(Report {
        provider: bench.said.name.clone(),
        left: bench.clean().await,
        stopped: stop.is_cancelled(),
        outcomes,
    })
}
