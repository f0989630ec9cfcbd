//! Stands between groundplane and the real API server, and lets things go wrong on the way.
//!
//! ```text
//!   groundplane ──TLS──► ApiProxy ──TLS──► kube-apiserver ◄── the test itself
//!                          │ rules, plan: which Fault
//!                          └ Journal: what was asked
//! ```
//!
//! Each proxy belongs to one world, so that its rules and its journal are about that world alone. It hands on the client's token
//! and user agent: to the API server and its audit log it is not there.

mod call;
mod fault;
mod forward;
mod journal;

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

pub use call::Call;
pub use fault::{Fault, Plan, Rule};
pub use journal::{Entry, Journal};

use super::{Connection, User};
use crate::scratch::Scratch;
use forward::Shared;

/// A proxy at work. Dropping it ends it, and every connection through it.
#[derive(Debug)]
pub struct ApiProxy {
    shared: Arc<Shared>,
    severed: watch::Sender<u64>,
    kubeconfig: PathBuf,
    _folder: Scratch,
    _serving: JoinSet<Infallible>,
}

impl ApiProxy {
    /// Starts one in front of this API server. `page`: lists are answered in pages of no more than that.
    ///
    /// # Errors
    /// When there is no port, or the server's certificate cannot be used.
    pub async fn start(connection: &Connection, page: Option<u32>) -> Result<Self> {
        crate::tls::install();
        let authority = reqwest::Certificate::from_pem_bundle(&connection.certificate()?)?;
        let client = reqwest::Client::builder()
            .no_proxy()
            .tls_certs_only(authority)
            .build()
            .context("make a client")?;
        let own = rcgen::generate_simple_self_signed([Ipv4Addr::LOCALHOST.to_string()])
            .context("make a certificate")?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(own.signing_key.serialize_der()));
        let tls = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)
            .context("use a certificate")?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let folder = Scratch::new("api-proxy")?;
        let address = listener.local_addr()?;
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "proxy",
            "contexts": [{ "name": "proxy", "context": { "cluster": "proxy", "user": "gateway" } }],
            "clusters": [{ "name": "proxy", "cluster": {
                "server": format!("https://{address}"),
                "certificate-authority-data": BASE64.encode(own.cert.pem()),
            } }],
            "users": [{ "name": "gateway", "user": { "token": User::Gateway.token() } }],
        });
        let kubeconfig = folder.write("gateway.kubeconfig", serde_json::to_vec_pretty(&kubeconfig)?)?;
        let shared = Arc::new(Shared {
            upstream: format!("https://{}", connection.address()),
            client,
            faults: Mutex::default(),
            journal: Journal::default(),
            held: Mutex::default(),
            page,
        });
        let (severed, severing) = watch::channel(0);
        let mut serving = JoinSet::new();
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        serving.spawn(forward::serve(listener, acceptor, Arc::clone(&shared), severing));
        Ok(Self {
            shared,
            severed,
            kubeconfig,
            _folder: folder,
            _serving: serving,
        })
    }

    /// The file with which the gateway reaches the API through here.
    pub fn kubeconfig(&self) -> PathBuf {
        self.kubeconfig.clone()
    }

    /// From now on these faults happen, too.
    pub fn add(&self, rules: impl IntoIterator<Item = Rule>) {
        self.shared.faults.lock().add(rules);
    }

    /// From now on faults happen at random, where no rule decides.
    pub fn plan(&self, plan: Plan) {
        self.shared.faults.lock().plan(plan);
    }

    /// For so long, watches tell nothing new, though they stay open and all else works: whoever follows them has a stale cache.
    pub fn hold_watches(&self, time: Duration) {
        *self.shared.held.lock() = Some(Instant::now() + time);
    }

    /// From now on nothing goes wrong; what hangs is dropped.
    pub fn clear(&self) {
        self.shared.faults.lock().clear();
        *self.shared.held.lock() = None;
        self.sever();
    }

    /// Drops every open connection, watches included.
    pub fn sever(&self) {
        self.severed.send_modify(|times| *times += 1);
    }

    /// What was asked so far.
    pub fn journal(&self) -> &Journal {
        &self.shared.journal
    }
}
