//! A real BGP daemon, bird 2: the speaker on a node, and the routers that it peers with.
//!
//! ```text
//!   package   gets it from Debian's packages, into the build folder
//!   speaker   what a speaker on a node (kube-vip) makes of the node's annotations, in bird's words
//! ```
//!
//! It needs no rights: sessions run between addresses of 127.0.0.0/8 on a port of their own, and no route reaches the kernel.

mod package;
mod speaker;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

pub use package::{Package, ensure as ensure_package};
pub use speaker::Peering;

use crate::processes::{Child, until};

/// What bird says where TCP cannot be signed.
const UNSIGNED: &str = "Kernel does not support TCP MD5";

/// A running bird. Dropping it kills it, and removes its folder.
#[derive(Debug)]
pub struct Bird {
    package: Package,
    /// Before `folder`, to which it writes.
    child: Child,
    /// Short, since its control socket is there.
    folder: tempfile::TempDir,
}

impl Bird {
    /// Starts it with this configuration, and waits until it answers.
    ///
    /// # Errors
    /// When it cannot be had, or does not start.
    pub async fn start(name: &str, config: &str) -> Result<Self> {
        let package = package::get().await?;
        let folder = tempfile::tempdir().context("a folder for bird")?;
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("bird.conf"), config).context("write bird.conf")?;
        let mut command = package.command("bird");
        command.arg("-f").arg("-c").arg(path("bird.conf"));
        command.arg("-s").arg(path("bird.ctl"));
        command.arg("-P").arg(path("bird.pid"));
        let child = Child::spawn(format!("bird {name}"), command, path("bird.log"))?;
        let bird = Self {
            package,
            child,
            folder,
        };
        let child = &bird.child;
        until(&[child], format_args!("{} answers", child.name()), async || {
            bird.ask("show status").await
        })
        .await?;
        Ok(bird)
    }

    /// What it answers to a command of its command line.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn ask(&self, question: &str) -> Result<String> {
        let mut command: Command = self.package.command("birdcl");
        command.arg("-s").arg(self.folder.path().join("bird.ctl"));
        command.args(question.split_whitespace());
        let output = tokio::process::Command::from(command).output();
        let output = output.await.context("start birdcl")?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(
            output.status.success(),
            "{}: {question}: {said}{}",
            self.child.name(),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(said)
    }

    /// Gives it another configuration. Sessions that are the same in both stay up.
    ///
    /// # Errors
    /// When it refuses it.
    pub async fn configure(&self, config: &str) -> Result<()> {
        std::fs::write(self.folder.path().join("bird.conf"), config).context("write bird.conf")?;
        let said = self.ask("configure").await?;
        ensure!(said.contains("Reconfigur"), "{}: {said}", self.child.name());
        Ok(())
    }

    /// Waits until the session of this name is up.
    ///
    /// # Errors
    /// When it does not come up; with the end of the log.
    pub async fn established(&self, session: &str) -> Result<()> {
        let child = &self.child;
        until(
            &[child],
            format_args!("{} has session {session}", child.name()),
            async || {
                let said = self.ask(&format!("show protocols {session}")).await?;
                ensure!(said.contains("Established"), "{said}");
                Ok(())
            },
        )
        .await
    }

    /// The prefixes that it has learnt by BGP.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn learnt(&self) -> Result<BTreeSet<String>> {
        let said = self.ask("show route where source = RTS_BGP").await?;
        let prefixes = said.lines().filter_map(|line| line.split_whitespace().next());
        Ok(prefixes
            .filter(|word| word.contains('/'))
            .map(str::to_owned)
            .collect())
    }

    /// Its log so far.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn log(&self) -> Result<String> {
        std::fs::read_to_string(self.child.log()).context("read bird's log")
    }
}

/// A router that waits for a machine to peer with it.
#[derive(Clone, Debug)]
pub struct Router {
    /// Its address.
    pub address: Ipv4Addr,
    /// Its AS number.
    pub asn: u32,
    /// The machine that it expects.
    pub machine: Ipv4Addr,
    /// The machine's AS number.
    pub machine_asn: u32,
    /// The password that the machine must sign with.
    pub password: Option<String>,
    /// The port on which all of them speak BGP.
    pub port: u16,
}

impl Router {
    /// The name of the session with the machine.
    pub const SESSION: &'static str = "machine";

    /// Its configuration, for bird.
    pub fn config(&self) -> String {
        let Self {
            address,
            asn,
            machine,
            machine_asn,
            password,
            port,
        } = self;
        let password = password
            .as_ref()
            .map(|password| format!("password \"{password}\";"))
            .unwrap_or_default();
        format!(
            "log stderr all;\nrouter id {address};\nprotocol device {{}}\n\
             protocol bgp {session} {{\n  local {address} port {port} as {asn};\n  \
             neighbor {machine} port {port} as {machine_asn};\n  strict bind; multihop; passive; {password}\n  \
             ipv4 {{ import all; export none; }};\n}}\n",
            session = Self::SESSION,
        )
    }
}

/// A port that is free on all of these addresses.
///
/// # Errors
/// When none is found.
pub fn free_port(addresses: &[Ipv4Addr]) -> Result<u16> {
    let first = *addresses.first().context("no address")?;
    for _ in 0..64 {
        let port = TcpListener::bind((first, 0))
            .and_then(|listener| listener.local_addr())
            .with_context(|| format!("listen at {first}"))?
            .port();
        let free = |address: &Ipv4Addr| TcpListener::bind((IpAddr::V4(*address), port)).is_ok();
        if addresses.iter().all(free) {
            return Ok(port);
        }
    }
    anyhow::bail!("no port is free on {addresses:?}")
}

/// Can this machine sign TCP segments (MD5)? Without it, sessions with a password are impossible.
///
/// # Errors
/// When bird cannot be started.
pub async fn can_sign() -> Result<bool> {
    let address = Ipv4Addr::LOCALHOST;
    let router = Router {
        address,
        asn: 65_000,
        machine: Ipv4Addr::new(127, 0, 0, 2),
        machine_asn: 65_001,
        password: Some("secret".to_owned()),
        port: free_port(&[address])?,
    };
    let bird = Bird::start("probe", &router.config()).await?;
    Ok(!bird.log()?.contains(UNSIGNED))
}
