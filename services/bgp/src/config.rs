//! The section `bgp` of the configuration file.

use std::time::Duration;

use groundplane_core::Family;
use groundplane_runtime::config::{HumanDuration, Problem};
use serde::{Deserialize, Serialize};

/// How the service runs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Config {
    /// How often the cloud is asked for the sessions of the project, and for the peers of each machine.
    pub refresh: HumanDuration,
    /// In which families machines speak BGP that have an address there, where the cloud makes their sessions. Peers of a table are as they
    /// are written.
    pub families: Vec<Family>,
}

impl Default for Config {
    /// 6 hours: of 5,000 machines, 14 are asked for a minute. IPv4 alone: as the clouds' own controllers had it, and kube-vip takes the
    /// source address of the first peer for all of them.
    fn default() -> Self {
        Self {
            refresh: HumanDuration(Duration::from_secs(6 * 3600)),
            families: vec![Family::V4],
        }
    }
}

/// A neighbour that changes is found out this soon at best: a project of a few machines can be asked so often.
const SHORTEST: Duration = Duration::from_secs(10);

impl Config {
    /// Everything that is wrong with it, by path within the section.
    pub fn validate(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if self.refresh.0 < SHORTEST {
            let help = "write at least `10s`; in each interval the cloud is called once for every machine";
            problems.push(Problem::new("refresh", "is shorter than ten seconds", help));
        }
        if self.families.is_empty() {
            let help = "write `[IPv4]`, `[IPv6]` or `[IPv4, IPv6]`; BGP as a whole is switched off in the section of the driver";
            problems.push(Problem::new("families", "is empty", help));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refresh_that_would_flood_the_cloud_is_refused() {
        assert_eq!(Config::default().validate(), []);
        let every = |seconds| Config {
            refresh: HumanDuration(Duration::from_secs(seconds)),
            ..Config::default()
        };
        assert_eq!(every(9).validate()[0].path, "refresh");
        assert_eq!(every(10).validate(), []);
    }

    #[test]
    fn no_family_at_all_is_refused() {
        let none = Config {
            families: Vec::new(),
            ..Config::default()
        };
        assert_eq!(none.validate()[0].path, "families");
    }
}
