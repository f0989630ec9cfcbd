//! The program under test, as a process of its own: `groundplane <role>`.

mod announced;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::processes::{Child, until};
use crate::scratch::{Scratch, workspace_root};

/// What to start, and how.
#[derive(Debug)]
#[must_use]
pub struct Launch {
    role: String,
    arguments: Vec<OsString>,
    environment: Vec<(String, OsString)>,
    config: Option<String>,
    program: Option<PathBuf>,
    folder: Scratch,
}

impl Launch {
    /// `groundplane <role>`, with a folder of its own and nothing else.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn new(role: &str) -> Result<Self> {
        let folder = Scratch::new(&format!("groundplane-{role}"))?;
        Ok(Self {
            role: role.to_owned(),
            arguments: Vec::new(),
            environment: Vec::new(),
            config: None,
            program: None,
            folder,
        })
    }

    /// Its folder, which stays the same when the process is started again: the place for its state.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// With a further argument.
    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// With further arguments.
    pub fn args<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// With an environment variable. Those of ours (`GROUNDPLANE_*`), of older controllers, and `KUBECONFIG` are not inherited.
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    /// With this configuration file: YAML.
    pub fn config(mut self, yaml: impl Into<String>) -> Self {
        self.config = Some(yaml.into());
        self
    }

    /// Another program than [`program`], which takes the same arguments: one of another version, say.
    pub fn program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = Some(program.into());
        self
    }

    /// Starts it. Does not wait until it is ready: see [`Process::ready`].
    ///
    /// # Errors
    /// When the program has not been built, or does not start.
    pub fn start(self) -> Result<Process> {
        let program = match &self.program {
            Some(program) => program.clone(),
            None => program()?,
        };
        let mut process = Process {
            program,
            launch: self,
            run: 0,
            child: None,
        };
        process.start()?;
        Ok(process)
    }

    /// The command, with its log as JSON in every case: it says where it listens.
    fn command(&self, program: &Path) -> Result<Command> {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy().to_ascii_uppercase();
            let theirs = ["METAL_", "PACKET_", "CHERRY_"]
                .iter()
                .any(|head| text.starts_with(head));
            // A proxy of the machine has no business on loopback.
            if text.starts_with("GROUNDPLANE_") || theirs || text == "KUBECONFIG" || text.ends_with("_PROXY")
            {
                command.env_remove(&name);
            }
        }
        command
            .current_dir(self.folder.path())
            .env("GROUNDPLANE_LOG_FORMAT", "json")
            .arg(&self.role);
        if let Some(yaml) = &self.config {
            command
                .arg("--config")
                .arg(self.folder.write("groundplane.yaml", yaml)?);
        }
        command
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }
}

/// A running `groundplane`. Dropping it kills it, and removes its folder.
#[derive(Debug)]
pub struct Process {
    program: PathBuf,
    /// Before `launch`, whose folder it writes to.
    child: Option<Child>,
    launch: Launch,
    /// How often it was started. Each run has a log of its own.
    run: u32,
}

impl Process {
    fn start(&mut self) -> Result<()> {
        self.run += 1;
        let log = self
            .launch
            .folder
            .join(&format!("{}.{}.log", self.launch.role, self.run));
        let name = format!("groundplane {}", self.launch.role);
        self.child = Some(Child::spawn(name, self.launch.command(&self.program)?, log)?);
        Ok(())
    }

    /// The process, for its id, memory and CPU time.
    ///
    /// # Errors
    /// When it was stopped.
    pub fn child(&self) -> Result<&Child> {
        self.child
            .as_ref()
            .with_context(|| format!("groundplane {} was stopped", self.launch.role))
    }

    /// Its folder, which stays the same when it is started again.
    pub fn folder(&self) -> &Path {
        self.launch.folder.path()
    }

