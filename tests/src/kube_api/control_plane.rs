//! Several API servers on one etcd, as on the machines of a control plane.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use futures::future::{select_all, try_join_all};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use tokio::sync::{Mutex, MutexGuard, OnceCell, watch};

use super::audit::POLICY;
use super::connection::{Connection, User, tokens_csv};
use super::ensure_ready;
use super::server::{etcd_command, kube_apiserver_command};
use crate::fabric::{Block, Links, Passage};
use crate::processes::{Child, free_ports, until};
use crate::scratch::Scratch;
use crate::tools::{self, Tool};

/// How many API servers there are.
pub const MEMBERS: usize = 3;
/// How many control planes the tests of a process share.
const SHARED: usize = 2;
/// What their certificate is issued for, beside addresses: the name by which pods call the API.
pub const SERVER_NAME: &str = "kubernetes.default.svc";

/// An etcd, and three API servers on it. Each has an address of its own in one loopback block, and all have the same port and the
/// same certificate. Dropping it ends them and removes their data. Fields are dropped in this order.
#[derive(Debug)]
pub struct ControlPlane {
    members: Vec<Member>,
    etcd: Child,
    block: Block,
    port: u16,
    program: PathBuf,
    links: Links,
    folder: Scratch,
}

/// An API server, and its own way to etcd.
#[derive(Debug)]
struct Member {
    api: Option<Child>,
    paused: bool,
    connection: Arc<Connection>,
    folder: PathBuf,
    /// Where it finds etcd.
    etcd_url: String,
    /// What is behind that, and where it leads when nothing is wrong.
    etcd_way: watch::Sender<Passage>,
    etcd: Passage,
}

impl ControlPlane {
    /// Starts all of it, and waits until it is ready.
    ///
    /// # Errors
    /// What the machine lacks, or the end of the log of the server that did not come up.
    pub async fn start() -> Result<Self> {
        let (etcd, program) = (
            tools::ensure(Tool::Etcd).await?,
            tools::ensure(Tool::KubeApiserver).await?,
        );
        let folder = Scratch::new("control-plane")?;
        let [client, peer, port] = free_ports()?;
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let command = etcd_command(&etcd, &url(client), &url(peer), folder.path());
        let mut plane = Self {
            members: Vec::new(),
            etcd: Child::spawn("etcd", command, folder.join("etcd.log"))?,
            block: Block::any(),
            port,
            program,
            links: Links::new()?,
            folder,
        };
        let secrets = Secrets::make(plane.block)?;
        for number in (0..).take(MEMBERS) {
            let member = plane.member(number, client, &secrets)?;
            plane.members.push(member);
        }
        // The first fills an empty etcd, for which the others would get into its way.
        plane.start_api(0).await?;
        let rest = plane.members.iter().skip(1);
        let started = try_join_all(rest.map(|member| member.start(&plane.program, &plane.etcd))).await?;
        for (member, api) in plane.members.iter_mut().skip(1).zip(started) {
            member.api = Some(api);
        }
        Ok(plane)
    }

