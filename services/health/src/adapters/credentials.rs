//! Authorities, certificate, key and token: from files, read again when they change.
//!
//! The files are looked at once a second at most. Where a change cannot be read, or its parts do not belong together (somebody is in
//! the middle of writing them), what was read before stays, and the next look tries again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::HeaderValue;
use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tracing::{info, warn};

use crate::config::{ProbeConfig, ProbeKind};

/// Between two looks at the files.
const LOOK: Duration = Duration::from_secs(1);

/// Why probes cannot be made as configured. Names the setting and the file, never what the file holds.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// No authority is configured, and there is no pod whose account has one.
    #[error(
        "health.probe.caFile: missing, and this is no pod with an account of its own; name the authority of the API servers \
         (/etc/kubernetes/pki/ca.crt), or write `insecureSkipVerify: true`"
    )]
    NoAuthority,
    /// A file cannot be read.
    #[error("health.probe.{field}: cannot read `{}`", .path.display())]
    Read {
        /// Which setting names it.
        field: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file does not hold what it should.
    #[error("health.probe.{field}: `{}` {problem}", .path.display())]
    Content {
        /// Which setting names it.
        field: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: &'static str,
    },
    /// Certificate and key are not of each other, or TLS cannot use them.
    #[error("health.probe: the files do not fit together")]
    Tls(#[source] rustls::Error),
}

/// What stood in the files.
pub(super) struct Loaded {
    /// `None`: plain text.
    pub(super) tls: Option<TlsConnector>,
    /// Instead of the address.
    pub(super) server_name: Option<ServerName<'static>>,
    /// The header that carries the token.
    pub(super) authorization: Option<HeaderValue>,
}

/// Changes when a file does. A mounted secret is swapped by a link, which gives the file another time, length or both.
type Stamp = [Option<(SystemTime, u64)>; 4];

struct State {
    stamp: Stamp,
    looked: Instant,
    loaded: Arc<Loaded>,
    /// A change that could not be taken has been told.
    told: bool,
}

/// The files.
pub(super) struct Credentials {
    config: ProbeConfig,
    /// Held while small files are read, and never across an await.
    state: Mutex<State>,
}

impl Credentials {
    /// Reads the files.
    pub(super) fn load(config: ProbeConfig) -> Result<Self, CredentialsError> {
        let stamp = stamp(&config);
        let loaded = Arc::new(read(&config)?);
        let state = Mutex::new(State {
            stamp,
            looked: Instant::now(),
            loaded,
            told: false,
        });
        Ok(Self { config, state })
    }

    /// What stands in the files now.
    pub(super) fn current(&self) -> Arc<Loaded> {
        let mut state = self.state.lock();
        let now = Instant::now();
        if now.duration_since(state.looked) < LOOK {
            return Arc::clone(&state.loaded);
        }
        state.looked = now;
        // Taken before the files are read, so that a change in between is seen the next time.
        let stamp = stamp(&self.config);
        if stamp != state.stamp {
            match read(&self.config) {
                Ok(loaded) => {
                    info!("the files of health.probe changed, and were read again");
                    state.stamp = stamp;
                    state.loaded = Arc::new(loaded);
                    state.told = false;
                }
                Err(error) if !state.told => {
                    let error: &dyn std::error::Error = &error;
                    warn!(
                        error,
                        "the files of health.probe changed, and cannot be taken; keeping the ones before"
                    );
                    state.told = true;
                }
                Err(_) => {}
            }
        }
        Arc::clone(&state.loaded)
    }

    /// Is TLS spoken?
    pub(super) fn speaks_tls(&self) -> bool {
        self.config.speaks_tls()
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

fn stamp(config: &ProbeConfig) -> Stamp {
    config.files().map(|(_, path)| {
        let meta = std::fs::metadata(path?).ok()?;
        Some((meta.modified().ok()?, meta.len()))
    })
}

fn read(config: &ProbeConfig) -> Result<Loaded, CredentialsError> {
    let server_name = config.server_name.clone();
    let server_name = server_name.and_then(|name| ServerName::try_from(name).ok());
    Ok(Loaded {
        tls: if config.speaks_tls() {
            Some(connector(config)?)
        } else {
            None
        },
        server_name,
        authorization: config.token_file.as_deref().map(authorization).transpose()?,
    })
}

fn connector(config: &ProbeConfig) -> Result<TlsConnector, CredentialsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(CredentialsError::Tls)?;
    let builder = if config.insecure_skip_verify {
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
    } else {
        let path = config.ca_file.as_deref().ok_or(CredentialsError::NoAuthority)?;
        let mut roots = RootCertStore::empty();
        for certificate in certificates("caFile", path)? {
            roots.add(certificate).map_err(CredentialsError::Tls)?;
        }
        builder.with_root_certificates(roots)
    };
    let mut tls = match (&config.certificate_file, &config.key_file) {
        (Some(cert), Some(key)) => {
            let chain = certificates("certificateFile", cert)?;
            let pem = bytes("keyFile", key)?;
            let secret = PrivateKeyDer::from_pem_slice(&pem)
                .map_err(|_| content("keyFile", key, "holds no private key in PEM"))?;
            builder
                .with_client_auth_cert(chain, secret)
                .map_err(CredentialsError::Tls)?
        }
        _ => builder.with_no_client_auth(),
    };
    let protocol: &[u8] = match config.kind {
        ProbeKind::Grpc => b"h2",
        _ => b"http/1.1",
    };
    tls.alpn_protocols = vec![protocol.to_vec()];
    Ok(TlsConnector::from(Arc::new(tls)))
}

fn certificates(field: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, CredentialsError> {
    let pem = bytes(field, path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(content(field, path, "holds no certificate in PEM")),
    }
}

fn authorization(path: &Path) -> Result<HeaderValue, CredentialsError> {
    let wrong = |problem| content("tokenFile", path, problem);
    let token = bytes("tokenFile", path)?;
    let token = token.trim_ascii();
    if token.is_empty() {
        return Err(wrong("is empty"));
    }
    let mut value = HeaderValue::from_bytes(&[b"Bearer ", token].concat())
        .map_err(|_| wrong("holds what cannot be sent in a header"))?;
    value.set_sensitive(true);
    Ok(value)
}

fn bytes(field: &'static str, path: &Path) -> Result<Vec<u8>, CredentialsError> {
    std::fs::read(path).map_err(|source| CredentialsError::Read {
        field,
        path: path.to_owned(),
        source,
    })
}

fn content(field: &'static str, path: &Path, problem: &'static str) -> CredentialsError {
    CredentialsError::Content {
        field,
        path: path.to_owned(),
        problem,
    }
}

/// Trusts any certificate, but not a handshake that the certificate's owner did not sign.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
