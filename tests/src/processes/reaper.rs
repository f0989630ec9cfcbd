//! Ends what we leave behind.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context as _, Result, anyhow};
use parking_lot::Mutex;

/// A shell outside our process group (so that an interrupt from the terminal spares it) that waits for us to end.
#[derive(Debug)]
pub struct Reaper {
    /// Held for as long as this process lives; never inherited, since Rust opens pipes close-on-exec.
    orders: Mutex<std::process::ChildStdin>,
}

/// The reaper of this process, started when first asked for.
pub(crate) fn reaper() -> Result<&'static Reaper> {
    static REAPER: OnceLock<Result<Reaper, String>> = OnceLock::new();
    REAPER
        .get_or_init(|| Reaper::start().map_err(|error| format!("{error:#}")))
        .as_ref()
        .map_err(|error| anyhow!("{error}"))
}

impl Reaper {
    fn start() -> Result<Self> {
        let mut shell = Command::new("/bin/sh")
            .args(["-c", include_str!("reaper.sh"), "groundplane-reaper"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("start the reaper, /bin/sh")?;
        let orders = shell.stdin.take().context("the reaper has no input")?;
        Ok(Self {
            orders: Mutex::new(orders),
        })
    }

    fn order(&self, line: &str) -> Result<()> {
        self.orders
            .lock()
            .write_all(line.as_bytes())
            .context("the reaper has gone")
    }

    /// Kill this process group at the end.
    pub(super) fn guard(&self, group: rustix::process::Pid) -> Result<()> {
        self.order(&format!("guard {}\n", group.as_raw_nonzero()))
    }

    /// This process group has ended, and its number may be given to somebody else.
    pub(super) fn release(&self, group: rustix::process::Pid) -> Result<()> {
        self.order(&format!("release {}\n", group.as_raw_nonzero()))
    }

    /// Remove this folder at the end, after the processes.
    pub(crate) fn remove_at_end(&self, folder: &Path) -> Result<()> {
        let folder = folder.to_str().filter(|path| !path.contains('\n'));
        let folder = folder.context("the path of the build folder is not plain text")?;
        self.order(&format!("remove {folder}\n"))
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{Pid, test_kill_process};

    use super::*;
    use crate::eventually::eventually;

    #[tokio::test]
    async fn the_end_of_its_input_ends_what_is_guarded_and_spares_what_was_released() -> Result<()> {
        let sleeper = || Command::new("sleep").arg("600").process_group(0).spawn();
        let (mut guarded, mut released) = (sleeper()?, sleeper()?);
        let folder = tempfile::tempdir()?.keep();
        let reaper = Reaper::start()?;
        for group in [&released, &guarded].map(Pid::from_child) {
            reaper.guard(group)?;
        }
        reaper.release(Pid::from_child(&released))?;
        reaper.remove_at_end(&folder)?;
        drop(reaper);
        eventually("the guarded process has ended", || {
            std::future::ready(
                guarded
                    .try_wait()
                    .map_err(Into::into)
                    .and_then(|end| end.context("it runs")),
            )
        })
        .await?;
        eventually("the folder is gone", async || {
            anyhow::ensure!(!folder.exists(), "it is there");
            Ok(())
        })
        .await?;
        // Folders go after processes, so it has had its chance to be killed.
        assert!(released.try_wait()?.is_none() && test_kill_process(Pid::from_child(&released)).is_ok());
        released.kill()?;
        released.wait()?;
        Ok(())
    }
}
