//! Durations as people write them: `500ms`, `5m`, `1h30m`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Nanoseconds of each unit, longest first.
const UNITS: [(&str, u64); 5] = [
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
];

/// A duration that reads and writes `500ms`, `5m`, `1h30m`; `0` needs no unit. At most about 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct HumanDuration(pub Duration);

/// Why a text is no duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a duration; write a number with a unit (us, ms, s, m, h), such as `500ms`, `30s` or `1h30m`"
)]
pub struct ParseDurationError(String);

impl FromStr for HumanDuration {
    type Err = ParseDurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text)
            .map(Self)
            .ok_or_else(|| ParseDurationError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let (mut rest, mut total, mut shorter_than) = (text, 0_u64, u64::MAX);
    while !rest.is_empty() {
        let digits = rest.find(|character: char| !character.is_ascii_digit())?;
        let (number, tail) = rest.split_at(digits);
        let letters = tail
            .find(|character: char| character.is_ascii_digit())
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let nanos = UNITS.iter().find(|(name, _)| *name == unit)?.1;
        // Units fall, so that nothing is written twice.
        if nanos >= shorter_than {
            return None;
        }
        shorter_than = nanos;
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(nanos)?)?;
        rest = tail;
    }
    (!text.is_empty()).then(|| Duration::from_nanos(total))
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX);
        if rest < 1_000 {
            return f.write_str("0");
        }
        for (name, nanos) in UNITS {
            if rest >= nanos {
                write!(f, "{}{name}", rest / nanos)?;
                rest %= nanos;
            }
        }
        Ok(())
    }
}

impl From<HumanDuration> for Duration {
    fn from(duration: HumanDuration) -> Self {
        duration.0
    }
}

impl From<Duration> for HumanDuration {
    fn from(duration: Duration) -> Self {
        Self(duration)
    }
}

impl TryFrom<String> for HumanDuration {
    type Error = ParseDurationError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<HumanDuration> for String {
    fn from(duration: HumanDuration) -> Self {
        duration.to_string()
    }
}

/// Reads a [`Duration`]: `#[serde(with = "groundplane_runtime::config::duration")]`.
pub fn deserialize<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    HumanDuration::deserialize(deserializer).map(Into::into)
}

/// Writes a [`Duration`].
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
pub fn serialize<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    HumanDuration(*duration).serialize(serializer)
}
