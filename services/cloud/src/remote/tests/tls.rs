//! TLS towards a provider: whom we trust, who we are, words that name the key to mend, and files that are renewed while calls go on.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use groundplane_runtime::Context;
use groundplane_runtime::grpc::{BoundAddress, Server};
use parking_lot::Mutex;
use pretty_assertions::assert_eq;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    date_time_ymd,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::config::{Capability, RemoteConfig, RemoteTls};
use crate::testing::FakeCloud;
use crate::testing::loopback::Loopback;
use crate::{Cloud, CloudConfig, CloudError, CloudErrorKind, DriverName, connect};

/// Until which year certificates are good, and were.
const GOOD: i32 = 4000;
const PAST: i32 = 2020;

struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, in PEM.
struct Leaf {
    cert: String,
    key: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn leaf(&self, name: &str, until: i32) -> Leaf {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().unwrap();
        Leaf {
            cert: params.signed_by(&key, &self.0).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }
}

impl Leaf {
    fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.cert.as_bytes()).unwrap()
    }
}

/// What a server of others shows, and whose clients it lets in; without authorities, anybody.
fn manner(leaf: &Leaf, clients: &[&Authority]) -> Arc<ServerConfig> {
    groundplane_runtime::tls::install();
    let builder = ServerConfig::builder();
    let builder = if clients.is_empty() {
        builder.with_no_client_auth()
    } else {
        let mut roots = RootCertStore::empty();
        for authority in clients {
            roots.add(authority.0.der().clone()).unwrap();
        }
        let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
        builder.with_client_cert_verifier(verifier)
    };
    let key = PrivateKeyDer::from_pem_slice(leaf.key.as_bytes()).unwrap();
    let mut config = builder.with_single_cert(vec![leaf.der()], key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

/// A provider of one machine behind TLS of somebody else's making.
struct Provider {
    context: Context,
    address: SocketAddr,
    manner: Arc<Mutex<Arc<ServerConfig>>>,
    /// What the last client that was let in has shown.
    shown: watch::Receiver<Option<CertificateDer<'static>>>,
}

impl Provider {
    async fn start(first: Arc<ServerConfig>) -> Self {
        let (fake, context) = (FakeCloud::new(), Context::new());
        fake.add_machine("m1", &["10.0.0.1".parse().unwrap()]).unwrap();
        let loopback = Loopback::new(fake.cloud(), None, &context.tasks);
        let server = Server::new("provider", &context).listen("127.0.0.1:0".parse().unwrap());
        let bound = server.routes(loopback.routes()).start().await.unwrap();
        let [BoundAddress::Tcp(behind)] = bound[..] else {
            panic!("{bound:?}")
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let manner = Arc::new(Mutex::new(first));
        let (tell, shown) = watch::channel(None);
        context.tasks.spawn(
            "front",
            front(listener, behind, Arc::clone(&manner), tell, context.clone()),
        );
        Self {
            context,
            address,
            manner,
            shown,
        }
    }

    /// The driver, as a process has it that is configured with these files.
    fn driver(&self, tls: RemoteTls) -> Cloud {
        let config = CloudConfig {
            driver: DriverName::Remote,
            remote: RemoteConfig {
                address: format!("https://localhost:{}", self.address.port()),
                tls,
                capabilities: vec![Capability::Machines],
                ..RemoteConfig::default()
            },
            ..CloudConfig::default()
        };
        connect(
            &config,
            &Context {
                metrics: groundplane_runtime::Metrics::new(),
                ..self.context.clone()
            },
        )
        .unwrap()
    }
}

/// Lets clients in, and passes their bytes on in the clear.
async fn front(
    listener: TcpListener,
    behind: SocketAddr,
    manner: Arc<Mutex<Arc<ServerConfig>>>,
    tell: watch::Sender<Option<CertificateDer<'static>>>,
    context: Context,
) {
    let (stopping, tell) = (context.tasks.token(), Arc::new(tell));
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => accepted.unwrap().0,
            () = stopping.cancelled() => return,
        };
        let acceptor = TlsAcceptor::from(Arc::clone(&manner.lock()));
        let (stopping, tell) = (stopping.clone(), Arc::clone(&tell));
        context.tasks.spawn("connection", async move {
            // Who is not let in is told so by TLS.
            let Ok(mut stream) = acceptor.accept(stream).await else {
                return;
            };
            let chain = stream.get_ref().1.peer_certificates();
            tell.send_replace(chain.and_then(|chain| Some(chain.first()?.clone().into_owned())));
            let mut inner = TcpStream::connect(behind).await.unwrap();
            tokio::select! {
                // Either side may go at any time.
                ended = tokio::io::copy_bidirectional(&mut stream, &mut inner) => drop(ended),
                () = stopping.cancelled() => {}
            }
        });
    }
}

/// Swaps a file at once, as a mounted secret is.
fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let (path, fresh) = (folder.join(name), folder.join(format!("{name}.new")));
    std::fs::write(&fresh, text).unwrap();
    std::fs::rename(&fresh, &path).unwrap();
    path
}

