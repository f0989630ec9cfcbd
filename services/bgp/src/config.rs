//! The section `bgp` of the configuration file.

use std::time::Duration;

use groundplane_runtime::config::{HumanDuration, Problem};
use serde::{Deserialize, Serialize};

/// How the service runs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Config {
    /// How often the cloud is asked for the sessions of the project, and for the peers of each machine.
    pub refresh: HumanDuration,
}

impl Default for Config {
    /// 6 hours: of 5,000 machines, 14 are asked for a minute.
    fn default() -> Self {
        Self {
            refresh: HumanDuration(Duration::from_secs(6 * 3600)),
        }
    }
}

impl Config {
    /// Everything that is wrong with it, by path within the section.
    pub fn validate(&self) -> Vec<Problem> {
        if self.refresh.0 < Duration::from_secs(60) {
            let help = "write at least `1m`; in each interval the cloud is called once for every machine";
            return vec![Problem::new("refresh", "is shorter than a minute", help)];
        }
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refresh_that_would_flood_the_cloud_is_refused() {
        assert_eq!(Config::default().validate(), []);
        let hasty = Config {
            refresh: HumanDuration(Duration::from_secs(1)),
        };
        assert_eq!(hasty.validate()[0].path, "refresh");
    }
}
