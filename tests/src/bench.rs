//! What `make bench` measures: groundplane against the ceiling of the machine that it runs on.
//!
//! ```text
//!   bench         which measures there are, and in which order they run
//!     load        durable allocations through ipam's gRPC
//!     mtls        calls with mutual TLS, beside the same in plaintext
//!     kube_load   Services on a real API server, beside a plain client that makes the same writes
//!     calls       what a cluster of usual size costs in calls and writes: made, restarted, idle, one node more
//!     settled     the cluster and cloud for that, and for the next
//!     restart     a settled cluster and cloud, and what a restart asks of them; memory at that size
//!     endpoint    the API endpoint leaves a dead machine; what an agent costs
//!     provider    Services on a provider that is slow, beside what it took by itself
//!     domain      allocation alone, without I/O
//!     subject     how groundplane is started for all of these
//!     image       the environment that the image gives it
//!     report      rows, JSON lines, the table
//! ```
//!
//! Each ratio compares two numbers of the same run. Load is bounded in count and in time: what takes longer is an error
//! of that measure, and the others run all the same. A target that is missed is a result, not an error.

mod calls;
mod domain;
mod endpoint;
mod image;
mod kube_load;
mod load;
mod mtls;
mod provider;
mod report;
mod restart;
mod settled;
mod subject;

use anyhow::{Result, ensure};

use crate::scratch::workspace_root;
use crate::world::CloudApi;
pub use report::{Report, Row, Target};

/// Services in the two usual sizes, in the largest one, and nodes of the restart.
const USUAL: [usize; 2] = [1_000, 5_000];
const FULL: usize = 10_000;
const NODES: usize = 5_000;
/// Nodes where calls are counted.
const CALLS_NODES: usize = 50;

/// Which measures to run, and how large.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Only these, comma separated: a measure (`services_1000`), or the first words of several (`services`).
    pub only: Vec<String>,
    /// The largest sizes, too.
    pub full: bool,
    /// This many Services and nodes instead, and a fifth of it as the smaller size: to try the program itself.
    pub count: Option<usize>,
    /// On this cloud alone, where a measure has one.
    pub cloud: Option<CloudApi>,
}

/// The name of a measure on a cloud.
fn on(measure: &str, cloud: CloudApi) -> String {
    match cloud {
        CloudApi::Equinix => measure.to_owned(),
        CloudApi::Cherry => format!("{measure}_cherry"),
    }
}

