//! One server process.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};

use super::reaper;
use crate::eventually::{eventually, eventually_within};

/// How long a server may take to stop when it is asked to. Above groundplane's own bound for its drain, 25 s and 5 s.
const STOP: Duration = Duration::from_secs(40);
/// How long the system may take to end a process that was killed.
const KILL: Duration = Duration::from_secs(10);

/// A process of ours: the leader of its own group, killed when dropped.
#[derive(Debug)]
pub struct Child {
    name: String,
    /// The number of the process, and of its group.
    pid: Pid,
    process: Mutex<std::process::Child>,
    log: PathBuf,
}

impl Child {
    /// Starts `command` with no input, and its output appended to the file `log`.
    ///
    /// # Errors
    /// When the program is not there, or the log cannot be written.
    pub fn spawn(name: impl Into<String>, mut command: Command, log: impl Into<PathBuf>) -> Result<Self> {
        let (name, log) = (name.into(), log.into());
        let reaper = reaper()?;
        let output = OpenOptions::new().create(true).append(true).open(&log);
        let output = output.with_context(|| format!("open the log {}", log.display()))?;
        let mut process = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0)
            .spawn()
            .with_context(|| format!("start {name}: {}", command.get_program().display()))?;
        let pid = Pid::from_child(&process);
        if let Err(error) = reaper.guard(pid) {
            process.kill()?;
            process.wait()?;
            return Err(error);
        }
        Ok(Self {
            name,
            pid,
            process: Mutex::new(process),
            log,
        })
    }

    /// What it is called in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// The file with its output.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// How it ended; `None` while it runs.
    ///
    /// # Errors
    /// The system's.
    pub fn exit_status(&self) -> Result<Option<ExitStatus>> {
        self.process
            .lock()
            .try_wait()
            .with_context(|| format!("look at {}", self.name))
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it still runs after `patience`; it is left running.
    pub async fn wait(&self, patience: Duration) -> Result<ExitStatus> {
        eventually_within(patience, format_args!("{} ends", self.name), async || {
            self.exit_status()?.context("it still runs")
        })
        .await
    }

    /// Kills it as `kill -9` does and waits until it is gone. Nothing to do if it has ended.
    ///
    /// # Errors
    /// The system's.
    pub async fn kill9(&self) -> Result<()> {
        self.signal_if_running(Signal::KILL)?;
        self.wait(KILL).await.map(drop)
    }

    /// Asks it to stop (SIGTERM) and waits for its end.
    ///
    /// # Errors
    /// When it has ended already, or does not end within 40 s; then it is killed.
    pub async fn terminate(&self) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        match self.wait(STOP).await {
            Ok(status) => Ok(status),
            Err(error) => {
                self.kill9().await?;
                Err(error.context(format!("{} had to be killed\n{}", self.name, self.log_tail())))
            }
        }
    }

    /// Stops it in its tracks (SIGSTOP), and waits until it has: connections stay open and get no answer.
    ///
    /// # Errors
    /// When it has ended.
    pub async fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)?;
        // The signal is sent when the call returns, and each thread stops when it sees it.
        eventually(format_args!("{} stops", self.name), async || {
            for thread in std::fs::read_dir(format!("/proc/{}/task", self.pid()))? {
                let stat = std::fs::read_to_string(thread?.path().join("stat"))?;
                ensure!(
                    stat.rsplit_once(") ")
                        .is_some_and(|(_, state)| state.starts_with('T')),
                    "{stat}"
                );
            }
            Ok(())
        })
        .await
    }

    /// Lets it go on after [`Child::pause`].
    ///
    /// # Errors
    /// When it has ended.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Fails, with the end of its log, if it has ended.
    ///
    /// # Errors
    /// That it has ended.
    pub fn ensure_running(&self) -> Result<()> {
        if let Some(status) = self.exit_status()? {
            bail!("{} has ended ({status})\n{}", self.name, self.log_tail());
        }
        Ok(())
    }

    /// The last lines of its output, for a message.
    pub fn log_tail(&self) -> String {
        tail_of(&self.log, 30)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        ensure!(
            self.signal_if_running(signal)?,
            "{} has ended\n{}",
            self.name,
            self.log_tail()
        );
        Ok(())
    }

    /// Sends a signal to the group. Under the lock, since the number is ours only until the process has been waited for.
    fn signal_if_running(&self, signal: Signal) -> Result<bool> {
        let mut process = self.process.lock();
        if process.try_wait()?.is_some() {
            return Ok(false);
        }
        kill_process_group(self.pid, signal).with_context(|| format!("signal {}", self.name))?;
        Ok(true)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let mut process = self.process.lock();
        if matches!(process.try_wait(), Ok(None)) {
            // Nobody is left to tell. What fails here, the reaper does once more.
            if kill_process_group(self.pid, Signal::KILL).is_err() || process.wait().is_err() {
                return;
            }
        }
        if let Ok(reaper) = reaper() {
            drop(reaper.release(self.pid));
        }
    }
}

