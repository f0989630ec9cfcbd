//! The wall clock of real processes, which a test sets while they run. Each is started with a small library that comes before the C
//! library's own clock.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use sha2::{Digest as _, Sha256};
use tokio::process::Command;
use tokio::sync::OnceCell;

use crate::scratch::{Scratch, build_folder};

const SOURCE: &str = include_str!("shifted.c");

/// A wall clock for processes.
#[derive(Debug)]
pub struct ShiftedClock {
    library: PathBuf,
    file: PathBuf,
    _folder: Scratch,
}

/// The library, built once.
async fn library() -> Result<PathBuf> {
    static BUILT: OnceCell<PathBuf> = OnceCell::const_new();
    BUILT.get_or_try_init(build).await.cloned()
}

async fn build() -> Result<PathBuf> {
    let digest = hex::encode(Sha256::digest(SOURCE));
    let built = build_folder().join(format!("shifted-clock-{}.so", &digest[..12]));
    if built.exists() {
        return Ok(built);
    }
    let folder = Scratch::new("shifted-clock")?;
    let (source, library) = (folder.write("shifted.c", SOURCE)?, folder.join("shifted.so"));
    let output = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([&library, &source])
        .arg("-ldl")
        .stdin(Stdio::null())
        .output()
        .await
        .context("start cc, the C compiler")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cc: {said}");
    // Whoever else builds it now puts the same there.
    std::fs::rename(&library, &built).with_context(|| format!("put {} in its place", built.display()))?;
    Ok(built)
}

impl ShiftedClock {
    /// One that goes right until it is set.
    ///
    /// # Errors
    /// When there is no C compiler.
    pub async fn make() -> Result<Self> {
        let library = library().await?;
        let folder = Scratch::new("clock")?;
        let file = folder.write("seconds", 0_i64.to_ne_bytes())?;
        Ok(Self {
            library,
            file,
            _folder: folder,
        })
    }

    /// What processes are started with, so that this is their clock.
    #[must_use]
    pub fn environment(&self) -> [(String, String); 2] {
        [("LD_PRELOAD", &self.library), ("CHAOS_CLOCK", &self.file)]
            .map(|(name, path)| (name.to_owned(), path.display().to_string()))
    }

    /// From now on it is so many seconds off.
    ///
    /// # Errors
    /// When its file cannot be written.
    pub fn set(&self, seconds: i64) -> Result<()> {
        let file = OpenOptions::new().write(true).open(&self.file)?;
        file.write_all_at(&seconds.to_ne_bytes(), 0)
            .context("set the clock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_process_reads_the_clock_that_it_is_given() {
        let clock = ShiftedClock::make().await.unwrap();
        let told = async || {
            let date = Command::new("date").arg("+%s").envs(clock.environment()).output();
            let text = String::from_utf8(date.await.unwrap().stdout).unwrap();
            text.trim().parse::<i64>().unwrap()
        };
        let before = told().await;
        clock.set(-86_400).unwrap();
        assert!(told().await < before);
        clock.set(86_400).unwrap();
        assert!(told().await >= before + 86_400);
    }
}