/// Files that trust these authorities, and show this certificate.
fn files(folder: &Path, trusted: &[&Authority], leaf: Option<&Leaf>) -> RemoteTls {
    let bundle: String = trusted.iter().map(|authority| authority.0.pem()).collect();
    RemoteTls {
        ca_file: Some(write(folder, "ca.pem", &bundle)),
        certificate_file: leaf.map(|leaf| write(folder, "cert.pem", &leaf.cert)),
        key_file: leaf.map(|leaf| write(folder, "key.pem", &leaf.key)),
        server_name: None,
    }
}

async fn ask(cloud: &Cloud) -> Result<usize, CloudError> {
    let machines = cloud.machines.as_ref().unwrap().list().await?;
    Ok(machines.len())
}

#[tokio::test]
async fn a_provider_is_called_by_tls_and_shown_our_certificate_where_it_asks() {
    let (authority, folder) = (Authority::new("ours"), tempfile::tempdir().unwrap());
    let (theirs, ours) = (
        authority.leaf("localhost", GOOD),
        authority.leaf("groundplane", GOOD),
    );
    let anybody = Provider::start(manner(&theirs, &[])).await;
    assert_eq!(
        ask(&anybody.driver(files(folder.path(), &[&authority], None)))
            .await
            .unwrap(),
        1
    );
    assert_eq!(*anybody.shown.borrow(), None, "nobody asked for one");
    let strict = Provider::start(manner(&theirs, &[&authority])).await;
    let tls = files(folder.path(), &[&authority], Some(&ours));
    assert_eq!(ask(&strict.driver(tls)).await.unwrap(), 1);
    assert_eq!(*strict.shown.borrow(), Some(ours.der()));
}

/// The name of the provider's certificate may be another than its host, where the key says so.
#[tokio::test]
async fn a_server_name_is_believed_instead_of_the_host() {
    let (authority, folder) = (Authority::new("ours"), tempfile::tempdir().unwrap());
    let provider = Provider::start(manner(&authority.leaf("cloud.example", GOOD), &[])).await;
    let tls = |name: &str| RemoteTls {
        server_name: Some(name.to_owned()),
        ..files(folder.path(), &[&authority], None)
    };
    assert_eq!(ask(&provider.driver(tls("cloud.example"))).await.unwrap(), 1);
    assert!(ask(&provider.driver(tls("other.example"))).await.is_err());
}

/// Whose certificate is wrong, how, and which of our keys helps: a case is the provider's leaf, ours, whom we trust, and the words.
#[tokio::test]
async fn who_is_not_trusted_is_told_with_the_key_that_helps() {
    let (ours, foreign) = (Authority::new("ours"), Authority::new("foreign"));
    let own = ours.leaf("groundplane", GOOD);
    let cases = [
        (
            ours.leaf("cloud.example", GOOD),
            Some(&own),
            &ours,
            ["for another name", "remote.tls.serverName"],
        ),
        (
            ours.leaf("localhost", PAST),
            Some(&own),
            &ours,
            ["the server's certificate has expired", "renew the server's"],
        ),
        (
            foreign.leaf("localhost", GOOD),
            Some(&own),
            &ours,
            ["not trusted", "remote.tls.caFile"],
        ),
        (
            ours.leaf("localhost", GOOD),
            Some(&own),
            &foreign,
            ["not trusted", "remote.tls.caFile"],
        ),
        (
            ours.leaf("localhost", GOOD),
            None,
            &ours,
            [
                "our certificate is missing",
                "remote.tls.certificateFile and remote.tls.keyFile",
            ],
        ),
        (
            ours.leaf("localhost", GOOD),
            Some(&ours.leaf("groundplane", PAST)),
            &ours,
            ["our certificate has expired", "remote.tls.certificateFile"],
        ),
        (
            ours.leaf("localhost", GOOD),
            Some(&foreign.leaf("groundplane", GOOD)),
            &ours,
            [
                "our certificate is of an authority that is not trusted",
                "remote.tls.certificateFile",
            ],
        ),
    ];
    let judged = cases.into_iter().map(async |(server, client, trusted, words)| {
        let folder = tempfile::tempdir().unwrap();
        let provider = Provider::start(manner(&server, &[&ours])).await;
        let cloud = provider.driver(files(folder.path(), &[trusted], client));
        let error = ask(&cloud).await.unwrap_err();
        assert_eq!(error.kind, CloudErrorKind::Unavailable, "{error}");
        let text = error.to_string();
        for word in words {
            assert!(text.contains(word), "{text}: not `{word}`");
        }
        assert!(!text.contains("--"), "no flag names a provider's files: {text}");
        assert_eq!(*provider.shown.borrow(), None, "nobody was let in: {text}");
    });
    futures::future::join_all(judged).await;
}

