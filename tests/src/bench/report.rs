//! Rows: printed as JSON when they are there, and as a table at the end.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;

use anyhow::Result;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

/// What is to be reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// This much or more.
    AtLeast(f64),
    /// This much or less.
    AtMost(f64),
}

impl Target {
    fn value(self) -> f64 {
        match self {
            Self::AtLeast(value) | Self::AtMost(value) => value,
        }
    }

    /// How far this is beyond it.
    fn excess_of(self, value: f64) -> Option<f64> {
        let excess = match self {
            Self::AtLeast(least) => least - value,
            Self::AtMost(most) => value - most,
        };
        (excess > 0.0).then_some(excess)
    }

    fn is_met_by(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
        }
    }
}

/// One measure and its result.
#[derive(Clone, Debug, Serialize)]
#[must_use]
pub struct Row {
    measure: String,
    #[serde(serialize_with = "short")]
    ours: f64,
    #[serde(serialize_with = "short_or_null")]
    reference: Option<f64>,
    #[serde(serialize_with = "short_or_null")]
    ratio: Option<f64>,
    #[serde(serialize_with = "short_target")]
    target: Target,
    met: bool,
    /// How far what the target is about is beyond it.
    #[serde(serialize_with = "short_or_null", skip_serializing_if = "Option::is_none")]
    excess: Option<f64>,
    /// Unit of `ours` and `reference`.
    unit: &'static str,
    /// Bounds of our own beside the target: what the excess is made of, or what the target leaves open.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    own: BTreeMap<&'static str, Own>,
    #[serde(flatten)]
    more: Map<String, Value>,
}

/// A bound of our own. It holds or not; a target is never met by it.
#[derive(Clone, Copy, Debug, Serialize)]
struct Own {
    #[serde(serialize_with = "short")]
    value: f64,
    #[serde(serialize_with = "short")]
    at_most: f64,
    holds: bool,
}

impl Row {
    /// A number that is to be small or large by itself.
    pub fn absolute(measure: impl Into<String>, ours: f64, unit: &'static str, target: Target) -> Self {
        Self {
            measure: measure.into(),
            ours,
            reference: None,
            ratio: None,
            target,
            met: target.is_met_by(ours),
            excess: target.excess_of(ours),
            unit,
            own: BTreeMap::new(),
            more: Map::new(),
        }
    }

    /// A number beside one of the same run. `ratio` is what the target is about.
    pub fn relative(
        measure: impl Into<String>,
        (ours, reference): (f64, f64),
        unit: &'static str,
        ratio: f64,
        target: Target,
    ) -> Self {
        Self {
            reference: Some(reference),
            ratio: Some(ratio),
            met: target.is_met_by(ratio),
            excess: target.excess_of(ratio),
            ..Self::absolute(measure, ours, unit, target)
        }
    }

    /// With something else that was found.
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.more.insert(key.to_owned(), value.into());
        self
    }

    /// With a bound of our own, which the target does not name.
    pub fn own(mut self, name: &'static str, value: f64, at_most: f64) -> Self {
        let holds = value <= at_most;
        self.own.insert(
            name,
            Own {
                value,
                at_most,
                holds,
            },
        );
        self
    }

    /// Met only if this holds, too.
    pub fn and(mut self, holds: bool) -> Self {
        self.met &= holds;
        self
    }

    /// Its measure.
    pub fn measure(&self) -> &str {
        &self.measure
    }

    /// Was the target reached?
    pub fn is_met(&self) -> bool {
        self.met
    }

    /// `met`, or by how much not; and our own bounds that do not hold.
    fn verdict(&self) -> String {
        let mut words = match (self.met, self.excess) {
            (true, _) => "met".to_owned(),
            (false, Some(excess)) => format!("missed by {}", readable(excess)),
            (false, None) => "missed".to_owned(),
        };
        for (name, own) in self.own.iter().filter(|(_, own)| !own.holds) {
            let (value, most) = (readable(own.value), readable(own.at_most));
            // Writing to a string cannot fail.
            write!(words, "; {name} {value}, at most {most} wanted").ok();
        }
        words
    }

    fn cells(&self) -> [String; 6] {
        let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), readable);
        let sign = match self.target {
            Target::AtLeast(_) => ">=",
            Target::AtMost(_) => "<=",
        };
        [
            self.measure.clone(),
            format!("{} {}", readable(self.ours), self.unit),
            number(self.reference),
            number(self.ratio),
            format!("{sign} {}", readable(self.target.value())),
            self.verdict(),
        ]
    }
}

/// What was measured, and what could not be.
#[derive(Debug, Default)]
pub struct Report {
    rows: Vec<Row>,
    failed: Vec<String>,
}

