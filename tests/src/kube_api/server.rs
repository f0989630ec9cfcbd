//! Starts and stops the two processes.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::audit::POLICY;
use super::connection::{Connection, User, tokens_csv};
use super::ensure_ready;
use crate::processes::{Child, free_ports, until};
use crate::scratch::Scratch;
use crate::tools::{self, Tool};

/// A port that was free may be taken before our server has it. Three in a row is no accident.
const TRIES: u32 = 3;

/// etcd, kube-apiserver, and the folder with what they keep. Fields are dropped in this order.
#[derive(Debug)]
pub(super) struct Servers {
    api: Option<Child>,
    etcd: Child,
    program: PathBuf,
    etcd_url: String,
    folder: Scratch,
}

impl Servers {
    pub(super) async fn start() -> Result<(Self, Connection)> {
        let (etcd, kube_apiserver) = (
            tools::ensure(Tool::Etcd).await?,
            tools::ensure(Tool::KubeApiserver).await?,
        );
        let mut tried = 1;
        loop {
            match Self::try_start(&etcd, &kube_apiserver).await {
                Err(error) if tried < TRIES && format!("{error:#}").contains("address already in use") => {
                    tried += 1;
                }
                result => return result,
            }
        }
    }

    async fn try_start(etcd: &Path, kube_apiserver: &Path) -> Result<(Self, Connection)> {
        let folder = Scratch::new("kube-api")?;
        let [client, peer, secure] = free_ports()?;
        folder.write("tokens.csv", tokens_csv())?;
        folder.write("audit-policy.yaml", POLICY)?;
        let key = rcgen::KeyPair::generate().context("make a key")?;
        folder.write("sa.key", key.serialize_pem())?;
        folder.write("sa.pub", key.public_key_pem())?;

        let etcd_url = format!("http://127.0.0.1:{client}");
        let command = etcd_command(
            etcd,
            &etcd_url,
            &format!("http://127.0.0.1:{peer}"),
            folder.path(),
        );
        let etcd = Child::spawn("etcd", command, folder.join("etcd.log"))?;

        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, secure));
        let connection = Connection::new(address, folder.path(), folder.join("audit.log"));
        let mut servers = Self {
            api: None,
            etcd,
            program: kube_apiserver.to_owned(),
            etcd_url,
            folder,
        };
        servers.start_api(&connection).await?;
        Ok((servers, connection))
    }

    /// The API server, when it was not stopped.
    pub(super) fn api(&self) -> Result<&Child> {
        self.api.as_ref().context("kube-apiserver was stopped")
    }

    pub(super) async fn stop_api(&mut self) -> Result<()> {
        let api = self.api.take().context("kube-apiserver was stopped before")?;
        api.kill9().await
    }

    pub(super) async fn start_api(&mut self, connection: &Connection) -> Result<()> {
        ensure!(self.api.is_none(), "kube-apiserver runs already");
        let command = kube_apiserver_command(&self.program, &self.etcd_url, connection, self.folder.path());
        let api = Child::spawn("kube-apiserver", command, self.folder.join("kube-apiserver.log"))?;
        let both = [&api, &self.etcd];
        until(&both, "kube-apiserver writes its certificate", async || {
            ensure!(connection.has_certificate(), "there is none");
            Ok(())
        })
        .await?;
        connection.write_kubeconfigs()?;
        let client = connection.client(User::Admin)?;
        until(&both, "kube-apiserver is ready", async || {
            ensure_ready(&client).await
        })
        .await?;
        self.api = Some(api);
        Ok(())
    }

    pub(super) fn resident_bytes(&self) -> Result<u64> {
        Ok(self.etcd.memory()?.resident + self.api()?.memory()?.resident)
    }
}

pub(super) fn etcd_command(program: &Path, client: &str, peer: &str, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("--data-dir").arg(folder.join("etcd"));
    command.args(["--listen-client-urls", client, "--advertise-client-urls", client]);
    command.args(["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]);
    command.args([
        "--initial-cluster",
        &format!("default={peer}"),
        "--log-level",
        "warn",
    ]);
    // Its data need not survive the machine.
    command.arg("--unsafe-no-fsync");
    command
}

/// The server of `connection`, with its files in `folder`.
pub(super) fn kube_apiserver_command(
    program: &Path,
    etcd: &str,
    connection: &Connection,
    folder: &Path,
) -> Command {
    let host = connection.address().ip();
    let file = |flag: &str, name: &str| format!("--{flag}={}", folder.join(name).display());
    let mut command = Command::new(program);
    command
        .arg(format!("--etcd-servers={etcd}"))
        .arg(format!("--secure-port={}", connection.address().port()))
        .arg(format!("--bind-address={host}"))
        .arg(format!("--advertise-address={host}"))
        .arg(file("cert-dir", "certificates"))
        .arg("--service-account-issuer=https://kubernetes.default.svc")
        .arg(file("service-account-key-file", "sa.pub"))
        .arg(file("service-account-signing-key-file", "sa.key"))
        .arg(file("token-auth-file", "tokens.csv"))
        .arg("--authorization-mode=RBAC")
        .arg("--service-cluster-ip-range=10.96.0.0/12,fd00:10:96::/112")
        .arg("--service-node-port-range=10000-60000")
        .arg("--disable-admission-plugins=ServiceAccount")
        .arg(file("audit-policy-file", "audit-policy.yaml"))
        .arg(format!("--audit-log-path={}", connection.audit_log.display()))
        // One file that only grows: marks are offsets into it.
        .args(["--audit-log-maxsize=0", "--audit-log-mode=blocking"]);
    command
}
