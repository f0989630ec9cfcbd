//! Certificates in a folder: one folder a service, readable by its owner alone.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::Files;

/// Only the owner reads a key.
const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;

/// Ends the name of a file that is not whole yet.
const PART: &str = ".part";

pub(super) struct Folder {
    root: PathBuf,
}

impl Folder {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// The files of a service, or of the authority; none, if there is no such folder.
    pub(super) fn read(&self, name: &str) -> anyhow::Result<Files> {
        let folder = self.root.join(name);
        let mut files = Files::new();
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(files),
            Err(error) => return Err(error).with_context(|| format!("read {}", folder.display())),
        };
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(PART) || !entry.file_type()?.is_file() {
                continue;
            }
            let bytes = fs::read(entry.path()).with_context(|| format!("read {}", entry.path().display()))?;
            files.insert(name, bytes);
        }
        Ok(files)
    }

    /// Replaces the files one by one, each at once. Whoever reads in between finds a pair that does not match, keeps what
    /// it has and reads again. Whom to trust goes first.
    pub(super) fn write(&self, name: &str, files: &Files) -> anyhow::Result<()> {
        let folder = self.root.join(name);
        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(FOLDER_MODE)
            .create(&folder);
        made.with_context(|| format!("create {}", folder.display()))?;
        let before = self.read(name)?;
        for (name, bytes) in files
            .iter()
            .filter(|(name, bytes)| before.get(*name) != Some(bytes))
        {
            replace(&folder.join(name), bytes)
                .with_context(|| format!("write {}", folder.join(name).display()))?;
        }
        for name in before.keys().filter(|name| !files.contains_key(*name)) {
            fs::remove_file(folder.join(name))
                .with_context(|| format!("remove {}", folder.join(name).display()))?;
        }
        fs::File::open(&folder)?.sync_all()?;
        Ok(())
    }
}

fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut part = path.as_os_str().to_owned();
    part.push(PART);
    let part = PathBuf::from(part);
    // One that was left behind may be readable by others.
    match fs::remove_file(&part) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(FILE_MODE)
        .open(&part)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&part, path)
}
