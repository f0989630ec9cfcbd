//! What is wrong with the section, all at once.

mod annotations;

pub(super) use annotations::is_key;

use std::time::Duration;

use groundplane_core::names;
use groundplane_runtime::config::Problem;

use super::{Config, Lease, Lifecycle};
use crate::selector::Selector;

/// No period and no patience is shorter: less is a unit forgotten.
const SHORTEST: Duration = Duration::from_millis(100);

impl Config {
    /// What is wrong with it, all at once.
    pub fn validate(&self) -> Vec<Problem> {
        let mut problems = self.services();
        problems.extend(annotations::problems(self));
        problems.extend(self.nodes());
        problems.extend(self.pace());
        let metallb = self.metallb.validate();
        problems.extend(metallb.into_iter().map(|problem| problem.under("metallb")));
        let empty = self.empty.validate();
        problems.extend(empty.into_iter().map(|problem| problem.under("empty")));
        let lifecycle = self.lifecycle.validate(self.node_monitor_period.0);
        problems.extend(lifecycle.into_iter().map(|problem| problem.under("lifecycle")));
        let reclaim = self.reclaim.validate();
        problems.extend(reclaim.into_iter().map(|problem| problem.under("reclaim")));
        let lease = self.lease.validate();
        problems.extend(lease.into_iter().map(|problem| problem.under("lease")));
        problems
    }

    /// Which Services are ours, and what is written to them.
    fn services(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if !annotations::is_prefix(self.annotation_prefix()) {
            let help = format!(
                "write a DNS name without a slash, such as `{}`",
                names::ANNOTATION_PREFIX
            );
            problems.push(Problem::new("annotationPrefix", "is no prefix", help));
        }
        if !self.load_balancer_class.contains('/') {
            let help = format!("write `prefix/name`, such as `{}`", names::LOAD_BALANCER_CLASS);
            problems.push(Problem::new("loadBalancerClass", "is no class", help));
        }
        if self.namespaces.iter().any(String::is_empty) {
            problems.push(Problem::new(
                "namespaces",
                "has an empty name",
                "remove it; an empty list stands for all namespaces",
            ));
        }
        problems
    }

    /// Which nodes are looked at. One selector is the API server's to evaluate and one is ours, but both are written alike, and the
    /// API server would refuse a wrong one with each list, for as long as the process runs.
    fn nodes(&self) -> Vec<Problem> {
        [
            ("nodeSelector", &self.node_selector),
            ("bgpNodeSelector", &self.bgp_node_selector),
        ]
        .into_iter()
        .filter_map(|(path, text)| {
            let error = Selector::parse(text).err()?;
            let help =
                "write `key=value`, `key!=value`, `key in (a, b)`, `key notin (a, b)`, `key` or `!key`, comma separated";
            Some(Problem::new(path, error.to_string(), help))
        })
        .collect()
    }

    /// How much at a time, and how often.
    fn pace(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if self.concurrency == 0 {
            problems.push(Problem::new(
                "concurrency",
                "must not be 0",
                "write the number of objects to work on at a time, such as 64",
            ));
        }
        let periods = [
            ("resync", self.resync),
            ("cloudResync", self.cloud_resync),
            ("nodeMonitorPeriod", self.node_monitor_period),
            ("writeTimeout", self.write_timeout),
        ];
        let short = periods.into_iter().filter(|(_, period)| period.0 < SHORTEST);
        problems.extend(short.map(|(path, _)| Problem::new(path, "is too short", "write 100ms or more")));
        problems
    }
}

impl Lifecycle {
    /// `period`: how often nodes are looked at.
    fn validate(self, period: Duration) -> Vec<Problem> {
        let mut problems = Vec::new();
        if !(self.max_delete_fraction > 0.0 && self.max_delete_fraction <= 1.0) {
            problems.push(Problem::new(
                "maxDeleteFraction",
                "is no share",
                "write a number above 0 and up to 1",
            ));
        }
        if self.delete_window.0 < period {
            problems.push(Problem::new(
                "deleteWindow",
                "is shorter than `nodeMonitorPeriod`, so that it counts nothing",
                "write `10m`",
            ));
        }
        problems
    }
}

impl Lease {
    fn validate(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if self.name.is_empty() {
            let help = format!("leave it out for `{}`", names::LEASE);
            problems.push(Problem::new("name", "must not be empty", help));
        }
        let (duration, retry) = (self.duration.0, self.retry.0);
        if duration < Duration::from_secs(5) || duration.subsec_nanos() != 0 {
            problems.push(Problem::new(
                "duration",
                "must be whole seconds, five or more",
                "write `15s`",
            ));
        }
        if retry < SHORTEST || retry > duration / 2 {
            problems.push(Problem::new(
                "retry",
                "must be from 100ms to half of `lease.duration`",
                "write `2s`",
            ));
        }
        problems
    }
}