impl Plan {
    /// Is this measure wanted?
    fn wants(&self, measure: &str) -> bool {
        let named = |word: &String| {
            measure
                .strip_prefix(word.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
        };
        self.only.is_empty() || self.only.iter().any(named)
    }

    fn wants_any(&self, measures: &[&str]) -> bool {
        measures.iter().any(|measure| self.wants(measure))
    }

    /// Is this measure wanted on this cloud? On those that are `usual` for it, unless another is named, or the measure itself on another.
    fn wants_on(&self, measure: &str, cloud: CloudApi, usual: &[CloudApi]) -> bool {
        let name = on(measure, cloud);
        match self.cloud {
            Some(only) => only == cloud && (self.wants(measure) || self.wants(&name)),
            None if usual.contains(&cloud) => self.wants(&name),
            None => self.only.contains(&name),
        }
    }

    /// The clouds on which any of these measures is wanted, Equinix Metal unless another is named.
    fn clouds_of(&self, measures: &[&str]) -> Vec<CloudApi> {
        let wanted = |cloud: &CloudApi| {
            let mut measures = measures.iter();
            measures.any(|measure| self.wants_on(measure, *cloud, &[CloudApi::Equinix]))
        };
        CloudApi::ALL.into_iter().filter(wanted).collect()
    }

    /// How many Services at once: the sizes to run, smallest first.
    fn service_counts(&self) -> Vec<usize> {
        match (self.count, self.full) {
            (Some(count), _) => vec![(count / 5).max(1), count.max(2)],
            (None, false) => USUAL.to_vec(),
            (None, true) => [&USUAL[..], &[FULL]].concat(),
        }
    }

    /// Services and nodes where calls are counted.
    fn calls_size(&self, services: usize) -> settled::Size {
        settled::Size {
            services: self.count.unwrap_or(services),
            nodes: self.count.map_or(CALLS_NODES, |count| (count / 20).max(2)),
        }
    }

    /// Services and nodes of the restart.
    fn restart_size(&self) -> settled::Size {
        let services = if self.full { FULL } else { USUAL[1] };
        settled::Size {
            services: self.count.unwrap_or(services),
            nodes: self.count.unwrap_or(NODES),
        }
    }
}

/// Runs what the plan asks for. The report says which measures could not be run.
///
/// # Errors
/// When the plan names no measure that there is, or standard output is closed.
pub async fn run(plan: &Plan) -> Result<Report> {
    ensure!(
        workspace_root().is_dir(),
        "run the benchmarks from the tree that they were built in"
    );
    let mut report = Report::default();
    if plan.wants(domain::MEASURE) {
        report.take(domain::MEASURE, domain::run())?;
    }
    if plan.wants(load::MEASURE) {
        report.take(load::MEASURE, load::run().await)?;
    }
    if plan.wants(mtls::MEASURE) {
        report.take(mtls::MEASURE, mtls::run().await)?;
    }
    if plan.wants(restart::IDLE) {
        report.take(restart::IDLE, restart::idle().await)?;
    }
    endpoint::run(plan, &mut report).await?;
    if plan.wants(provider::MEASURE) {
        report.take(provider::MEASURE, provider::run().await)?;
    }
    kube_load::run(plan, &mut report).await?;
    for cloud in plan.clouds_of(&restart::MEASURES) {
        let rows = restart::run(cloud, plan.restart_size()).await;
        let wanted = restart::MEASURES.map(|measure| {
            plan.wants_on(measure, cloud, &[CloudApi::Equinix])
                .then(|| on(measure, cloud))
        });
        let is_wanted = |row: &Row| wanted.iter().flatten().any(|name| name == row.measure());
        report.take(
            "restart",
            rows.map(|rows| rows.into_iter().filter(is_wanted).collect()),
        )?;
    }
    calls::run(plan, &mut report).await?;
    ensure!(!report.is_empty(), "there is no measure {}", plan.only.join(", "));
    Ok(report)
}

/// Says how far a measure is, on standard error: standard output is for rows.
fn progress(line: &str) {
    eprintln!("  {line}");
}

/// A count as a number to calculate with.
#[allow(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
fn number(count: impl TryInto<u64>) -> f64 {
    count.try_into().map_or(f64::INFINITY, |count: u64| count as f64)
}

/// The one in the middle; of an even number the lower one; of none 0.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values
        .get(values.len().saturating_sub(1) / 2)
        .copied()
        .unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(words: &[&str]) -> Plan {
        Plan {
            only: words.iter().map(|word| (*word).to_owned()).collect(),
            ..Plan::default()
        }
    }

    #[test]
    fn a_measure_is_named_in_full_or_by_its_first_words() {
        assert!(only(&[]).wants("services_1000"));
        assert!(
            only(&["services"]).wants("services_1000") && only(&["services_1000"]).wants("services_1000")
        );
        assert!(!only(&["services_1"]).wants("services_1000"), "a word is whole");
        assert!(!only(&["memory"]).wants("services_1000"));
    }

    #[test]
    fn a_cloud_is_named_by_itself_or_by_the_measure() {
        use CloudApi::{Cherry, Equinix};
        let usual = [Equinix];
        let plan = only(&["calls_idle"]);
        assert!(plan.wants_on("calls_idle", Equinix, &usual) && !plan.wants_on("calls_idle", Cherry, &usual));
        assert!(plan.wants_on("calls_idle", Cherry, &CloudApi::ALL));
        assert!(!only(&["calls"]).wants_on("calls_idle", Cherry, &usual));
        let named = only(&["calls_idle_cherry"]);
        assert!(
            named.wants_on("calls_idle", Cherry, &usual) && !named.wants_on("calls_idle", Equinix, &usual)
        );
        let cherry = Plan {
            cloud: Some(Cherry),
            ..plan
        };
        assert!(
            cherry.wants_on("calls_idle", Cherry, &usual) && !cherry.wants_on("calls_idle", Equinix, &usual)
        );
        assert!(!cherry.wants_on("calls_restart", Cherry, &usual));
        assert_eq!(cherry.clouds_of(&["calls_idle", "calls_restart"]), [Cherry]);
    }

    #[test]
    fn the_middle_one_is_the_median() {
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!((median(vec![4.0, 1.0]) - 1.0).abs() < f64::EPSILON);
        assert!(median(Vec::new()).abs() < f64::EPSILON);
    }
}
