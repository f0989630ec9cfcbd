//! Folders for what a test keeps on disk: data, keys, logs.
//!
//! They lie in the build folder, which is on a real file system, so that an fsync there means what it says. A folder goes
//! when its [`Scratch`] is dropped, or else when this process ends, however it ends. With `GROUNDPLANE_KEEP` in the
//! environment all of them stay.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::processes::reaper;

/// The environment variable that keeps folders, and with them the logs, after the end of a test.
pub const KEEP: &str = "GROUNDPLANE_KEEP";

/// A folder of our own, removed at the end.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    keep: bool,
}

impl Scratch {
    /// A new, empty folder whose name begins with `name`.
    ///
    /// # Errors
    /// The file system's.
    pub fn new(name: &str) -> Result<Self> {
        let parent = build_folder().join("run");
        std::fs::create_dir_all(&parent).with_context(|| format!("create {}", parent.display()))?;
        let path = tempfile::Builder::new()
            .prefix(&format!("{name}-"))
            .tempdir_in(&parent)
            .with_context(|| format!("create a folder in {}", parent.display()))?
            .keep();
        let keep = std::env::var_os(KEEP).is_some();
        if !keep {
            reaper()?.remove_at_end(&path)?;
        }
        Ok(Self { path, keep })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of the file or folder `name` inside it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file into it and says where that is.
    ///
    /// # Errors
    /// The file system's.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> Result<PathBuf> {
        let path = self.join(name);
        std::fs::write(&path, content).with_context(|| format!("write {}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.keep && std::fs::remove_dir_all(&self.path).is_err() {
            // Something still writes there. The reaper removes it when this process ends.
        }
    }
}

/// The folder in which tools are built and tests run: `GROUNDPLANE_BUILD_DIR`, else `.build` at the root of the workspace.
pub fn build_folder() -> PathBuf {
    std::env::var_os("GROUNDPLANE_BUILD_DIR").map_or_else(
        || workspace_root().join(".build"),
        |folder| std::path::absolute(&folder).unwrap_or_else(|_| folder.into()),
    )
}

/// The root of the workspace.
pub fn workspace_root() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_folders_of_one_name_are_apart_and_go_when_dropped() -> Result<()> {
        let (one, other) = (Scratch::new("same")?, Scratch::new("same")?);
        assert_ne!(one.path(), other.path());
        let file = one.write("file", "text")?;
        assert_eq!(std::fs::read_to_string(&file)?, "text");
        let keep = one.keep;
        drop(one);
        assert_eq!(file.exists(), keep);
        assert!(other.path().is_dir());
        Ok(())
    }
}
