//! TLS: whom we trust, who we are, and files that are renewed while probes go on.

use std::path::{Path, PathBuf};

use pretty_assertions::assert_eq;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    date_time_ymd,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use super::*;

/// An authority, and a folder for its files.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
struct Leaf {
    cert: String,
    key: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Each its own name, or one would be taken for another.
        let key = KeyPair::generate().unwrap();
        let name = format!("{:?}", &key.public_key_raw()[..8]);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        Self {
            issuer: CertifiedIssuer::self_signed(params, key).unwrap(),
        }
    }

    fn pem(&self) -> String {
        self.issuer.pem()
    }

    fn leaf(&self, name: &str) -> Leaf {
        self.leaf_until(name, 4000)
    }

    fn leaf_until(&self, name: &str, year: i32) -> Leaf {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        Leaf {
            cert: params.signed_by(&key, &self.issuer).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }
}

/// A server with this certificate, that wants clients of `clients`.
fn acceptor(leaf: &Leaf, clients: Option<&Authority>) -> TlsAcceptor {
    groundplane_runtime::tls::install();
    let builder = ServerConfig::builder();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(authority.issuer.der().clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
            builder.with_client_cert_verifier(verifier)
        }
    };
    let chain = vec![CertificateDer::from_pem_slice(leaf.cert.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(leaf.key.as_bytes()).unwrap();
    TlsAcceptor::from(Arc::new(builder.with_single_cert(chain, key).unwrap()))
}

fn write(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    // As a mounted secret is swapped: at once.
    let fresh = dir.join(format!("{name}.new"));
    std::fs::write(&fresh, text).unwrap();
    std::fs::rename(&fresh, &path).unwrap();
    path
}

fn trusting(ca_file: PathBuf) -> ProbeConfig {
    ProbeConfig {
        ca_file: Some(ca_file),
        ..ProbeConfig::default()
    }
}

async fn https(leaf: &Leaf) -> Server {
    Server::secure(Manner::Answer(200, "ok"), Some(acceptor(leaf, None))).await
}

/// E83: what is not trusted is not ready, and nobody takes it for a machine that is dead.
#[tokio::test]
async fn a_certificate_that_is_not_trusted_is_named_and_is_not_ready() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, foreign) = (Authority::new(), Authority::new());
    let ca = write(dir.path(), "ca.pem", &ours.pem());
    let prober = prober(trusting(ca.clone()), TIMEOUT);
    let cases = [
        (ours.leaf("127.0.0.1"), ready()),
        (
            foreign.leaf("127.0.0.1"),
            alive("certificate of an issuer that is not trusted"),
        ),
        (ours.leaf_until("127.0.0.1", 2020), alive("certificate expired")),
        (
            ours.leaf("kubernetes"),
            alive("certificate is for another name; see `serverName`"),
        ),
    ];
    for (leaf, expected) in &cases {
        let server = https(leaf).await;
        assert_eq!(&probe(&prober, server.address).await, expected);
    }
    let plain = Server::start(Manner::Babble).await;
    let (sign, detail) = probe(&prober, plain.address).await;
    assert_eq!(sign, Sign::Alive, "{detail}");

    let server = https(&cases[3].0).await;
    let named = ProbeConfig {
        server_name: Some("kubernetes".to_owned()),
        ..trusting(ca)
    };
    assert_eq!(
        probe(&super::prober(named, TIMEOUT), server.address).await,
        ready()
    );
}

/// E83: accepted only as configured.
#[tokio::test]
async fn any_certificate_is_accepted_only_where_that_is_configured() {
    let expired = Authority::new().leaf_until("nobody", 2020);
    let server = https(&expired).await;
    let careless = ProbeConfig {
        insecure_skip_verify: true,
        ..ProbeConfig::default()
    };
    assert_eq!(probe(&prober(careless, TIMEOUT), server.address).await, ready());
}