impl Report {
    /// Prints rows and keeps them; notes a measure that could not be run.
    pub(super) fn take(&mut self, measure: &str, rows: Result<Vec<Row>>) -> Result<()> {
        match rows {
            Ok(rows) => {
                for row in rows {
                    let mut out = std::io::stdout().lock();
                    writeln!(out, "{}", serde_json::to_string(&row)?)?;
                    out.flush()?;
                    self.rows.push(row);
                }
            }
            Err(error) => {
                eprintln!("{measure} could not be measured: {error:#}");
                self.failed.push(measure.to_owned());
            }
        }
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.failed.is_empty()
    }

    /// Could every measure be run?
    pub fn is_complete(&self) -> bool {
        self.failed.is_empty()
    }

    /// The rows, in columns.
    pub fn table(&self) -> String {
        let head = ["measure", "ours", "reference", "ratio", "target", ""].map(str::to_owned);
        let cells: Vec<_> = std::iter::once(head)
            .chain(self.rows.iter().map(Row::cells))
            .collect();
        let width = |column: usize| {
            cells
                .iter()
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: [usize; 6] = std::array::from_fn(width);
        let line = |row: &[String; 6]| {
            let padded: Vec<_> = row
                .iter()
                .zip(widths)
                .map(|(cell, width)| format!("{cell:<width$}"))
                .collect();
            format!("{}\n", padded.join("  ").trim_end())
        };
        let failed = self
            .failed
            .iter()
            .map(|measure| format!("{measure}  could not be measured\n"));
        cells.iter().map(line).chain(failed).collect()
    }
}

/// Three digits behind the point at most, fewer where the number is large.
fn rounded(value: f64) -> f64 {
    let scale = if value.abs() >= 1_000.0 { 1.0 } else { 1_000.0 };
    (value * scale).round() / scale
}

fn readable(value: f64) -> String {
    rounded(value).to_string()
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
fn short<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(rounded(*value))
}

#[allow(clippy::ref_option, reason = "the form that serde asks for")]
fn short_or_null<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    value.map(rounded).serialize(serializer)
}

fn short_target<S: Serializer>(target: &Target, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(target.value())
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn a_row_is_a_line_that_programs_read() -> Result<()> {
        let row =
            Row::relative("services_1000", (5.25, 4.5), "s", 0.857_14, Target::AtLeast(0.8)).with("cpu", 7);
        let expected = "{\"measure\":\"services_1000\",\"ours\":5.25,\"reference\":4.5,\"ratio\":0.857,\"target\":0.8,\"met\":true,\"unit\":\"s\",\"cpu\":7}";
        assert_eq!(serde_json::to_string(&row)?, expected);
        let row = Row::absolute("memory_idle", 26.0, "MB", Target::AtMost(25.0));
        assert!(
            serde_json::to_string(&row)?
                .contains("\"reference\":null,\"ratio\":null,\"target\":25.0,\"met\":false,\"excess\":1.0,")
        );
        Ok(())
    }

    #[test]
    fn a_condition_beside_the_target_can_only_spoil_it() {
        let row = |ours| Row::absolute("writes", ours, "", Target::AtMost(3.0));
        assert!(row(3.0).and(true).is_met() && !row(3.0).and(false).is_met() && !row(4.0).and(true).is_met());
    }

    #[test]
    fn a_bound_of_our_own_is_told_and_meets_no_target() -> Result<()> {
        let row = |ours| Row::absolute("calls", ours, "", Target::AtMost(10.0)).own("pages", ours, 12.0);
        assert!(row(10.0).is_met() && !row(11.0).is_met());
        assert_eq!(row(11.0).verdict(), "missed by 1");
        assert_eq!(row(13.0).verdict(), "missed by 3; pages 13, at most 12 wanted");
        let line = serde_json::to_string(&row(11.0))?;
        let own = "\"own\":{\"pages\":{\"value\":11.0,\"at_most\":12.0,\"holds\":true}}";
        assert!(line.contains(own), "{line}");
        Ok(())
    }

    #[test]
    fn a_measure_that_failed_is_in_the_table_and_spoils_the_answer() -> Result<()> {
        let mut report = Report::default();
        report.take(
            "one",
            Ok(vec![Row::absolute("one", 12_345.678, "ns", Target::AtMost(1.0))]),
        )?;
        assert!(report.is_complete());
        report.take("other", Err(anyhow::anyhow!("no disk")))?;
        assert!(!report.is_complete());
        let table = report.table();
        assert!(
            table.contains("one      12346 ns  -          -      <= 1    missed by 12345\n"),
            "{table}"
        );
        assert!(table.ends_with("other  could not be measured\n"), "{table}");
        Ok(())
    }
}