    /// Where it listens, by the name of the listener (`admin`, `grpc`); waits until it has said so.
    ///
    /// # Errors
    /// When it does not, or has ended; with the end of its log.
    pub async fn address(&self, listener: &str) -> Result<SocketAddr> {
        let child = self.child()?;
        until(
            &[child],
            format_args!("{} listens as {listener}", child.name()),
            async || {
                let log = std::fs::read_to_string(child.log())?;
                announced::address(&log, listener).context("it has not said so")
            },
        )
        .await
    }

    /// Waits until it says that it is ready to serve.
    ///
    /// # Errors
    /// When it does not, or has ended; with its last answer and the end of its log.
    pub async fn ready(&self) -> Result<()> {
        crate::tls::install();
        let url = format!("http://{}/readyz", self.address("admin").await?);
        let http = reqwest::Client::builder()
            .no_proxy()
            .timeout(Duration::from_secs(5))
            .build()?;
        let child = self.child()?;
        until(&[child], format_args!("{} is ready", child.name()), async || {
            let answer = http.get(&url).send().await?;
            let status = answer.status();
            ensure!(
                status.is_success(),
                "/readyz says {status}: {}",
                answer.text().await?
            );
            Ok(())
        })
        .await
    }

    /// Kills it as `kill -9` does.
    ///
    /// # Errors
    /// When it was stopped before.
    pub async fn kill9(&mut self) -> Result<()> {
        let child = self.child.take().context("it was stopped before")?;
        child.kill9().await
    }

    /// Asks it to stop (SIGTERM), and waits until it has.
    ///
    /// # Errors
    /// When it had ended by itself, or has to be killed.
    pub async fn terminate(&mut self) -> Result<ExitStatus> {
        let child = self.child.take().context("it was stopped before")?;
        child.terminate().await
    }

    /// Waits for its end, which it finds by itself (a fail point, a refused configuration).
    ///
    /// # Errors
    /// When it still runs after `patience`.
    pub async fn wait(&self, patience: Duration) -> Result<ExitStatus> {
        self.child()?.wait(patience).await
    }

    /// Starts it again, with the same arguments and folder, after killing it if it runs. Port 0 gives another port.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn restart(&mut self) -> Result<()> {
        if let Some(child) = self.child.take() {
            child.kill9().await?;
        }
        self.start()
    }

    /// As [`Process::restart`], with another environment: without a fail point, say.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn restart_with(&mut self, change: impl FnOnce(&mut Vec<(String, OsString)>)) -> Result<()> {
        change(&mut self.launch.environment);
        self.restart().await
    }

    /// The output of all its runs, oldest first.
    ///
    /// # Errors
    /// When a log cannot be read.
    pub fn log_text(&self) -> Result<String> {
        let mut text = String::new();
        for run in 1..=self.run {
            let path = self
                .launch
                .folder
                .join(&format!("{}.{run}.log", self.launch.role));
            let bytes = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
            text.push_str(&String::from_utf8_lossy(&bytes));
        }
        Ok(text)
    }

    /// The log lines of all its runs. What is no log line (a panic, usage) is left out; it is in [`Process::log_text`].
    ///
    /// # Errors
    /// When a log cannot be read.
    pub fn logs(&self) -> Result<Vec<Value>> {
        Ok(announced::lines(&self.log_text()?).collect())
    }
}

/// The program: `GROUNDPLANE_BIN`, else the one beside this process, in the same profile.
///
/// # Errors
/// How to build it, when it is not there.
pub fn program() -> Result<PathBuf> {
    if let Some(program) = std::env::var_os("GROUNDPLANE_BIN") {
        let program = PathBuf::from(program);
        ensure!(
            program.is_file(),
            "GROUNDPLANE_BIN is {}, and there is no such file",
            program.display()
        );
        return Ok(std::path::absolute(program)?);
    }
    // Tests are in target/<profile>/deps, programs in target/<profile>.
    let own = std::env::current_exe().context("where are we?")?;
    let program = own
        .ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join("groundplane"))
        .find(|path| path.is_file());
    program.with_context(|| {
        format!(
            "groundplane has not been built: run `cargo build -p groundplane` in {}, or set GROUNDPLANE_BIN",
            workspace_root().display()
        )
    })
}
