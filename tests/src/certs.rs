//! Certificates as `groundplane certs` makes them, and who uses which.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use groundplane_runtime::tls::{Caller, ClientTls};

/// A folder of certificates: one a service, and the authority's.
#[derive(Clone, Debug)]
pub struct Certs {
    folder: PathBuf,
}

impl Certs {
    /// Those that are in this folder, or will be.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
        }
    }

    /// Has them made in this folder.
    ///
    /// # Errors
    /// When the program says no.
    pub async fn make(folder: impl Into<PathBuf>) -> Result<Self> {
        let certs = Self::at(folder);
        certs.run(&[]).await?;
        Ok(certs)
    }

    /// Runs `groundplane certs` on the folder again, with further arguments; gives what it said.
    ///
    /// # Errors
    /// When it says no.
    pub async fn run(&self, arguments: &[&str]) -> Result<String> {
        let folder = self.folder.to_str().context("the folder's path is no text")?;
        run(&[&["--dir", folder], arguments].concat()).await
    }

    /// Where the files of one of them are: `tls.crt`, `tls.key`, `ca.crt`.
    pub fn of(&self, service: &str) -> PathBuf {
        self.folder.join(service)
    }

    /// What a client needs that calls as `caller`.
    pub fn client(&self, caller: Caller) -> ClientTls {
        let own = self.of(caller.name());
        ClientTls {
            ca: own.join("ca.crt"),
            identity: Some((own.join("tls.crt"), own.join("tls.key"))),
            server_name: None,
        }
    }

    /// The flags of a process that serves as `service`, and calls others as that.
    pub fn flags(&self, service: &str) -> Vec<String> {
        let own = self.of(service);
        let file = |flag: &str, name: &str| [flag.to_owned(), own.join(name).display().to_string()];
        [
            file("--tls-cert", "tls.crt"),
            file("--tls-key", "tls.key"),
            file("--tls-client-ca", "ca.crt"),
        ]
        .into_iter()
        .flatten()
        .chain(calling(&own))
        .collect()
    }
}

/// The flags of a process that calls others with the files of this folder.
pub fn calling(folder: &Path) -> Vec<String> {
    let file = |flag: &str, name: &str| [flag.to_owned(), folder.join(name).display().to_string()];
    [
        file("--client-ca", "ca.crt"),
        file("--client-cert", "tls.crt"),
        file("--client-key", "tls.key"),
    ]
    .concat()
}

/// Runs `groundplane certs` with these arguments and gives what it said.
///
/// # Errors
/// When it says no, with its words.
pub async fn run(arguments: &[&str]) -> Result<String> {
    let output = tokio::process::Command::new(crate::groundplane::program()?)
        .arg("certs")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .await
        .context("run groundplane certs")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "groundplane certs {arguments:?}: {said}");
    Ok(String::from_utf8(output.stdout)?)
}
