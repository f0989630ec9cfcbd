//! A real Kubernetes API: etcd and kube-apiserver on loopback. Nodes and pods are plain objects in it, and there is no
//! controller manager: what it would do (`NotReady`, deletion of namespaces, garbage collection) a test does itself.
//!
//! Starting takes seconds, so the tests of one process share one, [`KubeApi::shared`], and get a [`Corner`] each. Whoever
//! breaks it (stops it, pauses it) starts one of its own: these methods take `&mut self`, which a shared one never gives.

pub mod audit;
mod connection;
mod control_plane;
mod corner;
mod objects;
pub mod proxy;
mod server;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, ensure};
use k8s_openapi::api::core::v1::{Namespace, Service};
use kube::Api;
use tokio::sync::OnceCell;

pub use audit::{Audit, Mark, Request};
pub use connection::{Connection, GATEWAY_NAMESPACE, GATEWAY_SERVICE_ACCOUNT, User};
pub use control_plane::{ControlPlane, MEMBERS, SERVER_NAME};
pub use corner::Corner;
pub use objects::{NodeDraft, ServiceDraft, hostnames_of, ingress_of};

use server::Servers;

/// A running etcd and kube-apiserver. Dropping it ends both and removes their data.
#[derive(Debug)]
pub struct KubeApi {
    connection: Arc<Connection>,
    servers: Servers,
}

impl KubeApi {
    /// Starts an API of its own, with nothing in it, and waits until it is ready. Builds etcd and kube-apiserver if this
    /// machine has none.
    ///
    /// # Errors
    /// What the machine lacks, or the end of the log of the server that did not come up.
    pub async fn start() -> Result<Self> {
        let (servers, connection) = Servers::start().await?;
        Ok(Self {
            connection: Arc::new(connection),
            servers,
        })
    }

    /// The API that all tests of this process share, started by the first that asks. It ends with the process.
    ///
    /// # Errors
    /// As [`KubeApi::start`]; what failed once is not tried again.
    pub async fn shared() -> Result<&'static Self> {
        static SHARED: OnceCell<Result<KubeApi, String>> = OnceCell::const_new();
        let shared = SHARED
            .get_or_init(async || Self::start().await.map_err(|error| format!("{error:#}")))
            .await;
        shared.as_ref().map_err(|error| anyhow!("{error}"))
    }

    /// What is needed to talk to it; stays valid while the server is away, and when it comes back.
    pub fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// Where kube-apiserver listens, with TLS.
    pub fn address(&self) -> SocketAddr {
        self.connection.address()
    }

    /// A client of this user. Belongs to the async runtime that it is made in.
    ///
    /// # Errors
    /// When the certificate cannot be used.
    pub fn client(&self, user: User) -> Result<kube::Client> {
        self.connection.client(user)
    }

    /// The file with which `user` (or a program) reaches this API.
    pub fn kubeconfig(&self, user: User) -> PathBuf {
        self.connection.kubeconfig(user)
    }

    /// A corner of this API for one test; `name` becomes part of everything in it.
    ///
    /// # Errors
    /// When its namespace cannot be created.
    pub async fn corner(&self, name: &str) -> Result<Corner> {
        Corner::new(Arc::clone(&self.connection), name).await
    }

    /// A point in the audit log: what was answered before it is not in [`KubeApi::requests_since`].
    ///
    /// # Errors
    /// When the API does not answer.
    pub async fn mark(&self) -> Result<Mark> {
        self.connection.mark().await
    }

    /// Every request that was answered since `mark`.
    ///
    /// # Errors
    /// When the API does not answer, or its log cannot be read.
    pub async fn requests_since(&self, mark: Mark) -> Result<Audit> {
        self.connection.requests_since(mark).await
    }

    /// Stops kube-apiserver in its tracks: it keeps its connections and answers nothing.
    ///
    /// # Errors
    /// When it does not run.
    pub async fn pause(&mut self) -> Result<()> {
        self.servers.api()?.pause().await
    }

    /// Lets kube-apiserver go on after [`KubeApi::pause`].
    ///
    /// # Errors
    /// When it does not run.
    pub fn resume(&mut self) -> Result<()> {
        self.servers.api()?.resume()
    }

    /// Kills kube-apiserver: its port refuses connections. etcd keeps the data.
    ///
    /// # Errors
    /// When it does not run.
    pub async fn stop_api(&mut self) -> Result<()> {
        self.servers.stop_api().await
    }

    /// Starts kube-apiserver again after [`KubeApi::stop_api`], where it was, and waits until it is ready.
    ///
    /// # Errors
    /// With the end of its log, when it does not come up.
    pub async fn start_api(&mut self) -> Result<()> {
        self.servers.start_api(&self.connection).await
    }

    /// The resident memory of etcd and kube-apiserver together, in bytes.
    ///
    /// # Errors
    /// When one of them does not run.
    pub fn resident_bytes(&self) -> Result<u64> {
        self.servers.resident_bytes()
    }
}

/// Looks whether this API takes a Service, which needs its allocator of cluster addresses, and has its own namespaces.
async fn ensure_ready(client: &kube::Client) -> Result<()> {
    let ready = client
        .request_text(http::Request::get("/readyz").body(Vec::new())?)
        .await?;
    ensure!(ready == "ok", "/readyz says {ready}");
    let own = Api::<Service>::namespaced(client.clone(), "default")
        .get("kubernetes")
        .await;
    let spec = own.context("the API's own Service")?.spec;
    ensure!(
        spec.is_some_and(|spec| spec.cluster_ip.is_some()),
        "the API's own Service has no address"
    );
    let namespaces = Api::<Namespace>::all(client.clone());
    namespaces
        .get("kube-system")
        .await
        .context("the namespace kube-system")
        .map(drop)
}
