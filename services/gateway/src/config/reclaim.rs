//! When elastic IPs go back to the cloud that no Service has any more.

use std::fmt;
use std::time::Duration;

use groundplane_runtime::config::{HumanDuration, Problem};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// What is done about reservations that carry this cluster's tags, and no Service's that there is.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Reclaim {
    /// Nothing, a word, or deletion.
    pub mode: ReclaimMode,
    /// For how long there must have been no Service, as far as this process has seen.
    pub grace: HumanDuration,
    /// If more than this share of the cluster's reservations would go within an hour, and they are three or more, none does. 1: no limit.
    pub max_fraction: f64,
}

impl Default for Reclaim {
    fn default() -> Self {
        Self {
            mode: ReclaimMode::DryRun,
            grace: Duration::from_secs(3600).into(),
            max_fraction: 0.5,
        }
    }
}

/// What is done about orphans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReclaimMode {
    /// They are not looked for.
    Off,
    /// They are told of, by an event and in the log.
    #[default]
    DryRun,
    /// They are deleted.
    On,
}

impl<'de> Deserialize<'de> for ReclaimMode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Mode)
    }
}

struct Mode;

impl Visitor<'_> for Mode {
    type Value = ReclaimMode;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`off`, `dry-run` or `on`")
    }

    /// To many tools that write YAML, `on` and `off` are another word for a truth value.
    fn visit_bool<E: de::Error>(self, is_on: bool) -> Result<ReclaimMode, E> {
        Ok(if is_on { ReclaimMode::On } else { ReclaimMode::Off })
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<ReclaimMode, E> {
        match text {
            "off" => Ok(ReclaimMode::Off),
            "dry-run" => Ok(ReclaimMode::DryRun),
            "on" => Ok(ReclaimMode::On),
            other => Err(E::unknown_variant(other, &["off", "dry-run", "on"])),
        }
    }
}

impl Reclaim {
    /// What is wrong with it.
    pub(super) fn validate(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if !(self.max_fraction > 0.0 && self.max_fraction <= 1.0) {
            let help = "write a number above 0, and 1 at most";
            problems.push(Problem::new("maxFraction", "is no share", help));
        }
        problems
    }
}