    /// One of those that all tests of this process share, to whoever has it, alone. It is as new, but for what was put in it other than
    /// nodes. There are two at most, each started when those before it are taken.
    ///
    /// # Errors
    /// As [`ControlPlane::start`], and when it cannot be mended.
    pub async fn shared() -> Result<MutexGuard<'static, Self>> {
        static PLANES: [OnceCell<Result<Mutex<ControlPlane>, String>>; SHARED] =
            [const { OnceCell::const_new() }; SHARED];
        let mut started = Vec::new();
        let mut free = None;
        for plane in &PLANES {
            let plane = plane.get_or_init(async || {
                let plane = Self::start().await;
                plane.map(Mutex::new).map_err(|error| format!("{error:#}"))
            });
            let plane = plane.await.as_ref().map_err(|error| anyhow!("{error}"))?;
            free = plane.try_lock().ok();
            if free.is_some() {
                break;
            }
            started.push(plane);
        }
        let mut plane = match free {
            Some(plane) => plane,
            None => {
                select_all(started.into_iter().map(|plane| Box::pin(plane.lock())))
                    .await
                    .0
            }
        };
        plane.mend().await?;
        Ok(plane)
    }

    fn member(&self, number: u8, etcd: u16, secrets: &Secrets) -> Result<Member> {
        let folder = self.folder.join(&format!("member-{number}"));
        secrets.write(&folder)?;
        let address = SocketAddr::new(self.block.address(10 + number), self.port);
        let front = SocketAddr::new(self.block.address(20 + number), self.port);
        let etcd = Passage::To(SocketAddr::from(([127, 0, 0, 1], etcd)));
        let (etcd_way, passage) = watch::channel(etcd);
        self.links.add(front, passage)?;
        Ok(Member {
            api: None,
            paused: false,
            connection: Arc::new(Connection::new(address, &folder, folder.join("audit.log"))),
            folder,
            etcd_url: format!("http://{front}"),
            etcd_way,
            etcd,
        })
    }

    /// The loopback block. Whoever uses the control plane may use its addresses from 100 on.
    pub fn block(&self) -> Block {
        self.block
    }

    /// The port of every API server.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The certificate of every API server, as PEM: whom to trust.
    pub fn authority(&self) -> PathBuf {
        self.folder.join("member-0").join("certificates/apiserver.crt")
    }

    fn at(&self, number: usize) -> Result<&Member> {
        let member = self.members.get(number);
        member.with_context(|| format!("there is no API server {number}"))
    }

    fn at_mut(&mut self, number: usize) -> Result<&mut Member> {
        let member = self.members.get_mut(number);
        member.with_context(|| format!("there is no API server {number}"))
    }

    /// How API server `number` (from 0) is reached.
    ///
    /// # Errors
    /// When there is none.
    pub fn connection(&self, number: usize) -> Result<&Arc<Connection>> {
        Ok(&self.at(number)?.connection)
    }

    /// Stops API server `number` in its tracks: it keeps its connections, takes new ones, and answers nothing.
    ///
    /// # Errors
    /// When it does not run.
    pub async fn pause(&mut self, number: usize) -> Result<()> {
        let member = self.at_mut(number)?;
        // Noted first: what fails halfway is to be resumed, too.
        member.paused = true;
        member.api.as_ref().context("it was stopped")?.pause().await
    }

    /// Lets API server `number` go on after [`ControlPlane::pause`].
    ///
    /// # Errors
    /// When it does not run.
    pub fn resume(&mut self, number: usize) -> Result<()> {
        let member = self.at_mut(number)?;
        member.paused = false;
        member.api.as_ref().context("it was stopped")?.resume()
    }

    /// Kills API server `number`: its port refuses connections.
    ///
    /// # Errors
    /// When it does not run.
    pub async fn stop_api(&mut self, number: usize) -> Result<()> {
        let member = self.at_mut(number)?;
        member.paused = false;
        let api = member.api.take().context("it was stopped before")?;
        api.kill9().await
    }

    /// Starts API server `number` again after [`ControlPlane::stop_api`], and waits until it is ready.
    ///
    /// # Errors
    /// With the end of its log, when it does not come up.
    pub async fn start_api(&mut self, number: usize) -> Result<()> {
        let api = self.at(number)?.start(&self.program, &self.etcd).await?;
        self.at_mut(number)?.api = Some(api);
        Ok(())
    }

    /// Takes etcd from API server `number`, as a full disk or an etcd that is down does: it answers, and is not ready.
    ///
    /// # Errors
    /// When there is none.
    pub fn sicken(&self, number: usize) -> Result<()> {
        self.at(number)?.etcd_way.send_replace(Passage::Nowhere);
        Ok(())
    }

    /// Gives API server `number` its etcd back.
    ///
    /// # Errors
    /// When there is none.
    pub fn cure(&self, number: usize) -> Result<()> {
        let member = self.at(number)?;
        member.etcd_way.send_replace(member.etcd);
        Ok(())
    }

    /// Mends whatever a test has broken: every API server is ready, and there is no node.
    async fn mend(&mut self) -> Result<()> {
        for number in 0..self.members.len() {
            let member = self.at_mut(number)?;
            member.etcd_way.send_replace(member.etcd);
            match &member.api {
                None => self.start_api(number).await?,
                Some(api) if member.paused => {
                    api.resume()?;
                    member.paused = false;
                }
                Some(_) => {}
            }
        }
        for member in &self.members {
            let client = member.connection.client(User::Admin)?;
            let api = member.api.as_ref().context("it was started")?;
            until(&[api, &self.etcd], "kube-apiserver is ready again", async || {
                ensure_ready(&client).await
            })
            .await?;
        }
        let nodes = Api::<Node>::all(self.connection(0)?.client(User::Admin)?);
        nodes
            .delete_collection(&DeleteParams::default(), &ListParams::default())
            .await
            .context("delete all nodes")
            .map(drop)
    }
}

impl Member {
    async fn start(&self, program: &Path, etcd: &Child) -> Result<Child> {
        let mut command = kube_apiserver_command(program, &self.etcd_url, &self.connection, &self.folder);
        // It says that it is not ready before probes give up on it.
        command.arg("--etcd-readycheck-timeout=200ms");
        let api = Child::spawn("kube-apiserver", command, self.folder.join("kube-apiserver.log"))?;
        self.connection.write_kubeconfigs()?;
        let client = self.connection.client(User::Admin)?;
        until(&[&api, etcd], "kube-apiserver is ready", async || {
            ensure_ready(&client).await
        })
        .await?;
        Ok(api)
    }
}

/// What all API servers of a control plane have in common.
struct Secrets {
    certificate: String,
    key: String,
    accounts: rcgen::KeyPair,
}

impl Secrets {
    fn make(block: Block) -> Result<Self> {
        let addresses = (0..)
            .take(MEMBERS)
            .map(|number: u8| block.address(10 + number).to_string());
        let names: Vec<String> = addresses.chain([SERVER_NAME.to_owned()]).collect();
        let own = rcgen::generate_simple_self_signed(names).context("make a certificate")?;
        Ok(Self {
            certificate: own.cert.pem(),
            key: own.signing_key.serialize_pem(),
            accounts: rcgen::KeyPair::generate().context("make a key")?,
        })
    }

    /// Where an API server looks for them.
    fn write(&self, folder: &Path) -> Result<()> {
        let certificates = folder.join("certificates");
        std::fs::create_dir_all(&certificates).context("create a folder")?;
        for (path, content) in [
            (certificates.join("apiserver.crt"), self.certificate.as_str()),
            (certificates.join("apiserver.key"), &self.key),
            (folder.join("sa.key"), &self.accounts.serialize_pem()),
            (folder.join("sa.pub"), &self.accounts.public_key_pem()),
            (folder.join("tokens.csv"), &tokens_csv()),
            (folder.join("audit-policy.yaml"), POLICY),
        ] {
            std::fs::write(&path, content).with_context(|| format!("write {}", path.display()))?;
        }
        Ok(())
    }
}
