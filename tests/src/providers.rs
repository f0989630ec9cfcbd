//! The example providers of `tests/providers`, as an outsider runs them.
//!
//! ```text
//!   build     what they need, made once in the build folder: a Python with gRPC, the generated code, a Go program
//!   Provider  one of them as a process, with its machines, its state and its faults in files
//! ```
//!
//! They listen on unix sockets, so that one which was killed comes back where it was.

mod build;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::processes::{Child, until};
use crate::scratch::{Scratch, workspace_root};

/// Which example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Example {
    /// `provider.v1` in Python: machines, addresses, the endpoint and BGP. It can be told to misbehave.
    Python,
    /// `provider.v1` in Go: machines and addresses.
    Go,
    /// Galaxy's contract, in Python.
    Galaxy,
}

impl Example {
    fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Go => "go",
            Self::Galaxy => "galaxy",
        }
    }
}

/// A machine of a provider's cloud.
#[must_use]
pub fn machine(id: &str, hostname: &str, address: &str) -> Value {
    json!({"id": id, "hostname": hostname, "address": address})
}

/// A running provider.
#[derive(Debug)]
pub struct Provider {
    example: Example,
    arguments: Vec<String>,
    folder: Scratch,
    sockets: TempDir,
    child: Child,
}

impl Provider {
    /// Starts it, after building what it needs, and waits until it listens.
    ///
    /// # Errors
    /// When something is missing on this machine, or it does not start.
    pub async fn start(example: Example, arguments: &[&str]) -> Result<Self> {
        tokio::task::spawn_blocking(move || build::ensure(example, &mut |line| eprintln!("{line}")))
            .await
            .context("the build of a provider panicked")??;
        let folder = Scratch::new(&format!("provider-{}", example.name()))?;
        // Unix sockets need short paths.
        let sockets = tempfile::tempdir().context("a folder for a socket")?;
        folder.write("machines.json", "[]")?;
        folder.write("faults.json", "{}")?;
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let child = spawn(example, &arguments, &folder, sockets.path())?;
        let provider = Self {
            example,
            arguments,
            folder,
            sockets,
            child,
        };
        provider.listens().await?;
        Ok(provider)
    }

    /// Where it listens.
    pub fn target(&self) -> String {
        format!("unix:{}", self.socket().display())
    }

    fn socket(&self) -> PathBuf {
        self.sockets.path().join("provider")
    }

    async fn listens(&self) -> Result<()> {
        until(&[&self.child], "the provider listens", || async {
            tokio::net::UnixStream::connect(self.socket()).await?;
            Ok(())
        })
        .await
    }

    /// Its process.
    pub fn child(&self) -> &Child {
        &self.child
    }

    /// Kills it as `kill -9` does.
    ///
    /// # Errors
    /// The system's.
    pub async fn kill9(&self) -> Result<()> {
        self.child.kill9().await
    }

    /// Starts it again where it was, with the state that it kept.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start_again(&mut self) -> Result<()> {
        self.child = spawn(self.example, &self.arguments, &self.folder, self.sockets.path())?;
        self.listens().await
    }

    /// Its cloud has these machines from now on.
    ///
    /// # Errors
    /// The file system's.
    pub fn set_machines(&self, machines: &[Value]) -> Result<()> {
        self.replace("machines.json", &json!(machines))
    }

    /// From now on it misbehaves like this, as `rehearse.py` says.
    ///
    /// # Errors
    /// The file system's.
    pub fn set_faults(&self, faults: &Value) -> Result<()> {
        self.replace("faults.json", faults)
    }

    /// A file that is read at each call is whole at each moment.
    fn replace(&self, name: &str, content: &Value) -> Result<()> {
        let partial = self
            .folder
            .write(&format!("{name}.partial"), content.to_string())?;
        std::fs::rename(&partial, self.folder.join(name)).with_context(|| format!("replace {name}"))
    }

    /// What it kept on disk, in its own words.
    ///
    /// # Errors
    /// When it has kept nothing.
    pub fn state(&self) -> Result<Value> {
        let text = std::fs::read(self.folder.join("state.json")).context("read the provider's state")?;
        Ok(serde_json::from_slice(&text)?)
    }

    /// How many reservations it has kept.
    ///
    /// # Errors
    /// When its state is not what it should be.
    pub fn reservations(&self) -> Result<usize> {
        let state = self.state()?;
        let found = match self.example {
            Example::Python => state["reservations"].as_object().map(serde_json::Map::len),
            // Go writes a slice without elements as null.
            Example::Go => state["Reservations"].as_array().map(Vec::len).or(Some(0)),
            Example::Galaxy => None,
        };
        found.context("a state without reservations")
    }

    /// Each answer of the Python example since it was first started: the method, and how many seconds it took.
    ///
    /// # Errors
    /// When the file is not what it should be.
    pub fn times(&self) -> Result<Vec<(String, f64)>> {
        let text = std::fs::read_to_string(self.folder.join("times")).context("read the provider's times")?;
        text.lines()
            .map(|line| {
                let (method, seconds) = line.split_once(' ').context("a line without a time")?;
                Ok((method.to_owned(), seconds.parse()?))
            })
            .collect()
    }
}

fn spawn(example: Example, arguments: &[String], folder: &Scratch, sockets: &Path) -> Result<Child> {
    let own = workspace_root().join("tests/providers");
    let file = |name: &str| folder.join(name).into_os_string();
    let mut command = match example {
        Example::Python => {
            let mut command = build::python_with_code();
            command.arg(own.join("python/rehearse.py"));
            command.arg("--faults").arg(file("faults.json"));
            command.arg("--times").arg(file("times"));
            command.args(["--addresses", "198.51.100.0/24"]);
            command
        }
        Example::Go => Command::new(build::go_program()),
        Example::Galaxy => {
            let mut command = build::python_with_code();
            command.arg(own.join("galaxy/provider.py"));
            command
        }
    };
    if example != Example::Galaxy {
        command.arg("--machines").arg(file("machines.json"));
    }
    command
        .arg("--listen")
        .arg(format!("unix:{}", sockets.join("provider").display()))
        .arg("--state")
        .arg(file("state.json"))
        .args(arguments);
    Child::spawn(
        format!("provider {}", example.name()),
        command,
        folder.join("log"),
    )
}
