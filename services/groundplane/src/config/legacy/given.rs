//! What there is to read: variables of the environment, and the JSON file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use groundplane_runtime::config::{JsonObject, Place, PlacedProblem, Problem};
use serde_json::Value;

use super::generation::Older;
use super::parse::Given;
use super::table::{CHERRY, DEBUG, METAL, PACKET, TABLE};

/// Where the JSON file is in a pod of the older controllers.
const USUAL: &str = "/etc/cloud-sa/cloud-sa.json";

/// Where inputs of the older controllers may be found. `Debug` shows names alone: values may be secrets.
pub(crate) struct Sources {
    environment: BTreeMap<String, String>,
    file: Option<PathBuf>,
    of: Option<Older>,
}

impl Sources {
    /// Those of this process. `file`: the JSON file that it was told; unless told, the usual one if it is there. `of`: whose they are, if
    /// it was told.
    pub(crate) fn of_process(file: Option<&Path>, of: Option<Older>) -> Self {
        let ours =
            |name: &str| name == DEBUG || [METAL, PACKET, CHERRY].iter().any(|head| name.starts_with(head));
        let environment = std::env::vars_os()
            .map(|(name, value)| {
                (
                    name.to_string_lossy().into_owned(),
                    value.to_string_lossy().into_owned(),
                )
            })
            .filter(|(name, _)| ours(name))
            .collect();
        let usual = || Some(PathBuf::from(USUAL)).filter(|path| path.exists());
        Self {
            environment,
            file: file.map(Path::to_owned).or_else(usual),
            of,
        }
    }

    /// The JSON file.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    #[cfg(test)]
    pub(crate) fn new(environment: &[(&str, &str)], file: Option<PathBuf>) -> Self {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Self {
            environment: environment.iter().map(own).collect(),
            file,
            of: None,
        }
    }

    #[cfg(test)]
    pub(crate) fn called(self, of: Older) -> Self {
        Self { of: Some(of), ..self }
    }

    /// Whose they are, if we were told.
    pub(super) fn of(&self) -> Option<Older> {
        self.of
    }

    /// Names of settings that stand in the environment and say something.
    pub(super) fn names(&self) -> Vec<&'static str> {
        let known = TABLE.iter().flat_map(|row| row.environment).copied();
        known.filter(|name| self.variable(name).is_some()).collect()
    }

    fn variable(&self, name: &str) -> Option<&str> {
        let value = self.environment.get(name)?;
        (name == DEBUG || Given::Text(value).says()).then_some(value)
    }

    /// Reads the file.
    pub(super) fn read(&self) -> Result<Inputs<'_>, PlacedProblem> {
        let file = match &self.file {
            Some(path) => Some((Arc::from(path.display().to_string()), object(path)?)),
            None => None,
        };
        Ok(Inputs { sources: self, file })
    }
}

impl std::fmt::Debug for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sources")
            .field("environment", &self.environment.keys())
            .field("file", &self.file)
            .field("of", &self.of)
            .finish()
    }
}

fn object(path: &Path) -> Result<JsonObject, PlacedProblem> {
    let wrong = |message: String, help: &str| PlacedProblem {
        place: Some(Place::Json {
            file: path.display().to_string().into(),
            key: "".into(),
        }),
        problem: Problem::new("", message, help),
    };
    let text = std::fs::read_to_string(path).map_err(|error| {
        wrong(
            format!("cannot be read: {error}"),
            "check the path (--cloud-config) and its permissions",
        )
    })?;
    JsonObject::parse(&text).map_err(|error| {
        let help = r#"write one JSON object, such as {"apiKey": "…", "projectID": "…"}"#;
        wrong(error.to_string(), help)
    })
}

/// What was read.
pub(super) struct Inputs<'a> {
    sources: &'a Sources,
    file: Option<(Arc<str>, JsonObject)>,
}

impl Inputs<'_> {
    /// Whose they are, if we were told.
    pub(super) fn of(&self) -> Option<Older> {
        self.sources.of
    }

    /// The value of a variable; `None`: it says nothing.
    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        self.sources.variable(name)
    }

    /// What stands at a key, and the key as it is spelt; `None`: it says nothing.
    pub(super) fn key(&self, key: &str) -> Option<(&str, &Value)> {
        let (_, object) = self.file.as_ref()?;
        object.get(key).filter(|(_, value)| Given::Json(value).says())
    }

    /// Does a variable with this beginning say something that we know?
    pub(super) fn has(&self, prefix: &str) -> bool {
        self.first(prefix).is_some()
    }

    /// The first of them, by the table.
    pub(super) fn first(&self, prefix: &str) -> Option<&'static str> {
        self.sources
            .names()
            .into_iter()
            .find(|name| name.starts_with(prefix))
    }

    /// The file and its keys.
    pub(super) fn file(&self) -> Option<(&Arc<str>, impl Iterator<Item = &str>)> {
        self.file.as_ref().map(|(name, object)| (name, object.keys()))
    }

    /// The place of a key.
    pub(super) fn place(&self, key: &str) -> Place {
        match &self.file {
            Some((file, _)) => Place::Json {
                file: Arc::clone(file),
                key: key.into(),
            },
            None => Place::Unwritten,
        }
    }

    /// Variables with this beginning that nobody knows.
    pub(super) fn strangers(&self, prefix: &'static str) -> impl Iterator<Item = &str> {
        let known = |name: &str| TABLE.iter().any(|row| row.environment.contains(&name));
        let names = self.sources.environment.keys().map(String::as_str);
        names.filter(move |name| name.starts_with(prefix) && !known(name))
    }
}
