//! Secrets: only ever where one is, never what it is.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use parking_lot::Mutex;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::json::{JsonError, JsonObject};

/// Why a secret cannot be had. Says the field and the source, never what the source holds.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file cannot be read.
    #[error("{field}: cannot read the secret file `{}`", .path.display())]
    Read {
        /// Which setting names it.
        field: String,
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file holds nothing.
    #[error("{field}: the secret file `{}` is empty", .path.display())]
    Empty {
        /// Which setting names it.
        field: String,
        /// The file.
        path: PathBuf,
    },
    /// The file is no JSON object.
    #[error("{field}: the secret file `{}` {problem}", .path.display())]
    Json {
        /// Which setting names it.
        field: String,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: JsonError,
    },
    /// The JSON file has no such key, or no text there.
    #[error("{field}: the secret file `{}` has no text at its key `{key}`", .path.display())]
    NoKey {
        /// Which setting names it.
        field: String,
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
    },
    /// The environment variable says nothing.
    #[error("{field}: the environment variable `{name}` is not set, or empty, or no text")]
    Unset {
        /// Which setting names it.
        field: String,
        /// The variable.
        name: String,
    },
}

/// Where a secret is. In a configuration it is the path of a file that holds it; or `json:PATH#KEY`, a key of a JSON file; or
/// `env:NAME`, an environment variable.
#[derive(Debug, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct SecretFile {
    source: Source,
    /// What was read last, and the file's state then.
    last: Mutex<Option<(Stamp, SecretString)>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    File(PathBuf),
    Key { path: PathBuf, key: String },
    Environment(String),
}

/// Changes when the file does. Kubernetes swaps a mounted secret by a link, which gives it another modification time.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    length: u64,
}

impl SecretFile {
    /// The secret in the file at `path`. Reads nothing yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Source::File(path.into()).into()
    }

    /// The text at a key of the JSON object in the file at `path`, as [`JsonObject::get`] finds it.
    pub fn json(path: impl Into<PathBuf>, key: &str) -> Self {
        let (path, key) = (path.into(), key.to_owned());
        Source::Key { path, key }.into()
    }

    /// The value of an environment variable.
    pub fn environment(name: &str) -> Self {
        Source::Environment(name.to_owned()).into()
    }

    /// The secret, without the newline at its end; read again if the file has changed. `field` names the setting in
    /// errors. Blocks for as long as reading a small file does.
    pub fn read(&self, field: &str) -> Result<SecretString, SecretError> {
        match &self.source {
            Source::File(path) => self.read_file(field, path, None),
            Source::Key { path, key } => self.read_file(field, path, Some(key)),
            Source::Environment(name) => {
                let value = std::env::var(name).unwrap_or_default();
                whole(&value).ok_or_else(|| SecretError::Unset {
                    field: field.to_owned(),
                    name: name.clone(),
                })
            }
        }
    }

    fn read_file(&self, field: &str, path: &Path, key: Option<&String>) -> Result<SecretString, SecretError> {
        let failed = |source| SecretError::Read {
            field: field.to_owned(),
            path: path.to_owned(),
            source,
        };
        let meta = std::fs::metadata(path).map_err(failed)?;
        let stamp = Stamp {
            modified: meta.modified().ok(),
            length: meta.len(),
        };
        let mut last = self.last.lock();
        if let Some((seen, secret)) = &*last
            && *seen == stamp
        {
            return Ok(secret.clone());
        }
        let content = std::fs::read_to_string(path).map_err(failed)?;
        let secret = match key {
            Some(key) => at_key(field, path, &content, key)?,
            None => whole(&content).ok_or_else(|| SecretError::Empty {
                field: field.to_owned(),
                path: path.to_owned(),
            })?,
        };
        *last = Some((stamp, secret.clone()));
        Ok(secret)
    }
}

/// A text without the newline at its end; `None`: nothing is left.
fn whole(text: &str) -> Option<SecretString> {
    let secret = text.trim_end_matches(['\r', '\n']);
    (!secret.trim().is_empty()).then(|| SecretString::from(secret))
}

fn at_key(field: &str, path: &Path, content: &str, key: &str) -> Result<SecretString, SecretError> {
    let object = JsonObject::parse(content).map_err(|problem| SecretError::Json {
        field: field.to_owned(),
        path: path.to_owned(),
        problem,
    })?;
    let text = object.get(key).and_then(|(_, value)| value.as_str());
    text.and_then(whole).ok_or_else(|| SecretError::NoKey {
        field: field.to_owned(),
        path: path.to_owned(),
        key: key.to_owned(),
    })
}

impl From<Source> for SecretFile {
    fn from(source: Source) -> Self {
        Self {
            source,
            last: Mutex::new(None),
        }
    }
}

impl From<String> for SecretFile {
    fn from(text: String) -> Self {
        let is_name = |name: &str| {
            let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            !name.is_empty() && name.bytes().all(word)
        };
        if let Some(name) = text.strip_prefix("env:").filter(|name| is_name(name)) {
            return Self::environment(name);
        }
        if let Some((path, key)) = text.strip_prefix("json:").and_then(|rest| rest.rsplit_once('#')) {
            return Self::json(path, key);
        }
        Self::new(text)
    }
}

impl From<SecretFile> for String {
    fn from(file: SecretFile) -> Self {
        file.to_string()
    }
}

impl Clone for SecretFile {
    fn clone(&self) -> Self {
        Self {
            source: self.source.clone(),
            last: Mutex::new(self.last.lock().clone()),
        }
    }
}

impl PartialEq for SecretFile {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Eq for SecretFile {}

/// As the configuration writes it.
impl fmt::Display for SecretFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::File(path) => path.display().fmt(f),
            Source::Key { path, key } => write!(f, "json:{}#{key}", path.display()),
            Source::Environment(name) => write!(f, "env:{name}"),
        }
    }
}
