//! How a service keeps its inventory: the whole section `eip`, and the whole section `instances`, of the configuration file.

use std::time::Duration;

use groundplane_runtime::config::{HumanDuration, Problem};
use serde::{Deserialize, Serialize};

/// How a service keeps what it lists.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct InventoryConfig {
    /// How old the list may be where a request does not ask for a fresh one, and nothing is about to be made or deleted.
    pub max_age: HumanDuration,
}

impl Default for InventoryConfig {
    /// 5 minutes: the time in which drift in the cloud is repaired.
    fn default() -> Self {
        Self {
            max_age: HumanDuration(Duration::from_secs(300)),
        }
    }
}

impl InventoryConfig {
    /// Everything that is wrong with it, by path within the section.
    pub fn validate(&self) -> Vec<Problem> {
        if self.max_age.0 < Duration::from_secs(1) {
            let help = "write at least `1s`; each read costs a complete list from the cloud";
            return vec![Problem::new("maxAge", "is shorter than a second", help)];
        }
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_max_age_that_would_flood_the_cloud_is_refused() {
        assert_eq!(InventoryConfig::default().validate(), []);
        let hasty = InventoryConfig {
            max_age: HumanDuration(Duration::from_millis(10)),
        };
        assert_eq!(hasty.validate()[0].path, "maxAge");
    }
}
