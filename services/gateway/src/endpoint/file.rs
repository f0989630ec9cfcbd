//! What was known last, in a file: an agent that starts during the outage knows whom to ask.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tracing::warn;

use super::candidate::Candidate;

/// Version of the format. Another one is not read.
const VERSION: u32 = 1;

/// What the file holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Remembered {
    version: u32,
    pub(super) endpoint: IpAddr,
    pub(super) candidates: Vec<Candidate>,
}

impl Remembered {
    pub(super) fn new(endpoint: IpAddr, candidates: Vec<Candidate>) -> Self {
        Self {
            version: VERSION,
            endpoint,
            candidates,
        }
    }

    /// Reads the file; `None`, with a word in the log, where it cannot be used.
    pub(super) fn load(path: &Path) -> Option<Self> {
        let shown = path.display();
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                warn!(path = %shown, %error, "candidates file cannot be read; going on without it");
                return None;
            }
        };
        match serde_json::from_slice::<Self>(&bytes) {
            Ok(remembered) if remembered.version == VERSION => Some(remembered),
            Ok(remembered) => {
                warn!(path = %shown, version = remembered.version, "candidates file is of another version; going on without it");
                None
            }
            Err(error) => {
                warn!(path = %shown, %error, "candidates file is damaged; going on without it");
                None
            }
        }
    }

    /// Writes the file: whoever reads it, after a crash too, finds the old one or the new one whole.
    pub(super) fn store(&self, path: &Path) -> io::Result<()> {
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        let mut file = File::create(&beside)?;
        file.write_all(&serde_json::to_vec_pretty(self)?)?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            Some(folder) => File::open(folder)?.sync_all(),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stored_is_loaded_and_what_is_damaged_is_not() {
        let folder = std::env::temp_dir().join(format!("groundplane-candidates-{}", uuid::Uuid::new_v4()));
        fs::create_dir(&folder).unwrap();
        let path = folder.join("candidates.json");
        assert_eq!(Remembered::load(&path), None);
        let candidate = Candidate {
            node: "a".to_owned(),
            provider_id: "cloud://a".to_owned(),
            address: "[2001:db8::1]:6443".parse().unwrap(),
            cordoned: true,
            deleting: false,
        };
        let remembered = Remembered::new("192.0.2.1".parse().unwrap(), vec![candidate]);
        remembered.store(&path).unwrap();
        assert_eq!(Remembered::load(&path), Some(remembered.clone()));
        let text = fs::read_to_string(&path).unwrap();
        for damaged in [
            &text[..text.len() / 2],
            "",
            "{}",
            &text.replace("\"version\": 1", "\"version\": 2"),
        ] {
            fs::write(&path, damaged).unwrap();
            assert_eq!(Remembered::load(&path), None, "{damaged}");
        }
        remembered.store(&path).unwrap();
        assert_eq!(Remembered::load(&path), Some(remembered));
        fs::remove_dir_all(folder).unwrap();
    }
}
