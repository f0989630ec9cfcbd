//! Section `cherry`.

use std::time::Duration;

use groundplane_runtime::config::{Problem, SecretFile, duration};
use serde::{Deserialize, Deserializer, Serialize};

use super::check::check_api;

/// Section `cherry`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct CherryConfig {
    /// Where the API is.
    pub base_url: String,
    /// Holds the API token. Read again when it changes.
    pub api_token_file: Option<SecretFile>,
    /// The project's number; as a text it is the same.
    #[serde(deserialize_with = "number_or_text")]
    pub project_id: String,
    /// Slug of the region in which floating IPs are ordered.
    pub region: String,
    /// Objects a page, 1 to 1000. An API that gives fewer is read by as many as it gives.
    pub page_size: u32,
    /// Bound of a call, its repetitions and its answer's body included.
    #[serde(with = "duration")]
    pub request_timeout: Duration,
    /// Calls at once.
    pub max_concurrency: usize,
    /// BGP.
    pub bgp: CherryBgp,
}

impl Default for CherryConfig {
    fn default() -> Self {
        Self {
            base_url: "https://api.cherryservers.com/v1".to_owned(),
            api_token_file: None,
            project_id: String::new(),
            region: String::new(),
            page_size: 100,
            request_timeout: Duration::from_secs(10),
            max_concurrency: 16,
            bgp: CherryBgp::default(),
        }
    }
}

/// BGP of the project. Its AS number is the cloud's to give.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct CherryBgp {
    /// Do machines speak BGP?
    pub enabled: bool,
}

impl CherryConfig {
    /// What is wrong; paths from this section.
    pub fn validate(&self) -> Vec<Problem> {
        let example = "write it as `https://api.cherryservers.com/v1`";
        let mut problems = check_api(&self.base_url, example, self.api_token_file.as_ref());
        let number: Option<u64> = self.project_id.parse().ok();
        if self.project_id.is_empty() {
            problems.push(Problem::new(
                "projectId",
                "missing",
                "write the number of the project",
            ));
        } else if number.is_none_or(|number| number == 0) {
            let message = format!("`{}` is not a project id", self.project_id);
            problems.push(Problem::new(
                "projectId",
                message,
                "write the number of the project",
            ));
        }
        problems.extend(super::check::check_calls(
            self.page_size,
            self.request_timeout,
            self.max_concurrency,
        ));
        problems
    }
}

/// People write the number as one, and their tools as a text.
fn number_or_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "the number of a project")]
    enum Written {
        Number(u64),
        Text(String),
    }
    Ok(match Written::deserialize(deserializer)? {
        Written::Number(number) => number.to_string(),
        Written::Text(text) => text,
    })
}
