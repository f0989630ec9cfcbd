//! The sandbox as a process: prints one line of JSON that says where it is, and runs until SIGTERM or SIGINT.

use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Parser;
use groundplane_sandbox::{Clouds, ProjectOptions, Sandbox, SandboxOptions};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

/// A cloud in a box: the APIs of Equinix Metal and Cherry Servers with fault injection and a journal.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Where to listen; port 0 takes a free one. The admin API below /sandbox/v1 asks for no token: listen
    /// where friends are.
    #[arg(long, env = "GROUNDPLANE_SANDBOX_LISTEN", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Whose API it speaks: `/metal/v1`, `/v1` or both, for the same machines and addresses. `base_url` of the line is the first of them.
    #[arg(
        long,
        env = "GROUNDPLANE_SANDBOX_CLOUD",
        value_enum,
        default_value = "equinix"
    )]
    cloud: Clouds,
    /// Projects, as NAME or NAME=UUID, separated by commas.
    #[arg(
        long,
        env = "GROUNDPLANE_SANDBOX_PROJECTS",
        value_delimiter = ',',
        default_value = "demo"
    )]
    projects: Vec<String>,
    /// Machines in each project.
    #[arg(long, env = "GROUNDPLANE_SANDBOX_DEVICES", default_value_t = 0)]
    devices: usize,
    /// Addresses that each project may reserve; any number where absent.
    #[arg(long, env = "GROUNDPLANE_SANDBOX_QUOTA")]
    quota: Option<u32>,
    /// A file with the token that opens every project; written where it does not exist.
    #[arg(long, env = "GROUNDPLANE_SANDBOX_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// All ids follow from it.
    #[arg(long, env = "GROUNDPLANE_SANDBOX_SEED", default_value_t = 1)]
    seed: u64,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Args {
        listen,
        cloud,
        projects,
        devices,
        quota,
        token_file,
        seed,
    } = Args::parse();
    // Before the line is printed: whoever reads it may send a signal at once.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;

    let account_token = token_file.as_deref().map(read_token).transpose()?.flatten();
    let sandbox = Sandbox::start_with(SandboxOptions {
        listen,
        seed,
        account_token,
        clouds: cloud,
        ..SandboxOptions::default()
    })?;
    if let Some(path) = &token_file {
        write_token(path, sandbox.account_token())?;
    }
    let projects = projects
        .iter()
        .map(|text| add_project(&sandbox, text, cloud, devices, quota))
        .collect::<Result<Vec<_>>>()?;
    let base_url = match cloud {
        Clouds::Cherry => sandbox.cherry_url(),
        Clouds::Equinix | Clouds::Both => sandbox.base_url(),
    };
    let mut line = json!({
        "base_url": base_url,
        "admin_url": sandbox.admin_url(),
        "project": projects.first().map(|project| project["id"].clone()),
        "projects": projects,
    });
    if cloud == Clouds::Both {
        line["cherry_url"] = json!(sandbox.cherry_url());
    }
    match &token_file {
        Some(path) => line["token_file"] = json!(path),
        None => line["token"] = json!(sandbox.account_token()),
    }
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()?;
    drop(out);

    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    sandbox.stop();
    Ok(())
}

fn add_project(
    sandbox: &Sandbox,
    text: &str,
    cloud: Clouds,
    devices: usize,
    quota: Option<u32>,
) -> Result<serde_json::Value> {
    let (name, id) = match text.split_once('=') {
        Some((name, id)) => (
            name,
            Some(
                id.parse()
                    .with_context(|| format!("the id of project `{name}` is not a UUID"))?,
            ),
        ),
        None => (text, None),
    };
    let defaults = match cloud {
        Clouds::Cherry => ProjectOptions::cherry(),
        Clouds::Equinix | Clouds::Both => ProjectOptions::default(),
    };
    let options = ProjectOptions {
        name: Some(name.to_owned()),
        id,
        quota,
        ..defaults
    };
    let project = sandbox.try_project(options)?;
    project.add_devices(devices);
    Ok(json!({ "name": name, "id": project.id(), "number": project.number() }))
}

/// The token in the file; none where the file does not exist or is empty.
fn read_token(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim().to_owned()).filter(|token| !token.is_empty())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Leaves a file that has the token alone: it may be a mounted secret.
fn write_token(path: &Path, token: &str) -> Result<()> {
    if read_token(path)?.as_deref() == Some(token) {
        return Ok(());
    }
    let mut options = fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    writeln!(file, "{token}").with_context(|| format!("cannot write {}", path.display()))
}