#[tokio::test]
async fn a_server_that_wants_our_certificate_gets_it() {
    let dir = tempfile::tempdir().unwrap();
    let ours = Authority::new();
    let tls = acceptor(&ours.leaf("127.0.0.1"), Some(&ours));
    let server = Server::secure(Manner::Answer(200, "ok"), Some(tls)).await;
    let without = trusting(write(dir.path(), "ca.pem", &ours.pem()));
    assert_eq!(
        probe(&prober(without.clone(), TIMEOUT), server.address).await,
        alive("our certificate was not accepted")
    );
    let us = ours.leaf("us");
    let with = ProbeConfig {
        certificate_file: Some(write(dir.path(), "tls.crt", &us.cert)),
        key_file: Some(write(dir.path(), "tls.key", &us.key)),
        ..without
    };
    assert_eq!(probe(&prober(with, TIMEOUT), server.address).await, ready());
}

/// E80: with a token, a server that asks who we are is content; another token is sent as soon as it is written.
#[tokio::test]
async fn the_token_is_sent_and_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let ours = Authority::new();
    let tls = acceptor(&ours.leaf("127.0.0.1"), None);
    let server = Server::secure(Manner::Token("first"), Some(tls)).await;
    let config = ProbeConfig {
        token_file: Some(write(dir.path(), "token", "first\n")),
        ..trusting(write(dir.path(), "ca.pem", &ours.pem()))
    };
    let prober = prober(config, TIMEOUT);
    assert_eq!(probe(&prober, server.address).await, ready());
    server.behave(Manner::Token("the-second"));
    let (sign, detail) = probe(&prober, server.address).await;
    assert_eq!(sign, Sign::Ready);
    assert!(detail.contains("401"), "{detail}");
    write(dir.path(), "token", "the-second\n");
    while probe(&prober, server.address).await != ready() {
        tokio::task::yield_now().await;
    }
}

/// The authority changes while probes go on: first both are trusted, then servers change, then the old one goes. No probe misses, a
/// file that is half written changes nothing, and in the end the old one is trusted no more.
#[tokio::test]
async fn certificates_are_renewed_under_load_and_no_probe_misses() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (Authority::new(), Authority::new());
    let ca = write(dir.path(), "ca.pem", &old.pem());
    let prober = prober(trusting(ca), TIMEOUT);
    let before = https(&old.leaf("127.0.0.1")).await;
    let after = https(&new.leaf("127.0.0.1")).await;
    assert_eq!(probe(&prober, before.address).await, ready());
    assert_ne!(probe(&prober, after.address).await, ready());

    write(dir.path(), "ca.pem", "-----BEGIN CERTIFICATE-----\nMIIB");
    let until = Instant::now() + Duration::from_millis(1200);
    while Instant::now() < until {
        assert_eq!(probe(&prober, before.address).await, ready());
    }
    write(dir.path(), "ca.pem", &format!("{}{}", old.pem(), new.pem()));
    while probe(&prober, after.address).await != ready() {
        assert_eq!(probe(&prober, before.address).await, ready());
    }
    write(dir.path(), "ca.pem", &new.pem());
    while probe(&prober, before.address).await == ready() {
        assert_eq!(probe(&prober, after.address).await, ready());
    }
    let refused = alive("certificate of an issuer that is not trusted");
    assert_eq!(probe(&prober, before.address).await, refused);
}

#[tokio::test]
async fn what_is_wrong_with_the_files_is_told_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let ours = Authority::new();
    let (ca, us, them) = (
        write(dir.path(), "ca.pem", &ours.pem()),
        ours.leaf("us"),
        ours.leaf("them"),
    );
    let refused = |config: ProbeConfig| Prober::new(config, TIMEOUT).unwrap_err().to_string();
    assert_eq!(
        refused(trusting("/there/is/no/such/file".into())),
        "health.probe.caFile: cannot read `/there/is/no/such/file`"
    );
    let empty = write(dir.path(), "empty", "\n");
    assert_eq!(
        refused(trusting(empty.clone())),
        format!(
            "health.probe.caFile: `{}` holds no certificate in PEM",
            empty.display()
        )
    );
    let token = ProbeConfig {
        token_file: Some(empty.clone()),
        ..trusting(ca.clone())
    };
    assert_eq!(
        refused(token),
        format!("health.probe.tokenFile: `{}` is empty", empty.display())
    );
    let strangers = ProbeConfig {
        certificate_file: Some(write(dir.path(), "tls.crt", &us.cert)),
        key_file: Some(write(dir.path(), "tls.key", &them.key)),
        ..trusting(ca)
    };
    assert_eq!(refused(strangers), "health.probe: the files do not fit together");
}