/// Waits for a condition that these processes bring about: [`eventually`], which gives up as soon as one of them has ended.
///
/// # Errors
/// With the end of the log of the process that has ended, or of the first of them when the condition does not come.
pub async fn until<T, F, L>(processes: &[&Child], what: impl Display, mut look: F) -> Result<T>
where
    F: FnMut() -> L,
    L: Future<Output = Result<T>>,
{
    // An end is the answer, and is not awaited to change; hence a result inside the result.
    let found = eventually(&what, || {
        // Looked at first: what a process did before it ended still counts.
        let ended = processes
            .iter()
            .find_map(|process| process.ensure_running().err());
        let look = look();
        async {
            match (look.await, ended) {
                (Ok(value), _) => Ok(Ok(value)),
                (Err(_), Some(ended)) => Ok(Err(ended)),
                (Err(error), None) => Err(error),
            }
        }
    })
    .await;
    match found {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(ended)) => Err(ended.context(format!("{what}: it never will"))),
        Err(error) => {
            let tail = processes
                .first()
                .map_or_else(String::new, |process| process.log_tail());
            bail!("{error:#}\n{tail}")
        }
    }
}

/// The last `lines` lines of a file, under a heading with its name.
pub(crate) fn tail_of(file: &Path, lines: usize) -> String {
    let text = match std::fs::read(file) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => return format!("(no log: {}: {error})", file.display()),
    };
    let all: Vec<&str> = text.lines().collect();
    let last = all[all.len().saturating_sub(lines)..].join("\n");
    format!("--- the end of {}\n{last}", file.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn shell(script: &str, folder: &Scratch) -> Result<Child> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        Child::spawn("a shell", command, folder.join("log"))
    }

    fn is_alive(pid: i32) -> bool {
        // A zombie still has a folder there, and no program.
        std::fs::read_link(format!("/proc/{pid}/exe")).is_ok()
    }

    #[tokio::test]
    async fn dropping_a_process_kills_its_whole_group() -> Result<()> {
        let folder = Scratch::new("processes")?;
        let child = shell("sleep 600 & echo $!; wait", &folder)?;
        let log = child.log().to_owned();
        let grandchild: i32 = eventually_within(KILL, "the shell says its child", async || {
            let text = std::fs::read_to_string(&log)?;
            ensure!(text.ends_with('\n'), "{text:?}");
            Ok(text.trim().parse()?)
        })
        .await?;
        assert!(is_alive(grandchild));
        drop(child);
        eventually_within(KILL, "the child of the child is gone", async || {
            ensure!(!is_alive(grandchild), "it lives");
            Ok(())
        })
        .await
    }

    #[tokio::test]
    async fn a_process_that_ended_is_reported_with_its_last_words() -> Result<()> {
        let folder = Scratch::new("processes")?;
        let child = shell("echo famous last words; exit 3", &folder)?;
        assert_eq!(child.wait(KILL).await?.code(), Some(3));
        let error = child.ensure_running().unwrap_err().to_string();
        assert!(
            error.contains("famous last words") && error.contains("exit status: 3"),
            "{error}"
        );
        assert!(child.pause().await.is_err());
        child.kill9().await
    }

    #[tokio::test]
    async fn a_paused_process_does_nothing_until_it_is_resumed() -> Result<()> {
        let folder = Scratch::new("processes")?;
        let child = shell(
            "trap 'echo stopped; exit 7' TERM; echo up; while :; do sleep 0.01; done",
            &folder,
        )?;
        eventually_within(KILL, "the shell is up", async || {
            ensure!(std::fs::read_to_string(child.log())? == "up\n");
            Ok(())
        })
        .await?;
        child.pause().await?;
        child.signal(Signal::TERM)?;
        assert!(child.exit_status()?.is_none());
        child.resume()?;
        assert_eq!(child.wait(KILL).await?.code(), Some(7));
        Ok(())
    }
}
