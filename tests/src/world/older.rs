//! A project of the sandbox cloud, told to groundplane in the ways of the controllers before it.

use anyhow::Result;
use serde_json::{Value, json};

use super::cloud::{CloudApi, CloudCorner};
use crate::scratch::Scratch;

/// How processes are told a project.
#[derive(Debug, Default)]
pub(super) struct Older {
    /// By variables: token and project.
    pub(super) variables: bool,
    /// By a JSON file with these entries, besides token, project and where the API is, which they may say otherwise.
    pub(super) json: Option<Value>,
}

impl Older {
    /// Writes the JSON file; the variables.
    pub(super) fn tell(
        &self,
        api: CloudApi,
        cloud: &CloudCorner,
        state: &Scratch,
    ) -> Result<Vec<(String, String)>> {
        let project = &cloud.project;
        let (head, id, number) = match api {
            CloudApi::Equinix => ("METAL", project.id().to_string(), json!(project.id().to_string())),
            CloudApi::Cherry => ("CHERRY", project.number().to_string(), json!(project.number())),
        };
        let mut variables = Vec::new();
        if self.variables {
            variables.push((format!("{head}_API_KEY"), project.token().to_owned()));
            variables.push((format!("{head}_PROJECT_ID"), id));
        }
        if let Some(entries) = &self.json {
            let mut file =
                json!({"apiKey": project.token(), "projectID": number, "base-url": url(api, cloud)});
            for (key, value) in entries.as_object().into_iter().flatten() {
                file[key] = value.clone();
            }
            let path = state.write("cloud-sa.json", file.to_string())?;
            variables.push(("GROUNDPLANE_CLOUD_CONFIG".to_owned(), path.display().to_string()));
        }
        Ok(variables)
    }

    /// What only the configuration file can say beside it: there is no variable for where the API is.
    pub(super) fn config(&self, api: CloudApi, cloud: &CloudCorner) -> String {
        let section = match api {
            CloudApi::Equinix => "equinix",
            CloudApi::Cherry => "cherry",
        };
        match &self.json {
            Some(_) => String::new(),
            None => format!("{section}: {{baseUrl: {:?}}}\n", url(api, cloud)),
        }
    }
}

fn url(api: CloudApi, cloud: &CloudCorner) -> &str {
    match api {
        CloudApi::Equinix => cloud.project.base_url(),
        CloudApi::Cherry => cloud.project.cherry_url(),
    }
}
