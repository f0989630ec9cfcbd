//! The sections `pools` and `ipam` of the configuration file.

use std::path::PathBuf;
use std::time::Duration;

use groundplane_core::PoolSource;
use groundplane_runtime::config::{Problem, duration};
use serde::{Deserialize, Serialize};

use crate::domain::{PoolConfig, read_pools};

/// The source of pools from the configuration file.
pub const FILE: &str = "file";

/// The file of the store unless configured, in the working directory.
pub const STORE_FILE: &str = "ipam.redb";

/// Every problem of the section `pools`; paths begin with the index: `[1].addresses[0]`.
pub fn validate_pools(pools: &[PoolConfig]) -> Vec<Problem> {
    let Ok(source) = FILE.parse().map(PoolSource) else {
        return Vec::new();
    };
    let problems = read_pools(&source, pools, std::iter::empty())
        .err()
        .unwrap_or_default();
    problems
        .into_iter()
        .map(|problem| Problem::new(problem.path, problem.message, problem.help))
        .collect()
}

/// Where allocations are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    /// One file.
    #[default]
    Redb,
    /// Nowhere: gone with the process. For trials.
    Memory,
}

/// The section `ipam.store`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct StoreConfig {
    /// Where.
    pub kind: StoreKind,
    /// The file of `redb`. Its folder is made where it is missing.
    pub path: PathBuf,
}

impl Default for StoreConfig {
    /// [`STORE_FILE`] in the working directory.
    fn default() -> Self {
        Self {
            kind: StoreKind::default(),
            path: PathBuf::from(STORE_FILE),
        }
    }
}

/// The section `ipam`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct IpamConfig {
    /// Where allocations are kept.
    pub store: StoreConfig,
    /// How long a released address rests before it is given to somebody else. `0`: not at all.
    #[serde(with = "duration")]
    pub cooldown: Duration,
}

impl Default for IpamConfig {
    /// A redb file, and 5 minutes: longer than caches of addresses (ARP, DNS) usually live.
    fn default() -> Self {
        Self {
            store: StoreConfig::default(),
            cooldown: Duration::from_secs(300),
        }
    }
}

/// A cooldown beyond this is a slip of the pen, and beyond what times can hold.
const LONGEST_COOLDOWN: Duration = Duration::from_secs(365 * 24 * 3600);

impl IpamConfig {
    /// Every problem of the section; paths are relative to it.
    pub fn validate(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if self.store.kind == StoreKind::Redb && self.store.path.file_name().is_none() {
            let message = format!("`{}` is not a file name", self.store.path.display());
            problems.push(Problem::new(
                "store.path",
                message,
                "name a file on a disk that outlives the process",
            ));
        }
        if self.cooldown > LONGEST_COOLDOWN {
            problems.push(Problem::new(
                "cooldown",
                "longer than a year",
                "write a shorter one, such as `5m`",
            ));
        }
        problems
    }
}

/// What ipam is started with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// The section `pools`.
    pub pools: Vec<PoolConfig>,
    /// The section `ipam`.
    pub ipam: IpamConfig,
}

impl Config {
    /// Every problem of both sections, by their paths in the file.
    pub fn validate(&self) -> Vec<Problem> {
        let pools = validate_pools(&self.pools)
            .into_iter()
            .map(|problem| problem.under("pools"));
        let ipam = self
            .ipam
            .validate()
            .into_iter()
            .map(|problem| problem.under("ipam"));
        pools.chain(ipam).collect()
    }
}

#[cfg(test)]
mod tests;
