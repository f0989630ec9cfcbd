//! Secrets: only ever the path of a file, never a value.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use parking_lot::Mutex;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

/// Why a secret cannot be had. Says the field and the file, never what the file holds.
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
}

/// The path of a file that holds a secret. In a configuration it is just the path.
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretFile {
    path: PathBuf,
    /// What was read last, and the file's state then.
    #[serde(skip)]
    last: Mutex<Option<(Stamp, SecretString)>>,
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
        Self {
            path: path.into(),
            last: Mutex::new(None),
        }
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The secret, without the newline at its end; read again if the file has changed. `field` names the setting in
    /// errors. Blocks for as long as reading a small file does.
    pub fn read(&self, field: &str) -> Result<SecretString, SecretError> {
        let failed = |source| SecretError::Read {
            field: field.to_owned(),
            path: self.path.clone(),
            source,
        };
        let meta = std::fs::metadata(&self.path).map_err(failed)?;
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
        let content = std::fs::read_to_string(&self.path).map_err(failed)?;
        let secret = content.trim_end_matches(['\r', '\n']);
        if secret.trim().is_empty() {
            return Err(SecretError::Empty {
                field: field.to_owned(),
                path: self.path.clone(),
            });
        }
        let secret = SecretString::from(secret);
        *last = Some((stamp, secret.clone()));
        Ok(secret)
    }
}

impl Clone for SecretFile {
    fn clone(&self) -> Self {
        Self {
            path: self.path.clone(),
            last: Mutex::new(self.last.lock().clone()),
        }
    }
}

impl PartialEq for SecretFile {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl Eq for SecretFile {}

impl fmt::Display for SecretFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.path.display(), f)
    }
}