/// Files that cannot be used end the start, by the key that names them.
#[tokio::test]
async fn files_that_are_missing_or_hold_something_else_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("ours");
    let (one, two) = (
        authority.leaf("groundplane", GOOD),
        authority.leaf("groundplane", GOOD),
    );
    let start = |change: &dyn Fn(&mut RemoteTls)| {
        groundplane_runtime::tls::install();
        let mut tls = files(folder.path(), &[&authority], Some(&one));
        change(&mut tls);
        let config = CloudConfig {
            driver: DriverName::Remote,
            remote: RemoteConfig {
                address: "https://localhost:1".to_owned(),
                tls,
                capabilities: vec![Capability::Machines],
                ..RemoteConfig::default()
            },
            ..CloudConfig::default()
        };
        connect(&config, &Context::new())
            .map(drop)
            .map_err(|error| error.to_string())
    };
    start(&|_| {}).unwrap();
    let other = write(folder.path(), "other.pem", &two.key);
    let rubbish = write(folder.path(), "rubbish.pem", "rubbish");
    let gone = folder.path().join("gone.pem");
    let wrong = |change: &dyn Fn(&mut RemoteTls)| start(change).unwrap_err();
    for (text, key, word) in [
        (
            wrong(&|tls| tls.ca_file = Some(gone.clone())),
            "remote.tls.caFile: ",
            "gone.pem",
        ),
        (
            wrong(&|tls| tls.certificate_file = Some(gone.clone())),
            "remote.tls.certificateFile: ",
            "gone.pem",
        ),
        (
            wrong(&|tls| tls.key_file = Some(gone.clone())),
            "remote.tls.keyFile: ",
            "gone.pem",
        ),
        (
            wrong(&|tls| tls.ca_file = Some(rubbish.clone())),
            "remote.tls.caFile: ",
            "rubbish.pem",
        ),
        (
            wrong(&|tls| tls.certificate_file = Some(rubbish.clone())),
            "remote.tls.certificateFile: ",
            "rubbish.pem",
        ),
        (
            wrong(&|tls| tls.key_file = Some(rubbish.clone())),
            "remote.tls.keyFile: ",
            "rubbish.pem",
        ),
        (
            wrong(&|tls| tls.key_file = Some(other.clone())),
            "remote.tls.certificateFile: ",
            "other.pem",
        ),
        (
            wrong(&|tls| tls.server_name = Some("no name".to_owned())),
            "remote.tls.serverName",
            "is a name",
        ),
    ] {
        assert!(text.contains(key) && text.contains(word), "{text}");
    }
}

/// Leaf and authorities are renewed on both sides. The open connection is replaced, nobody restarts, and no call fails.
#[tokio::test]
async fn renewed_certificates_are_used_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let both = [&old, &new];
    let first = old.leaf("groundplane", GOOD);
    let mut provider = Provider::start(manner(&old.leaf("localhost", GOOD), &both)).await;
    let cloud = provider.driver(files(folder.path(), &both, Some(&first)));
    assert_eq!(ask(&cloud).await.unwrap(), 1);
    assert_eq!(*provider.shown.borrow(), Some(first.der()));

    let second = new.leaf("groundplane", GOOD);
    files(folder.path(), &both, Some(&second));
    // The connection that is open is replaced by itself; nothing need be asked for that.
    let shown = provider.shown.wait_for(|shown| *shown == Some(second.der()));
    shown.await.unwrap();
    assert_eq!(ask(&cloud).await.unwrap(), 1);

    // Now the provider is renewed, and the old authority goes: first from its side, then from ours.
    *provider.manner.lock() = manner(&new.leaf("localhost", GOOD), &[&new]);
    let third = new.leaf("groundplane", GOOD);
    files(folder.path(), &[&new], Some(&third));
    let shown = provider.shown.wait_for(|shown| *shown == Some(third.der()));
    shown.await.unwrap();
    assert_eq!(ask(&cloud).await.unwrap(), 1);
    // Whoever shows what is old is not let in any more.
    let late = provider.driver(files(folder.path(), &[&new], Some(&first)));
    assert!(ask(&late).await.is_err());
}
